//! The server of the closed runs: nginx with one worker, over HTTP and HTTPS, started here and stopped on any way out.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use super::child;
use super::programs::find;
use crate::command;
use crate::error::Error;

/// The program, and the Debian package that brings it.
pub const PROGRAM: (&str, &str) = ("nginx", "nginx-light");
/// What makes its certificate.
pub const OPENSSL: (&str, &str) = ("openssl", "openssl");
/// Longest wait for it to answer, to stop, or for one answer of its counter.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked.
const POLL: Duration = Duration::from_millis(20);

/// A running nginx. It is stopped when this is dropped.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    plain: SocketAddr,
    secure: SocketAddr,
}

/// The one suite that it takes, so that every peer does the same work: the one that OpenSSL's clients choose (wrk, ab and
/// h2load are such).
pub const SUITE: &str = "TLS_AES_256_GCM_SHA384";

/// How its certificate is made, with OpenSSL's command.
pub const CERTIFICATE: [&str; 17] = [
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
    "-days",
    "2",
    "-subj",
    "/CN=localhost",
    "-addext",
    "subjectAltName=DNS:localhost,IP:127.0.0.1",
    "-keyout",
    "key.pem",
    "-out",
    "cert.pem",
];

/// Its configuration, as it is written and shown.
pub fn configuration(port: &str, tls_port: &str) -> String {
    format!(
        "\
daemon off;
worker_processes 1;
worker_rlimit_nofile 65536;
pid nginx.pid;
events {{ worker_connections 32768; }}
http {{
    access_log off;
    default_type text/plain;
    keepalive_requests 1000000000;
    keepalive_time 1d;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ return 200 \"Hello World\"; }}
        location = /count {{ stub_status; }}
    }}
    server {{
        listen 127.0.0.1:{tls_port} ssl backlog=4096;
        ssl_certificate cert.pem;
        ssl_certificate_key key.pem;
        ssl_protocols TLSv1.3;
        ssl_conf_command Ciphersuites {SUITE};
        ssl_ecdh_curve X25519;
        location / {{ return 200 \"Hello World\"; }}
    }}
}}
"
    )
}

impl Nginx {
    /// Starts it on free ports of 127.0.0.1, with its files in `folder`.
    pub fn start(folder: &Path) -> Result<Self, Error> {
        let failed = |why: String| Error::Found(vec![format!("nginx did not start: {why}")]);
        let (name, package) = PROGRAM;
        let program = find(name).ok_or_else(|| {
            let mend =
                format!("{name} is missing: get it with `apt-get install {package}` as root");
            Error::Found(vec![mend])
        })?;
        let [port, tls_port] = free_ports().map_err(|e| failed(e.to_string()))?;
        let file = folder.join("nginx.conf");
        fs::write(
            &file,
            configuration(&port.to_string(), &tls_port.to_string()),
        )
        .map_err(|source| Error::Write { path: file, source })?;
        let mut certificate = Command::new("openssl");
        certificate.args(CERTIFICATE);
        command::capture(certificate.current_dir(folder))?;
        let log = folder.join("error.log");
        let mut start = Command::new(program);
        start.arg("-p").arg(folder).arg("-e").arg(&log);
        start.args(["-c", "nginx.conf"]);
        let child = child::spawn(start.current_dir(folder)).map_err(|source| Error::Start {
            command: command::line(&start),
            source,
        })?;
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut nginx = Nginx {
            child,
            plain: at(port),
            secure: at(tls_port),
        };
        let end = Instant::now() + PATIENCE;
        while nginx.requests().is_err() {
            let ended = matches!(nginx.child.try_wait(), Ok(Some(_)));
            if ended || Instant::now() >= end {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let last = said.lines().last().unwrap_or("it does not answer");
                return Err(failed(last.to_owned()));
            }
            thread::sleep(POLL);
        }
        Ok(nginx)
    }

    /// Where it listens for HTTP.
    pub fn plain(&self) -> SocketAddr {
        self.plain
    }

    /// Where it listens for HTTPS.
    pub fn secure(&self) -> SocketAddr {
        self.secure
    }

    /// Binds all of it to some CPUs (sched_setaffinity(2)).
    pub fn pin(&self, cpus: &[usize]) -> io::Result<()> {
        // SAFETY: a cpu_set_t is plain bits, for which zero is valid; CPU_SET checks its bounds; the set outlives the calls.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            for &cpu in cpus {
                libc::CPU_SET(cpu, &mut set);
            }
            for process in self.processes()? {
                let size = size_of::<libc::cpu_set_t>();
                if libc::sched_setaffinity(process.cast_signed(), size, &raw const set) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
        }
        Ok(())
    }

    /// Its processes: the master and the workers.
    fn processes(&self) -> io::Result<Vec<u32>> {
        let master = self.child.id();
        let workers = fs::read_to_string(format!("/proc/{master}/task/{master}/children"))?;
        let workers = workers.split_whitespace().filter_map(|id| id.parse().ok());
        Ok([master].into_iter().chain(workers).collect())
    }

    /// Requests it has seen since its start, this one included.
    pub fn requests(&self) -> io::Result<u64> {
        let mut stream = TcpStream::connect_timeout(&self.plain, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /count HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(4096).read_to_string(&mut answer)?;
        requests(&answer).ok_or_else(|| io::Error::other("nginx gives no count"))
    }
}

/// The third figure under `server accepts handled requests` (ngx_http_stub_status_module).
fn requests(page: &str) -> Option<u64> {
    let mut lines = page.lines();
    lines.find(|line| line.starts_with("server accepts handled requests"))?;
    lines.next()?.split_whitespace().nth(2)?.parse().ok()
}

/// Two different ones: both are held while they are chosen.
fn free_ports() -> io::Result<[u16; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (listen()?, listen()?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            child::terminate(self.child.id());
        }
        let end = Instant::now() + PATIENCE;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() >= end {
                child::end_group(self.child.id());
                // Fails only where it has been reaped, which is what is wanted.
                let _ = self.child.wait();
                return;
            }
            thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_third_figure() {
        let page = "HTTP/1.1 200 OK\r\nServer: nginx\r\n\r\nActive connections: 1 \nserver accepts handled requests\n 12 12 345 \nReading: 0 Writing: 1 Waiting: 0 \n";
        assert_eq!(requests(page), Some(345));
        assert_eq!(requests("HTTP/1.1 404 Not Found\r\n\r\n"), None);
    }
}
