//! A real server in a thread of the test, and a plain client that shows every byte.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use floodmark_serve::{Limits, ServeError, Settings, Summary, Workload, serve};
use tokio::sync::oneshot;

/// A server that runs until it is stopped.
pub struct Server {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<Summary, ServeError>>,
}

pub fn settings(workload: Workload) -> Settings {
    Settings {
        share_port: false,
        workload,
        listen: "127.0.0.1:0".parse().unwrap(),
        threads: NonZeroUsize::new(1),
        state: None,
        limits: Limits::default(),
    }
}

impl Server {
    pub fn of(workload: Workload) -> Self {
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
            Ok(address) => Server {
                address,
                stop,
                thread,
            },
            Err(_) => panic!("{}", thread.join().unwrap().unwrap_err()),
        }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn stop(self) -> Summary {
        self.begin_stop().join().unwrap().unwrap()
    }

    pub fn begin_stop(self) -> JoinHandle<Result<Summary, ServeError>> {
        let _ = self.stop.send(());
        self.thread
    }
}

/// One connection, with a timeout on every wait.
pub struct Client {
    pub stream: TcpStream,
    left: Vec<u8>,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Client {
            stream,
            left: Vec::new(),
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        self.answer()
    }

    /// The next answer, which must be there and whole.
    pub fn answer(&mut self) -> Answer {
        self.try_answer(true).expect("an answer")
    }

    /// The answer to a HEAD: its Content-Length counts no bytes.
    pub fn head_answer(&mut self) -> Answer {
        self.try_answer(false).expect("an answer")
    }

    /// The next answer; `None` where the connection ends before it is whole.
    pub fn try_answer(&mut self, with_body: bool) -> Option<Answer> {
        let end = loop {
            match self.left.windows(4).position(|w| w == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.more()?,
            }
        };
        let head = String::from_utf8(self.left[..end].to_vec()).unwrap();
        let mut answer = Answer {
            status: head[9..12].parse().unwrap(),
            head,
            body: String::new(),
        };
        let length: usize = answer
            .header("content-length")
            .map_or(0, |n| n.parse().unwrap());
        let whole = end + if with_body { length } else { 0 };
        while self.left.len() < whole {
            self.more()?;
        }
        answer.body = String::from_utf8(self.left[end..whole].to_vec()).unwrap();
        self.left.drain(..whole);
        Some(answer)
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

    /// Whether the server has ended the connection in order, with nothing more sent.
    pub fn is_closed(&mut self) -> bool {
        self.left.is_empty() && matches!(self.stream.read(&mut [0; 1]), Ok(0))
    }
}
