//! Network namespaces of other processes: sides of a load that stand for machines of their own, and containers.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;

use crate::Root;

/// Whether a process is in another network namespace than the calling thread, which may have entered one itself; not where that
/// cannot be told.
pub(crate) fn is_other(root: &Root, pid: u32) -> bool {
    let of = |whose: &str| fs::read_link(root.path(format!("/proc/{whose}/ns/net"))).ok();
    let theirs = of(&pid.to_string());
    theirs.is_some() && theirs != of("thread-self")
}

/// Does something in the network namespace of a process, on a thread of its own. A socket that is opened there stays there.
///
/// # Errors
/// The namespace may not be entered (that takes root), and what `what` gives.
pub(crate) fn within<T: Send>(
    root: &Root,
    pid: u32,
    what: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = File::open(root.path(format!("/proc/{pid}/ns/net")))?;
    let enter = move || {
        // SAFETY: the descriptor is open, and only the calling thread is moved, which ends after this.
        if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        what()
    };
    std::thread::scope(|scope| scope.spawn(enter).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread in it failed")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sock_diag::SockDiag;
    use std::net::TcpListener;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn sockets_are_those_of_the_namespace_that_was_entered() {
        let root = Root::host();
        assert!(!is_other(&root, std::process::id()));
        let started = Command::new("unshare")
            .args(["--net", "sleep", "60"])
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = started else {
            println!("skipped: no unshare here");
            return;
        };
        let begin = Instant::now();
        while !is_other(&root, child.id()) && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let other = is_other(&root, child.id());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = |diag: io::Result<SockDiag>| {
            let mut count = 0;
            diag.unwrap().each(port, u32::MAX, |_| count += 1).unwrap();
            count
        };
        let there = other.then(|| within(&root, child.id(), SockDiag::open));
        child.kill().unwrap();
        child.wait().unwrap();
        let Some(there) = there else {
            println!("skipped: no namespace can be made here");
            return;
        };
        assert_eq!(count(there), 0);
        assert_eq!(count(SockDiag::open()), 1, "this thread has stayed");
        assert!(within(&root, child.id(), SockDiag::open).is_err());
    }
}
