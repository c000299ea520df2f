//! A simulated world for the core: a controlled clock, servers and a network.
//! The servers and the network exhibit every behavior possible in reality, in a random order
//! determined by a seed.

use std::collections::BTreeMap;
use std::io;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::http2::{Answer, Http2Behavior, Http2Server, requests_in};
use crate::backend::{Completion, Slot};
use crate::clock::Ns;
use crate::core::{Action, Core};

const US: Ns = 1_000;
const MS: Ns = 1_000_000;

const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345";
const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n12345";
const UNTIL_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nuntil the end";
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

enum Happening {
    Connected {
        sent: bool,
    },
    Refused(i32),
    Data(Vec<u8>),
    /// A response before the server has received the whole request.
    Early,
    End,
    Broke(i32),
}

#[derive(Default)]
struct SimulatedSocket {
    generation: u32,
    open: bool,
    standing: bool,
    /// Whether the server responded before it received the whole request.
    is_spoiled: bool,
    http2: Http2Server,
}

/// The servers and the network that a core talks to.
pub struct World {
    pub now: Ns,
    /// Requests sent.
    pub sends: u64,
    /// Whether servers misbehave.
    hostile: bool,
    /// Behavior of servers over HTTP/2. Over HTTP/1.1, servers that refuse requests close some kept
    /// connections.
    pub http2: Http2Behavior,
    /// Bit mask of the targets that have no listener.
    pub absent: u32,
    /// The time at which all servers become unreachable.
    pub dead_from: Ns,
    /// Whether requests are sent only during a wait, as if the backend delayed commands.
    pub holds_back: bool,
    /// Slots with a delayed request, each with its generation.
    leaving: Vec<(Slot, u32)>,
    random: Xoshiro256PlusPlus,
    sockets: Vec<SimulatedSocket>,
    /// HTTP/2 connections whose output must wait, each with its generation.
    queued: Vec<(Slot, u32)>,
    /// Output of HTTP/2 connections that was not sent yet, each with its generation.
    outputs: Vec<(Slot, u32, Vec<u8>)>,
    ahead: BTreeMap<(Ns, u64), (Slot, u32, Happening)>,
    order: u64,
    /// Number of consecutive passes in which no event occurred and the time did not advance.
    standstill: u32,
}

impl World {
    pub fn new(seed: u64, hostile: bool) -> Self {
        World {
            now: 1000 * MS,
            sends: 0,
            hostile,
            http2: Http2Behavior {
                is_hostile: hostile,
                ..Http2Behavior::default()
            },
            absent: 0,
            dead_from: Ns::MAX,
            holds_back: false,
            leaving: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            sockets: Vec::new(),
            queued: Vec::new(),
            outputs: Vec::new(),
            ahead: BTreeMap::new(),
            order: 0,
            standstill: 0,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    /// Returns a random delay. The delay is usually short, but sometimes longer than any timeout in
    /// the tests.
    fn some_time(&mut self) -> Ns {
        match self.below(20) {
            0 => self.below(400 * MS),
            1..5 => self.below(20 * MS),
            _ => self.below(300 * US),
        }
    }

    fn plan(&mut self, at: Ns, slot: Slot, what: Happening) {
        self.order += 1;
        let generation = self.sockets[slot as usize].generation;
        self.ahead
            .insert((at, self.order), (slot, generation, what));
    }

    /// Executes the core's commands.
    pub fn act(&mut self, core: &mut Core) {
        while !core.actions.is_empty() {
            self.act_once(core);
        }
    }

    fn act_once(&mut self, core: &mut Core) {
        for action in std::mem::take(&mut core.actions) {
            match action {
                Action::Send { slot } if core.is_http2() => {
                    let generation = self.sockets[slot as usize].generation;
                    if self.below(8) == 0 {
                        self.queued.push((slot, generation));
                    } else {
                        self.take_output(core, slot, generation);
                    }
                }
                Action::Send { slot } => {
                    let socket = &self.sockets[slot as usize];
                    assert!(socket.standing, "sent without a connection");
                    assert!(!socket.is_spoiled, "sent after an incomplete request");
                    self.sends += 1;
                    self.leaving.push((slot, socket.generation));
                }
                Action::Open { slot, route, first } => {
                    if self.absent & 1 << route.target != 0 {
                        self.refuse(slot);
                    } else {
                        self.open(slot, first, core.due(slot).last);
                    }
                }
                Action::Close { slot, .. } => {
                    core.drop_session(slot);
                    self.close(slot);
                }
            }
            if !self.holds_back {
                self.leave(core);
            }
        }
    }

    /// Takes the output of an HTTP/2 connection.
    fn take_output(&mut self, core: &mut Core, slot: Slot, generation: u32) {
        if self.sockets[slot as usize].generation == generation {
            let output = core.output(slot).to_vec();
            self.sends += requests_in(&output).count() as u64;
            core.handed_over(slot, self.now);
            self.outputs.push((slot, generation, output));
        }
    }

    /// Passes the output of an HTTP/2 connection to its server.
    fn reach_server(&mut self, slot: Slot, output: &[u8]) {
        let socket = &mut self.sockets[slot as usize];
        for answer in socket.http2.feed(output, self.http2, &mut self.random) {
            let (Answer::Bytes(after, _) | Answer::End(after) | Answer::Broke(after)) = &answer;
            let at = self.now + after;
            let what = match answer {
                Answer::Bytes(_, bytes) => Happening::Data(bytes),
                Answer::End(_) => Happening::End,
                Answer::Broke(_) => Happening::Broke(libc::ECONNRESET),
            };
            self.plan(at, slot, what);
        }
    }

    /// Sends the delayed requests.
    pub fn leave(&mut self, core: &mut Core) {
        for (slot, generation, output) in std::mem::take(&mut self.outputs) {
            if self.sockets[slot as usize].generation == generation {
                core.sent(slot, self.now);
                self.reach_server(slot, &output);
            }
        }
        for (slot, generation) in std::mem::take(&mut self.leaving) {
            core.sent(slot, self.now);
            if self.sockets[slot as usize].generation == generation {
                self.request(slot, self.now, core.due(slot).last);
            }
        }
    }

    fn socket(&mut self, slot: Slot) {
        if self.sockets.len() <= slot as usize {
            self.sockets
                .resize_with(slot as usize + 1, SimulatedSocket::default);
        }
        let socket = &mut self.sockets[slot as usize];
        assert!(!socket.open, "opened twice");
        socket.open = true;
        socket.is_spoiled = false;
        socket.http2 = Http2Server::default();
    }

    fn refuse(&mut self, slot: Slot) {
        self.socket(slot);
        self.plan(self.now, slot, Happening::Refused(libc::ECONNREFUSED));
    }

    fn open(&mut self, slot: Slot, first: bool, last: bool) {
        if self.now >= self.dead_from {
            return self.refuse(slot);
        }
        self.socket(slot);
        let at = self.now + self.some_time();
        match self.below(if self.hostile { 30 } else { 1 }) {
            1 => self.plan(self.now, slot, Happening::Refused(libc::EADDRNOTAVAIL)),
            2 => self.plan(at, slot, Happening::Refused(libc::ECONNREFUSED)),
            3 => self.plan(at, slot, Happening::Refused(libc::ETIMEDOUT)),
            4 => {}
            5 => {
                self.plan(at, slot, Happening::Connected { sent: first });
                self.plan(at, slot, Happening::Broke(libc::ECONNRESET));
            }
            6 => {
                self.plan(at, slot, Happening::Connected { sent: first });
                self.plan(at, slot, Happening::Data(b"SSH-2.0\r\n".to_vec()));
            }
            _ => {
                self.plan(at, slot, Happening::Connected { sent: first });
                if first {
                    self.request(slot, at, last);
                }
            }
        }
    }

    fn close(&mut self, slot: Slot) {
        let socket = &mut self.sockets[slot as usize];
        assert!(socket.open, "closed twice");
        socket.open = false;
        socket.standing = false;
        socket.generation += 1;
    }

    /// Simulates the server's reaction to a request that arrives after `sent`.
    /// `last` marks the connection's last request.
    fn request(&mut self, slot: Slot, sent: Ns, last: bool) {
        let at = sent + self.some_time();
        let later = at + self.some_time();
        let data = |bytes: &[u8]| Happening::Data(bytes.to_vec());
        let kinds = match self.http2 {
            _ if self.hostile => 25,
            Http2Behavior { refuses: true, .. } => 8,
            _ => 4,
        };
        let kind = self.below(kinds);
        match kind {
            0..3 => self.plan(at, slot, data(WHOLE)),
            3 => {
                let cut = self.below(WHOLE.len() as u64 - 1) as usize + 1;
                self.plan(at, slot, data(&WHOLE[..cut]));
                self.plan(later, slot, data(&WHOLE[cut..]));
            }
            4 => {
                self.plan(at, slot, data(WHOLE));
                self.plan(at, slot, Happening::End);
            }
            5 => {
                self.plan(at, slot, data(WHOLE));
                self.plan(later, slot, Happening::End);
            }
            6 => self.plan(at, slot, Happening::End),
            7 => self.plan(at, slot, Happening::Broke(libc::ECONNRESET)),
            8 | 9 => {
                let cut = self.below(WHOLE.len() as u64) as usize;
                self.plan(at, slot, data(&WHOLE[..cut.max(1)]));
                let end = if kind == 8 {
                    Happening::End
                } else {
                    Happening::Broke(libc::ECONNRESET)
                };
                self.plan(later, slot, end);
            }
            10 => {}
            11 => self.plan(at, slot, data(b"\x15\x03\x01\x00\x02")),
            12 => self.plan(at, slot, data(&[WHOLE, WHOLE].concat())),
            13 => {
                self.plan(at, slot, data(UNTIL_CLOSE));
                self.plan(later, slot, Happening::End);
            }
            14 => {
                self.plan(at, slot, data(LAST));
                self.plan(later, slot, Happening::End);
            }
            15 => self.plan(at, slot, data(LAST)),
            16 => {
                self.plan(at, slot, data(LAST));
                self.plan(later, slot, data(WHOLE));
            }
            17 => self.plan(at, slot, data(BUSY)),
            18 => {
                self.plan(at, slot, data(WHOLE));
                self.plan(later, slot, data(b"HTTP/1.1 200"));
            }
            19 => self.plan(sent, slot, Happening::Broke(libc::EPIPE)),
            20 => {
                self.plan(at, slot, data(b"HTTP/1.1 100 Continue\r\n\r\n"));
                self.plan(later, slot, Happening::End);
            }
            21 => self.plan(at, slot, Happening::Early),
            _ => self.plan(at, slot, data(WHOLE)),
        }
        if last && kind < 4 {
            self.plan(later, slot, Happening::End);
        }
    }

    /// Sends the delayed requests, and advances the time to the next event or to `until`.
    /// Sometimes the time advances further, to simulate a stalled thread.
    pub fn wait(&mut self, core: &mut Core, until: Ns) {
        for (slot, generation) in std::mem::take(&mut self.queued) {
            self.take_output(core, slot, generation);
        }
        self.act(core);
        self.leave(core);
        let next = self.ahead.first_key_value().map_or(Ns::MAX, |(at, _)| at.0);
        let to = next.min(until);
        assert!(to < Ns::MAX, "no event is pending");
        self.standstill = if to > self.now {
            0
        } else {
            self.standstill + 1
        };
        assert!(self.standstill < 100, "time stands still");
        let late = match self.below(50) {
            0 => self.below(30 * MS),
            1..25 => self.below(50 * US),
            _ => 0,
        };
        self.now = self.now.max(to) + late;
    }

    /// Passes all events up to now to the core.
    pub fn take_in(&mut self, core: &mut Core) {
        while let Some(entry) = self.ahead.first_entry()
            && entry.key().0 <= self.now
        {
            let (slot, generation, what) = entry.remove();
            let socket = &mut self.sockets[slot as usize];
            if socket.generation != generation {
                continue;
            }
            self.now += US;
            self.standstill = 0;
            let (now, error) = (self.now, io::Error::from_raw_os_error);
            match what {
                Happening::Connected { sent } => {
                    socket.standing = true;
                    self.sends += u64::from(sent);
                    let at = now;
                    core.on(Completion::Connected { slot, at, sent }, now);
                }
                Happening::Refused(errno) => {
                    self.close(slot);
                    let error = error(errno);
                    core.on(Completion::ConnectFailed { slot, error }, now);
                }
                Happening::Data(data) => core.on(
                    Completion::Received {
                        slot,
                        data: &data,
                        at: None,
                        is_sending: false,
                    },
                    now,
                ),
                Happening::Early => {
                    socket.is_spoiled = true;
                    core.on(
                        Completion::Received {
                            slot,
                            data: WHOLE,
                            at: None,
                            is_sending: true,
                        },
                        now,
                    );
                }
                Happening::End => core.on(Completion::Ended { slot }, now),
                Happening::Broke(errno) => {
                    let error = error(errno);
                    core.on(Completion::Failed { slot, error }, now);
                }
            }
            if now >= core.next_arrival() {
                core.arrive(now);
            }
            self.act(core);
            // While requests are delayed, sometimes simulate a stall. The stall may be longer than
            // any timeout.
            if !self.leaving.is_empty() && self.below(50) == 0 {
                self.now += self.below(400 * MS);
            }
        }
    }

    /// Returns whether an event is pending.
    pub fn is_waiting(&self) -> bool {
        !self.ahead.is_empty() || !self.outputs.is_empty() || !self.queued.is_empty()
    }

    /// Returns the number of the core's connections, including connections whose handshake is in
    /// progress.
    pub fn open_sockets(&self) -> usize {
        self.sockets.iter().filter(|socket| socket.open).count()
    }
}
