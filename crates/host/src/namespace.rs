//! Network namespaces without a name: each lives as long as this process holds it, or a process runs in it, and goes with the last
//! of them, however they end. Its interfaces go with it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;

/// What it takes to make network namespaces and to see to their interfaces (capabilities(7)).
const NEEDED: [u32; 2] = [CAP_NET_ADMIN, CAP_SYS_ADMIN];
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// Makes one, without interfaces but a loopback that is down.
    ///
    /// # Errors
    /// It is not permitted; see [`permit`].
    pub fn new() -> io::Result<Self> {
        // A thread of its own, for what a thread has left it may not be allowed to come back to.
        in_thread(|| {
            // SAFETY: unshare takes a plain number; it changes the network namespace of this thread alone.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Namespace(File::open("/proc/thread-self/ns/net")?.into()))
        })?
    }

    /// Does something on a thread within it. Threads that it starts are within it too; a child must not be started there, for
    /// it would end with the thread.
    ///
    /// # Errors
    /// There is no thread for it, or it may not enter.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_thread(|| {
            enter(self.raw())?;
            Ok(work())
        })?
    }

    /// Its file descriptor.
    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Moves the calling thread into a network namespace; safe to be called between fork and exec.
pub(crate) fn enter(namespace: RawFd) -> io::Result<()> {
    // SAFETY: setns takes plain numbers and touches no memory of ours.
    match unsafe { libc::setns(namespace, libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        // A panic goes on where the work was asked for.
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Sees that this process may make network namespaces: it has the privileges (root), or takes them within a user namespace of its
/// own (user_namespaces(7)), in which it then stays with its children, as the user that it is. Call it before any thread is started.
///
/// # Errors
/// The machine allows neither.
pub fn permit() -> io::Result<()> {
    if capable(&fs::read_to_string("/proc/thread-self/status")?) {
        return Ok(());
    }
    // SAFETY: both calls take nothing and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: unshare takes a plain number; with more than one thread the kernel refuses it.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Without this the group may not be mapped by an ordinary user.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Whether the text of a `status` file has all that is needed.
fn capable(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| NEEDED.iter().all(|bit| set >> bit & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_read() {
        assert!(capable("Name:\tx\nCapEff:\t000001fffeffffff\n"));
        assert!(!capable("CapEff:\t0000000000200000\n"), "no network");
        assert!(!capable("CapEff:\t0000000000000000\n"));
        assert!(!capable(""));
    }
}
