//! User data: which operation of which connection a completion is of.

use crate::backend::Slot;

/// What a completion is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Op {
    Socket = 1,
    Connect = 2,
    Send = 3,
    Receive = 4,
    /// Closes and cancels, whose outcome tells nothing.
    Other = 5,
    /// What binds a socket before it connects.
    Bind = 6,
}

const OP_SHIFT: u32 = 61;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u32 = (1 << (OP_SHIFT - GENERATION_SHIFT)) - 1;

/// The operation in the top bits, below it the slot's generation, then the slot.
pub(super) fn user_data(op: Op, slot: Slot, generation: u32) -> u64 {
    (op as u64) << OP_SHIFT
        | u64::from(generation & GENERATION_MASK) << GENERATION_SHIFT
        | u64::from(slot)
}

/// What [`user_data`] was made of.
pub(super) fn parts(user_data: u64) -> (Op, Slot, u32) {
    let op = match user_data >> OP_SHIFT {
        1 => Op::Socket,
        2 => Op::Connect,
        3 => Op::Send,
        4 => Op::Receive,
        6 => Op::Bind,
        _ => Op::Other,
    };
    let generation = (user_data >> GENERATION_SHIFT) as u32 & GENERATION_MASK;
    (op, user_data as Slot, generation)
}

/// The generation after `generation`: it comes round again after 2²⁹ closes of one slot.
pub(super) fn next_generation(generation: u32) -> u32 {
    generation.wrapping_add(1) & GENERATION_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_generations_come_round() {
        for op in [
            Op::Socket,
            Op::Connect,
            Op::Send,
            Op::Receive,
            Op::Other,
            Op::Bind,
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
