//! Which worker keeps a connection: the one that has the fewest. Whoever is awake when many connections come accepts them all, and a load
//! of kept connections would find one thread at work and the others idle.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Where one worker is handed what others accepted.
pub(crate) struct Desk {
    /// Connections that it keeps, or has been handed.
    open: AtomicUsize,
    /// Those that it was handed and has not begun to serve; none when it takes no more.
    handed: Mutex<Option<Vec<TcpStream>>>,
    arrived: Notify,
}

impl Desk {
    fn new() -> Self {
        Desk {
            open: AtomicUsize::new(0),
            handed: Mutex::new(Some(Vec::new())),
            arrived: Notify::new(),
        }
    }

    /// Counts a connection that its worker keeps.
    pub(crate) fn keep(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that is over.
    pub(crate) fn release(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for connections and takes them. They are counted already.
    pub(crate) async fn take(&self) -> Vec<TcpStream> {
        self.arrived.notified().await;
        self.handed()
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Takes what is left; nothing is handed to it from now on.
    pub(crate) fn close(&self) -> Vec<TcpStream> {
        self.handed().take().unwrap_or_default()
    }

    /// Hands its worker a connection; gives it back where that takes no more.
    fn hand(&self, stream: TcpStream) -> Option<TcpStream> {
        let mut handed = self.handed();
        let Some(waiting) = handed.as_mut() else {
            return Some(stream);
        };
        // Before its worker can see it, and be done with it.
        self.keep();
        waiting.push(stream);
        drop(handed);
        self.arrived.notify_one();
        None
    }

    /// A worker that panicked leaves no list half changed.
    fn handed(&self) -> MutexGuard<'_, Option<Vec<TcpStream>>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One for each worker.
pub(crate) fn desks(workers: usize) -> Vec<Desk> {
    (0..workers).map(|_| Desk::new()).collect()
}

/// Hands a connection that one worker accepted to the one with the fewest; gives it back where that is itself.
pub(crate) fn hand_over(desks: &[Desk], from: usize, stream: TcpStream) -> Option<TcpStream> {
    let open = |desk: &Desk| desk.open.load(Ordering::Relaxed);
    let own = open(&desks[from]);
    match desks.iter().min_by_key(|desk| open(desk)) {
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
    fn each_worker_gets_as_many_whoever_accepts() {
        let desks = desks(3);
        for stream in streams(10) {
            if hand_over(&desks, 0, stream).is_some() {
                desks[0].keep();
            }
        }
        let open: Vec<usize> = desks
            .iter()
            .map(|d| d.open.load(Ordering::Relaxed))
            .collect();
        assert_eq!(open, [4, 3, 3]);
        assert_eq!(desks[1].close().len() + desks[2].close().len(), 6);
    }

    #[test]
    fn one_that_takes_no_more_gives_back() {
        let desks = desks(2);
        desks[0].keep();
        assert!(desks[1].close().is_empty());
        for stream in streams(1) {
            assert!(hand_over(&desks, 0, stream).is_some());
        }
    }
}
