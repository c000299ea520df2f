//! The disk states that a power loss can leave: a pure function of a trace and a crash point.
//!
//! The model follows Pillai et al., "All File Systems Are Not Created Equal: On the Complexity of
//! Crafting Crash-Consistent Applications" (OSDI 2014). `docs/decisions/0030-disk-images.md` lists
//! its rules.

mod crash;
mod history;
mod image;
#[cfg(test)]
mod model_tests;

pub(crate) use crash::below;
pub use crash::{Crash, Effect, EffectPart, Fate};
pub use history::{DiskHistory, Persistence};
pub use image::{Image, ImageNode};

/// Bytes that a disk writes atomically.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Returns the indexes of the sectors that a range of bytes touches.
pub(crate) fn sectors(offset: u64, length: usize) -> std::ops::Range<u64> {
    let end = offset.saturating_add(length as u64);
    match length {
        0 => 0..0,
        _ => offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES),
    }
}
