//! What handshakes came to and what they cost, for one thread.

use std::collections::BTreeMap;

use floodmark_record::tls::TlsUse;
use rustls::{ProtocolVersion, SupportedCipherSuite};

use super::failure::Failure;
use crate::clock::Ns;
use crate::usage::thread_cpu;

/// Counts and costs.
#[derive(Debug, Default)]
pub struct Meter {
    handshakes: u64,
    resumed: u64,
    negotiated: Vec<(SupportedCipherSuite, u64)>,
    handshake_cpu: Ns,
    /// Bytes handed to the backend.
    pub sent: u64,
    /// Bytes that came from it.
    pub received: u64,
    failure: Option<String>,
}

impl Meter {
    /// Does a step of a handshake, and takes note of the CPU that it took.
    pub fn step<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let before = thread_cpu();
        let done = step();
        self.handshake_cpu += thread_cpu().saturating_sub(before);
        done
    }

    /// A handshake has succeeded.
    pub fn succeeded(&mut self, suite: SupportedCipherSuite, resumed: bool) {
        self.handshakes += 1;
        self.resumed += u64::from(resumed);
        match self
            .negotiated
            .iter_mut()
            .find(|(known, _)| *known == suite)
        {
            Some((_, n)) => *n += 1,
            None => self.negotiated.push((suite, 1)),
        }
    }

    /// A handshake has failed.
    pub fn failed(&mut self, failure: &Failure) {
        self.failure.get_or_insert_with(|| failure.detail.clone());
    }

    /// Everything so far.
    pub fn read(&self) -> TlsUse {
        let mut negotiated = BTreeMap::new();
        for (suite, n) in &self.negotiated {
            *negotiated.entry(name(*suite)).or_default() += n;
        }
        TlsUse {
            handshakes: self.handshakes,
            resumed: self.resumed,
            negotiated,
            handshake_cpu_s: self.handshake_cpu as f64 / 1e9,
            wire_bytes_sent: self.sent,
            wire_bytes_received: self.received,
            failure: self.failure.clone(),
        }
    }
}

/// `TLS 1.3 AES_256_GCM_SHA384`.
fn name(suite: SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    let version = match suite.version().version {
        ProtocolVersion::TLSv1_3 => "TLS 1.3",
        _ => "TLS 1.2",
    };
    let short = name.trim_start_matches("TLS13_").trim_start_matches("TLS_");
    format!("{version} {short}")
}
