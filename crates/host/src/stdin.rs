//! The state of stdin.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Returns whether the other end of stdin is closed. Reads nothing, so data that was written before
/// is still available.
#[must_use]
pub fn stdin_is_closed() -> bool {
    let stdin = std::io::stdin();
    // The kernel always reports a closed end, in addition to the requested events.
    let mut descriptors = [PollFd::new(&stdin, PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let closed = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut descriptors, Some(&now)).is_ok() && descriptors[0].revents().intersects(closed)
}

/// Waits until stdin has data or its other end is closed. Returns `false` if `timeout` expires or a
/// signal interrupts the wait.
#[must_use]
pub fn stdin_is_readable(timeout: Duration) -> bool {
    let stdin = std::io::stdin();
    let mut descriptors = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).ok();
    matches!(poll(&mut descriptors, timeout.as_ref()), Ok(1..))
}
