//! Balances connections: the worker with the fewest connections serves the next connection.
//! Otherwise a single awake worker would accept a whole burst while other workers stay idle.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Hands over connections to one worker.
pub(crate) struct Handoff {
    /// Number of connections that the worker serves or will serve.
    open: AtomicUsize,
    /// Connections that were handed over but are not served yet. Their number is bounded by the
    /// connection limit.
    handed: UnboundedSender<TcpStream>,
}

impl Handoff {
    /// Counts a connection.
    pub(crate) fn keep(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops counting a closed connection.
    pub(crate) fn release(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Hands over a connection. Returns the connection if the worker takes no more connections.
    fn hand(&self, stream: TcpStream) -> Option<TcpStream> {
        // Count the connection before the worker can see and release it.
        self.keep();
        let refused = self.handed.send(stream).err()?;
        self.release();
        Some(refused.0)
    }
}

/// Creates a handoff for each worker. The receivers return connections that are already counted.
pub(crate) fn handoffs(workers: usize) -> (Vec<Handoff>, Vec<UnboundedReceiver<TcpStream>>) {
    let handoff = |_| {
        let (handed, receiver) = unbounded_channel();
        let open = AtomicUsize::new(0);
        (Handoff { open, handed }, receiver)
    };
    (0..workers).map(handoff).unzip()
}

/// Hands a connection to the worker with the fewest connections. Returns the connection if no
/// worker has fewer connections than the worker `from`.
pub(crate) fn hand_over(handoffs: &[Handoff], from: usize, stream: TcpStream) -> Option<TcpStream> {
    let open = |handoff: &Handoff| handoff.open.load(Ordering::Relaxed);
    let own = open(&handoffs[from]);
    match handoffs.iter().min_by_key(|handoff| open(handoff)) {
        Some(least) if open(least) < own => least.hand(stream),
        _ => Some(stream),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn streams(n: usize) -> Vec<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        (0..n).map(|_| TcpStream::connect(to).unwrap()).collect()
    }

    #[test]
    fn balances_connections_of_one_accepting_worker() {
        let (handoffs, receivers) = handoffs(3);
        for stream in streams(10) {
            if hand_over(&handoffs, 0, stream).is_some() {
                handoffs[0].keep();
            }
        }
        let open: Vec<usize> = handoffs
            .iter()
            .map(|d| d.open.load(Ordering::Relaxed))
            .collect();
        assert_eq!(open, [4, 3, 3]);
        assert_eq!(receivers[1].len() + receivers[2].len(), 6);
    }

    #[test]
    fn a_closed_handoff_returns_the_connection() {
        let (handoffs, mut receivers) = handoffs(2);
        handoffs[0].keep();
        receivers[1].close();
        for stream in streams(1) {
            assert!(hand_over(&handoffs, 0, stream).is_some());
            assert_eq!(handoffs[1].open.load(Ordering::Relaxed), 0);
        }
    }
}
