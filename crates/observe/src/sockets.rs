//! Samples the target's listener, the connections on its port with their states and queues, and the
//! connections that the server opened, such as those to its store.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use floodmark_record::Metric;
use floodmark_record::metric::{Role, SocketFigure, TcpInfoFigure, UpstreamFigure};

use crate::Root;
use crate::listener::socket_inodes;
use crate::samples::Figures;
use crate::sock_diag::{SockDiag, Socket, TcpInfo};
use crate::tree::Tree;

/// State `LISTEN` (`TCP_LISTEN` in `tcp_states.h`).
const LISTEN: u32 = 10;

/// All states except `LISTEN`.
const CONNECTIONS: u32 = !(1 << LISTEN);

/// Number of connections whose `tcp_info` is read per sample.
const INSPECTED: usize = 8;

/// Returns the figure that counts the connections in a state, numbered as in `tcp_states.h`.
/// `SYN_RECV` has the number 3, or 12 inside the kernel.
fn figure_of(state: u8) -> Option<SocketFigure> {
    Some(match state {
        1 => SocketFigure::Established,
        2 => SocketFigure::SynSent,
        3 | 12 => SocketFigure::SynReceived,
        4 | 5 => SocketFigure::FinWait,
        6 => SocketFigure::TimeWait,
        8 => SocketFigure::CloseWait,
        9 | 11 => SocketFigure::LastAck,
        _ => return None,
    })
}

/// The connection ends that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Both ends: client and server share a network namespace.
    Both,
    /// The server's end.
    Server,
    /// The client's end.
    Client,
}

impl Ends {
    /// Returns the indexes of the connection ends that are counted.
    fn indexes(self) -> std::ops::Range<usize> {
        match self {
            Self::Both => 0..2,
            Self::Server => 0..1,
            Self::Client => 1..2,
        }
    }
}

/// Samples the connections of a target.
#[derive(Debug)]
pub(crate) struct Sockets {
    diag: SockDiag,
    ends: Ends,
    addresses: Vec<SocketAddr>,
    port: u16,
    /// Connections whose `tcp_info` is read, spread evenly over the connections in the last sample.
    picked: Vec<Socket>,
    /// Number of established connections at the inspected end in the last sample.
    established: usize,
}

impl Sockets {
    /// Returns a sampler for addresses that share a port. `diag` must be in the network namespace
    /// of the ends.
    pub(crate) fn new(diag: SockDiag, ends: Ends, addresses: Vec<SocketAddr>) -> Self {
        Self {
            diag,
            ends,
            port: addresses.first().map_or(0, SocketAddr::port),
            addresses,
            picked: Vec::with_capacity(INSPECTED),
            established: 0,
        }
    }

    /// Returns the metrics of [`Sockets::connections`].
    pub(crate) fn metrics(ends: Ends) -> Vec<Metric> {
        let roles = [Role::Server, Role::Client][ends.indexes()].iter();
        let of = |role: &Role| SocketFigure::ALL.map(|figure| Metric::Sockets(*role, figure));
        let mut metrics = Vec::from_iter(roles.flat_map(of));
        if ends != Ends::Client {
            metrics.extend(TcpInfoFigure::ALL.map(Metric::TcpInfo));
        }
        metrics
    }

    /// Counts connections and inspects up to 8 established ones: the server's ends if they are on
    /// this host, otherwise the client's ends. From their `tcp_info`, reports the mean round-trip
    /// time, the retransmissions so far and the unacknowledged segments.
    pub(crate) fn connections(&mut self) -> io::Result<Vec<f64>> {
        let mut counts = [[0.0; SocketFigure::ALL.len()]; 2];
        let mut established = [0, 0];
        let both = self.ends != Ends::Server;
        let (addresses, picked) = (&self.addresses, &mut self.picked);
        picked.clear();
        let stride = (self.established / INSPECTED).max(1);
        self.diag.each(self.port, CONNECTIONS, |socket| {
            let is_server = includes(addresses, socket.local);
            if !is_server && (!both || !includes(addresses, socket.remote)) {
                return;
            }
            let at = usize::from(!is_server);
            let count = &mut counts[at];
            if let Some(figure) = figure_of(socket.state) {
                count[figure as usize] += 1.0;
            }
            count[SocketFigure::ReceiveQueue as usize] += f64::from(socket.receive_queue);
            count[SocketFigure::SendQueue as usize] += f64::from(socket.send_queue);
            if socket.state != 1 {
                return;
            }
            let nth = established[at];
            established[at] += 1;
            if is_server && nth == 0 {
                picked.clear();
            }
            let inspected = is_server || established[0] == 0;
            if inspected && picked.len() < INSPECTED && nth % stride == 0 {
                picked.push(socket);
            }
        })?;
        let [server, client] = established;
        self.established = if server > 0 { server } else { client };
        let mut values = counts[self.ends.indexes()].concat();
        if self.ends != Ends::Client {
            values.extend(self.inspect()?);
        }
        Ok(values)
    }

    fn inspect(&mut self) -> io::Result<[f64; 3]> {
        let (mut read, mut rtt_us, mut sum) = (0.0_f64, 0.0, TcpInfo::default());
        for socket in &self.picked {
            if let Some(info) = self.diag.info(socket)? {
                read += 1.0;
                rtt_us += f64::from(info.rtt_us);
                sum.retransmitted += info.retransmitted;
                sum.unacknowledged += info.unacknowledged;
            }
        }
        let [retransmitted, unacknowledged] =
            [sum.retransmitted, sum.unacknowledged].map(f64::from);
        Ok([rtt_us / read.max(1.0), retransmitted, unacknowledged])
    }

    /// Returns the number of connections waiting to be accepted and the limit on this number,
    /// summed over all listeners of the target.
    ///
    /// # Errors
    /// The kernel reports an error, or there is no listener on this host.
    pub(crate) fn listener(&mut self) -> io::Result<[f64; 2]> {
        let (mut found, mut waiting, mut limit) = (false, 0.0, 0.0);
        let addresses = &self.addresses;
        self.diag.each(self.port, 1 << LISTEN, |socket| {
            if socket.local.ip().is_unspecified() || includes(addresses, socket.local) {
                found = true;
                waiting += f64::from(socket.receive_queue);
                limit += f64::from(socket.send_queue);
            }
        })?;
        let missing = || format!("no listener on port {} on this host", self.port);
        found
            .then_some([waiting, limit])
            .ok_or_else(|| io::Error::other(missing()))
    }
}

/// Returns whether one of `addresses` equals `address` or is a wildcard that includes it.
fn includes(addresses: &[SocketAddr], address: SocketAddr) -> bool {
    let ip: IpAddr = address.ip().to_canonical();
    addresses.iter().any(|ours| {
        let same = ours.ip().is_unspecified() || ours.ip().to_canonical() == ip;
        same && ours.port() == address.port()
    })
}

/// Bit of the state `ESTABLISHED` (`TCP_ESTABLISHED` in `tcp_states.h`).
const ESTABLISHED: u32 = 1 << 1;

/// Maximum number of addresses with their own series.
const MAX_ADDRESSES: usize = 8;

/// Maximum number of connections inspected per address and sample.
const INSPECTED_PER_ADDRESS: usize = 64;

/// Connections that a process tree opened, by remote address.
///
/// A connection is waiting for a response if it last sent data after it last received data
/// (`tcpi_last_data_sent` < `tcpi_last_data_recv`). The kernel reports how long ago each event
/// happened, in ticks of 1 to 10 ms. If both events happened in the same tick, their order is
/// unknown.
pub(crate) struct Upstreams {
    diag: SockDiag,
    root: Root,
    tree: Rc<RefCell<Tree>>,
    /// The port under load, whose connections are sampled separately.
    port: u16,
    /// Whether each known socket belongs to the tree, by inode.
    known: HashMap<u64, bool>,
    addresses: Vec<SocketAddr>,
}

impl Upstreams {
    /// Returns a sampler of the tree's connections. `diag` must be in the tree's network namespace.
    pub(crate) fn new(diag: SockDiag, root: &Root, tree: Rc<RefCell<Tree>>, port: u16) -> Self {
        Self {
            diag,
            root: root.clone(),
            tree,
            port,
            known: HashMap::new(),
            addresses: Vec::new(),
        }
    }

    /// Returns the connections that the tree opened.
    fn opened(&mut self) -> io::Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        self.diag
            .each_of_others(self.port, ESTABLISHED, |socket| sockets.push(socket))?;
        if sockets.is_empty() {
            return Ok(sockets);
        }
        let listened = self.diag.listening_ports()?;
        // A socket on the port of a local listener is the accepting end.
        sockets.retain(|socket| !listened.contains(&socket.local.port()));
        let mut inodes = sockets.iter().map(|socket| u64::from(socket.inode));
        if inodes.any(|inode| !self.known.contains_key(&inode)) {
            let own = self.own();
            let inodes = sockets.iter().map(|socket| u64::from(socket.inode));
            self.known = inodes.map(|inode| (inode, own.contains(&inode))).collect();
        }
        sockets.retain(|socket| self.known.get(&socket.inode.into()) == Some(&true));
        Ok(sockets)
    }

    /// Returns the inodes of the tree's sockets.
    fn own(&self) -> HashSet<u64> {
        let members = &self.tree.borrow().members;
        let inodes = members
            .iter()
            .flat_map(|member| socket_inodes(&self.root, member.pid));
        inodes.collect()
    }

    /// Estimates how many connections are waiting for a response, and for how many this is unknown.
    /// Inspects only some of the connections.
    fn waiting(&mut self, sockets: &[Socket]) -> io::Result<(f64, f64)> {
        let (mut waiting, mut unknown, mut read) = (0.0, 0.0, 0.0_f64);
        for socket in sockets.iter().take(INSPECTED_PER_ADDRESS) {
            let Some(info) = self.diag.info(socket)? else {
                continue;
            };
            read += 1.0;
            if info.last_sent_ms < info.last_received_ms {
                waiting += 1.0;
            } else if info.last_sent_ms == info.last_received_ms {
                unknown += 1.0;
            }
        }
        let each = sockets.len() as f64 / read.max(1.0);
        Ok((waiting * each, unknown * each))
    }

    /// Reads the number of connections by address and state.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub(crate) fn read(&mut self, figures: &mut Figures) -> io::Result<()> {
        let mut by_address: HashMap<SocketAddr, Vec<Socket>> = HashMap::new();
        for socket in self.opened()? {
            by_address.entry(socket.remote).or_default().push(socket);
        }
        let new = by_address.keys().copied();
        let mut new: Vec<SocketAddr> = new.filter(|to| !self.addresses.contains(to)).collect();
        new.sort_unstable();
        self.addresses.extend(new);
        self.addresses.truncate(MAX_ADDRESSES);
        for (address, sockets) in by_address {
            if !self.addresses.contains(&address) {
                continue;
            }
            let (waiting, unknown) = self.waiting(&sockets)?;
            for (figure, count) in [
                (UpstreamFigure::Established, sockets.len() as f64),
                (UpstreamFigure::Waiting, waiting),
                (UpstreamFigure::PerhapsWaiting, unknown),
            ] {
                figures.set(Metric::Upstream(address, figure), count);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    fn open(addresses: &[SocketAddr]) -> Sockets {
        Sockets::new(SockDiag::open().unwrap(), Ends::Both, addresses.to_vec())
    }

    /// Returns each value with its subject and name.
    fn connections(sockets: &mut Sockets) -> Vec<(String, f64)> {
        let values = sockets.connections().unwrap();
        let metrics = Sockets::metrics(sockets.ends);
        assert_eq!(metrics.len(), values.len());
        metrics
            .iter()
            .map(|metric| format!("{} {}", metric.subject(), metric.name()))
            .zip(values)
            .collect()
    }

    fn value(values: &[(String, f64)], name: &str) -> f64 {
        values.iter().find(|(n, _)| n == name).unwrap().1
    }

    /// Repeats a reading until it meets a condition. The kernel may deliver a segment on loopback
    /// after the call that sent it has returned.
    fn eventually<T: std::fmt::Debug>(mut read: impl FnMut() -> T, met: impl Fn(&T) -> bool) -> T {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let reading = read();
            if met(&reading) {
                return reading;
            }
            assert!(Instant::now() < deadline, "{reading:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn await_values(sockets: &mut Sockets, expected: &[(&str, f64)]) -> Vec<(String, f64)> {
        let met =
            |now: &Vec<(String, f64)>| expected.iter().all(|(name, n)| value(now, name) == *n);
        eventually(|| connections(sockets), met)
    }

    #[test]
    fn counts_states_and_queues_of_both_ends() {
        // Use a separate address, because ports on 127.0.0.1 may still have sockets in TIME_WAIT.
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
        let expected = [
            ("server sockets established", 20.0),
            ("client sockets established", 20.0),
            ("server sockets receive_queue", 1000.0),
            ("client sockets receive_queue", 500.0),
        ];
        let now = await_values(&mut sockets, &expected);
        assert!(value(&now, "tcp_info rtt") > 0.0);
        // The next sample inspects connections spread over all 20, not the first 8.
        connections(&mut sockets);
        assert_eq!(sockets.picked.len(), INSPECTED);
        for (ends, side) in [
            (Ends::Server, "server sockets"),
            (Ends::Client, "client sockets"),
        ] {
            let mut one = Sockets::new(SockDiag::open().unwrap(), ends, vec![address]);
            let alone = connections(&mut one);
            assert_eq!(value(&alone, &format!("{side} established")), 20.0);
            let sides: Vec<_> = alone
                .iter()
                .filter(|(n, _)| n.contains("sockets"))
                .collect();
            assert!(sides.iter().all(|(n, _)| n.starts_with(side)), "{sides:?}");
        }

        // The client closes first. The server's end stays in CLOSE_WAIT. Later, the client's end is
        // in TIME_WAIT.
        pairs[2].0.shutdown(Shutdown::Write).unwrap();
        let expected = [
            ("server sockets close_wait", 1.0),
            ("client sockets fin_wait", 1.0),
        ];
        await_values(&mut sockets, &expected);
        drop(pairs.swap_remove(2));
        let expected = [
            ("client sockets time_wait", 1.0),
            ("server sockets time_wait", 0.0),
        ];
        await_values(&mut sockets, &expected);
        // The server closes first.
        let (client, server) = pairs.pop().unwrap();
        drop(server);
        drop(client);
        let expected = [
            ("server sockets time_wait", 1.0),
            ("server sockets established", 18.0),
        ];
        await_values(&mut sockets, &expected);
    }

    #[test]
    fn reports_the_queue_of_a_listener_that_never_accepts() {
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
        eventually(|| sockets.listener().unwrap(), |queue| *queue == [3.0, 5.0]);
        drop(held);
        drop(listener);
        assert!(sockets.listener().is_err());
    }

    #[test]
    fn matches_a_wildcard_and_counts_one_end_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _client = TcpStream::connect(address).unwrap();
        let any: SocketAddr = ([0, 0, 0, 0], address.port()).into();
        let diag = SockDiag::open().unwrap();
        let now = connections(&mut Sockets::new(diag, Ends::Server, vec![any]));
        assert_eq!(value(&now, "server sockets established"), 1.0);
        assert!(now.iter().all(|(name, _)| !name.starts_with("client")));
        drop(listener);
        // Only the client's end remains.
        let diag = SockDiag::open().unwrap();
        let mut server = Sockets::new(diag, Ends::Server, vec![any]);
        connections(&mut server);
        assert!(server.picked.is_empty());
    }

    #[test]
    fn ignores_other_addresses_on_the_same_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut sockets = open(&[([127, 0, 0, 2], port).into()]);
        let now = connections(&mut sockets);
        assert!(now.iter().all(|(_, value)| *value == 0.0), "{now:?}");
        assert!(sockets.listener().is_err());
    }

    #[test]
    fn distinguishes_waiting_from_idle_connections() {
        let root = Root::host();
        let store = TcpListener::bind("127.77.0.2:0").unwrap();
        let address = store.local_addr().unwrap();
        let mut pairs: Vec<_> = (0..3)
            .map(|_| {
                let client = TcpStream::connect(address).unwrap();
                (client, store.accept().unwrap().0)
            })
            .collect();
        // The first connection received a response and sent another request. The second connection
        // received a response. The third has sent nothing.
        for (client, server) in &mut pairs[..2] {
            client.write_all(b"request").unwrap();
            server.read_exact(&mut [0; 7]).unwrap();
            std::thread::sleep(Duration::from_millis(60));
            server.write_all(b"response").unwrap();
            client.read_exact(&mut [0; 8]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(60));
        pairs[0].0.write_all(b"request").unwrap();
        let tree = Tree::new(&root, &[std::process::id()], None).unwrap();
        let tree = Rc::new(RefCell::new(tree));
        let diag = SockDiag::open().unwrap();
        let mut upstreams = Upstreams::new(diag, &root, tree, 1);
        let mut figures = Figures::default();
        upstreams.read(&mut figures).unwrap();
        let value = |figure| {
            let metric = Metric::Upstream(address, figure);
            let mut metrics = figures.metrics().iter();
            let at = metrics.position(|found| *found == metric);
            at.map_or(0.0, |at| figures.values()[at])
        };
        assert_eq!(value(UpstreamFigure::Established), 3.0);
        assert_eq!(value(UpstreamFigure::Waiting), 1.0);
        // On a connection without traffic, both times are measured from its establishment.
        assert!(value(UpstreamFigure::PerhapsWaiting) <= 1.0);

        // A process that opened no connections has no metrics.
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let tree = Tree::new(&root, &[child.id()], None).unwrap();
        let diag = SockDiag::open().unwrap();
        let mut others = Upstreams::new(diag, &root, Rc::new(RefCell::new(tree)), 1);
        let mut figures = Figures::default();
        others.read(&mut figures).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(figures.metrics().is_empty());
        // Connections to the port under load are excluded.
        let tree = Tree::new(&root, &[std::process::id()], None).unwrap();
        let diag = SockDiag::open().unwrap();
        let mut loaded = Upstreams::new(diag, &root, Rc::new(RefCell::new(tree)), address.port());
        loaded.read(&mut figures).unwrap();
        let of_store =
            |metric: &Metric| matches!(metric, Metric::Upstream(to, _) if *to == address);
        assert!(!figures.metrics().iter().any(of_store));
    }
}
