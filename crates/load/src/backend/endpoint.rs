//! Converts addresses to their kernel representation, creates sockets, and makes system calls that
//! `std` and `socket2` do not offer in a suitable form.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

use floodmark_record::plan::Address;
use rustix::thread::set_current_timer_slack;
use socket2::{Protocol, SockAddr, Socket, Type};

use super::Slot;
use crate::clock::Ns;
use crate::usage::result;

/// Converts addresses to their kernel representation.
/// The result is boxed so that the addresses do not move: the kernel reads an address only when the
/// connect is submitted.
///
/// # Errors
/// Fails if a unix socket's path, including its terminator, exceeds 108 bytes (`unix(7)`).
pub(super) fn endpoints(addresses: &[Address]) -> io::Result<Box<[SockAddr]>> {
    let convert = |address: &Address| match address {
        Address::Ip(address) => Ok((*address).into()),
        Address::Unix(path) => SockAddr::unix(path),
    };
    addresses.iter().map(convert).collect()
}

/// Creates a socket for an address. With `at_once`, TCP sends small segments without waiting for
/// outstanding acknowledgements (`TCP_NODELAY`).
pub(super) fn socket(
    address: &SockAddr,
    kind: Type,
    at_once: bool,
    source: Option<IpAddr>,
) -> io::Result<Socket> {
    let kind = kind.cloexec();
    if address.is_unix() {
        return Socket::new(address.domain(), kind, None);
    }
    let socket = Socket::new(address.domain(), kind, Some(Protocol::TCP))?;
    if at_once {
        socket.set_tcp_nodelay(true)?;
    }
    if let Some(source) = source {
        // With this option, `connect` chooses the local port, and takes the whole four-tuple into
        // account (since Linux 4.2). Without it, all source addresses would share one port range.
        turn_on(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    Ok(socket)
}

/// The value that setsockopt(2) expects to turn on a socket option.
pub(super) static ON: libc::c_int = 1;

/// Turns a socket option on.
pub(super) fn turn_on(socket: &Socket, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    // SAFETY: the option takes an int that outlives the call.
    result(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const ON).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
        .into()
    })
}

/// Makes the calling thread's waits end on time instead of up to 50 µs late.
pub(super) fn fire_when_due() -> io::Result<()> {
    Ok(set_current_timer_slack(Some(NonZeroU64::MIN))?)
}

/// Retry interval in ns. In this time, a working server accepts many connections from its queue. A
/// retry costs one system call.
const AGAIN_NS: Ns = 1_000_000;

/// Slots whose connect is waiting for space in a unix socket's accept queue, longest wait first.
///
/// If the accept queue of a TCP socket is full, the kernel itself retries the connect. For a
/// non-blocking unix socket, the kernel returns EAGAIN and never reports that the queue has space
/// (`unix(7)`), so the backend retries periodically. Each attempt to open a connection adds at most
/// one entry. The next retry removes the entries of closed slots.
#[derive(Default)]
pub(super) struct FullQueue {
    waiting: VecDeque<(Slot, u32)>,
    again: Ns,
}

impl FullQueue {
    /// Adds a slot with its current generation.
    pub fn join(&mut self, slot: Slot, generation: u32, now: Ns) {
        if self.waiting.is_empty() {
            self.again = now + AGAIN_NS;
        }
        self.waiting.push_back((slot, generation));
    }

    /// Returns the time at which a wait must end: `until`, or the time of the next retry if that is
    /// earlier.
    pub fn wake(&self, until: Ns) -> Ns {
        if self.waiting.is_empty() {
            until
        } else {
            until.min(self.again)
        }
    }

    /// Calls `attempt` for the waiting slots in order, if a retry is due.
    /// If `attempt` returns false, the accept queue is still full and the remaining slots keep
    /// waiting.
    pub fn retry(&mut self, now: Ns, mut attempt: impl FnMut(Slot, u32) -> bool) {
        if self.waiting.is_empty() || now < self.again {
            return;
        }
        while let Some((slot, generation)) = self.waiting.front().copied() {
            if !attempt(slot, generation) {
                self.again = now + AGAIN_NS;
                return;
            }
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_waiting_slots_in_order() {
        let mut queue = FullQueue::default();
        assert_eq!(queue.wake(Ns::MAX), Ns::MAX);
        (0..3).for_each(|slot| queue.join(slot, 7, 0));
        assert_eq!(queue.wake(Ns::MAX), AGAIN_NS);
        assert_eq!(queue.wake(5), 5);
        let mut asked = Vec::new();
        let mut retry = |now, room: usize| {
            asked.clear();
            queue.retry(now, |slot, generation| {
                assert_eq!(generation, 7);
                asked.push(slot);
                asked.len() <= room
            });
            (asked.clone(), queue.wake(Ns::MAX))
        };
        assert_eq!(retry(AGAIN_NS - 1, 9), (vec![], AGAIN_NS));
        assert_eq!(retry(AGAIN_NS, 1), (vec![0, 1], 2 * AGAIN_NS));
        assert_eq!(retry(2 * AGAIN_NS, 0), (vec![1], 3 * AGAIN_NS));
        assert_eq!(retry(3 * AGAIN_NS, 2), (vec![1, 2], Ns::MAX));
    }
}
