//! HTTPS: a backend around another backend. It encrypts what the core sends and decrypts what
//! arrives; the core does not notice.
//!
//! ```text
//! core ──► Secured ──► epoll or io_uring
//!            └ connection   rustls: handshake, records, session tickets; allocates per record
//! ```

mod config;
mod connection;
mod negotiation;
#[cfg(test)]
mod testing;

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use floodmark_record::plan::CloseFirst;
use floodmark_record::tls::TlsUse;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use self::config::CertificateSender;
use self::connection::TlsConnection;
use crate::backend::{Completion, IoBackend, Route, SharedBytes, Slot};
use crate::clock::{Clock, Ns, thread_cpu};
use crate::coalescing::Batch;

pub use self::config::{Tls, TlsError, certified_key};
pub use crate::failure::TlsFailure;

pub use self::negotiation::{SecureStream, Stream, chooses_http2, connect, secure, until};

/// Initial capacity in bytes for received data: one read from the inner backend, and the partial
/// record left over from the previous read.
const RECEIVED: usize = 96 * 1024;

/// A backend whose connections are protected by TLS.
///
/// A connection is reported as connected when its TLS handshake is complete. Before that,
/// [`Completion::Reached`] reports the TCP connection.
///
/// If the first request is already known, the backend sends it together with the client's last
/// handshake message.
pub struct Secured<B> {
    clock: Clock,
    inner: B,
    config: Arc<ClientConfig>,
    /// Sends the client certificate, if there is one.
    certificate_sender: Arc<CertificateSender>,
    /// The name that servers must prove.
    name: ServerName<'static>,
    slots: Vec<TlsSlot>,
    /// Completions to report before the next completion from the inner backend, at most three per
    /// slot.
    /// For [`Completion::Received`], the data is in `plain`.
    events: VecDeque<Completion<'static>>,
    /// The last received records, which are decrypted in place.
    records: Vec<u8>,
    /// The plaintext of the last received bytes.
    plain: Vec<u8>,
    /// Timestamp of the last received bytes, and whether part of the request was still unsent when
    /// they arrived.
    arrival: (Option<Ns>, bool),
    usage: TlsUse,
    /// Connections on which the server sent close_notify before the last wait, and those on which
    /// it has done so since then.
    leaving: (Vec<Slot>, Vec<Slot>),
}

#[derive(Default)]
struct TlsSlot {
    /// The TLS connection. `None` during the TCP handshake, and after the connection has ended.
    /// Completions after the end are ignored.
    connection: Option<Box<TlsConnection>>,
    /// Whether a request is sent directly after the handshake.
    carries: bool,
}

impl<B: IoBackend> Secured<B> {
    /// Wraps `inner` and encrypts its connections, using a TLS configuration for one load thread.
    pub fn new(clock: Clock, inner: B, tls: &Tls) -> Self {
        let (config, certificate_sender) = tls.for_thread();
        Secured {
            clock,
            inner,
            config,
            certificate_sender,
            name: tls.name.clone(),
            slots: Vec::new(),
            events: VecDeque::new(),
            records: Vec::with_capacity(RECEIVED),
            plain: Vec::with_capacity(RECEIVED),
            arrival: (None, false),
            usage: TlsUse::default(),
            leaving: Default::default(),
        }
    }

    /// Passes the bytes that `records` returns to the inner backend.
    fn send_records(&mut self, slot: Slot, records: impl FnOnce(&mut TlsConnection) -> Vec<u8>) {
        if let Some(connection) = &mut self.slots[slot as usize].connection {
            let bytes = records(connection);
            if !bytes.is_empty() {
                self.usage.wire_bytes_sent += bytes.len() as u64;
                self.inner.send(slot, &Rc::new(bytes.into()));
            }
        }
    }

    /// Passes the connection's outgoing handshake messages and alerts to the inner backend.
    fn flush(&mut self, slot: Slot) {
        self.send_records(slot, TlsConnection::outgoing);
    }

    /// Starts the TLS handshake on a TCP connection.
    fn reached(&mut self, slot: Slot, at: Ns) {
        let (config, name) = (Arc::clone(&self.config), self.name.clone());
        let sender = Arc::clone(&self.certificate_sender);
        let begin = || TlsConnection::begin(config, name, sender);
        match metered(&mut self.usage, begin) {
            Ok(connection) => {
                self.slots[slot as usize].connection = Some(Box::new(connection));
                self.flush(slot);
                self.events.push_back(Completion::Reached { slot, at });
            }
            Err(failure) => self.refuse(slot, failure),
        }
    }

    /// Ends a connection whose handshake failed.
    fn refuse(&mut self, slot: Slot, failure: TlsFailure) {
        note(&mut self.usage, &failure);
        self.flush(slot);
        self.close(slot, CloseFirst::Client);
        let error = failure.into();
        self.events
            .push_back(Completion::ConnectFailed { slot, error });
    }

    /// Handles the result of processing bytes that arrived during a handshake.
    fn handle_handshake(&mut self, slot: Slot, received: Result<(), TlsFailure>) {
        let entry = &mut self.slots[slot as usize];
        let Some(connection) = &mut entry.connection else {
            return;
        };
        if connection.is_established {
            if connection.lacks_http2() {
                return self.refuse(slot, TlsFailure::http2_not_chosen());
            }
            self.usage.handshakes += 1;
            self.usage.resumed += u64::from(connection.is_resumed());
            *self.usage.negotiated.entry(connection.suite()).or_default() += 1;
            let (at, sent) = (self.clock.now(), false);
            self.events
                .push_back(Completion::Connected { slot, at, sent });
            if !entry.carries {
                self.flush(slot);
            }
            self.handle_data(slot, received);
        } else if let Err(failure) = received {
            self.refuse(slot, failure);
        } else if connection.has_ended {
            self.refuse(slot, TlsFailure::closed_in_handshake(None));
        } else {
            self.flush(slot);
        }
    }

    /// Handles the result of decrypting bytes that arrived after the handshake.
    fn handle_data(&mut self, slot: Slot, received: Result<(), TlsFailure>) {
        if !self.plain.is_empty() {
            let (at, is_sending) = self.arrival;
            self.events.push_back(Completion::Received {
                slot,
                data: &[],
                at,
                is_sending,
            });
        }
        let entry = &mut self.slots[slot as usize];
        if let Err(failure) = received {
            entry.connection = None;
            note(&mut self.usage, &failure);
            let error = failure.into();
            self.events.push_back(Completion::Failed { slot, error });
        } else if entry.connection.as_ref().is_some_and(|c| c.has_ended) {
            self.leaving.1.push(slot);
        }
    }

    /// Handles the end of the TCP connection. `error` is `None` if the end was orderly.
    fn handle_end(&mut self, slot: Slot, error: Option<io::Error>) {
        let Some(connection) = &self.slots[slot as usize].connection else {
            return;
        };
        if !connection.is_established {
            return self.refuse(slot, TlsFailure::closed_in_handshake(error));
        }
        // After the server's close_notify, the end is orderly even if there is an error.
        let event = if connection.has_ended {
            Completion::Ended { slot }
        } else {
            let error = error.unwrap_or_else(|| TlsFailure::truncated().into());
            Completion::Failed { slot, error }
        };
        self.slots[slot as usize].connection = None;
        self.events.push_back(event);
    }

    /// Replies to a server's close_notify if the connection is still open one iteration later.
    /// A server that keeps it open may be waiting for the reply. Most servers close immediately. A
    /// reply would then reach a closed socket, and the resulting reset would keep the server's side
    /// from entering TIME_WAIT.
    fn close_leaving(&mut self) {
        let (due, recent) = &mut self.leaving;
        std::mem::swap(due, recent);
        for slot in std::mem::take(recent) {
            let connection = &self.slots[slot as usize].connection;
            if connection.as_ref().is_some_and(|c| c.has_ended) {
                self.send_records(slot, TlsConnection::close);
            }
        }
    }
}

impl<B: IoBackend> IoBackend for Secured<B> {
    fn open(&mut self, slot: Slot, route: Route, first: Option<&SharedBytes>) {
        if self.slots.len() <= slot as usize {
            self.slots.resize_with(slot as usize + 1, TlsSlot::default);
        }
        self.slots[slot as usize].carries = first.is_some();
        self.inner.open(slot, route, None);
    }

    fn send(&mut self, slot: Slot, bytes: &SharedBytes) {
        self.send_records(slot, |connection| connection.encrypt(bytes));
    }

    fn is_sending(&self, slot: Slot) -> bool {
        self.inner.is_sending(slot)
    }

    fn is_unconfirmed(&self, slot: Slot) -> bool {
        self.inner.is_unconfirmed(slot)
    }

    fn held(&mut self) -> Option<usize> {
        self.inner.held()
    }

    fn submit(&mut self) {
        self.inner.submit();
    }

    fn close(&mut self, slot: Slot, how: CloseFirst) {
        if how != CloseFirst::Reset {
            self.send_records(slot, TlsConnection::close);
        }
        self.slots[slot as usize].connection = None;
        self.events.retain(|event| event.slot() != slot);
        self.inner.close(slot, how);
    }

    fn wait(&mut self, until: Ns) -> io::Result<()> {
        self.close_leaving();
        self.inner.wait(until)
    }

    fn coalesce(&mut self, batch: Option<Batch>) -> bool {
        self.inner.coalesce(batch)
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        loop {
            match self.events.pop_front() {
                // All plaintext in this buffer arrived with the last received bytes.
                Some(Completion::Received {
                    slot,
                    at,
                    is_sending,
                    ..
                }) => {
                    return Some(Completion::Received {
                        slot,
                        data: &self.plain,
                        at,
                        is_sending,
                    });
                }
                Some(event) => return Some(event),
                None => {}
            }
            match self.inner.next()? {
                Completion::Reached { slot, at } | Completion::Connected { slot, at, .. } => {
                    self.reached(slot, at);
                }
                Completion::ConnectFailed { slot, error } => {
                    return Some(Completion::ConnectFailed { slot, error });
                }
                Completion::Received {
                    slot,
                    data,
                    at,
                    is_sending,
                } => {
                    let Some(connection) = &mut self.slots[slot as usize].connection else {
                        continue;
                    };
                    self.arrival = (at, is_sending);
                    self.usage.wire_bytes_received += data.len() as u64;
                    self.plain.clear();
                    let (records, plain) = (&mut self.records, &mut self.plain);
                    if connection.is_established {
                        let received = connection.receive(data, records, plain);
                        self.handle_data(slot, received);
                    } else {
                        let step = || connection.receive(data, records, plain);
                        let received = metered(&mut self.usage, step);
                        self.handle_handshake(slot, received);
                    }
                }
                Completion::Ended { slot } => self.handle_end(slot, None),
                Completion::Failed { slot, error } => self.handle_end(slot, Some(error)),
            }
        }
    }

    fn tls(&self) -> Option<TlsUse> {
        let (certificate_requests, certificates_sent) = self.certificate_sender.counts();
        Some(TlsUse {
            certificate_requests,
            certificates_sent,
            ..self.usage.clone()
        })
    }
}

/// Keeps the description of the first failure.
fn note(usage: &mut TlsUse, failure: &TlsFailure) {
    usage.failure.get_or_insert_with(|| failure.detail.clone());
}

/// Runs a handshake step, and adds the CPU time of the step to `usage`.
fn metered<T>(usage: &mut TlsUse, step: impl FnOnce() -> T) -> T {
    let before = thread_cpu();
    let done = step();
    usage.handshake_cpu_s += thread_cpu().saturating_sub(before) as f64 / 1e9;
    done
}
