//! Child processes and their output, placement, network namespaces, signals, limits and files.
//!
//! Child processes and temporary directories are cleaned up on any exit.
//!
//! Invariant: this crate knows neither HTTP nor the purpose of a child.

pub mod child;
pub mod delay;
mod files;
mod lease;
pub mod namespace;
mod placement;
mod signals;
pub mod slow;
mod streams;

pub use child::{Child, ChildError, ChildUsage};
pub use files::{Scratch, lock, replace_file, sweep_directories, sync_directory};
pub use lease::{Lease, sweep};
pub use namespace::Namespace;
pub use placement::{Cpus, OpenFiles, ProcessPlacement, Raised, open_files, raise_open_files};
pub use rustix::process::Signal;
pub use signals::{INTERRUPTED, Stop, before_immediate_exit};
pub use slow::ProcessSet;
pub use streams::{failure_line, stdin_is_closed, stdin_is_readable, without_colors};
