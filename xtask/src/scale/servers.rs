//! The servers: `floodmark serve hello` with one thread each on one port, stopped on any way out.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::command;
use crate::error::Error;
use crate::measuring::child;

/// An idle connection is kept for longer than any run lasts.
const IDLE: &str = "3600s";

/// How long they may take to end together: each awaits what is in flight for 5 s.
const GRACE: Duration = Duration::from_secs(15);

/// How often they are looked at.
const POLL: Duration = Duration::from_millis(20);

/// Running servers. They are stopped when this is dropped.
#[derive(Debug)]
pub struct Servers {
    children: Vec<Child>,
    url: String,
}

impl Servers {
    /// Starts `count` of them on a free port of 127.0.0.1.
    pub fn start(floodmark: &Path, count: u32) -> Result<Self, Error> {
        let mut servers = Servers {
            children: Vec::new(),
            url: String::new(),
        };
        let mut listen = "127.0.0.1:0".to_owned();
        for _ in 0..count {
            servers.url = servers.start_one(floodmark, &listen)?;
            listen = servers.url.trim_start_matches("http://").to_owned();
        }
        Ok(servers)
    }

    /// Their URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn start_one(&mut self, floodmark: &Path, listen: &str) -> Result<String, Error> {
        let mut server = Command::new(floodmark);
        server.args(["serve", "hello", "--share-port", "--threads", "1"]);
        server.args(["--listen", listen, "--idle", IDLE]);
        let line = command::line(&server);
        println!("$ {line}");
        server.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child::spawn(&mut server).map_err(|source| Error::Start {
            command: line.clone(),
            source,
        })?;
        let stdout = child.stdout.take();
        self.children.push(child);
        let mut said = String::new();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut said));
        let url = said.trim().strip_prefix("listening on ");
        match (read, url) {
            (Some(Ok(_)), Some(url)) => Ok(url.to_owned()),
            _ => Err(Error::Output {
                command: line,
                why: "it did not start; call it to see why".to_owned(),
            }),
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            if let Ok(None) = child.try_wait() {
                child::terminate(child.id());
            }
        }
        let end = Instant::now() + GRACE;
        for child in &mut self.children {
            while let Ok(None) = child.try_wait() {
                if Instant::now() >= end {
                    child::end_group(child.id());
                    // Fails only where it has been reaped, which is what is wanted.
                    let _ = child.wait();
                    break;
                }
                thread::sleep(POLL);
            }
        }
    }
}
