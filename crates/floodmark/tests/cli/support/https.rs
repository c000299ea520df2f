//! HTTPS servers that run in threads of the test process.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::Serve;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Starts a server on a free port of `host`.
pub fn serve(host: &str, config: ServerConfig) -> SocketAddr {
    let listener = TcpListener::bind((host, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(config);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(stream), config) = (stream, Arc::clone(&config)) else {
                return;
            };
            let _ = stream.set_nodelay(true);
            thread::spawn(move || {
                let connection = ServerConnection::new(config).unwrap();
                answer_all(&mut StreamOwned::new(connection, stream));
            });
        }
    });
    address
}

fn answer_all(stream: &mut StreamOwned<ServerConnection, TcpStream>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..n]);
        if bytes.ends_with(b"\r\n\r\n") {
            let last = String::from_utf8_lossy(&bytes).contains("onnection: close");
            if stream.write_all(ANSWER).is_err() {
                return;
            }
            if last {
                stream.conn.send_close_notify();
                let _ = stream.flush();
                return;
            }
            bytes.clear();
        }
    }
}

/// Starts a TLS server that relays each connection to `upstream`. Returns its URL.
pub fn relay(config: ServerConfig, upstream: &Serve) -> String {
    let upstream = upstream
        .url
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let upstream: SocketAddr = upstream.parse().unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming() {
            let config = Arc::clone(&config);
            thread::spawn(move || {
                let connection = ServerConnection::new(config).unwrap();
                let client = client.unwrap();
                let server = TcpStream::connect(upstream).unwrap();
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                    let poll = Duration::from_millis(1);
                    stream.set_read_timeout(Some(poll)).unwrap();
                }
                let mut client = StreamOwned::new(connection, client);
                while forward(&mut client, &server) && forward(&server, &mut client) {}
            });
        }
    });
    url
}

/// Forwards the bytes that have arrived. Returns whether the connections are still open.
fn forward(mut from: impl Read, mut to: impl Write) -> bool {
    let mut buffer = [0; 16 * 1024];
    match from.read(&mut buffer) {
        Ok(0) => false,
        Ok(n) => to.write_all(&buffer[..n]).and_then(|()| to.flush()).is_ok(),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
