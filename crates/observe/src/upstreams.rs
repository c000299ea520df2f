//! Connections that a side has opened itself: to its store, or to servers behind it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::Root;
use crate::figures::Figures;
use crate::group::Source;
use crate::series::Subject;
use crate::sock_diag::{SockDiag, Socket};
use crate::tree::Tree;

/// States of `tcp_states.h`.
const ESTABLISHED: u32 = 1 << 1;
const LISTEN: u32 = 1 << 10;

/// Addresses that have series of their own, in the order in which they come up.
const MOST_ADDRESSES: usize = 8;

/// Connections to one address that are looked into each time.
const LOOKED_INTO: usize = 64;

/// Open connections of a process tree to others, by their address.
///
/// A connection waits for an answer where it sent last and received before that (`tcpi_last_data_sent` < `tcpi_last_data_recv`). The
/// kernel tells both in its ticks of 1 to 10 ms: where they are the same it is not known which came first.
pub(crate) struct Upstreams {
    diag: SockDiag,
    root: Root,
    tree: Rc<RefCell<Tree>>,
    /// The port that the load goes to: its connections are told elsewhere.
    port: u16,
    /// Sockets that were looked up, by inode: whether they are the tree's.
    known: HashMap<u32, bool>,
    addresses: Vec<SocketAddr>,
    figures: Figures,
}

impl Upstreams {
    /// Of a tree whose server is loaded on a port; `diag` asks in its network namespace.
    pub(crate) fn new(
        diag: SockDiag,
        root: &Root,
        tree: Rc<RefCell<Tree>>,
        port: u16,
        subject: &'static str,
    ) -> Self {
        Self {
            diag,
            root: root.clone(),
            tree,
            port,
            known: HashMap::new(),
            addresses: Vec::new(),
            figures: Figures::of(subject),
        }
    }

    /// The connections that the tree has opened.
    fn opened(&mut self) -> io::Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        self.diag
            .each_of_others(self.port, ESTABLISHED, |socket| sockets.push(socket))?;
        if sockets.is_empty() {
            return Ok(sockets);
        }
        let mut listened = HashSet::new();
        self.diag.each_of_others(self.port, LISTEN, |socket| {
            listened.insert(socket.local.port());
        })?;
        // The other end of one on this machine is its server's.
        sockets.retain(|socket| !listened.contains(&socket.local.port()));
        if sockets
            .iter()
            .any(|socket| !self.known.contains_key(&socket.inode))
        {
            let own = self.own();
            self.known = sockets
                .iter()
                .map(|socket| (socket.inode, own.contains(&socket.inode)))
                .collect();
        }
        sockets.retain(|socket| self.known.get(&socket.inode) == Some(&true));
        Ok(sockets)
    }

    /// Inodes of the tree's sockets.
    fn own(&self) -> HashSet<u32> {
        let mut inodes = HashSet::new();
        for member in self.tree.borrow().members() {
            let files = fs::read_dir(self.root.path(format!("/proc/{}/fd", member.pid)));
            for file in files.into_iter().flatten().flatten() {
                let Ok(target) = fs::read_link(file.path()) else {
                    continue;
                };
                let target = target.to_string_lossy();
                let inode = target.strip_prefix("socket:[");
                inodes
                    .extend(inode.and_then(|rest| rest.trim_end_matches(']').parse::<u32>().ok()));
            }
        }
        inodes
    }

    /// How many of some connections wait for an answer, and of how many it is not known.
    fn waiting(&mut self, sockets: &[Socket]) -> io::Result<(f64, f64)> {
        let (mut waiting, mut unknown, mut read) = (0.0, 0.0, 0.0_f64);
        for socket in sockets.iter().take(LOOKED_INTO) {
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
}

impl Source for Upstreams {
    fn read(&mut self, into: &mut Vec<f64>) -> io::Result<()> {
        self.figures.begin();
        let mut by_address: HashMap<SocketAddr, Vec<Socket>> = HashMap::new();
        for socket in self.opened()? {
            by_address.entry(socket.remote).or_default().push(socket);
        }
        let new = by_address.keys().copied();
        let mut new: Vec<SocketAddr> = new.filter(|to| !self.addresses.contains(to)).collect();
        new.sort_unstable();
        self.addresses.extend(new);
        self.addresses.truncate(MOST_ADDRESSES);
        for (address, sockets) in by_address {
            if !self.addresses.contains(&address) {
                continue;
            }
            let (waiting, unknown) = self.waiting(&sockets)?;
            for (what, count) in [
                ("established", sockets.len() as f64),
                ("waiting", waiting),
                ("waiting or not", unknown),
            ] {
                self.figures
                    .level(format!("{address} {what}"), "connections", count);
            }
        }
        into.extend(self.figures.values());
        Ok(())
    }

    fn found(&mut self) -> Vec<Subject> {
        self.figures.found()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn connections_that_wait_for_an_answer_are_told_from_idle_ones() {
        let root = Root::host();
        let store = TcpListener::bind("127.77.0.2:0").unwrap();
        let address = store.local_addr().unwrap();
        let mut pairs: Vec<_> = (0..3)
            .map(|_| {
                let client = TcpStream::connect(address).unwrap();
                (client, store.accept().unwrap().0)
            })
            .collect();
        // The first got an answer and asks again; the second got one; the third has asked nothing yet.
        for (client, server) in &mut pairs[..2] {
            client.write_all(b"ask").unwrap();
            server.read_exact(&mut [0; 3]).unwrap();
            std::thread::sleep(Duration::from_millis(60));
            server.write_all(b"answer").unwrap();
            client.read_exact(&mut [0; 6]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(60));
        pairs[0].0.write_all(b"ask").unwrap();
        let tree = Tree::new(&root, &[std::process::id()], &[]).unwrap();
        let tree = Rc::new(RefCell::new(tree));
        let diag = SockDiag::open().unwrap();
        let mut upstreams = Upstreams::new(diag, &root, tree, 1, "server upstreams");
        let mut values = Vec::new();
        upstreams.read(&mut values).unwrap();
        let found = upstreams.found();
        let value = |what: &str| {
            let name = format!("{address} {what}");
            let at = found.iter().position(|subject| subject.metric == name);
            at.map_or(0.0, |at| values[at])
        };
        assert_eq!(value("established"), 3.0);
        assert_eq!(value("waiting"), 1.0);
        // A connection that nobody has sent on has both times from when it was made.
        assert!(value("waiting or not") <= 1.0);

        // Of another process they are none.
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let tree = Tree::new(&root, &[child.id()], &[]).unwrap();
        let diag = SockDiag::open().unwrap();
        let mut others = Upstreams::new(
            diag,
            &root,
            Rc::new(RefCell::new(tree)),
            1,
            "server upstreams",
        );
        values.clear();
        others.read(&mut values).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(values.is_empty());
        // And those to the port that is loaded are told elsewhere.
        let tree = Tree::new(&root, &[std::process::id()], &[]).unwrap();
        let diag = SockDiag::open().unwrap();
        let mut loaded = Upstreams::new(
            diag,
            &root,
            Rc::new(RefCell::new(tree)),
            address.port(),
            "server upstreams",
        );
        loaded.read(&mut values).unwrap();
        let of_store = |subject: &Subject| subject.metric.starts_with(&address.to_string());
        assert!(!loaded.found().iter().any(of_store));
    }
}
