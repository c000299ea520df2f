//! What a contract says of bad days: what was answered is there after the server was killed, and where the store is gone nothing is
//! answered that was not written.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use floodmark_observe::Root;
use floodmark_observe::listener::{Listeners, find};

use super::client::{Connection, Request};
use super::contract::{Asking, Workload};
use super::{bars, scoring};

/// How long a server may take until it answers again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// The server that was started in place of the killed one; it ends with this.
struct Again(Child);

impl Drop for Again {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing of it is left.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills the server while it stands, starts it again on the same store, then kills the store.
pub fn contract(workload: Workload, asking: &mut Asking) {
    if let Err(error) = bad_day(workload, asking) {
        asking.hold(false, || format!("the outage: {error}"));
    }
}

fn bad_day(workload: Workload, asking: &mut Asking) -> io::Result<()> {
    let server = listening(asking.server)?;
    let store = behind(server, asking.server.port())?;
    let _again = match workload {
        Workload::Scoring => {
            let path = Workload::Scoring.path();
            let first = Request::post(path, r#"{"score": 10}"#);
            let Some(before) = scoring::scored(asking, "POST before the server is killed", first)
            else {
                return Ok(());
            };
            let again = killed_and_started(server, asking.server)?;
            let next = Request::post(path, r#"{"score": 2.5}"#);
            scoring::adds(asking, before, 2.5, next);
            again
        }
        Workload::Bars => {
            let there = bars::list(asking);
            let again = killed_and_started(server, asking.server)?;
            if let Some(there) = there {
                bars::holds(asking, "after the server was killed", &there);
            }
            again
        }
        Workload::Hello | Workload::Json | Workload::Dispatcher => return Ok(()),
    };
    kill(listening(store)?)?;
    let body = match workload {
        Workload::Bars => r#"{"name": "Corner"}"#,
        _ => r#"{"score": 10}"#,
    };
    let why = "POST while the store is gone";
    let request = Request::post(workload.path(), body);
    if let Some(answer) = asking.refused(why, request, 503) {
        let after = answer.header("retry-after").map(str::to_owned);
        asking.hold(after.is_some(), || {
            format!("{why}: the answer has no Retry-After")
        });
    }
    Ok(())
}

/// The process that listens at an address.
fn listening(at: SocketAddr) -> io::Result<u32> {
    match find(&Root::host(), at) {
        Listeners::Processes(pids) if !pids.is_empty() => Ok(pids[0]),
        Listeners::Processes(_) | Listeners::Hidden | Listeners::Nobody => Err(io::Error::other(
            format!("no process is found that listens at {at}"),
        )),
    }
}

/// Where the connections of a server go that are not those of its clients.
fn behind(server: u32, port: u16) -> io::Result<SocketAddr> {
    let mut own = HashSet::new();
    for file in fs::read_dir(format!("/proc/{server}/fd"))?.flatten() {
        if let Ok(target) = fs::read_link(file.path()) {
            own.insert(target.to_string_lossy().into_owned());
        }
    }
    let mut connections = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        connections.extend(connected(&fs::read_to_string(file)?, &own));
    }
    let to_store = connections
        .into_iter()
        .find(|(local, _)| local.port() != port);
    to_store
        .map(|(_, remote)| remote)
        .ok_or_else(|| io::Error::other("the server has no connection to a store"))
}

/// Local and remote address of the established connections in the text of `/proc/net/tcp` that are among some sockets.
fn connected(text: &str, own: &HashSet<String>) -> Vec<(SocketAddr, SocketAddr)> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_own = own.contains(&format!("socket:[{}]", fields.get(9)?));
        let local = floodmark_observe::listener::parse_address(fields.get(1)?)?;
        let remote = floodmark_observe::listener::parse_address(fields.get(2)?)?;
        (is_own && fields.get(3) == Some(&"01")).then_some((local, remote))
    };
    text.lines().filter_map(line).collect()
}

/// Kills a server by SIGKILL and starts it again as it was started; returns when it listens.
fn killed_and_started(server: u32, at: SocketAddr) -> io::Result<Again> {
    let words = fs::read(format!("/proc/{server}/cmdline"))?;
    let mut words = words
        .split(|byte| *byte == 0)
        .map(|word| std::ffi::OsString::from_vec(word.to_vec()));
    let program = words.next().unwrap_or_default();
    let mut words: Vec<_> = words.collect();
    // A zero ends the last word, too.
    words.pop();
    let environment = fs::read(format!("/proc/{server}/environ"))?;
    let variables = environment.split(|byte| *byte == 0).filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        let (name, value) = variable.split_at(at);
        let os = |bytes: &[u8]| std::ffi::OsString::from_vec(bytes.to_vec());
        Some((os(name), os(&value[1..])))
    });
    let mut command = Command::new(program);
    command
        .args(words)
        .env_clear()
        .envs(variables)
        .current_dir(fs::read_link(format!("/proc/{server}/cwd"))?)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    kill(server)?;
    let begin = Instant::now();
    // Its port is free once it is gone.
    while listening(at).is_ok() && begin.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
    }
    let again = Again(command.spawn()?);
    loop {
        let answered = Connection::to(at).and_then(|mut it| it.ask(Request::get("/nowhere")));
        match answered {
            Ok(_) => return Ok(again),
            Err(error) if begin.elapsed() > PATIENCE => {
                return Err(io::Error::other(format!(
                    "the server does not answer again: {error}"
                )));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn kill(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: kill takes plain numbers and touches no memory of ours.
    if unsafe { libc::kill(pid, libc::SIGKILL) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_store_is_where_the_servers_own_connections_go() {
        let (loaded, store) = (
            TcpListener::bind("127.0.0.1:0").unwrap(),
            TcpListener::bind("127.77.0.3:0").unwrap(),
        );
        let (at, there) = (loaded.local_addr().unwrap(), store.local_addr().unwrap());
        let held = TcpStream::connect(there).unwrap();
        let sockets = HashSet::from([fs::read_link(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&held)
        ))
        .unwrap()
        .to_string_lossy()
        .into_owned()]);
        let text = fs::read_to_string("/proc/net/tcp").unwrap();
        let own = connected(&text, &sockets);
        assert_eq!(own, [(held.local_addr().unwrap(), there)]);
        assert_eq!(listening(at).unwrap(), std::process::id());
        drop(loaded);
        assert!(listening(at).is_err());
    }
}
