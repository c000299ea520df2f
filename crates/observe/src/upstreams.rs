//! Samples connections that the server opened, such as those to its store.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use floodmark_record::Metric;
use floodmark_record::metric::UpstreamFigure;

use crate::Root;
use crate::figures::Figures;
use crate::listener::socket_inodes;
use crate::sock_diag::{SockDiag, Socket};
use crate::tree::Tree;

/// State from `tcp_states.h`.
const ESTABLISHED: u32 = 1 << 1;

/// Maximum number of addresses with their own series.
const MAX_ADDRESSES: usize = 8;

/// Maximum number of connections inspected per address and sample.
const INSPECTED: usize = 64;

/// Connections that a process tree opened, by address.
///
/// A connection is waiting for a response if it last sent data after it last received data
/// (`tcpi_last_data_sent` < `tcpi_last_data_recv`). The kernel reports both times in ticks of 1 to
/// 10 ms. Within one tick, the order is unknown.
pub(crate) struct Upstreams {
    diag: SockDiag,
    root: Root,
    tree: Rc<RefCell<Tree>>,
    /// The port under load, whose connections are sampled separately.
    port: u16,
    /// Whether a socket belongs to the tree, by inode.
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

    /// Returns the number of connections that are waiting for a response, and the number of
    /// connections for which this is unknown.
    fn waiting(&mut self, sockets: &[Socket]) -> io::Result<(f64, f64)> {
        let (mut waiting, mut unknown, mut read) = (0.0, 0.0, 0.0_f64);
        for socket in sockets.iter().take(INSPECTED) {
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
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

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
        // On a connection without traffic, both times are measured from the connect.
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
