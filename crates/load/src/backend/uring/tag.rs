//! The user data of a completion, which identifies its operation and its connection.

use crate::backend::Slot;

/// Operation of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum RingOperation {
    Socket = 1,
    Connect = 2,
    Send = 3,
    Receive = 4,
    /// Close, cancel, or another operation whose result is ignored.
    Other = 5,
    /// Binds a socket to its source address before the connect.
    Bind = 6,
}

const OP_SHIFT: u32 = 61;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u32 = (1 << (OP_SHIFT - GENERATION_SHIFT)) - 1;

/// Encodes the operation in the top bits, followed by the slot's generation and the slot.
pub(super) fn user_data(op: RingOperation, slot: Slot, generation: u32) -> u64 {
    (op as u64) << OP_SHIFT
        | u64::from(generation & GENERATION_MASK) << GENERATION_SHIFT
        | u64::from(slot)
}

/// Decodes the value of [`user_data`].
pub(super) fn parts(user_data: u64) -> (RingOperation, Slot, u32) {
    let op = match user_data >> OP_SHIFT {
        1 => RingOperation::Socket,
        2 => RingOperation::Connect,
        3 => RingOperation::Send,
        4 => RingOperation::Receive,
        6 => RingOperation::Bind,
        _ => RingOperation::Other,
    };
    let generation = (user_data >> GENERATION_SHIFT) as u32 & GENERATION_MASK;
    (op, user_data as Slot, generation)
}

/// Returns the next generation. Generations repeat after a slot has been closed 2²⁹ times.
pub(super) fn next_generation(generation: u32) -> u32 {
    generation.wrapping_add(1) & GENERATION_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_parts_and_wraps_generations() {
        for op in [
            RingOperation::Socket,
            RingOperation::Connect,
            RingOperation::Send,
            RingOperation::Receive,
            RingOperation::Other,
            RingOperation::Bind,
        ] {
            for (slot, generation) in [(0, 0), (Slot::MAX, 0), (7, GENERATION_MASK)] {
                assert_eq!(
                    parts(user_data(op, slot, generation)),
                    (op, slot, generation)
                );
            }
        }
        assert_eq!(next_generation(GENERATION_MASK), 0);
    }
}
