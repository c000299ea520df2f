//! Child processes and where they run, network namespaces, signals and limits, with clean-up on any exit.
//!
//! Invariant: nothing here knows HTTP or what a child does.

pub mod child;
pub mod cpus;
pub mod delay;
pub mod lease;
pub mod limits;
pub mod lock;
pub mod namespace;
pub mod scratch;
pub mod side;
pub mod signals;
pub mod slow;
pub mod wire;

pub use child::{Child, ChildError, Used};
pub use cpus::Cpus;
pub use lease::{Lease, sweep};
pub use limits::{OpenFiles, Raised, open_files, raise_open_files};
pub use namespace::Namespace;
pub use scratch::{Scratch, sweep_folders};
pub use side::Side;
pub use signals::Stop;
