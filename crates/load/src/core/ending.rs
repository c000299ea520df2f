//! How requests and connections end otherwise than by an answer.

use floodmark_record::Outcome;
use floodmark_record::plan::CloseFirst;
use floodmark_wire::ReadError;

use super::{Action, Core};
use crate::arrivals::Arrivals;
use crate::backend::Slot;
use crate::clock::Ns;
use crate::connection::State;
use crate::failure::{self, Break, ConnectFailure};

impl Core {
    /// Gives up everything that is out, so that the counts add up.
    pub fn abandon(&mut self, now: Ns) {
        if let Arrivals::Open(waiting) = &mut self.arrivals {
            let recorder = &mut self.recorder;
            waiting.give_up_beyond(0, |group, n| recorder.unsent(group, n));
        }
        let lost = self.gone_so_far();
        for slot in 0..self.connections.len() {
            let connection = &mut self.connections[slot];
            let group = connection.moments.pick.group;
            match connection.state {
                State::Busy => {
                    self.recorder.in_flight_at_end(group);
                    self.in_flight -= 1;
                }
                State::Connecting if connection.carries => {
                    if connection.retried {
                        self.recorder.in_flight_at_end(group);
                    } else {
                        self.recorder.unsent(group, 1);
                    }
                    self.targets.given_up(connection.target);
                    self.carried -= 1;
                }
                _ => continue,
            }
            connection.carries = false;
            self.pressing.remove(&mut self.connections, slot as Slot);
            self.shut(slot as Slot, CloseFirst::Client, now);
        }
        // What we close ourselves is not lost.
        self.keep_gone(lost);
    }

    /// The peer sends no more.
    pub(super) fn ended(&mut self, slot: Slot, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        match connection.state {
            State::Busy => match connection.reader.end() {
                Ok(Some(answer)) => {
                    self.answered_by_close(slot, answer.status, now);
                    self.shut(slot, CloseFirst::Client, now);
                    self.refill(now);
                }
                Ok(None) => self.lost(slot, failure::CLOSED_EARLY, now),
                Err(error) => self.malformed(slot, error.name(), now),
            },
            State::Closing => self.done_with(slot, now),
            State::Idle => {
                self.idle.remove(&mut self.connections, slot);
                self.shut(slot, CloseFirst::Client, now);
            }
            State::Closed | State::Connecting | State::Paused => {}
        }
    }

    /// The connection broke.
    pub(super) fn broken(&mut self, slot: Slot, Break { name, garbled }: Break, now: Ns) {
        let connection = &self.connections[slot as usize];
        match connection.state {
            State::Busy if garbled || connection.reader.started() => {
                self.malformed(slot, name, now)
            }
            State::Busy => self.lost(slot, name, now),
            _ => self.ended(slot, now),
        }
    }

    /// The connection went away without a byte of an answer: the request is retried, once, if the connection
    /// stood before the request was given to it.
    fn lost(&mut self, slot: Slot, name: &'static str, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        if (connection.used > 0 || connection.rested) && !connection.retried {
            connection.retried = true;
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

    pub(super) fn malformed(&mut self, slot: Slot, name: &'static str, now: Ns) {
        self.not_http += u64::from(name == ReadError::NotHttp.name());
        self.fail(slot, name, Outcome::Malformed, now);
    }

    fn fail(&mut self, slot: Slot, name: &'static str, outcome: Outcome, now: Ns) {
        self.recorder.error(name);
        let moments = self.connections[slot as usize].moments;
        self.recorder.failed(&moments, now, outcome);
        self.in_flight -= 1;
        self.done_with(slot, now);
    }

    pub(super) fn time_out(&mut self, slot: Slot, now: Ns) {
        let connection = &self.connections[slot as usize];
        match connection.state {
            // A backend holds it back still: it cannot have been answered, and its time begins when it leaves.
            State::Busy if connection.moments.sent == 0 => {
                self.pressing.remove(&mut self.connections, slot);
                self.connections[slot as usize].gives_up = now + self.timeout;
                self.pressing.push_back(&mut self.connections, slot);
            }
            State::Busy => {
                let moments = connection.moments;
                self.recorder.failed(&moments, now, Outcome::TimedOut);
                self.in_flight -= 1;
                self.done_with(slot, now);
            }
            State::Connecting => {
                self.actions.push(Action::Close {
                    slot,
                    how: CloseFirst::Client,
                });
                let name = if self.connections[slot as usize].reached.is_some() {
                    failure::HANDSHAKE_TIMED_OUT
                } else {
                    failure::CONNECT_TIMED_OUT
                };
                self.connect_failed(slot, ConnectFailure::timed_out(name), now);
            }
            State::Closing => {
                self.recorder.error(failure::NOT_CLOSED);
                self.done_with(slot, now);
            }
            State::Closed | State::Idle | State::Paused => {
                self.pressing.remove(&mut self.connections, slot);
            }
        }
    }

    /// Closes a connection that is on the list of those with a deadline, and goes on without it.
    pub(super) fn done_with(&mut self, slot: Slot, now: Ns) {
        self.pressing.remove(&mut self.connections, slot);
        self.shut(slot, CloseFirst::Client, now);
        self.refill(now);
    }

    /// Closes a connection that is in no list.
    pub(super) fn shut(&mut self, slot: Slot, how: CloseFirst, now: Ns) {
        if self.connections[slot as usize].state != State::Connecting {
            self.gone(now);
        }
        self.actions.push(Action::Close { slot, how });
        self.release(slot, now);
    }
}
