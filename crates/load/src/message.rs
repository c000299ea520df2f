//! What a load thread says to the gatherer.

use std::io;

use floodmark_record::ThreadUse;
use floodmark_record::events::EndReason;
use floodmark_record::tls::TlsUse;

use crate::clock::Ns;
use crate::slice::Slice;
use crate::usage::ThreadReading;

/// What threads send to the gatherer.
#[derive(Debug)]
pub enum Message {
    /// Connections of a thread (its number) that stand before the first phase, and those that could not be opened.
    Opening(u32, (u64, u64)),
    /// A phase begins; what the process has used so far: user and kernel seconds.
    Began((f64, f64)),
    /// A second is over.
    Slice(Box<Slice>),
    /// A thread (its number) has ended a phase.
    End(u32, io::Result<Box<PhaseEnd>>),
}

/// What one thread has to report of one phase.
#[derive(Debug, Clone)]
pub struct PhaseEnd {
    /// Why it ended.
    pub reason: EndReason,
    /// Since when no answer had come, where the server went away, ns from the phase's start.
    pub gone_since: Option<Ns>,
    /// End of its sending window, ns from the phase's start.
    pub window: Ns,
    /// When its last request had its outcome, ns from the phase's start.
    pub ended: Ns,
    /// Longest time by which the thread came back late from a wait or a turn: a stall of our own.
    pub longest_stall: Ns,
    /// What it used within the sending window.
    pub usage: ThreadUse,
    /// What TLS took and gave: handshakes so far, costs and bytes within the phase.
    pub tls: Option<TlsUse>,
}

impl PhaseEnd {
    /// The end of a phase that could not be run.
    #[must_use]
    pub fn nothing() -> Self {
        PhaseEnd {
            reason: EndReason::Interrupted,
            gone_since: None,
            window: 0,
            ended: 0,
            longest_stall: 0,
            usage: ThreadReading::default().since(
                &ThreadReading::default(),
                String::new(),
                true,
                0,
            ),
            tls: None,
        }
    }
}
