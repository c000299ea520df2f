//! Child processes and their output, placement, network namespaces, signals, limits and files.
//!
//! Child processes and temporary folders are cleaned up on any exit.
//!
//! Invariant: this crate knows neither HTTP nor the purpose of a child.

pub mod child;
pub mod cpus;
pub mod delay;
pub mod lease;
pub mod limits;
pub mod lock;
pub mod namespace;
pub mod output;
pub mod placement;
pub mod process_set;
pub mod replace;
pub mod scratch;
pub mod signals;
pub mod slow;
pub mod stdin;

pub use child::{Child, ChildError, ChildUsage};
pub use cpus::Cpus;
pub use lease::{Lease, sweep};
pub use limits::{OpenFiles, Raised, open_files, raise_open_files};
pub use namespace::Namespace;
pub use placement::ProcessPlacement;
pub use process_set::ProcessSet;
pub use replace::{replace_file, sync_folder};
pub use rustix::process::Signal;
pub use scratch::{Scratch, sweep_folders};
pub use signals::{Stop, before_immediate_exit};
pub use stdin::{stdin_is_closed, stdin_is_readable};
