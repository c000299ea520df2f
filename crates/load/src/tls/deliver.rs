//! What a completion of the inner backend means for a connection with TLS, worked out without touching that backend.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::buffers::{PartialBuffers, SealedBuffers};
use super::failure::Failure;
use super::handshake::{Handshake, Shaken};
use super::meter::Meter;
use super::session::Session;
use crate::backend::{Bytes, Slot};

/// What one read of a backend may bring, and a record before it: so much plaintext at once never makes the buffer grow.
const PLAIN: usize = 96 * 1024;

/// A slot. Small where nothing is open.
#[derive(Default)]
pub struct Entry {
    pub stage: Stage,
    /// Whether a request is sent as soon as the handshake is over.
    pub carries: bool,
    /// What was sealed last, where the backend still holds it.
    pub last: Option<Bytes>,
}

/// How far a connection is.
#[derive(Default)]
pub enum Stage {
    /// Closed, or over: whatever still comes of it is passed over.
    #[default]
    Over,
    /// TCP is being connected.
    Connecting,
    /// The TLS handshake is under way.
    Shaking(Box<Handshake>),
    /// The handshake is over.
    Standing(Box<Session>),
}

/// What is to be done next.
pub enum Step {
    Nothing,
    /// Send these bytes of a handshake.
    Send(Slot, Vec<u8>),
    /// A handshake is over.
    Shaken(Slot, Box<Shaken>),
    /// No connection came about; these bytes tell the server why.
    Refused(Slot, io::Error, Vec<u8>),
    /// There is plaintext in [`Layer::plain`].
    Plain(Slot),
    Ended(Slot),
    Failed(Slot, io::Error),
}

/// What is told before the inner backend is asked again.
pub enum Early {
    /// Bytes that came behind the handshake.
    Behind(Vec<u8>),
    /// The connection broke.
    Failed(io::Error),
}

/// The connections of a thread, and the memory they share.
pub struct Layer {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
    pub entries: Vec<Entry>,
    /// At most two entries for each slot.
    pub early: VecDeque<(Slot, Early)>,
    pub plain: Vec<u8>,
    pub sealed: SealedBuffers,
    pub partials: PartialBuffers,
    pub meter: Meter,
    /// Connections on which the peer said that no more will come, and whether a turn has passed since.
    pub leaving: Vec<(Slot, bool)>,
}

impl Layer {
    pub fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> Self {
        Layer {
            config,
            name,
            entries: Vec::new(),
            early: VecDeque::new(),
            plain: Vec::with_capacity(PLAIN),
            sealed: SealedBuffers::default(),
            partials: PartialBuffers::default(),
            meter: Meter::default(),
            leaving: Vec::new(),
        }
    }

    /// TCP stands: the handshake begins.
    pub fn reached(&mut self, slot: Slot) -> Step {
        let (config, name) = (Arc::clone(&self.config), self.name.clone());
        match self.meter.step(|| Handshake::begin(config, name)) {
            Ok(mut handshake) => {
                let hello = handshake.outgoing();
                self.entries[slot as usize].stage = Stage::Shaking(Box::new(handshake));
                Step::Send(slot, hello)
            }
            Err(failure) => self.refuse(slot, failure, Vec::new()),
        }
    }

    pub fn received(&mut self, slot: Slot, data: &[u8]) -> Step {
        self.meter.received += data.len() as u64;
        match self.entries[slot as usize].stage {
            Stage::Shaking(_) => self.shake(slot, data),
            Stage::Standing(_) => self.open(slot, data),
            Stage::Over | Stage::Connecting => Step::Nothing,
        }
    }

    /// A step of a handshake.
    fn shake(&mut self, slot: Slot, data: &[u8]) -> Step {
        let entry = &mut self.entries[slot as usize];
        let Stage::Shaking(mut handshake) = std::mem::take(&mut entry.stage) else {
            return Step::Nothing;
        };
        match self.meter.step(|| handshake.feed(data)) {
            Ok(false) => {
                let outgoing = handshake.outgoing();
                entry.stage = Stage::Shaking(handshake);
                if outgoing.is_empty() {
                    Step::Nothing
                } else {
                    Step::Send(slot, outgoing)
                }
            }
            Ok(true) => match self.meter.step(|| handshake.finish()) {
                Ok(shaken) => {
                    self.meter.succeeded(shaken.suite, shaken.resumed);
                    Step::Shaken(slot, Box::new(shaken))
                }
                Err(failure) => self.refuse(slot, failure, Vec::new()),
            },
            Err(failure) => {
                let alert = handshake.outgoing();
                self.refuse(slot, failure, alert)
            }
        }
    }

    fn refuse(&mut self, slot: Slot, failure: Failure, alert: Vec<u8>) -> Step {
        self.meter.failed(&failure);
        Step::Refused(slot, failure.into(), alert)
    }

    /// Opens what came on a connection that stands.
    fn open(&mut self, slot: Slot, data: &[u8]) -> Step {
        let Stage::Standing(session) = &mut self.entries[slot as usize].stage else {
            return Step::Nothing;
        };
        self.plain.clear();
        let was_ended = session.ended;
        let opened = session.feed(data, &mut self.plain, &mut self.partials);
        if session.ended && !was_ended {
            self.leaving.push((slot, false));
        }
        match opened {
            Ok(()) if self.plain.is_empty() => Step::Nothing,
            Ok(()) => Step::Plain(slot),
            Err(failure) => {
                let error = failure.into();
                self.over(slot);
                if self.plain.is_empty() {
                    return Step::Failed(slot, error);
                }
                self.early.push_back((slot, Early::Failed(error)));
                Step::Plain(slot)
            }
        }
    }

    /// Goes on with what was put off.
    pub fn resume(&mut self, (slot, early): (Slot, Early)) -> Step {
        match early {
            Early::Behind(data) => self.open(slot, &data),
            Early::Failed(error) => Step::Failed(slot, error),
        }
    }

    /// The inner connection has ended, in order or by an error.
    pub fn cut(&mut self, slot: Slot, error: Option<io::Error>) -> Step {
        match &self.entries[slot as usize].stage {
            Stage::Over => Step::Nothing,
            Stage::Connecting | Stage::Shaking(_) => {
                let how =
                    error.map_or_else(|| "without a word".to_owned(), |error| format!("({error})"));
                let detail = format!("the server closed the connection within the handshake {how}");
                self.refuse(slot, Failure::cut(detail), Vec::new())
            }
            Stage::Standing(session) => {
                // What was to be said has been, however the connection went.
                let whole = session.ended;
                self.over(slot);
                if whole {
                    Step::Ended(slot)
                } else {
                    let error = error.unwrap_or_else(|| Failure::truncated().into());
                    Step::Failed(slot, error)
                }
            }
        }
    }

    /// Forgets a connection; its session, where it had one.
    pub fn over(&mut self, slot: Slot) -> Option<Box<Session>> {
        let entry = &mut self.entries[slot as usize];
        match std::mem::take(&mut entry.stage) {
            Stage::Standing(mut session) => {
                session.release(&mut self.partials);
                Some(session)
            }
            _ => None,
        }
    }
}
