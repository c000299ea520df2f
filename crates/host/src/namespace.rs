//! Anonymous network namespaces.
//!
//! The kernel removes a namespace and its interfaces once no process runs in the namespace or holds
//! it open.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities, move_into_link_name_space,
    unshare_unsafe,
};

/// Capabilities needed to create and configure network namespaces (capabilities(7)).
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN);

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// Creates a namespace. Its only interface is a loopback interface that is down.
    ///
    /// # Errors
    /// This process may not create namespaces; see [`permit`].
    pub fn new() -> io::Result<Self> {
        // Use a separate thread, because a thread may not be allowed to return to its old
        // namespace.
        in_thread(|| {
            // SAFETY: the call changes only the network namespace of this thread, not its file
            // descriptors.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(Namespace(File::open("/proc/thread-self/ns/net")?.into()))
        })?
    }

    /// Runs `work` on a new thread in this namespace. Threads started by `work` inherit the
    /// namespace.
    /// `work` must not start a [`crate::Child`], because the child would die with the thread.
    ///
    /// # Errors
    /// The thread cannot be started, or cannot enter the namespace.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_thread(|| {
            enter(self.fd())?;
            Ok(work())
        })?
    }

    /// Returns the file descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Moves the calling thread into a network namespace. Async-signal-safe.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network)).map_err(io::Error::from)
}

fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        // Propagate a panic to the caller.
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Ensures that this process may create network namespaces.
///
/// An unprivileged process enters a user namespace (user_namespaces(7)) and keeps its user ID. Call
/// this function before starting any threads.
///
/// # Errors
/// The host allows neither network nor user namespaces.
pub fn permit() -> io::Result<()> {
    if capabilities(None)?.effective.contains(NEEDED) {
        return Ok(());
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: the call does not affect file descriptors. The kernel refuses the call if there are
    // several threads.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // The kernel requires this write before an unprivileged user may map a group.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}
