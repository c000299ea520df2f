//! Connections of the target's port on this machine, counted by side and state, with their queues; and its listener.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::samples::subject;
use crate::series::{Kind, Subject};
use crate::sock_diag::{SockDiag, Socket, TcpInfo};

/// State `LISTEN` (`TCP_LISTEN` of `tcp_states.h`).
const LISTEN: u32 = 10;

/// All states but `LISTEN`.
const CONNECTIONS: u32 = !(1 << LISTEN);

/// Connections whose `tcp_info` is read each time.
const LOOKED_INTO: usize = 8;

/// States that are counted, as `tcp_states.h` numbers them. `SYN_RECV` are 3 and, in the kernel's inner numbering, 12.
const STATES: [(&str, &[u8]); 7] = [
    ("established", &[1]),
    ("syn_sent", &[2]),
    ("syn_recv", &[3, 12]),
    ("fin_wait", &[4, 5]),
    ("time_wait", &[6]),
    ("close_wait", &[8]),
    ("last_ack", &[9, 11]),
];

/// Values of one side: its states, then its queues.
const OF_A_SIDE: usize = STATES.len() + 2;

/// Which ends of the connections are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Both: client and server share a network namespace.
    Both,
    /// The server's.
    Server,
    /// The client's.
    Client,
}

impl Ends {
    /// The sides that are told, by their index.
    fn sides(self) -> std::ops::Range<usize> {
        match self {
            Self::Both => 0..2,
            Self::Server => 0..1,
            Self::Client => 1..2,
        }
    }
}

/// Connections of a target, as they are now.
#[derive(Debug)]
pub(crate) struct Sockets {
    diag: SockDiag,
    ends: Ends,
    addresses: Vec<SocketAddr>,
    port: u16,
    /// Connections whose `tcp_info` is read, evenly picked from the last reading.
    picked: Vec<Socket>,
    /// How many established ones that reading had on the side that is looked into.
    established: usize,
}

impl Sockets {
    /// For a target's addresses, which share a port; `diag` asks in the network namespace of those ends.
    pub(crate) fn new(diag: SockDiag, ends: Ends, addresses: &[SocketAddr]) -> Self {
        Self {
            diag,
            ends,
            port: addresses.first().map_or(0, SocketAddr::port),
            addresses: addresses.to_vec(),
            picked: Vec::with_capacity(LOOKED_INTO),
            established: 0,
        }
    }

    /// What [`Sockets::connections`] gives.
    pub(crate) fn subjects(ends: Ends) -> Vec<Subject> {
        let level = |whose, metric: &'static str, unit| subject(whose, metric, unit, Kind::Level);
        let mut subjects = Vec::new();
        for side in &["server sockets", "client sockets"][ends.sides()] {
            subjects.extend(STATES.map(|(name, _)| level(side, name, "sockets")));
            subjects.push(level(side, "receive_queue", "bytes"));
            subjects.push(level(side, "send_queue", "bytes"));
        }
        if ends == Ends::Client {
            return subjects;
        }
        subjects.push(level("tcp_info", "rtt", "µs"));
        subjects.push(level("tcp_info", "total_retrans", "segments"));
        subjects.push(level("tcp_info", "unacked", "segments"));
        subjects
    }

    /// Counts connections. `tcp_info` is the mean round-trip time, the retransmissions so far and the unacknowledged segments of
    /// a sample of 8 established ones: the server's where it is on this machine, else the client's.
    pub(crate) fn connections(&mut self, into: &mut Vec<f64>) -> io::Result<()> {
        let mut sides = [[0.0; OF_A_SIDE]; 2];
        let mut at_server = 0;
        let mut at_client = 0;
        let theirs = self.ends != Ends::Server;
        let (addresses, picked) = (&self.addresses, &mut self.picked);
        picked.clear();
        let apart = (self.established / LOOKED_INTO).max(1);
        let mut from_server = false;
        self.diag.each(self.port, CONNECTIONS, |socket| {
            let of_server = is(addresses, socket.local);
            if !of_server && (!theirs || !is(addresses, socket.remote)) {
                return;
            }
            let side = &mut sides[usize::from(!of_server)];
            let state = STATES
                .iter()
                .position(|(_, numbers)| numbers.contains(&socket.state));
            if let Some(state) = state {
                side[state] += 1.0;
            }
            side[OF_A_SIDE - 2] += f64::from(socket.receive_queue);
            side[OF_A_SIDE - 1] += f64::from(socket.send_queue);
            if socket.state != 1 {
                return;
            }
            if of_server && !from_server {
                from_server = true;
                picked.clear();
            }
            let nth = if of_server {
                &mut at_server
            } else {
                &mut at_client
            };
            if of_server == from_server && picked.len() < LOOKED_INTO && *nth % apart == 0 {
                picked.push(socket);
            }
            *nth += 1;
        })?;
        self.established = if from_server { at_server } else { at_client };
        into.extend(sides[self.ends.sides()].iter().flatten());
        if self.ends == Ends::Client {
            return Ok(());
        }
        self.look_into(into)
    }

    fn look_into(&mut self, into: &mut Vec<f64>) -> io::Result<()> {
        let mut read = 0_u32;
        let (mut rtt_us, mut sum) = (0.0, TcpInfo::default());
        for socket in &self.picked {
            if let Some(info) = self.diag.info(socket)? {
                read += 1;
                rtt_us += f64::from(info.rtt_us);
                sum.retransmitted += info.retransmitted;
                sum.unacknowledged += info.unacknowledged;
            }
        }
        into.extend([
            rtt_us / f64::from(read.max(1)),
            f64::from(sum.retransmitted),
            f64::from(sum.unacknowledged),
        ]);
        Ok(())
    }

    /// What [`Sockets::listener`] gives.
    pub(crate) fn listener_subjects() -> Vec<Subject> {
        ["accept_queue", "accept_queue_limit"]
            .map(|metric| subject("listener", metric, "connections", Kind::Level))
            .into()
    }

    /// Connections that wait to be accepted, and the most that may, over all listeners of the target.
    ///
    /// # Errors
    /// Those of the kernel, and where nobody listens here.
    pub(crate) fn listener(&mut self, into: &mut Vec<f64>) -> io::Result<()> {
        let mut found = false;
        let (mut waiting, mut limit) = (0.0, 0.0);
        let addresses = &self.addresses;
        self.diag.each(self.port, 1 << LISTEN, |socket| {
            if socket.local.ip().is_unspecified() || is(addresses, socket.local) {
                found = true;
                waiting += f64::from(socket.receive_queue);
                limit += f64::from(socket.send_queue);
            }
        })?;
        if !found {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("nobody listens on port {} here", self.port),
            ));
        }
        into.extend([waiting, limit]);
        Ok(())
    }
}

/// Whether it is one of these addresses, of which a wildcard is any.
fn is(addresses: &[SocketAddr], address: SocketAddr) -> bool {
    let ip: IpAddr = address.ip().to_canonical();
    addresses.iter().any(|ours| {
        let same = ours.ip().is_unspecified() || ours.ip().to_canonical() == ip;
        same && ours.port() == address.port()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    fn open(addresses: &[SocketAddr]) -> Sockets {
        Sockets::new(SockDiag::open().unwrap(), Ends::Both, addresses)
    }

    /// The values by subject and metric.
    fn connections(sockets: &mut Sockets) -> Vec<(String, f64)> {
        let mut values = Vec::new();
        sockets.connections(&mut values).unwrap();
        let subjects = Sockets::subjects(sockets.ends);
        assert_eq!(subjects.len(), values.len());
        subjects
            .iter()
            .map(|s| format!("{} {}", s.subject, s.metric))
            .zip(values)
            .collect()
    }

    fn value(values: &[(String, f64)], name: &str) -> f64 {
        values.iter().find(|(n, _)| n == name).unwrap().1
    }

    #[test]
    fn states_and_queues_of_both_sides() {
        // An address that nobody else uses: what went to its port before may still rest in TIME_WAIT.
        let listener = TcpListener::bind("127.77.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut sockets = open(&[address]);
        let mut pairs: Vec<_> = (0..20)
            .map(|_| {
                let client = TcpStream::connect(address).unwrap();
                (client, listener.accept().unwrap().0)
            })
            .collect();
        pairs[0].0.write_all(&[7; 1000]).unwrap();
        pairs[1].1.write_all(&[7; 500]).unwrap();
        let now = connections(&mut sockets);
        assert_eq!(value(&now, "server sockets established"), 20.0);
        assert_eq!(value(&now, "client sockets established"), 20.0);
        assert_eq!(value(&now, "server sockets receive_queue"), 1000.0);
        assert_eq!(value(&now, "client sockets receive_queue"), 500.0);
        assert!(value(&now, "tcp_info rtt") > 0.0);
        // Later readings pick every second of the 20, not the first 8.
        connections(&mut sockets);
        assert_eq!(sockets.picked.len(), LOOKED_INTO);
        for (ends, side) in [
            (Ends::Server, "server sockets"),
            (Ends::Client, "client sockets"),
        ] {
            let mut one = Sockets::new(SockDiag::open().unwrap(), ends, &[address]);
            let alone = connections(&mut one);
            assert_eq!(value(&alone, &format!("{side} established")), 20.0);
            let sides: Vec<_> = alone
                .iter()
                .filter(|(n, _)| n.contains("sockets"))
                .collect();
            assert!(sides.iter().all(|(n, _)| n.starts_with(side)), "{sides:?}");
        }

        // The client closes first: the server's end is in CLOSE_WAIT until it closes too, then the client's rests.
        pairs[2].0.shutdown(Shutdown::Write).unwrap();
        let now = connections(&mut sockets);
        assert_eq!(value(&now, "server sockets close_wait"), 1.0);
        assert_eq!(value(&now, "client sockets fin_wait"), 1.0);
        drop(pairs.swap_remove(2));
        let now = connections(&mut sockets);
        assert_eq!(value(&now, "client sockets time_wait"), 1.0);
        assert_eq!(value(&now, "server sockets time_wait"), 0.0);
        // The server closes first.
        let (client, server) = pairs.pop().unwrap();
        drop(server);
        drop(client);
        let now = connections(&mut sockets);
        assert_eq!(value(&now, "server sockets time_wait"), 1.0);
        assert_eq!(value(&now, "server sockets established"), 18.0);
    }

    #[test]
    fn a_listener_that_never_accepts_fills_its_queue() {
        let listener =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        listener
            .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
            .unwrap();
        listener.listen(5).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let held: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut sockets = open(&[address]);
        let mut values = Vec::new();
        sockets.listener(&mut values).unwrap();
        assert_eq!(values, [3.0, 5.0]);
        drop(held);
        drop(listener);
        assert!(sockets.listener(&mut values).is_err());
    }

    #[test]
    fn a_wildcard_is_any_address_and_of_one_end_only_that_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _client = TcpStream::connect(address).unwrap();
        let any: SocketAddr = ([0, 0, 0, 0], address.port()).into();
        let diag = SockDiag::open().unwrap();
        let now = connections(&mut Sockets::new(diag, Ends::Server, &[any]));
        assert_eq!(value(&now, "server sockets established"), 1.0);
        assert!(now.iter().all(|(name, _)| !name.starts_with("client")));
        drop(listener);
        // The client's end is left, and is none of the server's.
        let diag = SockDiag::open().unwrap();
        let mut server = Sockets::new(diag, Ends::Server, &[any]);
        connections(&mut server);
        assert!(server.picked.is_empty());
    }

    #[test]
    fn another_address_of_the_same_port_is_another_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut sockets = open(&[([127, 0, 0, 2], port).into()]);
        let now = connections(&mut sockets);
        assert!(now.iter().all(|(_, value)| *value == 0.0), "{now:?}");
        assert!(sockets.listener(&mut Vec::new()).is_err());
    }
}
