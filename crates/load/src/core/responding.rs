//! Reads and classifies responses.

use floodmark_record::Outcome;
use floodmark_record::plan::CloseFirst;
use floodmark_wire::{ReadError, Reader};

use super::Core;
use crate::backend::Slot;
use crate::clock::Ns;
use crate::connection::ConnectionState;
use crate::judge;
use crate::kept_responses::{MAX_KEPT, NotOkBodies, body_in};

/// Maximum time, in ns, that the server has to close a connection after its last response. Servers
/// that close at all do so within milliseconds, unless they are overloaded. If the server leaves the
/// first connection open, the client closes the later ones at once, as a client must after
/// `Connection: close` (RFC 9112, section 9.6).
const CLOSE_GRACE: Ns = 200_000_000;

impl Core {
    pub(super) fn received(&mut self, slot: Slot, data: &[u8], at: Option<Ns>, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        let group = connection.moments.pick.group;
        // If the timestamp is earlier than the request, the wall clock was changed.
        let sent = connection.moments.sent;
        let at = at.filter(|at| (sent..=now).contains(at)).unwrap_or(now);
        self.recorder.received(group, data.len());
        match connection.state {
            ConnectionState::Busy => {}
            ConnectionState::Closing => {
                self.recorder.error(ReadError::DataAfterClose.name());
                return self.close(slot, now);
            }
            ConnectionState::Idle => {
                self.recorder.error(ReadError::Unsolicited.name());
                self.idle.remove(&mut self.connections, slot);
                return self.shut(slot, CloseFirst::Client, now);
            }
            ConnectionState::Closed | ConnectionState::Connecting | ConnectionState::Paused => {
                return;
            }
        }
        let starts = !connection.reader.started();
        if starts {
            connection.moments.first = at;
            connection.keeps_body = false;
        }
        let judge = &self.judges[group as usize];
        let needs_body = judge.needs_body();
        let wants_body = |not_ok_responses: &NotOkBodies, reader: &Reader| {
            let wants = |status| !judge.is_ok_status(status) && not_ok_responses.wants(status);
            !needs_body && reader.status().is_some_and(wants)
        };
        let collects = needs_body || connection.keeps_body;
        let fed = if collects {
            self.body.clear();
            let fed = connection.reader.feed(data, &mut self.body);
            // If a body arrives in one piece, it is judged in place. Other bodies are collected
            // first.
            if !connection.body.is_empty() || !matches!(&fed, Ok(fed) if fed.response.is_some()) {
                let limit = if needs_body {
                    judge::LONGEST_BODY + 1
                } else {
                    MAX_KEPT
                };
                let room = limit.saturating_sub(connection.body.len());
                let piece = &self.body[..self.body.len().min(room)];
                connection.body.extend_from_slice(piece);
            }
            fed
        } else {
            connection.reader.feed(data, &mut ())
        };
        match fed {
            Err(error) => self.malformed(slot, error.name(), now),
            Ok(fed) => {
                let Some(response) = fed.response else {
                    if starts && wants_body(&self.not_ok_responses, &connection.reader) {
                        connection.keeps_body = true;
                        connection.body = body_in(data, judge.to_head);
                    }
                    return;
                };
                let is_out_of_step = fed.consumed < data.len();
                let unread = match (collects, starts) {
                    (true, _) => None,
                    (false, true) => Some(data),
                    (false, false) => Some(&[][..]),
                };
                self.responded(slot, response.status, unread, at, now);
                if !is_out_of_step {
                    return self.go_on(slot, response.keep_alive, now);
                }
                // The same bytes in a later segment would not change this response either.
                let error = if response.keep_alive {
                    ReadError::Unsolicited
                } else {
                    ReadError::DataAfterClose
                };
                self.recorder.error(error.name());
                self.shut(slot, CloseFirst::Client, now);
                self.refill(now);
            }
        }
    }

    /// Counts a response that the server completed by closing the connection.
    pub(super) fn completed_by_close(&mut self, slot: Slot, status: u16, now: Ns) {
        self.body.clear();
        let connection = &self.connections[slot as usize];
        let group = connection.moments.pick.group;
        let collects = connection.keeps_body || self.judges[group as usize].needs_body();
        let unread = (!collects).then_some(&[][..]);
        self.responded(slot, status, unread, now, now);
    }

    /// Classifies and counts a complete response that arrived at `at`. If its body was not
    /// collected, `unread` contains the whole response, or nothing if its start has been read
    /// already.
    fn responded(&mut self, slot: Slot, status: u16, unread: Option<&[u8]>, at: Ns, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        let body = if connection.body.is_empty() {
            &self.body
        } else {
            &connection.body
        };
        let judge = &self.judges[connection.moments.pick.group as usize];
        let (outcome, content) = judge.outcome(status, body);
        self.recorder
            .responded(&connection.moments, at, status, outcome);
        if outcome != Outcome::Ok && self.not_ok_responses.wants(status) {
            match unread {
                None => self.not_ok_responses.keep(status, body),
                Some([]) => {}
                Some(data) => self
                    .not_ok_responses
                    .keep(status, &body_in(data, judge.to_head)),
            }
        }
        if let Some(lacking) = judge.wants() {
            // A response with status 2xx or 3xx that lacks the required content is not ok.
            if (200..400).contains(&status) && outcome == Outcome::Wrong {
                self.recorder.error(lacking);
            }
            if let Some(content) = content {
                let request = connection.checked_request(now);
                self.responses
                    .add(content, request, &mut connection.last_number);
            }
        }
        connection.used += 1;
        // An idle connection keeps no body.
        connection.body = Vec::new();
        self.last_life = now;
        self.refused_since = None;
        self.last_response = Some(now);
        self.in_flight -= 1;
        self.pressing.remove(&mut self.connections, slot);
    }

    /// Decides how a connection is used after a response.
    fn go_on(&mut self, slot: Slot, keep_alive: bool, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        let used_up = self.uses.is_some_and(|n| connection.used >= n);
        // The plan may require that the server closes first, even after a long time.
        let required = self.uses.is_some() && self.close_first == CloseFirst::Server;
        if used_up && !required {
            self.shut(slot, self.close_first, now);
            self.refill(now);
        } else if !keep_alive && !required && self.server_closes == Some(false) {
            self.shut(slot, CloseFirst::Client, now);
            self.refill(now);
        } else if used_up || !keep_alive {
            connection.state = ConnectionState::Closing;
            let grace = if required { Ns::MAX } else { CLOSE_GRACE };
            connection.deadline = now + grace.min(self.timeout);
            self.closing.push_back(&mut self.connections, slot);
        } else {
            self.vacant(slot, now, now);
        }
    }
}
