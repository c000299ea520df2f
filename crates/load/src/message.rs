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
    /// Thread number, and how many of its connections were opened and failed before the first
    /// phase.
    Opening(u32, (u64, u64)),
    /// A phase starts; user and kernel time of the process so far, seconds.
    Began((f64, f64)),
    /// The data of a completed second.
    Slice(Box<Slice>),
    /// Thread number, and its report of a phase.
    End(u32, io::Result<Box<PhaseEnd>>),
}

/// Report of one thread on one phase.
#[derive(Debug, Clone)]
pub struct PhaseEnd {
    /// Why it ended.
    pub reason: EndReason,
    /// Start of the time without any response if the server became unreachable, ns from the phase's
    /// start.
    pub gone_since: Option<Ns>,
    /// End of its sending window, ns from the phase's start.
    pub window: Ns,
    /// Time of the last outcome, ns from the phase's start.
    pub ended: Ns,
    /// Longest delay of the thread's return from a wait or an iteration: a stall of our own.
    pub longest_stall: Ns,
    /// Resources used within the sending window.
    pub usage: ThreadUsage,
    /// TLS statistics: handshakes so far, cost and bytes within the phase.
    pub tls: Option<TlsUse>,
}
