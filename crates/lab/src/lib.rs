//! Runs attempts: the worker as a child process, the stream of events, the result folder, and folding
//! events into the record.
//!
//! Invariant: nothing here draws; the caller listens to the same events that are kept.

pub mod alive;
pub mod attempt;
mod beside;
mod changing;
mod client;
mod correctness;
pub mod elsewhere;
pub mod experiment;
pub mod fold;
pub mod folder;
mod groups;
pub mod input;
mod judge;
pub mod manifest;
pub mod mix;
pub mod proving;
pub mod read;
pub mod server_log;
mod source;
mod tally;
mod watched;
mod worker;

pub use attempt::{Attempts, LabError, Listener, Watching};
pub use elsewhere::Elsewhere;
pub use fold::{FoldError, fold};
pub use folder::{EVENTS, Folder, FolderError, RECORD};
pub use mix::MixFile;
pub use read::{ReadError, read, read_all};
pub use source::{FileError, did_you_mean};
