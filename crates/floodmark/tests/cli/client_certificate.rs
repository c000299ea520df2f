//! Tests of client certificates: files, servers that require them, and the record.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::support::https::{relay, serve};
use crate::support::tls::{
    Authority, Identity, SUITES, Valid, requiring_certificates, server, trusting_clients,
};
use crate::support::{Load, Serve, code, load, run, signal, text, wait_for};
use floodmark_record::tls::ClientCertificate;
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);
static SERVER: LazyLock<Identity> = LazyLock::new(|| AUTHORITY.issue(&["127.0.0.1"], Valid::Now));

/// Files that are removed on drop.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        let path = self.0.path().join(name);
        path.into_os_string().into_string().unwrap()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes a certificate and its key. Returns both paths.
    fn identity(&self, name: &str, identity: &Identity) -> [String; 2] {
        [
            self.write(&format!("{name}.pem"), &identity.pem),
            self.write(&format!("{name}-key.pem"), &identity.key_pem),
        ]
    }

    /// Runs openssl in the directory.
    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(self.0.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments}: {output:?}");
    }
}

fn client(valid: Valid) -> Identity {
    AUTHORITY.issue_client(&PKCS_ECDSA_P256_SHA256, valid)
}

/// Starts a server that requires a client certificate. Returns its URL.
fn requiring() -> String {
    let config = requiring_certificates(&AUTHORITY, &SERVER, &SUITES);
    format!("https://{}/", serve("127.0.0.1", config))
}

/// Loads a server without verifying its certificate.
fn load_with(url: &str, arguments: &[&str]) -> Load {
    load(
        url,
        &[&["-n", "40", "-c", "2", "--insecure"][..], arguments].concat(),
    )
}

/// Runs `floodmark load` with a certificate and a key. Returns its exit code and stderr.
fn outcome(url: &str, cert: &str, key: Option<&str>) -> (i32, String) {
    let mut arguments = vec![
        "load",
        url,
        "-n",
        "10",
        "-c",
        "1",
        "--insecure",
        "--cert",
        cert,
    ];
    arguments.extend(key.into_iter().flat_map(|key| ["--key", key]));
    let output = run(&arguments);
    (code(&output), text(&output.stderr))
}

/// Returns whether a file below `directory` contains `text`.
fn is_in_a_file(directory: &Path, text: &str) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_in_a_file(&path, text);
        }
        String::from_utf8_lossy(&fs::read(path).unwrap()).contains(text)
    })
}

#[test]
fn sends_a_certificate_and_records_only_its_fingerprint() {
    let files = Files::new();
    let identity = client(Valid::Now);
    let [cert, key] = files.identity("client", &identity);
    let bundle = files.write(
        "bundle.pem",
        format!("{}{}", identity.key_pem, identity.pem),
    );
    let upstream = Serve::start(&["hello"]);
    let mut config = requiring_certificates(&AUTHORITY, &SERVER, &SUITES);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let url = relay(config, &upstream);
    let der = CertificateDer::from_pem_slice(identity.pem.as_bytes()).unwrap();
    let fingerprint = ClientCertificate(der.to_vec()).sha256();
    for (http, backend, more) in [
        ("1.1", "auto", &[][..]),
        ("1.1", "epoll", &[]),
        ("2", "auto", &[]),
        ("2", "epoll", &[]),
        ("auto", "auto", &[]),
        ("2", "auto", &["--agents", "local:2"]),
    ] {
        for given in [&["--cert", &cert, "--key", &key][..], &["--cert", &bundle]] {
            let version = ["--http", http, "--backend", backend];
            let load = load_with(&url, &[&version, given, more].concat());
            load.ends_with(0);
            assert_eq!(load.counts().ok, 40);
            let plan = load.run().plan.tls.as_ref().unwrap();
            assert_eq!(plan.client_certificate_sha256.as_ref(), Some(&fingerprint));
            let used = &load.run().tls.as_ref().unwrap().used;
            assert_eq!(used.certificate_requests + used.resumed, used.handshakes);
            assert_eq!(used.certificates_sent, used.certificate_requests);
            for secret in [&identity.key_pem, &identity.pem] {
                // The first line after the PEM header.
                let line = secret.lines().nth(1).unwrap();
                assert!(!is_in_a_file(load.directory.path(), line), "{secret}");
                assert!(!text(&load.output.stdout).contains(line), "{secret}");
                assert!(!load.stderr().contains(line), "{secret}");
            }
        }
    }
}

#[test]
fn names_a_server_that_requires_a_certificate() {
    for suite in [SUITES[0], SUITES[3]] {
        let config = requiring_certificates(&AUTHORITY, &SERVER, &[suite]);
        let url = format!("https://{}/", serve("127.0.0.1", config));
        let output = run(&["load", &url, "-n", "10", "--insecure"]);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 3, "{printed}");
        let last = printed.lines().last().unwrap();
        for words in ["requires a client certificate", "use --cert FILE"] {
            assert!(last.contains(words), "{printed}");
        }
    }
}

#[test]
fn names_the_reason_for_a_rejected_certificate() {
    let files = Files::new();
    let stranger = Authority::named("a stranger");
    for (identity, words, fix) in [
        (
            stranger.issue_client(&PKCS_ED25519, Valid::Now),
            "does not trust the authority that signed it",
            "issuers' certificates",
        ),
        (client(Valid::NoLonger), "it is expired", "renew"),
    ] {
        for suite in [SUITES[0], SUITES[3]] {
            let config = requiring_certificates(&AUTHORITY, &SERVER, &[suite]);
            let url = format!("https://{}/", serve("127.0.0.1", config));
            let [cert, key] = files.identity("client", &identity);
            let (code, printed) = outcome(&url, &cert, Some(&key));
            assert_eq!(code, 3, "{printed}");
            let last = printed.lines().last().unwrap();
            assert!(last.contains(words) && last.contains(fix), "{printed}");
        }
    }
}

#[test]
fn warns_about_a_certificate_outside_its_validity() {
    let files = Files::new();
    let optional = format!(
        "https://{}/",
        serve("127.0.0.1", server(&SERVER, &SUITES, true))
    );
    for (valid, words) in [
        (Valid::NoLonger, "the certificate expired "),
        (Valid::NotYet, "the certificate becomes valid in "),
        (Valid::Now, ""),
    ] {
        let [cert, key] = files.identity("client", &client(valid));
        let (code, printed) = outcome(&optional, &cert, Some(&key));
        assert_eq!(code, 0, "{printed}");
        assert!(printed.contains(words), "{printed}");
        assert_eq!(
            printed.contains("so the server may reject it"),
            !words.is_empty()
        );
    }
}

#[test]
fn names_invalid_files() {
    let files = Files::new();
    let identity = client(Valid::Now);
    let [cert, key] = files.identity("client", &identity);
    let [_, other_key] = files.identity("other", &client(Valid::Now));
    let missing = files.path("missing.pem");
    let der = |pem: &str| {
        CertificateDer::from_pem_slice(pem.as_bytes())
            .unwrap()
            .to_vec()
    };
    let cert_der = files.write("cert.der", der(&identity.pem));
    let key_der = files.write("key.der", identity.of_client().key.0);
    let block = |label: &str, headers: &str| {
        let (begin, end) = (
            format!("-----BEGIN {label}-----"),
            format!("-----END {label}-----"),
        );
        format!("{begin}\n{headers}MIIBAAAA\n{end}\n")
    };
    let encrypted = files.write("encrypted.pem", block("ENCRYPTED PRIVATE KEY", ""));
    let headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n";
    let old = files.write("old.pem", block("RSA PRIVATE KEY", headers));
    let bundle = format!("{}{}", identity.pem, block("RSA PRIVATE KEY", headers));
    let bundle = files.write("bundle.pem", bundle);
    let garbled = files.write("garbled.pem", block("PRIVATE KEY", ""));
    let broken = files.write("broken.pem", block("CERTIFICATE", ""));
    let cases: [(&str, Option<&str>, [&str; 3]); 14] = [
        (&missing, None, ["--cert", "No such file", "readable file"]),
        (
            &cert,
            Some(&missing),
            ["--key", "No such file", "readable file"],
        ),
        (
            &key,
            None,
            ["--cert", "contains no certificate", "BEGIN CERTIFICATE"],
        ),
        (
            &cert,
            None,
            ["--cert", "contains no private key", "add --key FILE"],
        ),
        (
            &cert,
            Some(&cert),
            ["--key", "contains no private key", "BEGIN PRIVATE KEY"],
        ),
        (
            &cert,
            Some(&other_key),
            ["--key", "does not belong", "name the key"],
        ),
        (
            &cert,
            Some(&encrypted),
            ["--key", "is encrypted", "openssl pkey -in"],
        ),
        (
            &cert,
            Some(&old),
            ["--key", "is encrypted", "openssl pkey -in"],
        ),
        (
            &bundle,
            None,
            ["--cert", "is encrypted", "use --key key.pem"],
        ),
        (
            &cert,
            Some(&garbled),
            ["--key", "unsupported private key", "use RSA"],
        ),
        (
            &broken,
            Some(&key),
            ["--cert", "certificate 1: ", "BEGIN CERTIFICATE"],
        ),
        (
            &cert_der,
            Some(&key),
            ["--cert", "not a PEM file", "openssl x509 -inform DER"],
        ),
        (
            &cert,
            Some(&key_der),
            ["--key", "not a PEM file", "openssl pkey -inform DER"],
        ),
        (
            &key_der,
            None,
            ["--cert", "not a PEM file", "openssl pkcs12"],
        ),
    ];
    for (cert, key, words) in cases {
        // No server listens on this port.
        let load = outcome("https://127.0.0.1:1/", cert, key);
        let key = key.map_or(vec![], |key| vec!["--key", key]);
        let serve = ["serve", "hello", "--listen", "127.0.0.1:0", "--cert", cert];
        let serve = run(&[&serve, &key[..]].concat());
        for (code, printed) in [load, (code(&serve), text(&serve.stderr))] {
            assert_eq!(code, 2, "{printed}");
            assert_eq!(printed.lines().count(), 1, "{printed}");
            for words in words {
                assert!(printed.contains(words), "{words}: {printed}");
            }
        }
    }
    for (url, flags, words) in [
        (
            "http://127.0.0.1:1/",
            ["--cert", &cert],
            "--cert needs HTTPS",
        ),
        (
            "https://127.0.0.1:1/",
            ["--key", &key],
            "--key needs --cert",
        ),
    ] {
        let output = run(&[&["load", url], &flags[..]].concat());
        assert_eq!(code(&output), 2);
        assert!(text(&output.stderr).contains(words), "{output:?}");
    }
}

#[test]
fn all_requests_of_a_mix_send_the_certificate() {
    let files = Files::new();
    let [cert, key] = files.identity("client", &client(Valid::Now));
    let request = |name: &str| format!("[[request]]\nname = \"{name}\"\npath = \"/{name}\"\n");
    let mix = files.write("mix.toml", request("a") + &request("b"));
    let load = load_with(
        &requiring(),
        &["--mix", &mix, "--cert", &cert, "--key", &key, "--fresh"],
    );
    load.ends_with(0);
    let groups = load.run().groups.iter();
    let ok: Vec<u64> = groups.map(|group| group.requests.ok).collect();
    assert_eq!(ok, [20, 20]);
    let used = &load.run().tls.as_ref().unwrap().used;
    assert_eq!(used.certificates_sent + used.resumed, used.handshakes);
    assert!(used.certificates_sent > 0);
}

#[test]
fn a_proof_needs_the_certificate_again() {
    let files = Files::new();
    let [cert, key] = files.identity("client", &client(Valid::Now));
    let load = load_with(&requiring(), &["--cert", &cert, "--key", &key, "--verbose"]);
    load.ends_with(0);
    let summary = load
        .stderr()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        summary.contains("client certificate sent in 2 handshakes"),
        "{summary}"
    );
    let result = load.directory.path().join("result");
    let output = run(&["why", "--prove", result.to_str().unwrap()]);
    assert_eq!(code(&output), 2);
    let printed = text(&output.stderr);
    assert!(printed.contains("pass it with --cert FILE"), "{printed}");
    let [other, other_key] = files.identity("other", &client(Valid::Now));
    let without = load_with(
        &format!(
            "https://{}/",
            serve("127.0.0.1", server(&SERVER, &SUITES, true))
        ),
        &[],
    );
    without.ends_with(0);
    let without = without.directory.path().join("result");
    for (result, words) in [
        (&result, ": not the run's client certificate (SHA-256 "),
        (
            &without,
            "the run used no client certificate; remove --cert",
        ),
    ] {
        let result = result.to_str().unwrap();
        let output = run(&[
            "why", "--prove", result, "--cert", &other, "--key", &other_key,
        ]);
        assert_eq!(code(&output), 2);
        let printed = text(&output.stderr);
        assert!(printed.contains(words), "{printed}");
    }
}

#[test]
#[cfg_attr(not(installed = "openssl"), ignore = "openssl is not installed")]
fn accepts_the_keys_that_openssl_creates() {
    let files = Files::new();
    for (name, key) in [
        (
            "rsa",
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.key",
        ),
        (
            "p256",
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out p256.key",
        ),
        (
            "p384",
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out p384.key",
        ),
        ("ed25519", "genpkey -algorithm ED25519 -out ed25519.key"),
    ] {
        files.openssl(key);
        files.openssl(&format!(
            "req -x509 -key {name}.key -out {name}.crt -subj /CN={name} -addext basicConstraints=critical,CA:FALSE"
        ));
    }
    // PKCS#1 and SEC1. The SEC1 file starts with the curve parameters.
    files.openssl("rsa -in rsa.key -traditional -out rsa.old");
    files.openssl("ec -in p256.key -out p256.sec1");
    files.openssl("ecparam -name prime256v1 -out p256.old");
    let sec1 = fs::read_to_string(files.path("p256.sec1")).unwrap();
    let parameters = fs::read_to_string(files.path("p256.old")).unwrap();
    files.write("p256.old", parameters + &sec1);
    for (certificate, key) in [
        ("rsa.crt", "rsa.key"),
        ("rsa.crt", "rsa.old"),
        ("p256.crt", "p256.key"),
        ("p256.crt", "p256.old"),
        ("p384.crt", "p384.key"),
        ("ed25519.crt", "ed25519.key"),
    ] {
        let cert = files.path(certificate);
        let anchor = CertificateDer::from_pem_file(&cert).unwrap();
        let config = trusting_clients(anchor, &SERVER, &SUITES);
        let url = format!("https://{}/", serve("127.0.0.1", config));
        let (code, printed) = outcome(&url, &cert, Some(&files.path(key)));
        assert_eq!(code, 0, "{key}: {printed}");
    }
    // Encrypted keys, and an X.509 version 1 certificate signed with another key.
    files.openssl("pkcs8 -topk8 -in rsa.key -passout pass:secret -out rsa.enc");
    files.openssl("rsa -in rsa.key -traditional -aes128 -passout pass:secret -out rsa.enc-old");
    for key in ["rsa.enc", "rsa.enc-old"] {
        let (code, printed) = outcome(
            "https://127.0.0.1:1/",
            &files.path("rsa.crt"),
            Some(&files.path(key)),
        );
        assert_eq!(code, 2, "{printed}");
        assert!(
            printed.contains("the private key is encrypted"),
            "{printed}"
        );
    }
    files.openssl("req -new -key p256.key -subj /CN=v1 -out v1.csr");
    files.openssl("x509 -req -in v1.csr -CA rsa.crt -CAkey rsa.key -CAcreateserial -out v1.crt");
    let optional = format!(
        "https://{}/",
        serve("127.0.0.1", server(&SERVER, &SUITES, true))
    );
    for (key, expected) in [("p256.key", 0), ("p384.key", 2)] {
        let (code, printed) = outcome(&optional, &files.path("v1.crt"), Some(&files.path(key)));
        assert_eq!(code, expected, "{printed}");
    }
}

#[test]
#[cfg_attr(not(installed = "nginx"), ignore = "nginx is not installed")]
fn nginx_verifies_the_certificate() {
    let files = Files::new();
    let [cert, key] = files.identity("client", &client(Valid::Now));
    files.identity("server", &SERVER);
    files.write("ca.pem", AUTHORITY.pem());
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let at = files.0.path().display();
    let config = format!(
        "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error.log;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;\n\
         uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         server {{ listen 127.0.0.1:{port} ssl http2; ssl_certificate {at}/server.pem;\n\
         ssl_certificate_key {at}/server-key.pem; ssl_client_certificate {at}/ca.pem; ssl_verify_client on;\n\
         location / {{ return 200 hello; }} }} }}\n"
    );
    let file = files.write("nginx.conf", config);
    let mut nginx = Command::new("nginx")
        .args(["-c", &file])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("nginx", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let url = format!("https://127.0.0.1:{port}/");
    for http in ["1.1", "2"] {
        for backend in ["auto", "epoll"] {
            let version = ["--http", http, "--backend", backend];
            let given = ["--cert", &cert, "--key", &key];
            let load = load_with(&url, &[&version[..], &given].concat());
            load.ends_with(0);
            assert_eq!(load.counts().ok, 40);
            // nginx completes the handshake, and then rejects each request.
            let duration = ["load", &url, "-d", "1s", "--insecure"];
            let output = run(&[&duration[..], &version].concat());
            let printed = text(&output.stderr);
            assert_eq!(code(&output), 1, "{printed}");
            let words = "the server requested a client certificate: use --cert FILE";
            assert!(printed.contains(words), "{printed}");
            let load = load_with(&url, &version);
            let notes = load.run().validity.notes.join("\n");
            assert!(notes.contains("requested a client certificate"), "{notes}");
        }
    }
    signal(nginx.id(), libc::SIGTERM);
    nginx.wait().unwrap();
}
