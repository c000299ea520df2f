//! Tests of HTTPS: trusted certificates, error messages and the record.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Output;
use std::sync::LazyLock;
use std::thread;

use crate::support::https::{relay, serve};
use crate::support::tls::{Authority, SUITES, Valid, server};
use crate::support::{Serve, code, finish, floodmark, load, run, succeeds, text};
use floodmark_record::plan::{Http, Http2};
use floodmark_record::tls::Trust;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

/// Starts a server with a certificate for 127.0.0.1. Returns its URL.
fn known() -> String {
    let identity = AUTHORITY.issue(&["127.0.0.1"], Valid::Now);
    let address = serve("127.0.0.1", server(&identity, &SUITES, true));
    format!("https://{address}/")
}

/// Certificate files that are removed on drop.
struct CertificateFiles(tempfile::TempDir);

impl CertificateFiles {
    fn new() -> Self {
        CertificateFiles(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    }
}

/// Runs `floodmark load` with a file that replaces the system's certificate authorities.
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
fn trusts_a_given_authority_and_records_tls() {
    let files = CertificateFiles::new();
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
                "--verbose",
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
        // Base64-encoded certificates start with `MII`.
        let record = text(&load.output.stdout);
        assert!(
            !record.contains("\"MII"),
            "the record contains a certificate"
        );
        assert!(load.stderr().contains("TLS 1.3"), "{}", load.stderr());
    }
}

#[test]
fn resumes_sessions_unless_disabled() {
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
fn notes_an_unverified_certificate() {
    let load = load(&known(), &["-n", "10", "--insecure"]);
    load.ends_with(0);
    let notes = load.run().validity.notes.join("\n");
    assert!(notes.contains("not verified (--insecure)"), "{notes}");
    assert_eq!(load.run().plan.tls.as_ref().unwrap().trust, Trust::Nothing);
}

#[test]
fn sends_and_verifies_the_host_name() {
    let identity = AUTHORITY.issue(&["localhost"], Valid::Now);
    let files = CertificateFiles::new();
    let ca = files.write("ca.pem", &AUTHORITY.pem());
    let address = serve("localhost", server(&identity, &SUITES, true));
    let url = format!("https://localhost:{}/", address.port());
    succeeds(&run(&["load", &url, "-n", "10", "--cacert", &ca]));

    let by_address = format!("https://{address}/");
    let as_localhost = ["load", &by_address, "-n", "10", "--cacert", &ca, "--sni"];
    for backend in ["uring", "epoll"] {
        let arguments = ["localhost", "--backend", backend];
        succeeds(&run(&[&as_localhost[..], &arguments].concat()));
    }
    for (sni, expected, words) in [
        ("other.test", 3, "is valid for localhost, not for"),
        ("127.0.0.1", 2, "--sni 127.0.0.1: SNI cannot contain"),
        ("a b", 2, "--sni a b: "),
    ] {
        let output = run(&[&as_localhost[..], &[sni]].concat());
        let printed = text(&output.stderr);
        assert_eq!(code(&output), expected, "{printed}");
        assert!(printed.contains(words), "{printed}");
    }
    let plain = run(&["load", "http://127.0.0.1:1/", "--sni", "localhost"]);
    assert!(text(&plain.stderr).contains("--sni needs HTTPS"));
    let output = run(&["load", &by_address, "-n", "10", "--cacert", &ca]);
    assert_eq!(code(&output), 3);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("is valid for localhost, not for"),
        "{printed}"
    );
    assert!(printed.contains("--insecure"), "{printed}");
}

#[test]
fn trusts_the_systems_authorities_by_default() {
    let files = CertificateFiles::new();
    let url = known();
    let ours = files.write("ours.pem", &AUTHORITY.pem());
    succeeds(&trusting(&ours, &[&url, "-n", "10"]));

    let strangers = files.write("strangers.pem", &Authority::named("a stranger").pem());
    let output = trusting(&strangers, &[&url, "-n", "10"]);
    assert_eq!(code(&output), 3);
    let printed = text(&output.stderr);
    let last = printed.trim_end().lines().last().unwrap();
    assert!(
        last.contains("not signed by a trusted authority"),
        "{printed}"
    );
    assert!(
        last.contains("--cacert") && last.contains("--insecure"),
        "{printed}"
    );

    let none = files.write("none.pem", "");
    let output = trusting(&none, &[&url, "-n", "10"]);
    assert_eq!(code(&output), 2);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("trusts no certificate authority"),
        "{printed}"
    );
    assert!(printed.contains("ca-certificates"), "{printed}");

    let missing = files.0.path().join("missing.pem");
    let missing = missing.to_str().unwrap();
    let output = trusting(missing, &[&url, "-n", "10"]);
    assert_eq!(code(&output), 2);
    let printed = text(&output.stderr);
    assert!(
        printed.contains(missing) && printed.contains("No such file"),
        "{printed}"
    );
    assert!(!printed.contains("ca-certificates"), "{printed}");
}

#[test]
fn names_an_invalid_certificate_file() {
    let files = CertificateFiles::new();
    let missing = files.0.path().join("missing.pem");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n";
    let other = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let pem = "-----BEGIN CERTIFICATE-----";
    for (file, why, fix) in [
        (
            missing.to_str().unwrap().to_owned(),
            "No such file",
            "name a readable file",
        ),
        (
            "/dev/zero".to_owned(),
            "larger than 67108864 bytes",
            "use a smaller file",
        ),
        (files.write("empty.pem", ""), "contains no certificate", pem),
        (files.write("broken.pem", broken), "not a PEM file", pem),
        (
            files.write("other.pem", other),
            "certificate 1 is not a CA certificate",
            pem,
        ),
    ] {
        let output = run(&["load", "https://127.0.0.1:1/", "--cacert", &file]);
        assert_eq!(code(&output), 2, "{output:?}");
        let printed = text(&output.stderr);
        assert!(
            printed.contains(&file) && printed.contains(why) && printed.contains(fix),
            "{printed}"
        );
    }
}

#[test]
fn refuses_https_flags_for_plain_http() {
    for flag in ["--insecure", "--no-resumption"] {
        let output = run(&["load", "http://127.0.0.1:1/", flag]);
        assert_eq!(code(&output), 2);
        let printed = text(&output.stderr);
        assert!(
            printed.contains(flag) && printed.contains("https://"),
            "{printed}"
        );
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
fn names_a_port_without_tls() {
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
    let printed = text(&output.stderr);
    assert!(printed.contains("responds in plain HTTP"), "{printed}");
    assert!(printed.contains("use http://"), "{printed}");

    let hello = Serve::start(&["hello"]);
    let url = hello.url.replacen("http://", "https://", 1);
    let output = run(&["load", &url, "--insecure"]);
    assert_eq!(code(&output), 3, "{output:?}");
}

#[test]
fn trusts_a_ca_certificate_of_the_server() {
    let address = serve("127.0.0.1", server(&AUTHORITY.itself(), &SUITES, true));
    let files = CertificateFiles::new();
    let ca = files.write("ca.pem", &AUTHORITY.pem());
    let url = format!("https://localhost:{}/", address.port());
    let resolve = ["--resolve", "localhost:127.0.0.1"];
    let load_with =
        |more: &[&str]| run(&[&["load", &url, "-n", "10"], &resolve[..], more].concat());
    succeeds(&load_with(&["--cacert", &ca]));
    let output = load_with(&[]);
    let printed = text(&output.stderr);
    assert_eq!(code(&output), 3, "{printed}");
    assert!(
        printed.contains("--cacert FILE with this certificate"),
        "{printed}"
    );
}

#[test]
fn evaluates_thresholds_of_handshakes() {
    let url = known();
    let fail_if = ["--fail-if", "handshake.p50 > 1us"];
    let load = load(&url, &[&["-n", "10", "--insecure"][..], &fail_if].concat());
    load.ends_with(1);
}

/// Starts a TLS server with these application protocols. It relays each connection to `upstream`.
/// Returns its URL.
fn relay_as(protocols: &[&[u8]], upstream: &Serve) -> String {
    let identity = AUTHORITY.issue(&["127.0.0.1"], Valid::Now);
    let mut config = server(&identity, &SUITES, true);
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    relay(config, upstream)
}

#[test]
fn uses_the_version_of_http_that_the_server_chooses() {
    let files = CertificateFiles::new();
    let ca = files.write("ca.pem", &AUTHORITY.pem());
    let upstream = Serve::start(&["hello"]);
    let http2 = Http::V2(Http2 {
        streams: 3,
        ..Http2::default()
    });
    for (protocols, version, remark) in [
        (
            &[&b"h2"[..], b"http/1.1"][..],
            http2,
            "the server chose HTTP/2",
        ),
        (&[b"http/1.1"], Http::V1, "the server chose HTTP/1.1"),
    ] {
        let url = relay_as(protocols, &upstream);
        let load = load(
            &url,
            &[
                "--http",
                "auto",
                "--streams",
                "3",
                "-n",
                "60",
                "-c",
                "2",
                "--cacert",
                &ca,
            ],
        );
        load.ends_with(0);
        assert_eq!(load.counts().ok, 60);
        assert_eq!(load.run().plan.http, version);
        assert!(load.stderr().contains(remark), "{}", load.stderr());
    }
}

#[test]
fn without_tls_auto_means_http1() {
    let server = Serve::start(&["hello"]);
    let load = load(&server.url, &["--http", "auto", "-n", "10", "-c", "1"]);
    load.ends_with(0);
    assert_eq!(load.run().plan.http, Http::V1);
    assert!(load.stderr().contains("the URL is http://"));
}

#[test]
fn without_a_handshake_auto_means_http1() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    let url = format!("https://{address}/");
    let auto = ["--http", "auto", "--insecure"];
    let load = load(&url, &[&["-n", "10", "-c", "1"][..], &auto].concat());
    load.ends_with(3);
    assert_eq!(load.run().plan.http, Http::V1);
    let why = "HTTP/1.1 is used, because the TLS handshake before the load failed (";
    assert!(load.stderr().contains(why), "{}", load.stderr());
    let missing = load.run().missing.join("\n");
    assert!(missing.contains(why), "{missing}");
    let output = run(&[&["capacity", &url, "--slo", "p99 < 1s"][..], &auto].concat());
    assert_eq!(code(&output), 3);
    assert!(text(&output.stderr).contains(why), "{output:?}");
}

#[test]
fn auto_tries_all_addresses() {
    let upstream = Serve::start(&["hello"]);
    let url = relay_as(&[b"h2"], &upstream);
    let url = url.replace("127.0.0.1", "app.invalid");
    let load = load(
        &url,
        &[
            "--http",
            "auto",
            "--insecure",
            "--resolve",
            // The server listens only on the second address.
            "app.invalid:127.0.0.2,127.0.0.1",
            "-n",
            "20",
            "-c",
            "2",
        ],
    );
    assert!(
        matches!(load.run().plan.http, Http::V2(_)),
        "{}",
        load.stderr()
    );
    assert_eq!(load.counts().ok, 20);
}
