//! Ends requests and connections for reasons other than a response.

use floodmark_record::Outcome;
use floodmark_record::operation::OperationKind;
use floodmark_record::plan::CloseFirst;
use floodmark_wire::ReadError;

use super::{Action, Core};
use crate::arrivals::RequestSource;
use crate::backend::Slot;
use crate::clock::Ns;
use crate::connection::ConnectionState;
use crate::failure::{self, Break, ConnectFailure};
use crate::judge::CheckedContent;

/// Minimum duration, in ns, of a TLS handshake that counts as failed if the run ends before it does.
const LONG_HANDSHAKE: Ns = 1_000_000_000;

impl Core {
    /// Abandons all requests in flight, so that the counts add up. A request whose connection has
    /// not been reported was not sent.
    pub fn abandon(&mut self, now: Ns) {
        if let RequestSource::Open(waiting) = &mut self.arrivals {
            let recorder = &mut self.recorder;
            waiting.give_up_beyond(0, |group, n| recorder.unsent(group, n));
        }
        let lost = self.ahead.held.lost;
        for slot in 0..self.connections.len() {
            let connection = &mut self.connections[slot];
            let group = connection.moments.pick.group;
            match connection.state {
                ConnectionState::Busy => {
                    self.recorder.in_flight_at_end(group);
                    self.in_flight -= 1;
                    self.keep_unknown(slot as Slot, now);
                }
                ConnectionState::Connecting if connection.carries => {
                    let handshake = connection.reached.map(|since| now.saturating_sub(since));
                    let error = match handshake {
                        Some(LONG_HANDSHAKE..) => Some(failure::HANDSHAKE_TIMED_OUT),
                        _ if self.ever_connected => None,
                        // All earlier connections failed, most of them for this reason.
                        _ => {
                            let failed = self.recorder.unawaited.iter().max_by_key(|(_, n)| **n);
                            failed.map(|(name, _)| *name)
                        }
                    };
                    if connection.retried.is_some() {
                        self.recorder.in_flight_at_end(group);
                    } else if let Some(error) = error {
                        self.recorder.error(error);
                        let intended = connection.moments.intended;
                        self.recorder.connect_failed(group, intended, now);
                    } else {
                        self.recorder.unsent(group, 1);
                    }
                    let target = connection.target;
                    self.targets.given_up(target);
                    self.carried -= 1;
                }
                _ => continue,
            }
            self.connections[slot].carries = false;
            self.pressing.remove(&mut self.connections, slot as Slot);
            self.shut(slot as Slot, CloseFirst::Client, now);
        }
        // Connections that floodmark closes do not count as lost.
        self.ahead.held.lost = lost;
    }

    /// Handles the end of the peer's stream.
    pub(super) fn ended(&mut self, slot: Slot, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        match connection.state {
            ConnectionState::Busy => match connection.reader.end() {
                Ok(Some(response)) => {
                    self.completed_by_close(slot, response.status, now);
                    self.shut(slot, CloseFirst::Client, now);
                    self.refill(now);
                }
                Ok(None) => self.lost(slot, failure::CLOSED_EARLY, now),
                Err(error) => self.malformed(slot, error.name(), now),
            },
            ConnectionState::Closing => {
                self.server_closes = Some(true);
                self.close(slot, now);
            }
            ConnectionState::Idle => {
                self.idle.remove(&mut self.connections, slot);
                self.shut(slot, CloseFirst::Client, now);
            }
            ConnectionState::Closed | ConnectionState::Connecting | ConnectionState::Paused => {}
        }
    }

    /// Handles a broken connection.
    pub(super) fn broken(&mut self, slot: Slot, Break { name, garbled }: Break, now: Ns) {
        let connection = &self.connections[slot as usize];
        match connection.state {
            ConnectionState::Busy if garbled || connection.reader.started() => {
                self.malformed(slot, name, now)
            }
            ConnectionState::Busy => self.lost(slot, name, now),
            _ => self.ended(slot, now),
        }
    }

    /// Handles a connection that ended before the first byte of a response.
    /// If the connection was established before the request was assigned, retries the request once.
    /// A write that a check covers is not retried, because it could take effect twice.
    fn lost(&mut self, slot: Slot, name: &'static str, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        let is_write = self.judges[connection.moments.pick.group as usize].is_checked_write();
        if (connection.used > 0 || connection.rested) && connection.retried.is_none() && !is_write {
            connection.retried = Some(name);
            connection.moments.sent = 0;
            self.in_flight -= 1;
            self.pressing.remove(&mut self.connections, slot);
            self.gone(now);
            self.actions.push(Action::Close {
                slot,
                how: CloseFirst::Client,
            });
            self.carry(slot, now, 0);
            return;
        }
        self.fail(slot, name, Outcome::Reset, now);
    }

    pub(super) fn malformed(&mut self, slot: Slot, mut name: &'static str, now: Ns) {
        // After a response on this connection, the server speaks HTTP, but is out of step.
        if name == ReadError::NotHttp.name() && self.connections[slot as usize].used > 0 {
            name = ReadError::Unsolicited.name();
        }
        self.not_http += u64::from(name == ReadError::NotHttp.name());
        self.fail(slot, name, Outcome::Malformed, now);
    }

    fn fail(&mut self, slot: Slot, name: &'static str, outcome: Outcome, now: Ns) {
        self.recorder.error(name);
        self.end_request(slot, outcome, now);
    }

    /// Ends a sent request without a complete response, and closes its connection.
    fn end_request(&mut self, slot: Slot, outcome: Outcome, now: Ns) {
        let moments = self.connections[slot as usize].moments;
        self.recorder.failed(&moments, now, outcome);
        self.in_flight -= 1;
        self.keep_unknown(slot, now);
        self.done_with(slot, now);
    }

    /// Keeps a write that ends without a response, if a check covers it.
    fn keep_unknown(&mut self, slot: Slot, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        if !self.judges[connection.moments.pick.group as usize].is_checked_write() {
            return;
        }
        let content = CheckedContent::Operation(OperationKind::Unknown, None);
        let request = connection.checked_request(now);
        self.responses
            .add(content, request, &mut connection.last_number);
    }

    pub(super) fn time_out(&mut self, slot: Slot, now: Ns) {
        let connection = &self.connections[slot as usize];
        match connection.state {
            // The backend has not submitted the request, so no response is possible. The timeout
            // starts when the request is submitted.
            ConnectionState::Busy if connection.moments.sent == 0 => {
                self.pressing.remove(&mut self.connections, slot);
                self.connections[slot as usize].deadline = now + self.timeout;
                self.pressing.push_back(&mut self.connections, slot);
            }
            ConnectionState::Busy => self.end_request(slot, Outcome::TimedOut, now),
            ConnectionState::Connecting => {
                let name = match connection.reached {
                    Some(_) => failure::HANDSHAKE_TIMED_OUT,
                    None => failure::CONNECT_TIMED_OUT,
                };
                let how = CloseFirst::Client;
                self.actions.push(Action::Close { slot, how });
                self.connect_failed(slot, ConnectFailure::by_server(name), now);
            }
            ConnectionState::Closed
            | ConnectionState::Closing
            | ConnectionState::Idle
            | ConnectionState::Paused => {
                self.pressing.remove(&mut self.connections, slot);
            }
        }
    }

    /// Closes a connection that the server should have closed, and reuses its slot.
    pub(super) fn close(&mut self, slot: Slot, now: Ns) {
        self.closing.remove(&mut self.connections, slot);
        self.shut(slot, CloseFirst::Client, now);
        self.refill(now);
    }

    /// Closes a connection that is in the deadline list, and reuses its slot.
    pub(super) fn done_with(&mut self, slot: Slot, now: Ns) {
        self.pressing.remove(&mut self.connections, slot);
        self.shut(slot, CloseFirst::Client, now);
        self.refill(now);
    }

    /// Closes a connection, which must not be in any list.
    pub(super) fn shut(&mut self, slot: Slot, how: CloseFirst, now: Ns) {
        if self.connections[slot as usize].state != ConnectionState::Connecting {
            self.gone(now);
        }
        self.actions.push(Action::Close { slot, how });
        self.release(slot, now);
    }
}
