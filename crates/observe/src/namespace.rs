//! Network namespaces of other processes, such as containers or roles that emulate separate hosts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fs, io};

use floodmark_host::Namespace;

use crate::Root;

/// Returns whether a process is in a different network namespace from the calling thread. The
/// thread may itself have entered a namespace. Returns false if the namespace can't be read.
pub(crate) fn is_other(root: &Root, pid: u32) -> bool {
    let of = |whose: &str| fs::read_link(root.path(format!("/proc/{whose}/ns/net"))).ok();
    let theirs = of(&pid.to_string());
    theirs.is_some() && theirs != of("thread-self")
}

/// Calls a function on a new thread in a process's network namespace. Without a process, calls the
/// function directly. A socket opened by the function stays in that namespace.
///
/// # Errors
/// The namespace can't be entered (this requires root), or `function` returns an error or panics.
pub(crate) fn within<T: Send>(
    root: &Root,
    pid: Option<u32>,
    function: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let Some(pid) = pid else {
        return function();
    };
    let namespace = Namespace::open(&root.path(format!("/proc/{pid}/ns/net")))?;
    // A panic must not end the sampler. Only the figures of this source are lost.
    let result = namespace.within(|| catch_unwind(AssertUnwindSafe(function)))?;
    result.unwrap_or_else(|_| {
        Err(io::Error::other(
            "the thread in the network namespace panicked",
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sock_diag::{self, SockDiag};
    use std::net::TcpListener;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn opens_sockets_in_another_namespace() {
        let root = Root::host();
        assert!(!is_other(&root, std::process::id()));
        let started = Command::new("unshare")
            .args(["--net", "sleep", "60"])
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = started else {
            println!("skipped: unshare is not installed");
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
            // The connections of an earlier listener can still have this port.
            let listening = |_| count += 1;
            diag.unwrap()
                .each(port, sock_diag::LISTEN, listening)
                .unwrap();
            count
        };
        let inside = other.then(|| within(&root, Some(child.id()), SockDiag::open));
        child.kill().unwrap();
        child.wait().unwrap();
        let Some(inside) = inside else {
            println!("skipped: cannot create a network namespace");
            return;
        };
        assert_eq!(count(inside), 0);
        assert_eq!(
            count(SockDiag::open()),
            1,
            "this thread stays in its namespace"
        );
        assert!(within(&root, Some(child.id()), SockDiag::open).is_err());
    }
}
