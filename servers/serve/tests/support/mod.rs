//! A server in a thread of the test, and a client that exposes raw bytes.
#![allow(dead_code, reason = "each test binary uses only some of these helpers")]

pub mod process;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use floodmark_serve::{
    JournalSetting, Limits, NativeWorkload, ServeError, ServeSummary, Settings, serve,
};
use tokio::sync::oneshot;

/// A running server.
pub struct TestServer {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<ServeSummary, ServeError>>,
}

pub fn settings(workload: NativeWorkload) -> Settings {
    Settings {
        share_port: false,
        workload,
        listen: "127.0.0.1:0".parse().unwrap(),
        threads: NonZeroUsize::new(1),
        tls: None,
        state: None,
        journal: JournalSetting::None,
        store: None,
        limits: Limits::default(),
        on_failure: |_| {},
    }
}

/// Returns the workloads that respond to GET without a store.
pub fn get_workloads() -> impl Iterator<Item = NativeWorkload> {
    let workloads = NativeWorkload::NAMES
        .iter()
        .map(|name| name.parse().unwrap());
    workloads.filter(|workload: &NativeWorkload| workload.methods() == "GET, HEAD")
}

impl TestServer {
    pub fn of(workload: NativeWorkload) -> Self {
        Self::start(settings(workload))
    }

    pub fn start(settings: Settings) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, address) = mpsc::channel();
        let thread = thread::spawn(move || {
            let shutdown = async {
                let _ = stopped.await;
            };
            serve(settings, shutdown, |at| ready.send(at).unwrap())
        });
        match address.recv() {
            Ok(address) => TestServer {
                address,
                stop,
                thread,
            },
            Err(_) => panic!("{}", thread.join().unwrap().unwrap_err()),
        }
    }

    pub fn connect(&self) -> TestClient {
        TestClient::connect(self.address)
    }

    pub fn stop(self) -> ServeSummary {
        self.begin_stop().join().unwrap().unwrap()
    }

    pub fn begin_stop(self) -> JoinHandle<Result<ServeSummary, ServeError>> {
        let _ = self.stop.send(());
        self.thread
    }
}

/// A connection with timeouts.
pub struct TestClient<S = TcpStream> {
    pub stream: S,
    left: Vec<u8>,
}

/// Returns the port as `/proc/net/tcp` shows it: a colon and hexadecimal digits.
fn port(address: std::io::Result<SocketAddr>) -> String {
    format!(":{:04X}", address.unwrap().port())
}

/// A complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl TestResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl TestClient {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        TestClient::over(stream)
    }

    /// Waits until the server has read everything that was sent. The receive queue of the server's
    /// socket is then empty.
    pub fn wait_until_read(&self) {
        let server = port(self.stream.peer_addr());
        let client = port(self.stream.local_addr());
        let is_read = || {
            let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
            sockets.lines().any(|socket| {
                let fields: Vec<&str> = socket.split_whitespace().collect();
                fields[1].ends_with(&server)
                    && fields[2].ends_with(&client)
                    && fields[4].ends_with(":00000000")
            })
        };
        let end = Instant::now() + Duration::from_secs(30);
        while !is_read() {
            assert!(Instant::now() < end, "the server does not read");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the number of TCP segments that the client has received.
    pub fn received_segments(&self) -> u32 {
        // SAFETY: all fields are integers.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let (option, fd) = (libc::TCP_INFO, self.stream.as_raw_fd());
        let value = (&raw mut info).cast();
        // SAFETY: the value has the given length.
        let result =
            unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, option, value, &raw mut length) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        info.tcpi_segs_in
    }
}

impl<S: Read + Write> TestClient<S> {
    pub fn over(stream: S) -> Self {
        TestClient {
            stream,
            left: Vec::new(),
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    pub fn get(&mut self, path: &str) -> TestResponse {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        self.response()
    }

    /// Reads the next response, which must be complete.
    pub fn response(&mut self) -> TestResponse {
        self.try_response(true).expect("a response")
    }

    /// Reads the response to a HEAD request, which has no body.
    pub fn head_response(&mut self) -> TestResponse {
        self.try_response(false).expect("a response")
    }

    /// Reads the next response. Returns `None` if the connection ends first.
    pub fn try_response(&mut self, with_body: bool) -> Option<TestResponse> {
        let end = loop {
            match self.left.windows(4).position(|w| w == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.more()?,
            }
        };
        let head = String::from_utf8(self.left[..end].to_vec()).unwrap();
        let mut response = TestResponse {
            status: head[9..12].parse().unwrap(),
            head,
            body: String::new(),
        };
        let length: usize = response
            .header("content-length")
            .map_or(0, |n| n.parse().unwrap());
        let whole = end + if with_body { length } else { 0 };
        while self.left.len() < whole {
            self.more()?;
        }
        response.body = String::from_utf8(self.left[end..whole].to_vec()).unwrap();
        self.left.drain(..whole);
        Some(response)
    }

    fn more(&mut self) -> Option<()> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(n) if n > 0 => {
                self.left.extend_from_slice(&chunk[..n]);
                Some(())
            }
            _ => None,
        }
    }

    /// Returns whether the server has closed the connection without sending further bytes.
    pub fn is_closed(&mut self) -> bool {
        self.left.is_empty() && matches!(self.stream.read(&mut [0; 1]), Ok(0))
    }
}
