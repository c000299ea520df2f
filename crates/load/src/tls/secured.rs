//! The backend around a backend.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use floodmark_record::plan::CloseFirst;
use floodmark_record::tls::TlsUse;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::deliver::{Early, Entry, Layer, Stage, Step};
use super::handshake::Shaken;
use super::record::Content;
use super::session::{CLOSE_NOTIFY, Session};
use crate::backend::{Backend, Bytes, Completion, Route, Slot};
use crate::clock::{Clock, Ns};
use crate::coalescing::Batch;

/// A backend whose connections are protected by TLS.
///
/// A connection counts as connected when its handshake is over; before, [`Completion::Reached`] tells that TCP stands. The
/// client's last handshake message and its first request go out together where the request is known by then.
pub struct Secured<B> {
    clock: Clock,
    inner: B,
    layer: Layer,
    /// The stamp of the bytes that were received last.
    stamped: Option<Ns>,
}

impl<B: Backend> Secured<B> {
    /// Protects what `inner` carries; the servers have to prove to be `name`.
    pub fn new(
        clock: Clock,
        inner: B,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Self {
        Secured {
            clock,
            inner,
            layer: Layer::new(config, name),
            stamped: None,
        }
    }

    /// Hands bytes of a handshake to the backend.
    fn send_plainly(&mut self, slot: Slot, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.layer.meter.sent += bytes.len() as u64;
            self.inner.send(slot, &Rc::new(bytes.to_vec()));
        }
    }

    /// Seals and sends.
    fn send_sealed(&mut self, slot: Slot, session: &mut Session, content: Content, plain: &[u8]) {
        let layer = &mut self.layer;
        match session.seal(content, plain, &mut layer.sealed) {
            Ok(sealed) => {
                layer.meter.sent += sealed.len() as u64;
                self.inner.send(slot, &sealed);
                let last = &mut layer.entries[slot as usize].last;
                layer.sealed.handed(sealed, last);
            }
            Err(failure) => {
                let failed = Early::Failed(failure.into());
                layer.early.push_back((slot, failed));
            }
        }
    }

    /// The handshake is over. Its last message waits for the request that is about to be sent, where there is one.
    fn stand(&mut self, slot: Slot, shaken: Shaken) {
        let mut session = Box::new(shaken.session);
        if self.layer.entries[slot as usize].carries {
            session.before = shaken.outgoing;
        } else {
            self.send_plainly(slot, &shaken.outgoing);
        }
        self.layer.entries[slot as usize].stage = Stage::Standing(session);
        if !shaken.behind.is_empty() {
            let behind = Early::Behind(shaken.behind);
            self.layer.early.push_back((slot, behind));
        }
    }

    /// Answers the close_notify of peers that have not closed a turn later: they may be waiting for it. Most close at once, and
    /// an answer would meet them with a closed socket and take their TIME_WAIT from them.
    fn answer_leaving(&mut self) {
        let mut i = 0;
        while let Some((slot, passed)) = self.layer.leaving.get_mut(i) {
            let slot = *slot;
            let waits = matches!(&self.layer.entries[slot as usize].stage,
                Stage::Standing(session) if session.ended && !session.closed);
            if waits && !*passed {
                *passed = true;
                i += 1;
                continue;
            }
            self.layer.leaving.swap_remove(i);
            if waits {
                self.say_goodbye(slot);
            }
        }
    }

    /// Tells the peer that no more will come, where that has not been said.
    fn say_goodbye(&mut self, slot: Slot) {
        let stage = &mut self.layer.entries[slot as usize].stage;
        if let Stage::Standing(mut session) = std::mem::take(stage) {
            if !session.closed {
                session.closed = true;
                self.send_sealed(slot, &mut session, Content::Alert, &CLOSE_NOTIFY);
            }
            self.layer.entries[slot as usize].stage = Stage::Standing(session);
        }
    }
}

impl<B: Backend> Backend for Secured<B> {
    fn open(&mut self, slot: Slot, route: Route, first: Option<&Bytes>) {
        let entries = &mut self.layer.entries;
        if entries.len() <= slot as usize {
            entries.resize_with(slot as usize + 1, Entry::default);
        }
        let entry = &mut entries[slot as usize];
        entry.stage = Stage::Connecting;
        entry.carries = first.is_some();
        self.inner.open(slot, route, None);
    }

    fn send(&mut self, slot: Slot, bytes: &Bytes) {
        let stage = &mut self.layer.entries[slot as usize].stage;
        if let Stage::Standing(mut session) = std::mem::take(stage) {
            self.send_sealed(slot, &mut session, Content::Data, bytes);
            self.layer.entries[slot as usize].stage = Stage::Standing(session);
        }
    }

    fn held(&mut self) -> Option<usize> {
        self.inner.held()
    }

    fn submit(&mut self) {
        self.inner.submit();
    }

    fn close(&mut self, slot: Slot, how: CloseFirst) {
        if how != CloseFirst::Reset {
            self.say_goodbye(slot);
        }
        self.layer.over(slot);
        self.layer.early.retain(|(of, _)| *of != slot);
        self.inner.close(slot, how);
    }

    fn wait(&mut self, until: Ns) -> io::Result<()> {
        self.answer_leaving();
        let until = if self.layer.early.is_empty() {
            until
        } else {
            0
        };
        self.inner.wait(until)
    }

    fn coalesce(&mut self, batch: Option<Batch>) -> bool {
        self.inner.coalesce(batch)
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        loop {
            let step = match self.layer.early.pop_front() {
                Some(early) => self.layer.resume(early),
                None => match self.inner.next()? {
                    Completion::Reached { slot, at } | Completion::Connected { slot, at, .. } => {
                        let begun = self.layer.reached(slot);
                        if let Step::Send(slot, hello) = begun {
                            self.send_plainly(slot, &hello);
                            return Some(Completion::Reached { slot, at });
                        }
                        begun
                    }
                    Completion::ConnectFailed { slot, error } => {
                        self.layer.over(slot);
                        return Some(Completion::ConnectFailed { slot, error });
                    }
                    Completion::Received { slot, data, at } => {
                        self.stamped = at;
                        self.layer.received(slot, data)
                    }
                    Completion::Ended { slot } => self.layer.cut(slot, None),
                    Completion::Failed { slot, error } => self.layer.cut(slot, Some(error)),
                },
            };
            match step {
                Step::Nothing => {}
                Step::Send(slot, bytes) => self.send_plainly(slot, &bytes),
                Step::Shaken(slot, shaken) => {
                    let at = self.clock.now();
                    self.stand(slot, *shaken);
                    let sent = false;
                    return Some(Completion::Connected { slot, at, sent });
                }
                Step::Refused(slot, error, alert) => {
                    self.send_plainly(slot, &alert);
                    self.close(slot, CloseFirst::Client);
                    return Some(Completion::ConnectFailed { slot, error });
                }
                Step::Plain(slot) => {
                    // All that is plain by now came with the bytes that were received last.
                    let (data, at) = (&self.layer.plain, self.stamped);
                    return Some(Completion::Received { slot, data, at });
                }
                Step::Ended(slot) => return Some(Completion::Ended { slot }),
                Step::Failed(slot, error) => return Some(Completion::Failed { slot, error }),
            }
        }
    }

    fn tls(&self) -> Option<TlsUse> {
        Some(self.layer.meter.read())
    }
}
