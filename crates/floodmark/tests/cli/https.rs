//! HTTPS as a user meets it: whom floodmark trusts, what it says of those that it does not, and what the record holds.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Output;
use std::sync::LazyLock;
use std::thread;

use crate::support::https::serve;
use crate::support::tls::{Authority, SUITES, Valid, server};
use crate::support::{Serve, code, finish, floodmark, load, run, text, was_fine};
use floodmark_record::tls::Trust;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

/// The URL of a server with a certificate for 127.0.0.1.
fn known() -> String {
    let identity = AUTHORITY.issue(&["127.0.0.1"], Valid::Now);
    let address = serve("127.0.0.1", server(&identity, &SUITES, true));
    format!("https://{address}/")
}

/// Certificate files, gone with the test.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    }
}

/// Runs it on a machine that trusts those of a file.
fn trusting(file: &str, arguments: &[&str]) -> Output {
    let mut all = vec!["load"];
    all.extend_from_slice(arguments);
    let mut command = floodmark(&all);
    command
        .env("SSL_CERT_FILE", file)
        .env_remove("SSL_CERT_DIR");
    finish(command.spawn().unwrap())
}

#[test]
fn a_given_authority_is_trusted_and_the_record_says_what_tls_took() {
    let files = Files::new();
    let ca = files.write("ca.pem", &AUTHORITY.pem());
    for backend in ["auto", "epoll"] {
        let load = load(
            &known(),
            &[
                "-n",
                "200",
                "-c",
                "4",
                "--cacert",
                &ca,
                "--backend",
                backend,
            ],
        );
        load.ends_with(0);
        let run = load.run();
        assert_eq!(load.counts().ok, 200);
        let plan = run.plan.tls.as_ref().unwrap();
        assert_eq!(
            (plan.server_name.as_str(), plan.trust),
            ("127.0.0.1", Trust::File)
        );
        assert_eq!(run.handshake_time_us.count, 4);
        assert_eq!(run.connect_time_us.count, 4);
        let tls = run.tls.as_ref().unwrap();
        assert_eq!(tls.used.handshakes, 4);
        assert_eq!(tls.used.negotiated.values().sum::<u64>(), 4);
        assert!(tls.used.wire_bytes_sent > run.bytes.sent);
        // A certificate would begin so in base64.
        let record = text(&load.output.stdout);
        assert!(!record.contains("\"MII"), "no record holds certificates");
        assert!(load.stderr().contains("TLS 1.3"), "{}", load.stderr());
    }
}

#[test]
fn sessions_are_resumed_unless_asked_not_to_be() {
    let url = known();
    let fresh = ["-n", "40", "-c", "2", "--fresh", "--insecure"];
    let resumed = |more: &[&str]| {
        let load = load(&url, &[&fresh[..], more].concat());
        load.ends_with(0);
        assert_eq!(load.counts().ok, 40);
        let tls = load.run().tls.clone().unwrap();
        assert_eq!(tls.used.handshakes, 40);
        assert!(tls.used.handshake_cpu_s > 0.0);
        tls.used.resumed
    };
    assert!(resumed(&[]) >= 36);
    assert_eq!(resumed(&["--no-resumption"]), 0);
}

#[test]
fn an_unverified_certificate_is_noted() {
    let load = load(&known(), &["-n", "10", "--insecure"]);
    load.ends_with(0);
    let notes = load.run().validity.notes.join("\n");
    assert!(notes.contains("not verified (--insecure)"), "{notes}");
    assert_eq!(load.run().plan.tls.as_ref().unwrap().trust, Trust::Nothing);
}

#[test]
fn a_name_is_told_to_the_server_and_held_against_its_certificate() {
    let identity = AUTHORITY.issue(&["localhost"], Valid::Now);
    let files = Files::new();
    let ca = files.write("ca.pem", &AUTHORITY.pem());
    let address = serve("localhost", server(&identity, &SUITES, true));
    let url = format!("https://localhost:{}/", address.port());
    was_fine(&run(&["load", &url, "-n", "10", "--cacert", &ca]));

    let by_address = format!("https://{address}/");
    let output = run(&["load", &by_address, "-n", "10", "--cacert", &ca]);
    assert_eq!(code(&output), 3);
    let said = text(&output.stderr);
    assert!(said.contains("is for localhost and not for"), "{said}");
    assert!(said.contains("--insecure"), "{said}");
}

#[test]
fn without_a_file_the_systems_authorities_are_trusted() {
    let files = Files::new();
    let url = known();
    let ours = files.write("ours.pem", &AUTHORITY.pem());
    was_fine(&trusting(&ours, &[&url, "-n", "10"]));

    let strangers = files.write("strangers.pem", &Authority::named("a stranger").pem());
    let output = trusting(&strangers, &[&url, "-n", "10"]);
    assert_eq!(code(&output), 3);
    let said = text(&output.stderr);
    let last = said.trim_end().lines().last().unwrap();
    assert!(last.contains("signed by nobody who is trusted"), "{said}");
    assert!(
        last.contains("--cacert") && last.contains("--insecure"),
        "{said}"
    );

    let none = files.write("none.pem", "");
    let output = trusting(&none, &[&url, "-n", "10"]);
    assert_eq!(code(&output), 2);
    let said = text(&output.stderr);
    assert!(said.contains("trusts no certificate authority"), "{said}");
    assert!(said.contains("ca-certificates"), "{said}");

    let missing = files.0.path().join("missing.pem");
    let missing = missing.to_str().unwrap();
    let output = trusting(missing, &[&url, "-n", "10"]);
    assert_eq!(code(&output), 2);
    let said = text(&output.stderr);
    assert!(
        said.contains(missing) && said.contains("No such file"),
        "{said}"
    );
    assert!(!said.contains("ca-certificates"), "{said}");
}

#[test]
fn a_bad_certificate_file_is_named_with_the_mend() {
    let files = Files::new();
    let missing = files.0.path().join("missing.pem");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n";
    let other = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (file, why) in [
        (missing.to_str().unwrap().to_owned(), "No such file"),
        ("/dev/zero".to_owned(), "more than the 67108864 bytes"),
        (files.write("empty.pem", ""), "holds no certificate"),
        (files.write("broken.pem", broken), "no PEM file"),
        (
            files.write("other.pem", other),
            "certificate 1 is no certificate authority's",
        ),
    ] {
        let output = run(&["load", "https://127.0.0.1:1/", "--cacert", &file]);
        assert_eq!(code(&output), 2, "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(&file) && said.contains(why), "{said}");
        assert!(said.contains("-----BEGIN CERTIFICATE-----"), "{said}");
    }
}

#[test]
fn flags_of_https_say_nothing_of_plain_http() {
    for flag in ["--insecure", "--no-resumption"] {
        let output = run(&["load", "http://127.0.0.1:1/", flag]);
        assert_eq!(code(&output), 2);
        let said = text(&output.stderr);
        assert!(said.contains(flag) && said.contains("https://"), "{said}");
    }
    let output = run(&[
        "load",
        "https://127.0.0.1:1/",
        "--insecure",
        "--cacert",
        "x",
    ]);
    assert_eq!(code(&output), 2);
}

#[test]
fn a_port_without_tls_is_said_to_be_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let output = run(&["load", &format!("https://{address}/"), "--insecure"]);
    assert_eq!(code(&output), 3);
    let said = text(&output.stderr);
    assert!(said.contains("answers in plain HTTP"), "{said}");
    assert!(said.contains("write http://"), "{said}");

    let hello = Serve::start(&["hello"]);
    let url = hello.url.replacen("http://", "https://", 1);
    let output = run(&["load", &url, "--insecure"]);
    assert_eq!(code(&output), 3, "{output:?}");
}

#[test]
fn handshakes_have_thresholds() {
    let url = known();
    let fail_if = ["--fail-if", "handshake.p50 > 1us"];
    let load = load(&url, &[&["-n", "10", "--insecure"][..], &fail_if].concat());
    load.ends_with(1);
}
