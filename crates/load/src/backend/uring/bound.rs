//! Sockets in the ring's table that are bound to a source address (since Linux 6.11).

use std::net::{IpAddr, SocketAddr};

use io_uring::opcode;
use io_uring::squeue::{self, Flags};
use io_uring::types::Fixed;
use io_uring::{IoUring, Probe};
use socket2::SockAddr;

use super::tag::{RingOperation, user_data};
use super::{ENTRIES, Uring};
use crate::backend::Slot;
use crate::backend::endpoint::ON;

/// Source addresses for bind operations that the kernel has not read yet.
/// The kernel copies an address when the bind is submitted, so the list is as long as the
/// submission queue.
pub(super) struct Addresses {
    held: Box<[SockAddr]>,
    next: usize,
}

impl Addresses {
    pub(super) fn new() -> Self {
        let none = SockAddr::from(SocketAddr::from(([0, 0, 0, 0], 0)));
        Addresses {
            held: vec![none; ENTRIES as usize].into_boxed_slice(),
            next: 0,
        }
    }

    /// Stores an address in memory that does not change while the bind may still be in the queue.
    fn hold(&mut self, source: IpAddr) -> &SockAddr {
        self.next = (self.next + 1) % self.held.len();
        let held = &mut self.held[self.next];
        *held = SocketAddr::new(source, 0).into();
        held
    }
}

/// Returns whether sockets in the ring's table can be bound.
pub(super) fn can_bind(ring: &IoUring) -> bool {
    let mut probe = Probe::new();
    // Bind is the newest of the required operations. A kernel without bind may also lack the
    // command for socket options.
    ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::Bind::CODE)
}

impl Uring {
    /// Connects the slot's socket, which is in the ring's table, from `source`.
    ///
    /// The bind and the connect form a chain, which is submitted as a whole. If the bind fails, the
    /// connect is cancelled; otherwise the kernel would choose a source address. Only the failed
    /// operation of a chain is reported.
    /// [`Uring::push_socket`] explains why the chain does not include the socket's creation.
    pub(super) fn push_connect_from(&mut self, slot: Slot, source: IpAddr) {
        let generation = self.slots[slot as usize].generation;
        let data = |op| user_data(op, slot, generation);
        let before = |entry: squeue::Entry| {
            let flags = Flags::IO_LINK | Flags::SKIP_SUCCESS;
            entry.flags(flags).user_data(data(RingOperation::Bind))
        };
        let socket = Fixed(slot);
        let (option, length) = (&raw const ON, size_of::<libc::c_int>() as u32);
        let port_later = opcode::SetSockOpt::new(
            socket,
            libc::IPPROTO_IP as u32,
            libc::IP_BIND_ADDRESS_NO_PORT as u32,
            option.cast(),
            length,
        );
        let from = self.addresses.hold(source);
        let bind = opcode::Bind::new(socket, from.as_ptr().cast(), from.len());
        let to = &self.endpoints[self.slots[slot as usize].target as usize].address;
        let connect = opcode::Connect::new(socket, to.as_ptr().cast(), to.len());
        let chain = [
            before(port_later.build()),
            before(bind.build()),
            connect.build().user_data(data(RingOperation::Connect)),
        ];
        self.push_chain(&chain);
    }
}
