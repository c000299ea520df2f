//! Samples what blocked threads are waiting for, from `/proc/PID/task/TID/syscall`.
//!
//! The file contains the system call in which a thread is waiting, and the arguments of this call.
//! Reading the file requires permission to trace the process.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt};

use floodmark_record::Metric;
use floodmark_record::metric::{Role, WaitKind, WaitObject};
use rustix::net::{SocketAddrUnix, getpeername, getsockname};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::Root;
use crate::samples::Figures;
use crate::sock_diag::SockDiag;
use crate::threads::Threads;

/// Maximum number of objects per thread group that have their own series.
const MAX_OBJECTS: usize = 12;

/// Maximum number of shared locks to remember.
const MAX_LOCKS: usize = 1024;

/// The parsed line of a thread's `syscall` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SystemCall {
    /// The thread is running or runnable.
    Running,
    /// The thread is blocked outside a system call.
    None,
    /// The number and the arguments of the system call in which the thread is blocked.
    Blocked(i64, [u64; 6]),
}

impl SystemCall {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let number = match words.next()? {
            "running" => return Some(Self::Running),
            "-1" => return Some(Self::None),
            number => number.parse().ok()?,
        };
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        Some(Self::Blocked(number, arguments))
    }
}

/// A lock of a process: the process's PID and the lock's address.
type ProcessLock = (u32, u64);

/// Samples what the blocked threads of a process tree are waiting for.
pub(crate) struct BlockedThreads {
    root: Root,
    role: Role,
    descriptors: Descriptors,
    /// Number of samples since the last report.
    samples: u32,
    /// Number of times that a sample found a thread waiting for an object, by thread group.
    counts: HashMap<String, HashMap<WaitObject, u32>>,
    /// Locks for which several threads were waiting at once.
    shared_locks: HashSet<ProcessLock>,
    /// Objects with a series, by thread group.
    reported: HashMap<String, HashSet<WaitObject>>,
}

impl BlockedThreads {
    /// Returns a sampler. `diag` must be in the network namespace of the processes.
    pub(crate) fn new(root: &Root, role: Role, diag: Option<SockDiag>) -> Self {
        Self {
            root: root.clone(),
            role,
            descriptors: Descriptors::new(root, diag),
            samples: 0,
            counts: HashMap::new(),
            shared_locks: HashSet::new(),
            reported: HashMap::new(),
        }
    }

    /// Samples each thread once.
    ///
    /// # Errors
    /// No thread can be traced.
    pub(crate) fn sample(&mut self, threads: &mut Threads) -> io::Result<()> {
        let mut waits = Vec::new();
        threads.read_system_calls(|pid, group, line| {
            let object = match SystemCall::parse(line) {
                None | Some(SystemCall::Running) => return,
                Some(SystemCall::None) => WaitObject::Kind(WaitKind::PageFault),
                Some(SystemCall::Blocked(number, arguments)) => self.object(pid, number, arguments),
            };
            waits.push((pid, group.to_owned(), object));
        })?;
        let mut waiters: HashMap<ProcessLock, u32> = HashMap::new();
        for (pid, _, object) in &waits {
            if let WaitObject::Lock(address) = object {
                *waiters.entry((*pid, *address)).or_default() += 1;
            }
        }
        let shared = waiters.iter().filter(|(_, waiting)| **waiting > 1);
        self.shared_locks
            .extend(shared.map(|(lock, _)| *lock).take(MAX_LOCKS));
        for (pid, group, object) in waits {
            let object = match object {
                WaitObject::Lock(address) if !self.shared_locks.contains(&(pid, address)) => {
                    WaitObject::Kind(WaitKind::OwnLock)
                }
                object => object,
            };
            *self
                .counts
                .entry(group)
                .or_default()
                .entry(object)
                .or_default() += 1;
        }
        self.samples += 1;
        Ok(())
    }

    /// Reports the mean number of threads that were waiting for each object since the last report.
    pub(crate) fn report(&mut self, figures: &mut Figures) {
        let samples = f64::from(std::mem::take(&mut self.samples).max(1));
        for (group, objects) in &mut self.counts {
            let mut objects: Vec<(WaitObject, u32)> = objects.drain().collect();
            objects.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let reported = self.reported.entry(group.clone()).or_default();
            for (object, count) in objects {
                if reported.len() < MAX_OBJECTS {
                    reported.insert(object.clone());
                }
                let other = WaitObject::Kind(WaitKind::Other);
                let object = if reported.contains(&object) {
                    object
                } else {
                    other
                };
                let metric = Metric::ThreadsBlocked {
                    role: self.role,
                    group: group.clone(),
                    object,
                };
                figures.set(metric, f64::from(count) / samples);
            }
        }
        self.shared_locks.clear();
        self.descriptors.refresh();
    }

    /// Returns what a thread is waiting for in a system call.
    fn object(&mut self, pid: u32, number: i64, arguments: [u64; 6]) -> WaitObject {
        use WaitKind::{Accept, Child, Events, FileLock, Signal, TimedLock, Timer};
        let kind = WaitObject::Kind;
        let [a, b, c, _, e, _] = arguments;
        let descriptor = a as i32;
        match number {
            libc::SYS_futex if arguments[3] != 0 => kind(TimedLock),
            libc::SYS_futex => WaitObject::Lock(arguments[0]),
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => kind(Timer),
            libc::SYS_accept | libc::SYS_accept4 => kind(Accept),
            libc::SYS_wait4 | libc::SYS_waitid => kind(Child),
            libc::SYS_rt_sigtimedwait | libc::SYS_rt_sigsuspend => kind(Signal),
            libc::SYS_flock => kind(FileLock),
            libc::SYS_fcntl
                if matches!(arguments[1] as i32, libc::F_SETLKW | libc::F_OFD_SETLKW) =>
            {
                kind(FileLock)
            }
            libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_pread64
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_connect => self.descriptors.object(pid, descriptor, Direction::Read),
            libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwrite64
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendfile
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_ftruncate
            | libc::SYS_fallocate => self.descriptors.object(pid, descriptor, Direction::Write),
            libc::SYS_openat
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_unlinkat
            | libc::SYS_mkdirat
            | libc::SYS_sync
            | libc::SYS_syncfs => WaitObject::File(String::new()),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open | libc::SYS_rename | libc::SYS_unlink | libc::SYS_mkdir => {
                WaitObject::File(String::new())
            }
            libc::SYS_ppoll => self.polled(pid, c != 0, polled_by_poll(&self.root, pid, [a, b])),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => {
                self.polled(pid, c as i32 >= 0, polled_by_poll(&self.root, pid, [a, b]))
            }
            libc::SYS_pselect6 => {
                self.polled(pid, e != 0, polled_by_select(&self.root, pid, [a, b, c]))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => {
                self.polled(pid, e != 0, polled_by_select(&self.root, pid, [a, b, c]))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => kind(Events),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_io_uring_enter => {
                kind(Events)
            }
            number => WaitObject::SystemCall(number as u32),
        }
    }

    /// Returns what a thread that polls descriptors is waiting for. `polled` is `None` if the
    /// descriptors cannot be read, or if there are too many.
    ///
    /// Besides the descriptor that they read or write, many runtimes poll descriptors that only
    /// wake up the thread: an eventfd, or a pipe to the same process. A call that has a timeout and
    /// polls no descriptors, or only eventfds, is reported as a timer.
    fn polled(&mut self, pid: u32, has_timeout: bool, polled: Option<Polled>) -> WaitObject {
        use WaitKind::{Events, PipeRead, Signal, Timer};
        let Some(mut polled) = polled else {
            return WaitObject::Kind(Events);
        };
        let is_empty = polled.is_empty();
        polled.retain(|(of, _)| !self.descriptors.is_eventfd(pid, *of));
        let objects = polled.iter();
        let mut objects: Vec<WaitObject> = objects
            .map(|(of, to)| self.descriptors.object(pid, *of, *to))
            .collect();
        let pipe = WaitObject::Kind(PipeRead);
        if objects.iter().any(|object| *object != pipe) {
            objects.retain(|object| *object != pipe);
        }
        match objects.split_first() {
            Some((first, rest)) if rest.iter().all(|other| other == first) => first.clone(),
            Some(_) => WaitObject::Kind(Events),
            None if has_timeout => WaitObject::Kind(Timer),
            None if is_empty => WaitObject::Kind(Signal),
            None => WaitObject::Kind(Events),
        }
    }
}

/// The descriptors that a thread polls, and whether it is waiting to read from or write to each.
type Polled = Vec<(i32, Direction)>;

/// Maximum number of polled descriptors to resolve. A thread that polls more is reported as waiting
/// for events.
const MAX_POLLED: usize = 8;

/// Size of `struct pollfd` in bytes.
const POLLFD_BYTES: usize = 8;

/// Size of `fd_set` in bytes.
const FD_SET_BYTES: usize = 128;

/// Reads the polled descriptors from the first two arguments of poll(2) or ppoll(2). Returns `None`
/// if there are too many descriptors, or if they cannot be read.
fn polled_by_poll(root: &Root, pid: u32, [address, count]: [u64; 2]) -> Option<Polled> {
    let count = usize::try_from(count).ok()?;
    if count > MAX_POLLED {
        return None;
    }
    let mut bytes = [0; MAX_POLLED * POLLFD_BYTES];
    let bytes = &mut bytes[..count * POLLFD_BYTES];
    read_memory(root, pid, address, bytes)?;
    // struct pollfd: descriptor, requested events, returned events.
    let (polled, _) = bytes.as_chunks::<POLLFD_BYTES>();
    let descriptors = polled.iter().map(|[a, b, c, d, events, ..]| {
        let to = match i16::from(*events) & libc::POLLIN {
            0 => Direction::Write,
            _ => Direction::Read,
        };
        (i32::from_ne_bytes([*a, *b, *c, *d]), to)
    });
    // The kernel ignores negative descriptors.
    Some(descriptors.filter(|(of, _)| *of >= 0).collect())
}

/// Reads the polled descriptors from the first three arguments of select(2) or pselect(2). Returns
/// `None` if there are too many descriptors, or if they cannot be read.
fn polled_by_select(root: &Root, pid: u32, [count, read, write]: [u64; 3]) -> Option<Polled> {
    let count = (count as i32).clamp(0, 8 * FD_SET_BYTES as i32);
    let mut descriptors = Vec::new();
    for (address, to) in [(read, Direction::Read), (write, Direction::Write)] {
        let mut set = [0; FD_SET_BYTES];
        let set = &mut set[..(count as usize).div_ceil(64) * 8];
        if address == 0 || set.is_empty() {
            continue;
        }
        read_memory(root, pid, address, set)?;
        let is_set = |of: &i32| set[*of as usize / 8] & (1 << (*of % 8)) != 0;
        descriptors.extend((0..count).filter(is_set).map(|of| (of, to)));
    }
    (descriptors.len() <= MAX_POLLED).then_some(descriptors)
}

/// Reads the memory of a process.
fn read_memory(root: &Root, pid: u32, address: u64, into: &mut [u8]) -> Option<()> {
    if into.is_empty() {
        return Some(());
    }
    let memory = File::open(root.path(format!("/proc/{pid}/mem"))).ok()?;
    memory.read_exact_at(into, address).ok()
}

/// If the number of remembered sockets or processes exceeds this value, all of them are forgotten.
const MAX_KNOWN: usize = 4096;

/// Whether a thread is waiting for data or for space in a buffer.
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
    /// What a thread that uses a socket is waiting for, by the socket's inode and the direction.
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

    /// Reads the ports of listening sockets. If a connection's local port is one of them, the
    /// connection was accepted.
    pub(crate) fn refresh(&mut self) {
        if self.sockets.len() > MAX_KNOWN || self.processes.len() > MAX_KNOWN {
            self.sockets.clear();
            self.processes.clear();
        }
        if let Some(Ok(listening)) = self.diag.as_mut().map(SockDiag::listening_ports) {
            self.listening = listening;
        }
    }

    /// Returns what a thread is waiting for while it reads from or writes to a descriptor of its
    /// process.
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

    /// Returns whether a descriptor of a process is an eventfd, which can wake up a polling thread.
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

    /// Returns what a thread is waiting for while it reads from or writes to a socket.
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
    use std::fs::OpenOptions;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::sync::{Arc, Barrier, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::tree::Tree;

    #[test]
    fn parses_system_calls() {
        let blocked = SystemCall::parse("202 0x7f10 0x80 0x2 0x0 0x0 0x1 0x7ffe 0x7f11\n");
        let arguments = [0x7f10, 0x80, 2, 0, 0, 1];
        assert_eq!(blocked, Some(SystemCall::Blocked(202, arguments)));
        assert_eq!(SystemCall::parse("running\n"), Some(SystemCall::Running));
        assert_eq!(
            SystemCall::parse("-1 0x7ffe 0x7f11"),
            Some(SystemCall::None)
        );
        for wrong in ["", "x", "202", "202 0x1 0x2", "202 1 2 3 4 5 6"] {
            assert_eq!(SystemCall::parse(wrong), None, "{wrong:?}");
        }
    }

    /// Runs a function on a named thread that is never joined.
    fn blocked(name: &str, wait: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(wait).unwrap();
    }

    /// Waits, without a timeout, until a descriptor is readable.
    fn select(descriptor: i32) {
        // SAFETY: the set is valid, and the descriptor is below `FD_SETSIZE`.
        unsafe {
            let mut set: libc::fd_set = std::mem::zeroed();
            libc::FD_SET(descriptor, &raw mut set);
            let none = std::ptr::null_mut();
            libc::select(
                descriptor + 1,
                &raw mut set,
                none,
                none,
                std::ptr::null_mut(),
            );
        }
    }

    #[test]
    fn identifies_what_threads_wait_for() {
        let store = TcpListener::bind("127.77.0.3:0").unwrap();
        let store_address = store.local_addr().unwrap();
        let listener = TcpListener::bind("127.77.0.3:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut accepted = listener.accept().unwrap().0;
        blocked("bk-client", move || drop(accepted.read(&mut [0; 1])));
        let mut upstream = TcpStream::connect(store_address).unwrap();
        blocked("bk-store", move || drop(upstream.read(&mut [0; 1])));
        let polled_listener = listener.try_clone().unwrap();
        blocked("bk-listener", move || {
            let mut polled = [rustix::event::PollFd::new(
                &polled_listener,
                rustix::event::PollFlags::IN,
            )];
            let _ = rustix::event::poll(&mut polled, None);
        });
        blocked("bk-accept", move || drop(listener.accept()));
        blocked("bk-timer", || std::thread::sleep(Duration::from_mins(1)));
        let (pipe, _writer) = std::io::pipe().unwrap();
        blocked("bk-pipe", move || drop((&pipe).read(&mut [0; 1])));
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let open = || {
            std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(&fifo)
        };
        let mut filled = open().unwrap();
        blocked("bk-fifo", move || {
            while std::io::Write::write_all(&mut filled, &[0; 4096]).is_ok() {}
        });
        let file = directory.path().join("locked");
        let locked = std::fs::File::create(&file).unwrap();
        locked.lock().unwrap();
        let waiting = std::fs::File::open(&file).unwrap();
        blocked("bk-file-lock", move || drop(waiting.lock()));
        let polled = TcpStream::connect(store_address).unwrap();
        blocked("bk-poll", move || {
            let mut polled = [rustix::event::PollFd::new(
                &polled,
                rustix::event::PollFlags::IN,
            )];
            let _ = rustix::event::poll(&mut polled, None);
        });
        let polled = TcpStream::connect(store_address).unwrap();
        blocked("bk-waker", move || {
            let waker = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
            let mut polled = [
                rustix::event::PollFd::new(&waker, rustix::event::PollFlags::IN),
                rustix::event::PollFd::new(&polled, rustix::event::PollFlags::IN),
            ];
            let _ = rustix::event::poll(&mut polled, None);
        });
        blocked("bk-sleep", || {
            let waker = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
            let mut polled = [rustix::event::PollFd::new(
                &waker,
                rustix::event::PollFlags::IN,
            )];
            let timeout = rustix::time::Timespec {
                tv_sec: 60,
                tv_nsec: 0,
            };
            let _ = rustix::event::poll(&mut polled, Some(&timeout));
        });
        let selected = TcpStream::connect(store_address).unwrap();
        blocked("bk-select", move || select(selected.as_raw_fd()));
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let barrier = Arc::new(Barrier::new(4));
        for _ in 0..3 {
            let (lock, barrier) = (Arc::clone(&lock), Arc::clone(&barrier));
            blocked("bk-lock", move || {
                barrier.wait();
                drop(lock.lock());
            });
        }
        barrier.wait();
        std::thread::sleep(Duration::from_millis(200));

        let root = Root::host();
        let tree = Tree::new(&root, &[std::process::id()], None).unwrap();
        let mut threads = Threads::new(&root, &tree).unwrap();
        let diag = SockDiag::open().unwrap();
        let mut sampler = BlockedThreads::new(&root, Role::Server, Some(diag));
        for _ in 0..4 {
            sampler.sample(&mut threads).unwrap();
        }
        let mut figures = Figures::default();
        sampler.report(&mut figures);
        let found = |group: &str| -> Vec<(WaitObject, f64)> {
            let metrics = figures.metrics().iter().zip(figures.values());
            let of_group = metrics.filter_map(|(metric, value)| match metric {
                Metric::ThreadsBlocked {
                    group: of, object, ..
                } if of == group => Some((object.clone(), *value)),
                _ => None,
            });
            of_group.collect()
        };
        let kind = WaitObject::Kind;
        let to_store = WaitObject::Connection(store_address);
        for (group, object) in [
            ("bk-client", kind(WaitKind::ClientRead)),
            ("bk-store", to_store.clone()),
            ("bk-poll", to_store.clone()),
            ("bk-waker", to_store.clone()),
            ("bk-select", to_store),
            ("bk-sleep", kind(WaitKind::Timer)),
            ("bk-accept", kind(WaitKind::Accept)),
            ("bk-listener", kind(WaitKind::Accept)),
            ("bk-timer", kind(WaitKind::Timer)),
            ("bk-pipe", kind(WaitKind::PipeRead)),
            ("bk-fifo", kind(WaitKind::PipeWrite)),
            ("bk-file-lock", kind(WaitKind::FileLock)),
        ] {
            assert_eq!(found(group), [(object, 1.0)], "{group}");
        }
        let locks = found("bk-lock");
        let [(WaitObject::Lock(address), 3.0)] = locks[..] else {
            panic!("{locks:?}");
        };
        assert_eq!(address & !0xfff, (Arc::as_ptr(&lock) as u64) & !0xfff);
        drop((held, client));
    }

    #[test]
    fn distinguishes_logs_from_other_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
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
