//! File descriptors of other processes: which socket, pipe or file they refer to.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;

use floodmark_record::metric::{WaitKind, WaitObject};
use rustix::net::{SocketAddrUnix, getpeername, getsockname};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::Root;
use crate::sock_diag::SockDiag;

/// Maximum number of sockets and processes that are remembered.
const MAX_KNOWN: usize = 4096;

/// Whether a thread waits for data or for space in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    fn choose(self, read: WaitKind, write: WaitKind) -> WaitObject {
        WaitObject::Kind(match self {
            Self::Read => read,
            Self::Write => write,
        })
    }
}

/// Resolves file descriptors of other processes.
///
/// A socket's addresses are read from a duplicate of the socket (pidfd_getfd(2)), once per socket
/// and direction. This requires permission to trace the process.
pub(crate) struct Descriptors {
    root: Root,
    diag: Option<SockDiag>,
    processes: HashMap<u32, OwnedFd>,
    /// What a thread waits for at a socket, by the socket's inode.
    sockets: HashMap<(u64, Direction), WaitObject>,
    /// Local ports of listening sockets.
    listening: HashSet<u16>,
}

impl Descriptors {
    /// Returns a resolver. `diag` must be in the network namespace of the processes.
    pub(crate) fn new(root: &Root, diag: Option<SockDiag>) -> Self {
        let mut descriptors = Self {
            root: root.clone(),
            diag,
            processes: HashMap::new(),
            sockets: HashMap::new(),
            listening: HashSet::new(),
        };
        descriptors.refresh();
        descriptors
    }

    /// Reads the ports of listening sockets. A connection with such a local port was accepted.
    pub(crate) fn refresh(&mut self) {
        if self.sockets.len() > MAX_KNOWN || self.processes.len() > MAX_KNOWN {
            self.sockets.clear();
            self.processes.clear();
        }
        if let Some(Ok(listening)) = self.diag.as_mut().map(SockDiag::listening_ports) {
            self.listening = listening;
        }
    }

    /// Returns what a thread waits for if it reads from or writes to a descriptor of its process.
    pub(crate) fn object(&mut self, pid: u32, descriptor: i32, to: Direction) -> WaitObject {
        let path = self.root.path(format!("/proc/{pid}/fd/{descriptor}"));
        let target = std::fs::read_link(path).unwrap_or_default();
        let target = target.to_string_lossy();
        let other = WaitObject::Kind(WaitKind::Other);
        let inode = |prefix| target.strip_prefix(prefix)?.strip_suffix(']')?.parse().ok();
        if let Some(inode) = inode("socket:[") {
            if let Some(known) = self.sockets.get(&(inode, to)) {
                return known.clone();
            }
            let object = self.read_socket(pid, descriptor, to).unwrap_or(other);
            self.sockets.insert((inode, to), object.clone());
            return object;
        }
        match &*target {
            pipe if pipe.starts_with("pipe:[") => {
                to.choose(WaitKind::PipeRead, WaitKind::PipeWrite)
            }
            "anon_inode:[timerfd]" => WaitObject::Kind(WaitKind::Timer),
            events if events.starts_with("anon_inode:[") => WaitObject::Kind(WaitKind::Events),
            path if path.starts_with('/') => {
                let target = self.root.path(format!("/proc/{pid}/fd/{descriptor}"));
                let kind = std::fs::metadata(target).map(|metadata| metadata.file_type());
                match kind {
                    Ok(kind) if kind.is_fifo() || kind.is_char_device() => {
                        to.choose(WaitKind::PipeRead, WaitKind::PipeWrite)
                    }
                    _ if self.appends(pid, descriptor) => WaitObject::AppendedFile(path.to_owned()),
                    _ => WaitObject::File(path.to_owned()),
                }
            }
            _ => other,
        }
    }

    /// Returns whether a descriptor of a process is an eventfd, which wakes a polling thread up.
    pub(crate) fn is_eventfd(&self, pid: u32, descriptor: i32) -> bool {
        let path = self.root.path(format!("/proc/{pid}/fd/{descriptor}"));
        std::fs::read_link(path).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
    }

    /// Returns whether a process opened a file for appending, as loggers do.
    fn appends(&self, pid: u32, descriptor: i32) -> bool {
        let info = self.root.read(format!("/proc/{pid}/fdinfo/{descriptor}"));
        let info = info.unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
        flags.is_some_and(|flags| flags & libc::O_APPEND != 0)
    }

    /// Returns what a thread waits for at a socket.
    fn read_socket(&mut self, pid: u32, descriptor: i32, to: Direction) -> io::Result<WaitObject> {
        let process = match self.processes.entry(pid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let process = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
                new.insert(pidfd_open(process, PidfdFlags::empty())?)
            }
        };
        let socket = pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())?;
        let local = getsockname(&socket)?;
        // A listening socket has no peer.
        let remote = getpeername(&socket).ok().flatten();
        let client = to.choose(WaitKind::ClientRead, WaitKind::ClientWrite);
        if let Ok(local) = SocketAddr::try_from(local.clone()) {
            if self.listening.is_empty() {
                return Ok(WaitObject::Kind(WaitKind::Other));
            }
            if self.listening.contains(&local.port()) {
                return Ok(remote.map_or(WaitObject::Kind(WaitKind::Accept), |_| client));
            }
            let mut remote = SocketAddr::try_from(remote.ok_or(io::ErrorKind::NotConnected)?)?;
            remote.set_ip(remote.ip().to_canonical());
            return Ok(WaitObject::Connection(remote));
        }
        let path = |address: SocketAddrUnix| Some(address.path()?.to_string_lossy().into_owned());
        if SocketAddrUnix::try_from(local).is_ok_and(|local| path(local).is_some()) {
            return Ok(client);
        }
        let remote = remote.and_then(|remote| path(SocketAddrUnix::try_from(remote).ok()?));
        let pair = to.choose(WaitKind::PipeRead, WaitKind::PipeWrite);
        Ok(remote.map_or(pair, WaitObject::UnixSocket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;

    #[test]
    fn distinguishes_logs_from_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let name = path.to_string_lossy().into_owned();
        let log = OpenOptions::new().append(true).create(true).open(&path);
        let (log, file) = (
            log.unwrap(),
            OpenOptions::new().write(true).open(&path).unwrap(),
        );
        let mut descriptors = Descriptors::new(&Root::host(), None);
        let mut object = |of: i32| descriptors.object(std::process::id(), of, Direction::Write);
        assert_eq!(
            object(log.as_raw_fd()),
            WaitObject::AppendedFile(name.clone())
        );
        assert_eq!(object(file.as_raw_fd()), WaitObject::File(name));
    }
}
