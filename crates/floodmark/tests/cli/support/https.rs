//! An HTTPS server that runs in threads of the test process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

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

fn answer_all(stream: &mut StreamOwned<ServerConnection, std::net::TcpStream>) {
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
