//! The socket of a connection. A socket is registered with the event loop only if it must wait.
//!
//! When a fresh connection is accepted, its request has usually arrived already. The server then
//! reads the request, responds and closes without registering the socket with epoll.

use std::io::{self, ErrorKind, Write as _};
use std::net::{Shutdown, TcpStream as StdStream};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use hyper::rt::ReadBufCursor;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::pace::{Pace, Register};

/// A non-blocking socket that records the progress of its connection.
pub(crate) struct ConnectionSocket {
    state: SocketState,
    pace: Rc<Pace>,
    register: Rc<Register>,
}

enum SocketState {
    /// Not registered with the event loop. `None` during registration and after a failure.
    New(Option<StdStream>),
    /// Registered with the event loop.
    Registered(TcpStream),
}

impl ConnectionSocket {
    /// Wraps a non-blocking socket.
    pub(crate) fn new(stream: StdStream, pace: Rc<Pace>, register: Rc<Register>) -> Self {
        ConnectionSocket {
            state: SocketState::New(Some(stream)),
            pace,
            register,
        }
    }

    /// Closes the sending direction.
    pub(crate) fn end_sending(&self) -> io::Result<()> {
        match &self.state {
            SocketState::New(Some(stream)) => stream.shutdown(Shutdown::Write),
            SocketState::New(None) => Err(ErrorKind::NotConnected.into()),
            SocketState::Registered(stream) => SockRef::from(stream).shutdown(Shutdown::Write),
        }
    }

    fn registered(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if let SocketState::New(stream) = &mut self.state {
            let stream = stream.take().ok_or(ErrorKind::NotConnected)?;
            self.state = SocketState::Registered(TcpStream::from_std(stream)?);
        }
        match &mut self.state {
            SocketState::Registered(stream) => Ok(Pin::new(stream)),
            SocketState::New(_) => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Reads into a buffer. Returns 0 at the end of the stream.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        self.poll_fill(cx, &mut buffer)
            .map_ok(|()| buffer.filled().len())
    }

    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let SocketState::New(Some(stream)) = &self.state {
            // SAFETY: `recv` initializes as many bytes as it reports.
            let received = unsafe {
                let free = buffer.unfilled_mut();
                let received = SockRef::from(stream).recv(free);
                if let Ok(n) = received {
                    buffer.assume_init(n);
                    buffer.advance(n);
                }
                received
            };
            match received {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        self.registered()?.poll_read(cx, buffer)
    }
}

impl hyper::rt::Read for ConnectionSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // SAFETY: a `ReadBuf` never makes initialized bytes uninitialized.
        let mut buffer = ReadBuf::uninit(unsafe { cursor.as_mut() });
        let polled = this.poll_fill(cx, &mut buffer);
        let n = buffer.filled().len();
        if n > 0 {
            this.pace.received(this.register.now());
        }
        // SAFETY: `poll_fill` initialized the first n bytes.
        unsafe { cursor.advance(n) };
        polled
    }
}

impl hyper::rt::Write for ConnectionSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut sent = None;
        if let SocketState::New(Some(stream)) = &mut this.state {
            match stream.write(bytes) {
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                result => sent = Some(result),
            }
        }
        let polled = match sent {
            Some(result) => Poll::Ready(result),
            None => this.registered()?.poll_write(cx, bytes),
        };
        match polled {
            Poll::Pending => this.pace.blocked(),
            Poll::Ready(_) => this.pace.sent(this.register.now()),
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing. Dropping the socket sends the FIN without another system call.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
