//! Tests of experiments over HTTPS, with servers that require a client certificate.

use std::fs;

use floodmark_record::plan::Http;
use floodmark_record::run::Run;
use rcgen::PKCS_ECDSA_P256_SHA256;

use super::ExperimentDirectory;
use crate::support::tls::{Authority, Valid};
use crate::support::{code, finish, text};

/// Keys of `[load]` that set the client's certificates.
const CERTIFICATES: &str = "cacert = \"ca.pem\"\ncert = \"client.pem\"\nkey = \"client-key.pem\"\n";

/// Returns an experiment with a `load` and a `trial`, and certificates in its directory. The
/// server's certificate is valid for `host`.
fn experiment(load: &str, trial: &str, host: &str) -> ExperimentDirectory {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nrequests = 40\n{load}\n[[trial]]\n{trial}"
    ));
    let authority = Authority::new();
    let server = authority.issue(&[host], Valid::Now);
    let client = authority.issue_client(&PKCS_ECDSA_P256_SHA256, Valid::Now);
    let other = Authority::named("other");
    for (name, pem) in [
        ("ca.pem", authority.pem()),
        ("other-ca.pem", other.pem()),
        ("server.pem", server.pem),
        ("server-key.pem", server.key_pem),
        ("client.pem", client.pem),
        ("client-key.pem", client.key_pem),
    ] {
        fs::write(lab.0.path().join(name), pem).unwrap();
    }
    lab
}

const NGINX: &str = r#"daemon off;
worker_processes 1;
pid nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen {host}:{port} ssl http2;
        ssl_certificate DIRECTORY/server.pem;
        ssl_certificate_key DIRECTORY/server-key.pem;
        ssl_client_certificate DIRECTORY/ca.pem;
        ssl_verify_client on;
        location / { return 200 "Hello World"; }
    }
}
"#;

/// Short readiness timeout, for servers that never become ready.
const SHORT: &str = "ready-within = \"10s\"\n";

/// Adds nginx as a system that requires a client certificate, and speaks HTTP/1.1 and HTTP/2.
/// `start` contains further lines of `[start]`.
fn nginx(load: &str, host: &str, start: &str) -> ExperimentDirectory {
    let lab = experiment(
        load,
        "system = \"secure\"\nworkload = \"hello\"\n[place]\nagents = \"local:2\"\n",
        host,
    );
    let system = lab.system(
        "secure",
        &format!(
            "name = \"secure\"\nworkloads = [\"hello\"]\n[start]\nscheme = \"https\"\n{start}\
             command = \"nginx -p {{run}} -e stderr -c nginx.conf\"\nfiles = [\"nginx.conf\"]\n"
        ),
    );
    let directory = lab.0.path().to_str().unwrap();
    let conf = NGINX.replace("DIRECTORY", directory);
    fs::write(system.join("nginx.conf"), conf).unwrap();
    lab
}

/// Expects that all responses were ok, and that the client sent its certificate.
fn sent_certificate(run: &Run) {
    assert_eq!(run.requests.ok, 40);
    assert!(run.plan.target.url.starts_with("https://"));
    let plan = run.plan.tls.as_ref().unwrap();
    assert!(plan.client_certificate_sha256.is_some());
    let used = &run.tls.as_ref().unwrap().used;
    assert_eq!(used.certificates_sent + used.resumed, used.handshakes);
    assert!(used.certificates_sent > 0);
}

#[test]
#[cfg_attr(not(installed = "nginx"), ignore = "nginx is not installed")]
fn all_requests_send_the_certificate() {
    for (load, host, is_http2) in [
        ("", "127.0.0.1", false),
        ("http = \"2\"", "127.0.0.1", true),
        ("http = \"auto\"", "127.0.0.1", true),
        ("sni = \"app.example\"", "app.example", false),
    ] {
        let (code, record, printed) = nginx(&format!("{CERTIFICATES}{load}"), host, "").run(&[]);
        assert_eq!(code, 0, "{load}: {printed}");
        sent_certificate(&record.runs[0]);
        assert_eq!(record.runs[0].plan.http != Http::V1, is_http2, "{load}");
    }
}

/// A server that stores items and requires a client certificate. Argument: port.
const SET_SERVER: &str = r#"
import http.server, json, ssl, sys
from threading import Lock
lock, items = Lock(), []
class Items(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1
    def log_message(self, *args): pass
    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        with lock:
            self.answer(200, items)
    def do_POST(self):
        value = self.rfile.read(int(self.headers['Content-Length'])).decode()
        with lock:
            items.append({'name': value})
        self.answer(201, {})
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Items)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('server.pem', 'server-key.pem')
context.load_verify_locations('ca.pem')
context.verify_mode = ssl.CERT_REQUIRED
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

const SET: &str = r#"
kind = "set"
write = { method = "POST", path = "/items", body = "{seq}" }
readback = { path = "/items", value = "/name" }
"#;

/// Returns an experiment with the Python server.
fn python(load: &str, trial: &str) -> ExperimentDirectory {
    let trial = format!("name = \"set\"\ncommand = \"python3 server.py {{port}}\"\n{trial}\n");
    let lab = experiment(load, &trial, "127.0.0.1");
    fs::write(lab.0.path().join("server.py"), SET_SERVER).unwrap();
    fs::write(lab.0.path().join("items.toml"), SET).unwrap();
    lab
}

#[test]
#[cfg_attr(not(installed = "python3"), ignore = "python3 is not installed")]
fn readbacks_send_the_certificate() {
    let load = format!("{CERTIFICATES}check = \"items.toml\"");
    let (code, record, printed) = python(&load, "scheme = \"https\"").run(&[]);
    assert_eq!(code, 0, "{printed}");
    let run = &record.runs[0];
    sent_certificate(run);
    assert_eq!(run.checks[0].held, Some(true), "{}", run.checks[0].detail);
}

/// Expects that each experiment fails before its load, with a message that contains these words.
/// The servers run at the same time.
fn fail_with(experiments: Vec<(ExperimentDirectory, &str)>) {
    std::thread::scope(|scope| {
        for (lab, words) in experiments {
            scope.spawn(move || {
                let (code, record, printed) = lab.run(&[]);
                assert_eq!(code, 3, "{words}: {printed}");
                assert!(
                    record.runs.is_empty() && printed.contains(words),
                    "{words}: {printed}"
                );
            });
        }
    });
}

#[test]
#[cfg_attr(not(installed = "python3"), ignore = "python3 is not installed")]
fn explains_failed_handshakes() {
    let trial = format!("scheme = \"https\"\n{SHORT}");
    let other = CERTIFICATES.replace("\"ca.pem", "\"other-ca.pem");
    fail_with(vec![
        (
            python("cacert = \"ca.pem\"", &trial),
            "the server requires a client certificate; use cert = \"FILE\"",
        ),
        (
            python(&other, &trial),
            "the certificate is not signed by a trusted authority; use cacert = \"FILE\"",
        ),
        (
            python(&format!("{CERTIFICATES}http = \"2\""), &trial),
            "the server does not support HTTP/2 over TLS (ALPN); use http = \"1.1\"",
        ),
    ]);
}

#[test]
#[cfg_attr(not(installed = "nginx"), ignore = "nginx is not installed")]
fn explains_why_nginx_rejects_requests() {
    fail_with(vec![
        (
            nginx("cacert = \"ca.pem\"", "127.0.0.1", SHORT),
            "GET / returns 400",
        ),
        (
            nginx(CERTIFICATES, "app.example", SHORT),
            "the certificate is valid for app.example, not for 127.0.0.1; set sni = \"NAME\"",
        ),
    ]);
}

#[test]
fn rejects_wrong_settings_before_any_process_starts() {
    for (load, trial, words) in [
        (
            CERTIFICATES,
            "",
            "e.toml:9: load: `cacert` needs HTTPS; add scheme = \"https\" to the trial or its system, or remove `cacert`",
        ),
        (
            "key = \"client-key.pem\"",
            "scheme = \"https\"",
            "e.toml:6: load: `key` needs `cert`; add cert = \"FILE\" with the certificate, or remove `key`",
        ),
        (
            "insecure = true\ncacert = \"ca.pem\"",
            "scheme = \"https\"",
            "`insecure` conflicts with `cacert`; remove one of them",
        ),
        (
            "cacert = \"no.pem\"",
            "scheme = \"https\"",
            "no.pem: No such file or directory",
        ),
        (
            "cert = \"client.pem\"",
            "scheme = \"https\"",
            "client.pem: it contains no private key; add key = \"FILE\" with the private key",
        ),
        (
            "cert = \"client.pem\"\nkey = \"server-key.pem\"",
            "scheme = \"https\"",
            "server-key.pem: the private key does not belong to the first certificate",
        ),
        (
            "",
            "scheme = \"htps\"",
            "e.toml:9: scheme: unknown value \"htps\"; did you mean \"https\"?",
        ),
        (
            "",
            "scheme = \"https\"\nclient = \"curl-loop\"\nload = { fresh = true, duration = \"1s\" }",
            "external clients send plain HTTP; remove `client`",
        ),
    ] {
        let output = finish(python(load, trial).start(&[]));
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{load}: {printed}");
        assert_eq!(printed.lines().count(), 1, "{load}: {printed}");
        assert!(printed.contains(words), "{load} lacks {words:?}: {printed}");
    }
}
