//! The request bytes for each slot. Constant requests are built in advance. Varying requests are
//! rendered into reused buffers.
//!
//! A backend may need a request's bytes until the slot sends its next request. So a slot keeps its
//! latest buffer, and its previous buffer stays among the spare buffers while the backend uses it.
//! Each slot that has sent a request keeps one buffer, which has room for the longest varying
//! request. In addition, there are [`SPARE`] spare buffers.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{RequestBytes, SharedBytes, Slot};
use crate::mix::Pick;
use crate::request::{EncodedRequest, Varying};

/// Number of spare buffers.
/// The io_uring backend releases a replaced request when it submits its queue. This happens after
/// at most half as many sends as there are spare buffers.
const SPARE: usize = 64;

/// The request that a slot must send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The request.
    pub pick: Pick,
    /// Whether the request is the last one on its connection.
    pub last: bool,
}

/// The outgoing requests of a thread.
#[derive(Debug)]
pub struct Outgoing {
    /// Prepared requests in the order of the plan's mix.
    ready: Vec<PreparedRequest>,
    buffers: RenderBuffers,
    copies: OutputCopies,
}

#[derive(Debug)]
enum PreparedRequest {
    Fixed([SharedBytes; 2]),
    Varying(Arc<Varying>),
}

impl Outgoing {
    /// Creates the outgoing bytes for `requests`. `seed` determines the varying values.
    pub fn new(requests: &[EncodedRequest], seed: u64) -> Self {
        let varying = |request: &&EncodedRequest| matches!(request, EncodedRequest::Varying(_));
        let longest = requests
            .iter()
            .filter(varying)
            .map(EncodedRequest::longest)
            .max();
        let ready = requests.iter().map(|request| match request {
            EncodedRequest::Fixed(forms) => {
                let form = |bytes| Rc::new(RequestBytes::Fixed(bytes));
                PreparedRequest::Fixed(forms.clone().map(form))
            }
            EncodedRequest::Varying(varying) => PreparedRequest::Varying(Arc::clone(varying)),
        });
        Outgoing {
            ready: ready.collect(),
            buffers: RenderBuffers::new(longest.unwrap_or(0), seed),
            copies: OutputCopies::default(),
        }
    }

    /// Returns a copy of the output of an HTTP/2 connection.
    pub fn copy(&mut self, slot: Slot, output: &[u8]) -> SharedBytes {
        self.copies.copy(slot, output)
    }

    /// Returns the bytes to send on a slot. The same request always yields the same bytes.
    #[inline]
    pub fn bytes(&mut self, slot: Slot, due: Due) -> &SharedBytes {
        match &self.ready[due.pick.group as usize] {
            PreparedRequest::Fixed(forms) => &forms[usize::from(due.last)],
            PreparedRequest::Varying(varying) => self.buffers.render(varying, slot, due),
        }
    }
}

/// Rendered requests.
#[derive(Debug)]
struct RenderBuffers {
    /// Capacity of each buffer in bytes.
    room: usize,
    seed: u64,
    /// For each slot, the latest request that the slot has sent, if any.
    held: Vec<Option<(Due, SharedBytes)>>,
    spare: VecDeque<SharedBytes>,
    scratch: Vec<u8>,
}

/// Copies of the latest two outputs of each HTTP/2 connection. A backend keeps the latest one until
/// the next one is sent, so the other one can be overwritten.
#[derive(Debug, Default)]
struct OutputCopies(Vec<[SharedBytes; 2]>);

impl OutputCopies {
    fn copy(&mut self, slot: Slot, output: &[u8]) -> SharedBytes {
        let slot = slot as usize;
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || [buffer(0), buffer(0)]);
        }
        self.0[slot].swap(0, 1);
        let copy = &mut self.0[slot][0];
        match Rc::get_mut(copy) {
            Some(RequestBytes::Rendered(bytes)) => {
                bytes.clear();
                bytes.extend_from_slice(output);
            }
            _ => *copy = Rc::new(output.to_vec().into()),
        }
        Rc::clone(copy)
    }
}

impl RenderBuffers {
    fn new(room: usize, seed: u64) -> Self {
        let spare = if room > 0 { SPARE } else { 0 };
        RenderBuffers {
            room,
            seed,
            held: Vec::new(),
            spare: (0..spare).map(|_| buffer(room)).collect(),
            scratch: Vec::with_capacity(room),
        }
    }

    fn render(&mut self, varying: &Varying, slot: Slot, due: Due) -> &SharedBytes {
        let slot = slot as usize;
        if self.held.len() <= slot {
            self.held.resize(slot + 1, None);
        }
        let now_held = match self.held[slot].take() {
            Some((held, bytes)) if held == due => (held, bytes),
            before => {
                let mut bytes = match before {
                    // The first request of a slot adds a buffer.
                    None => buffer(self.room),
                    Some((_, before)) => {
                        self.spare.push_back(before);
                        free(&mut self.spare, self.room)
                    }
                };
                if let Some(RequestBytes::Rendered(bytes)) = Rc::get_mut(&mut bytes) {
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

/// Takes the oldest spare buffer, or a new buffer if the oldest buffer is still in use.
fn free(spare: &mut VecDeque<SharedBytes>, room: usize) -> SharedBytes {
    match spare.pop_front() {
        Some(bytes) if Rc::strong_count(&bytes) == 1 => bytes,
        in_use => {
            spare.extend(in_use);
            buffer(room)
        }
    }
}

fn buffer(room: usize) -> SharedBytes {
    Rc::new(Vec::with_capacity(room).into())
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
    fn resends_the_same_bytes() {
        let mut outgoing = outgoing();
        let first = Rc::clone(outgoing.bytes(3, due(0, 5)));
        assert!(first.starts_with(b"GET /5 HTTP/1.1\r\n"));
        assert!(Rc::ptr_eq(&first, outgoing.bytes(3, due(0, 5))));
        outgoing.bytes(3, due(0, 6));
        assert!(first.starts_with(b"GET /5 "), "a backend may still need it");
        assert_eq!(outgoing.bytes(3, due(0, 5)), &first);
    }

    #[test]
    fn reuses_buffers_released_in_time() {
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
    fn replaces_buffers_held_too_long() {
        let mut outgoing = outgoing();
        let kept: Vec<SharedBytes> = (0..1000)
            .map(|number| Rc::clone(outgoing.bytes(0, due(0, number))))
            .collect();
        for (number, bytes) in kept.iter().enumerate() {
            assert!(bytes.starts_with(format!("GET /{number} ").as_bytes()));
        }
    }

    #[test]
    fn all_slots_share_fixed_requests() {
        let mut outgoing = outgoing();
        let first = Rc::clone(outgoing.bytes(0, due(1, 1)));
        assert!(Rc::ptr_eq(&first, outgoing.bytes(9, due(1, 2))));
    }
}
