//! Listeners that violate the HTTP protocol.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A listener with one thread per connection, stopped on drop.
pub struct Listener {
    pub url: String,
    pub accepted: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Listener {
    pub fn start(on_connection: impl Fn(TcpStream) + Send + Sync + 'static) -> Listener {
        Listener::start_on("127.0.0.1:0", on_connection)
    }

    pub fn start_on(
        address: &str,
        on_connection: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Listener {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (accepted, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, stopped) = (Arc::clone(&accepted), Arc::clone(&stop));
        let on_connection = Arc::new(on_connection);
        thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                counted.fetch_add(1, Ordering::Relaxed);
                stream.set_nonblocking(false).unwrap();
                stream
                    .set_read_timeout(Some(Duration::from_secs(10)))
                    .unwrap();
                let on_connection = Arc::clone(&on_connection);
                thread::spawn(move || on_connection(stream));
            }
        });
        Listener {
            url,
            accepted,
            stop,
        }
    }

    /// Starts a listener that accepts connections and never responds.
    pub fn silent() -> Listener {
        Listener::start(|mut stream| while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {})
    }

    /// Starts a listener that responds to every request head with the same bytes.
    pub fn answering(answer: &[u8]) -> Listener {
        let answer = answer.to_vec();
        Listener::start(move |stream| answer_each(stream, |_| answer.clone()))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Responds to each request until the client closes the connection. Requests must have no body.
pub fn answer_each(mut stream: TcpStream, answer: impl Fn(&str) -> Vec<u8>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        while let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            bytes.drain(..end + 4);
            if stream.write_all(&answer(&head)).is_err() {
                return;
            }
        }
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => bytes.extend_from_slice(&buffer[..n]),
            _ => return,
        }
    }
}
