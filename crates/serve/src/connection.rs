//! The life of one connection.

use std::future::poll_fn;
use std::net::TcpStream;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use tokio::time::timeout;

use crate::answer::Answerer;
use crate::pace::Pace;
use crate::settings::Limits;
use crate::socket::Socket;
use crate::worker::Worker;

/// After an answer to a request that was not read to its end, the rest is read and dropped for at most so long: closing at
/// once would reset the connection and could take the answer with it (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_secs(1);
/// At most so many bytes are dropped that way.
const LINGER_BYTES: usize = 1 << 20;
/// The smallest buffer that hyper accepts.
const LEAST_BUFFER: usize = 8192;

/// How hyper is to read and write, the same for every connection.
pub(crate) fn http(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.half_close(true) // who has sent its request and shut down its side still gets its answer
        .header_read_timeout(None) // the worker's scan does it for less
        .max_header_size(limits.head_bytes)
        .max_buf_size(limits.head_bytes.max(LEAST_BUFFER))
        .writev(false);
    if limits.headers != Limits::default().headers {
        // Only when asked for: hyper then takes memory for each head.
        http.max_headers(limits.headers);
    }
    http
}

/// Serves a connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, stream: TcpStream) {
    let place = Place::take(&worker);
    let pace = &place.pace;
    let socket = Socket::new(stream, Rc::clone(pace), Rc::clone(&worker.register));
    let answerer = Answerer::new(Rc::clone(&worker), Rc::clone(pace));
    let mut connection = worker.http.serve_connection(socket, answerer);
    let whole = poll_fn(|cx| {
        pace.remember(cx.waker());
        if pace.is_cut() {
            return Poll::Ready(false);
        }
        match connection.poll_without_shutdown(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(!pace.lingers()),
            Poll::Ready(Err(_)) => {
                pace.set_linger();
                Poll::Ready(false)
            }
            Poll::Pending if worker.is_closing() && !pace.is_busy() => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    if !whole && pace.lingers() && !pace.is_cut() {
        // In memory of its own: within this future its buffer would cost every connection 4 KiB.
        Box::pin(linger(connection.into_parts().io)).await;
    }
}

/// Ends sending and drops what still comes, so that the client gets to read the last answer.
pub(crate) async fn linger(mut socket: Socket) {
    if socket.end_sending().is_err() {
        return;
    }
    let mut scratch = [0; 4096];
    let mut left = LINGER_BYTES;
    let drain = async {
        while left > 0 {
            match poll_fn(|cx| socket.poll_receive(cx, &mut scratch)).await {
                Ok(n) if n > 0 => left = left.saturating_sub(n),
                _ => return,
            }
        }
    };
    // Either way the connection is over; a client that is still sending then learns it by a reset.
    let _ = timeout(LINGER, drain).await;
}

/// A connection's place in its worker's register, given back when it ends in whatever way.
struct Place {
    worker: Rc<Worker>,
    number: usize,
    pace: Rc<Pace>,
}

impl Place {
    fn take(worker: &Rc<Worker>) -> Self {
        let (number, pace) = worker.register.add();
        Place {
            worker: Rc::clone(worker),
            number,
            pace,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.worker.register.remove(self.number);
        self.worker.release();
    }
}
