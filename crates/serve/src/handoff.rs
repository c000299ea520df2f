//! Balances connections: the worker with the fewest connections serves the next connection.
//! Otherwise a single awake worker would accept a whole burst while other workers stay idle.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Connections that other workers hand over to one worker.
pub(crate) struct Handoff {
    /// Number of connections that the worker serves or will serve.
    open: AtomicUsize,
    /// Connections that were handed over but are not served yet; `None` after the handoff is
    /// closed.
    handed: Mutex<Option<Vec<TcpStream>>>,
    arrived: Notify,
}

impl Handoff {
    fn new() -> Self {
        Handoff {
            open: AtomicUsize::new(0),
            handed: Mutex::new(Some(Vec::new())),
            arrived: Notify::new(),
        }
    }

    /// Counts a connection.
    pub(crate) fn keep(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops counting a closed connection.
    pub(crate) fn release(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for handed-over connections and takes all of them. The connections are already
    /// counted.
    pub(crate) async fn take(&self) -> Vec<TcpStream> {
        self.arrived.notified().await;
        self.handed()
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Closes the handoff and returns the remaining connections.
    pub(crate) fn close(&self) -> Vec<TcpStream> {
        self.handed().take().unwrap_or_default()
    }

    /// Hands over a connection. Returns the connection if the handoff is closed.
    fn hand(&self, stream: TcpStream) -> Option<TcpStream> {
        let mut handed = self.handed();
        let Some(waiting) = handed.as_mut() else {
            return Some(stream);
        };
        // Count the connection before the worker can see and release it.
        self.keep();
        waiting.push(stream);
        drop(handed);
        self.arrived.notify_one();
        None
    }

    /// Locks the list, and ignores poisoning because a panic cannot leave the list inconsistent.
    fn handed(&self) -> MutexGuard<'_, Option<Vec<TcpStream>>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a handoff for each worker.
pub(crate) fn handoffs(workers: usize) -> Vec<Handoff> {
    (0..workers).map(|_| Handoff::new()).collect()
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
        let handoffs = handoffs(3);
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
        assert_eq!(handoffs[1].close().len() + handoffs[2].close().len(), 6);
    }

    #[test]
    fn a_closed_handoff_returns_the_connection() {
        let handoffs = handoffs(2);
        handoffs[0].keep();
        assert!(handoffs[1].close().is_empty());
        for stream in streams(1) {
            assert!(hand_over(&handoffs, 0, stream).is_some());
        }
    }
}
