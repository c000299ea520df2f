//! Disk states after power loss, and failing disks.
//!
//! [`Tracer`] runs a server under ptrace and records its file calls and socket sends in one total
//! order. [`Crash`] derives the disk states that a power loss at any point of this order can leave.
//! [`ImageTest`] starts the server on such states and asks a [`RecoveryProbe`] whether everything
//! that the server had acknowledged is still there.
//!
//! `docs/decisions/0030-disk-images.md` describes the model. Start reading in `trace.rs`, then read
//! `model/` and `tracer/`.
//!
//! Invariants: the model does no I/O. The tracer affects a traced process in only two ways: it
//! injects the errors that the caller requests, and it refuses calls that it cannot trace
//! (`io_uring_setup`, `io_setup`).

mod images;
mod model;
mod probe;
mod trace;
mod tracer;

pub use images::{ImageFailure, ImageReport, ImageTest, TestError, check_space};
pub use model::{Crash, DiskHistory, Effect, EffectPart, Fate, Image, ImageNode, Persistence};
pub use probe::{RecoveryProbe, ServerCommand};
pub use trace::{BaseNode, EntryName, FileId, NodeKind, Operation, TcpPorts, Trace, TracedCall};
pub use tracer::{DiskFault, FaultKind, FaultyCall, TraceError, TraceOptions, Tracer};
