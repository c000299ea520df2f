//! The server of the closed runs: nginx with one worker, started here and stopped on any way out.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use super::child;
use crate::error::Error;

/// Longest wait for it to answer, to stop, or for one answer of its counter.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked.
const POLL: Duration = Duration::from_millis(20);

/// A running nginx. It is stopped when this is dropped.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    address: SocketAddr,
}

/// Its configuration, as it is written and shown.
pub fn configuration(port: &str) -> String {
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
}}
"
    )
}

impl Nginx {
    /// Starts it on a free port of 127.0.0.1, with its files in `folder`.
    pub fn start(program: &Path, folder: &Path) -> Result<Self, Error> {
        let failed = |why: String| Error::Found(vec![format!("nginx did not start: {why}")]);
        let port = free_port().map_err(|e| failed(e.to_string()))?;
        let file = folder.join("nginx.conf");
        fs::write(&file, configuration(&port.to_string()))
            .map_err(|source| Error::Write { path: file, source })?;
        let log = folder.join("error.log");
        let mut command = Command::new(program);
        command.arg("-p").arg(folder).arg("-e").arg(&log);
        command.args(["-c", "nginx.conf"]);
        let child = child::spawn(command.current_dir(folder)).map_err(|source| Error::Start {
            command: crate::command::line(&command),
            source,
        })?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut nginx = Nginx { child, address };
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests it has seen since its start, this one included.
    pub fn requests(&self) -> io::Result<u64> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
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

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
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
