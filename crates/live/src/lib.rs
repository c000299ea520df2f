//! The live view: shows a running load, experiment or search on a terminal.
//!
//! [`LiveState`] collects figures from events, `draw` lays them out, `screen` owns the terminal,
//! and [`LiveView`] draws on its own thread. Only `screen` and [`LiveView`] do I/O. The view never
//! changes what is measured or recorded, except by keys: `q` requests a stop, and `+` and `-` change
//! the rate of a load.

mod draw;
mod progress;
mod screen;
mod state;
mod view;

#[cfg(test)]
mod testing;

pub use screen::restore_terminal;
pub use state::LiveState;
pub use view::LiveView;

/// Minimum terminal size for the live view, in columns and rows.
pub const MIN_SIZE: (u16, u16) = (40, 10);
