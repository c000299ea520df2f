//! Messages from a load thread to the gatherer.

use std::io;

use floodmark_record::ThreadUsage;
use floodmark_record::events::EndReason;
use floodmark_record::tls::TlsUse;

use crate::clock::Ns;
use crate::slice::Slice;

/// A message from a load thread.
#[derive(Debug)]
pub enum Message {
    /// Thread number, and the thread's opened and failed connections before the first phase.
    Opening(u32, (u64, u64)),
    /// A phase starts; contains user and kernel time of the process so far, in seconds.
    Began((f64, f64)),
    /// The data of a completed second.
    Slice(Box<Slice>),
    /// Thread number, and the thread's report of a phase.
    End(u32, io::Result<Box<PhaseEnd>>),
}

/// Report of one thread about one phase.
#[derive(Debug, Clone)]
pub struct PhaseEnd {
    /// Reason for the end of the phase.
    pub reason: EndReason,
    /// Time of the last response if the server became unreachable, ns from the phase's start.
    pub gone_since: Option<Ns>,
    /// End of the thread's sending window in ns from the phase's start.
    pub window: Ns,
    /// Time of the last outcome in ns from the phase's start.
    pub ended: Ns,
    /// Longest stall: the longest delay in returning from a wait or completing an iteration.
    pub longest_stall: Ns,
    /// Resources used within the sending window.
    pub usage: ThreadUsage,
    /// TLS statistics: all handshakes so far, but cost and bytes of this phase only.
    pub tls: Option<TlsUse>,
}
