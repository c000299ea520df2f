//! The bytes of each slot's request: prebuilt where nothing varies, else rendered into buffers that go round.
//!
//! A backend may need a request's bytes until the slot's next one is on its way, so a slot keeps the buffer of its latest, and the one
//! before rests among the spare ones until nobody holds it any more. Memory: for each slot that has sent, and for
//! [`SPARE`] more, as much as the longest request that varies.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{Bytes, Slot};
use crate::mix::Pick;
use crate::request::{Request, Varying};

/// Buffers that rest. The io_uring backend lets go of a replaced request when its queue is submitted, which is asked for at the latest after
/// half as many sends.
const SPARE: usize = 64;

/// The request that a slot is to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Which one.
    pub pick: Pick,
    /// Whether it is its connection's last.
    pub last: bool,
}

/// What a thread sends.
#[derive(Debug)]
pub struct Outgoing {
    /// In the order of the plan's mix.
    ready: Vec<Ready>,
    buffers: Buffers,
}

#[derive(Debug)]
enum Ready {
    Fixed([Bytes; 2]),
    Varying(Arc<Varying>),
}

impl Outgoing {
    /// What is sent of `requests`, filled in by a seed.
    #[must_use]
    pub fn new(requests: &[Request], seed: u64) -> Self {
        let varying = |request: &&Request| matches!(request, Request::Varying(_));
        let longest = requests.iter().filter(varying).map(Request::longest).max();
        let ready = requests.iter().map(|request| match request {
            Request::Fixed(forms) => Ready::Fixed(forms.clone().map(Rc::new)),
            Request::Varying(varying) => Ready::Varying(Arc::clone(varying)),
        });
        Outgoing {
            ready: ready.collect(),
            buffers: Buffers::new(longest.unwrap_or(0), seed),
        }
    }

    /// The bytes that are due on a slot. The same request is the same bytes, however often it is asked for.
    #[inline]
    pub fn bytes(&mut self, slot: Slot, due: Due) -> &Bytes {
        match &self.ready[due.pick.group as usize] {
            Ready::Fixed(forms) => &forms[usize::from(due.last)],
            Ready::Varying(varying) => self.buffers.render(varying, slot, due),
        }
    }
}

/// Rendered requests.
#[derive(Debug)]
struct Buffers {
    /// Room in each.
    room: usize,
    seed: u64,
    /// The latest of each slot that has sent one.
    held: Vec<Option<(Due, Bytes)>>,
    spare: VecDeque<Bytes>,
    scratch: Vec<u8>,
}

impl Buffers {
    fn new(room: usize, seed: u64) -> Self {
        let spare = if room > 0 { SPARE } else { 0 };
        Buffers {
            room,
            seed,
            held: Vec::new(),
            spare: (0..spare).map(|_| buffer(room)).collect(),
            scratch: Vec::with_capacity(room),
        }
    }

    fn render(&mut self, varying: &Varying, slot: Slot, due: Due) -> &Bytes {
        let slot = slot as usize;
        if self.held.len() <= slot {
            self.held.resize(slot + 1, None);
        }
        let now_held = match self.held[slot].take() {
            Some((held, bytes)) if held == due => (held, bytes),
            before => {
                let mut bytes = match before {
                    // A slot's first request brings a buffer into the round.
                    None => buffer(self.room),
                    Some((_, before)) => {
                        self.spare.push_back(before);
                        free(&mut self.spare, self.room)
                    }
                };
                if let Some(bytes) = Rc::get_mut(&mut bytes) {
                    bytes.clear();
                    let request = (self.seed, due.pick.number);
                    varying.render(request, due.last, &mut self.scratch, bytes);
                }
                (due, bytes)
            }
        };
        &self.held[slot].insert(now_held).1
    }
}

/// The buffer that has rested longest; another one where somebody still holds it.
fn free(spare: &mut VecDeque<Bytes>, room: usize) -> Bytes {
    match spare.pop_front() {
        Some(bytes) if Rc::strong_count(&bytes) == 1 => bytes,
        in_use => {
            spare.extend(in_use);
            buffer(room)
        }
    }
}

fn buffer(room: usize) -> Bytes {
    Rc::new(Vec::with_capacity(room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::requests;
    use crate::testing::{closed_plan, with_mix};

    fn outgoing() -> Outgoing {
        let mut plan = with_mix(closed_plan(1, 1), &[1, 1]);
        plan.mix.as_mut().unwrap().requests[0].path = "/{seq}".to_owned();
        Outgoing::new(&requests(&plan).unwrap(), 1)
    }

    fn due(group: u32, number: u64) -> Due {
        let pick = Pick { group, number };
        Due { pick, last: false }
    }

    #[test]
    fn a_request_that_is_sent_again_is_the_same_bytes() {
        let mut outgoing = outgoing();
        let first = Rc::clone(outgoing.bytes(3, due(0, 5)));
        assert!(first.starts_with(b"GET /5 HTTP/1.1\r\n"));
        assert!(Rc::ptr_eq(&first, outgoing.bytes(3, due(0, 5))));
        outgoing.bytes(3, due(0, 6));
        assert!(
            first.starts_with(b"GET /5 "),
            "whoever holds it may read it"
        );
        assert_eq!(outgoing.bytes(3, due(0, 5)), &first);
    }

    #[test]
    fn buffers_go_round_while_they_are_let_go_of_in_time() {
        let mut outgoing = outgoing();
        let mut in_use = VecDeque::new();
        let mut seen = std::collections::HashSet::new();
        for number in 0..5000 {
            let bytes = Rc::clone(outgoing.bytes(number as Slot % 10, due(0, number)));
            assert!(bytes.starts_with(format!("GET /{number} ").as_bytes()));
            seen.insert(Rc::as_ptr(&bytes));
            in_use.push_back(bytes);
            if in_use.len() > SPARE / 2 {
                in_use.pop_front();
            }
        }
        assert!(seen.len() <= SPARE + 10, "{} buffers", seen.len());
    }

    #[test]
    fn a_buffer_that_is_held_for_long_is_replaced() {
        let mut outgoing = outgoing();
        let kept: Vec<Bytes> = (0..1000)
            .map(|number| Rc::clone(outgoing.bytes(0, due(0, number))))
            .collect();
        for (number, bytes) in kept.iter().enumerate() {
            assert!(bytes.starts_with(format!("GET /{number} ").as_bytes()));
        }
    }

    #[test]
    fn what_does_not_vary_is_shared_by_all_slots() {
        let mut outgoing = outgoing();
        let first = Rc::clone(outgoing.bytes(0, due(1, 1)));
        assert!(Rc::ptr_eq(&first, outgoing.bytes(9, due(1, 2))));
    }
}
