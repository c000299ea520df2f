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
    /// Thread number, and the numbers of opened and failed connections before the first phase.
    Opening(u32, (u64, u64)),
    /// A phase starts. The message contains the time of the start, and the process's user and kernel CPU
    /// time so far, in seconds.
    Began(Ns, (f64, f64)),
    /// The data of a completed second.
    Slice(Box<Slice>),
    /// Thread number, and the thread's report on a phase.
    End(u32, io::Result<Box<PhaseEnd>>),
}

/// One thread's report on one phase.
#[derive(Debug, Clone)]
pub struct PhaseEnd {
    /// The reason why the phase ended.
    pub reason: EndReason,
    /// Time of the last response in ns from the phase's start: 0 if this response arrived earlier,
    /// `None` if no response arrived.
    pub last_response: Option<Ns>,
    /// End of the thread's sending window in ns from the phase's start.
    pub window: Ns,
    /// Time of the last outcome in ns from the phase's start.
    pub ended: Ns,
    /// The longest stall in ns: the longest delay in returning from a wait or in completing an
    /// iteration.
    pub longest_stall: Ns,
    /// Resources used within the sending window.
    pub usage: ThreadUsage,
    /// TLS statistics. Handshakes are counted from the start of the thread. Cost and bytes cover
    /// only this phase.
    pub tls: Option<TlsUse>,
}
