//! The engine's view of a connection: its state, its request and its response reader. Lists of
//! connections store their links in the connection slots, so each list operation takes constant
//! time and allocates no memory.

use floodmark_wire::Reader;

use crate::clock::Ns;
use crate::recorder::Moments;

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConnectionState {
    /// The slot has no connection.
    #[default]
    Closed,
    /// The handshake is in progress.
    Connecting,
    /// The connection is established, and no request is assigned to it.
    Idle,
    /// The request was sent, and the response is incomplete.
    Busy,
    /// The last response is complete, and the server is expected to close the connection.
    Closing,
    /// The connect failed, and the slot waits before the next attempt (closed model only).
    Paused,
}

/// The engine's state for one connection. It is small, because there may be 100,000 slots.
#[derive(Debug, Default)]
pub struct ConnectionSlot {
    /// State of the connection.
    pub state: ConnectionState,
    /// Index of the target address.
    pub target: u32,
    /// Whether the request in `moments` was assigned to the connection before it was established.
    pub carries: bool,
    /// Why the first connection of the request broke, if the request was sent before.
    pub retried: Option<&'static str>,
    /// Whether the request asked the server to close the connection.
    pub last: bool,
    /// Length of the request in bytes.
    pub length: usize,
    /// Number of bytes of the response so far, if requests are logged.
    pub received: u64,
    /// Number of responses received since the connection was opened.
    pub used: u64,
    /// Whether the connection has been idle at any time since it was opened.
    pub rested: bool,
    /// Time at which the handshake started.
    pub opening: Ns,
    /// Time at which the TCP connection was established, if a TLS handshake follows.
    pub reached: Option<Ns>,
    /// Delay in ns that floodmark caused before the handshake.
    pub opened_late: Ns,
    /// The time at which the handshake or the request times out.
    pub deadline: Ns,
    /// Timestamps of the request.
    pub moments: Moments,
    /// Reader of the response.
    pub reader: Reader,
    /// The part of the response body from earlier reads, if bodies are kept.
    pub body: Vec<u8>,
    /// Whether to keep the response body because it is the first with a status that is not ok.
    pub keeps_body: bool,
    /// The number in the last response on this connection (`--check`).
    pub last_number: Option<u64>,
    /// Position in the list that contains the connection, if any.
    pub link: Link,
}

/// Position in a list. A connection is in at most one list.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    before: u32,
    after: u32,
}

const NONE: u32 = u32::MAX;

impl Default for Link {
    fn default() -> Self {
        Link {
            before: NONE,
            after: NONE,
        }
    }
}

/// A doubly linked list of connections.
#[derive(Debug, Default)]
pub struct List {
    /// Ends of the list: `after` is the first connection, and `before` is the last connection.
    ends: Link,
}

impl List {
    /// Returns the first item.
    pub fn front(&self) -> Option<u32> {
        (self.ends.after != NONE).then_some(self.ends.after)
    }

    /// Appends an item, which must not be in any list.
    pub fn push_back(&mut self, all: &mut [ConnectionSlot], index: u32) {
        all[index as usize].link = Link {
            before: self.ends.before,
            after: NONE,
        };
        match self.ends.before {
            NONE => self.ends.after = index,
            back => all[back as usize].link.after = index,
        }
        self.ends.before = index;
    }

    /// Prepends an item, which must not be in any list.
    pub fn push_front(&mut self, all: &mut [ConnectionSlot], index: u32) {
        all[index as usize].link = Link {
            before: NONE,
            after: self.ends.after,
        };
        match self.ends.after {
            NONE => self.ends.before = index,
            front => all[front as usize].link.before = index,
        }
        self.ends.after = index;
    }

    /// Removes an item from this list.
    pub fn remove(&mut self, all: &mut [ConnectionSlot], index: u32) {
        let Link { before, after } = all[index as usize].link;
        match before {
            NONE => self.ends.after = after,
            b => all[b as usize].link.after = after,
        }
        match after {
            NONE => self.ends.before = before,
            a => all[a as usize].link.before = before,
        }
        all[index as usize].link = Link::default();
    }
}

#[cfg(test)]
impl List {
    /// Returns all items from front to back, and checks that the backward links match.
    pub fn members(&self, all: &mut [ConnectionSlot]) -> Vec<u32> {
        let (mut members, mut at) = (Vec::new(), self.ends.after);
        while at != NONE {
            assert!(members.len() < all.len(), "a cycle");
            let link = all[at as usize].link;
            assert_eq!(link.before, members.last().copied().unwrap_or(NONE));
            members.push(at);
            at = link.after;
        }
        assert_eq!(self.ends.before, members.last().copied().unwrap_or(NONE));
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_like_a_deque(steps in proptest::collection::vec((0u8..3, 0u32..8), 0..100)) {
            let mut items: Vec<_> = (0..8).map(|_| ConnectionSlot::default()).collect();
            let (mut list, mut model) = (List::default(), VecDeque::new());
            for (step, index) in steps {
                match (step, model.iter().position(|i| *i == index)) {
                    (0, None) => { list.push_back(&mut items, index); model.push_back(index); }
                    (1, None) => { list.push_front(&mut items, index); model.push_front(index); }
                    (2, Some(at)) => { list.remove(&mut items, index); model.remove(at); }
                    _ => {}
                }
                prop_assert_eq!(list.front(), model.front().copied());
            }
            while let Some(index) = model.pop_front() {
                prop_assert_eq!(list.front(), Some(index));
                list.remove(&mut items, index);
            }
            prop_assert_eq!(list.front(), None);
        }
    }
}
