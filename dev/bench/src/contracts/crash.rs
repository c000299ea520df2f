//! Contract checks after crashes. Acknowledged data must survive a killed server, and a server must
//! not acknowledge a write without its store.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_host::{Child, ProcessSet, Signal};
use floodmark_lab::manifest::Workload;
use floodmark_observe::listener::{ESTABLISHED, Listeners, find, parse, socket_inodes};
use floodmark_observe::{Root, family};
use rustix::process::{Pid, kill_process};

use super::client::{ContractConnection, ContractRequest};
use super::contract::ContractCheck;
use super::{bars, scoring};
use crate::bench::Failure;

/// Maximum time until a restarted server responds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Interval between two attempts to get a response.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Kills the server, restarts it on the same store, then kills the store.
pub fn contract(workload: Workload, check: &mut ContractCheck) {
    if let Err(error) = crash(workload, check) {
        check.that(false, format!("--outage: {error}"));
    }
}

fn crash(workload: Workload, check: &mut ContractCheck) -> Result<(), Failure> {
    let at = check.server;
    let server = listening(at)?;
    let store = store_of(server, at.port())?;
    let path = workload.path();
    let (body, _restarted) = match workload {
        Workload::Scoring => {
            let body = r#"{"score": 10}"#;
            let first = ContractRequest::post(path, body);
            let Some(before) = scoring::post(check, "POST before the kill", first) else {
                return Ok(());
            };
            let restarted = restart(server, at)?;
            let next = ContractRequest::post(path, r#"{"score": 2.5}"#);
            scoring::adds(check, before, 2.5, next);
            (body, restarted)
        }
        Workload::Bars => {
            let stored = bars::list(check);
            let restarted = restart(server, at)?;
            if let Some(stored) = stored {
                bars::check_stored(check, "after the kill", &stored);
            }
            (r#"{"name": "Corner"}"#, restarted)
        }
        _ => return Ok(()),
    };
    kill_family(listening(store)?)?;
    let what = "POST without the store";
    if let Some(response) = check.refused(what, ContractRequest::post(path, body), 503) {
        let has_header = response.header("retry-after").is_some();
        check.that(has_header, format!("{what}: no Retry-After"));
    }
    Ok(())
}

/// Returns the id of the process that listens on an address.
fn listening(at: SocketAddr) -> Result<u32, Failure> {
    match find(&Root::host(), at) {
        Listeners::Processes(pids) if !pids.is_empty() => Ok(pids[0]),
        _ => Err(format!("{at}: no listening process found").into()),
    }
}

/// Returns the address of a server's store: the remote address of a connection whose local port is
/// not the server's port.
fn store_of(server: u32, port: u16) -> Result<SocketAddr, Failure> {
    let own = socket_inodes(&Root::host(), server).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let tables: String = tables.into_iter().flatten().collect();
    let mut connections = established(&tables, &own).into_iter();
    let store = connections.find(|(local, _)| local.port() != port);
    let (_, remote) = store.ok_or("the server has no connection to a store")?;
    Ok(remote)
}

/// Parses `/proc/net/tcp` and returns the local and remote address of each established connection
/// whose inode is in `own`.
fn established(text: &str, own: &HashSet<u64>) -> Vec<(SocketAddr, SocketAddr)> {
    let sockets = parse(text, Some(ESTABLISHED)).filter(|socket| own.contains(&socket.inode));
    sockets
        .map(|socket| (socket.address, socket.remote))
        .collect()
}

/// Kills a server (SIGKILL) and restarts it with the same command, environment and working
/// directory. Waits until the new server responds.
fn restart(server: u32, at: SocketAddr) -> Result<Child, Failure> {
    let process = |file: &str| format!("/proc/{server}/{file}");
    let read = |file: &str| -> io::Result<String> {
        let bytes = fs::read(process(file))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    // Each argument ends with a zero byte (proc_pid_cmdline(5), proc_pid_environ(5)).
    let (words, environment) = (read("cmdline")?, read("environ")?);
    let mut words = words.split_terminator('\0');
    let program = words.next().ok_or("the server's command line is empty")?;
    let variables = environment.split_terminator('\0');
    let variables = variables.filter_map(|variable| variable.split_once('='));
    let mut command = Command::new(program);
    command
        .args(words)
        .env_clear()
        .envs(variables)
        .current_dir(fs::read_link(process("cwd"))?)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    kill(server)?;
    let begin = Instant::now();
    // The port is free once the old process has ended.
    while listening(at).is_ok() && begin.elapsed() < TIMEOUT {
        thread::sleep(RETRY_INTERVAL);
    }
    let child = Child::start(command)?;
    let probe = ContractRequest::get("/nowhere");
    loop {
        match ContractConnection::to(at).and_then(|mut it| it.request(probe)) {
            Ok(_) => return Ok(child),
            Err(error) if begin.elapsed() > TIMEOUT => {
                return Err(format!("the restarted server does not respond: {error}").into());
            }
            Err(_) => thread::sleep(RETRY_INTERVAL),
        }
    }
}

fn kill(pid: u32) -> io::Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, Signal::KILL)?)
}

/// Kills a store and its descendants (SIGKILL), and waits until they have exited. A PostgreSQL
/// process can still complete a statement after its parent has been killed.
fn kill_family(pid: u32) -> io::Result<()> {
    let family = ProcessSet::open(&family(&Root::host(), pid))?;
    family.signal(Signal::KILL)?;
    if family.wait(TIMEOUT)? {
        Ok(())
    } else {
        Err(io::ErrorKind::TimedOut.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn finds_listeners_and_own_connections() {
        let listen = |at: &str| TcpListener::bind(at).unwrap();
        let (server, store) = (listen("127.0.0.1:0"), listen("127.77.0.3:0"));
        let (at, store_at) = (server.local_addr().unwrap(), store.local_addr().unwrap());
        let stream = TcpStream::connect(store_at).unwrap();
        let file = fs::metadata(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap();
        let own = HashSet::from([file.ino()]);
        let text = fs::read_to_string("/proc/net/tcp").unwrap();
        let expected = [(stream.local_addr().unwrap(), store_at)];
        assert_eq!(established(&text, &own), expected);
        assert_eq!(listening(at).unwrap(), std::process::id());
        drop(server);
        assert!(listening(at).is_err());
    }
}
