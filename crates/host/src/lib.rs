//! Child processes, signals and limits, with clean-up on any exit.
//!
//! Invariant: nothing here knows HTTP or what a child does.

pub mod child;
pub mod lease;
pub mod limits;
pub mod lock;
pub mod signals;

pub use child::{Child, ChildError};
pub use lease::{Lease, sweep};
pub use limits::{OpenFiles, Raised, open_files, raise_open_files};
pub use signals::Stop;
