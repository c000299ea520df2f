//! Servers on loopback: a fast single-threaded server, and a server that calls a closure.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A complete response.
pub const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Calls `serve` for each connection in a separate thread. `serve` also receives the connection's
/// number.
pub fn serve(serve: impl Fn(TcpStream, u64) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    serve_on(listener, serve);
    address
}

pub fn serve_on(listener: TcpListener, serve: impl Fn(TcpStream, u64) + Send + Sync + 'static) {
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (Ok(stream), serve) = (stream, Arc::clone(&serve)) else {
                return;
            };
            let _ = stream.set_nodelay(true);
            std::thread::spawn(move || serve(stream, number as u64));
        }
    });
}

/// Reads one request without a body. Returns whether a complete request arrived.
pub fn read_request(stream: &mut impl Read) -> bool {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => bytes.extend_from_slice(&buffer[..n]),
            _ => return false,
        }
    }
    true
}

/// Returns a body of this length. If a piece of the body is missing, a comparison detects this.
pub fn large(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8).collect()
}

/// Reads a [`large`] body more slowly than the client sends it.
/// Responds with `whole` if the body is as expected, and with `torn` otherwise.
pub fn read_slowly(mut stream: impl Read + Write, expected: &[u8]) {
    let mut read = vec![0; expected.len()];
    for part in read.chunks_mut(500_000) {
        std::thread::sleep(Duration::from_millis(5));
        stream.read_exact(part).unwrap();
    }
    let response: &[u8] = if read == expected { b"whole" } else { b"torn" };
    stream.write_all(response).unwrap();
}

/// Responds to every request on a connection, and closes the connection when a request asks for
/// this.
pub fn respond_to_all(stream: &mut (impl Read + Write), responded: &AtomicU64) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => bytes.extend_from_slice(&buffer[..n]),
            _ => return,
        }
        if bytes.ends_with(b"\r\n\r\n") {
            responded.fetch_add(1, Ordering::Relaxed);
            let last = String::from_utf8_lossy(&bytes).contains("onnection: close");
            if stream.write_all(RESPONSE).is_err() || last {
                return;
            }
            bytes.clear();
        }
    }
}

/// Responds to every read with [`RESPONSE`] until the process ends. One thread serves all
/// connections with epoll.
/// This server is used for loads that are too high for one thread per connection.
pub fn fast(listener: TcpListener) {
    const LISTENER: u64 = u64::MAX;
    // SAFETY: no pointers are passed.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(epoll >= 0);
    let watch = |fd: i32, token: u64| {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token,
        };
        // SAFETY: both descriptors are open, and the event outlives the call.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    };
    listener.set_nonblocking(true).unwrap();
    watch(listener.as_raw_fd(), LISTENER);
    let mut streams = HashMap::new();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
    let mut buffer = [0; 4096];
    loop {
        // SAFETY: the kernel writes at most as many events as the array has elements.
        let n = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 256, -1) };
        for event in &events[..n.max(0) as usize] {
            let token = event.u64;
            if token == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    let _ = stream.set_nodelay(true);
                    let fd = stream.as_raw_fd();
                    watch(fd, fd as u64);
                    streams.insert(fd as u64, stream);
                }
                continue;
            }
            let stream: &mut TcpStream = streams.get_mut(&token).unwrap();
            match stream.read(&mut buffer) {
                Ok(n) if n > 0 => drop(stream.write_all(RESPONSE)),
                _ => drop(streams.remove(&token)),
            }
        }
    }
}
