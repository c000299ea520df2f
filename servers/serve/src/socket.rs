//! The socket of a connection. A socket is registered with the event loop only if it must wait.
//!
//! When a fresh connection is accepted, its request has usually arrived already. The server then
//! reads the request, responds and closes without registering the socket with epoll.

use std::future::ready;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream as StdStream};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Context, Poll};

use hyper::rt::ReadBufCursor;
use rustix::net::{SendFlags, send};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::pace::{Pace, Register};

/// A connection's byte stream that also records the connection's progress.
pub(crate) trait Transport: hyper::rt::Read + hyper::rt::Write + Unpin {
    /// The underlying stream, which does not record progress.
    type Stream: AsyncRead + AsyncWrite + Unpin;

    /// Ends the connection. `is_complete` states whether hyper has passed on all responses.
    fn finish(self, is_complete: bool) -> impl Future<Output = ()>;

    /// Returns the stream, registered with the event loop.
    ///
    /// # Errors
    /// The event loop is out of memory.
    fn into_stream(self) -> io::Result<Self::Stream>;
}

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

    /// Performs an operation on a socket that is not registered. Returns `None` if the socket is
    /// registered or not ready.
    fn attempt<T>(
        &self,
        operation: impl FnOnce(&StdStream) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        let SocketState::New(Some(stream)) = &self.state else {
            return None;
        };
        match operation(stream) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            result => Some(result),
        }
    }
}

/// Sends bytes on a registered stream.
fn poll_send(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    bytes: &[u8],
    flags: SendFlags,
) -> Poll<io::Result<usize>> {
    loop {
        task::ready!(stream.poll_write_ready(cx))?;
        match stream.try_io(Interest::WRITABLE, || Ok(send(stream, bytes, flags)?)) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

impl Transport for ConnectionSocket {
    type Stream = TcpStream;

    /// Sends the rest of the last response, with the FIN in the same packet if possible.
    ///
    /// Closing the socket also sends the FIN. But if unread bytes from the client are left, closing
    /// sends an RST instead, and discards the rest of the response.
    fn finish(self, is_complete: bool) -> impl Future<Output = ()> {
        if is_complete && self.pace.is_last.get() {
            // Shutting down fails only if the connection has already ended.
            let _ = match &self.state {
                SocketState::New(Some(stream)) => stream.shutdown(Shutdown::Write),
                SocketState::New(None) => Ok(()),
                SocketState::Registered(stream) => SockRef::from(stream).shutdown(Shutdown::Write),
            };
        }
        ready(())
    }

    fn into_stream(self) -> io::Result<TcpStream> {
        match self.state {
            SocketState::New(Some(stream)) => TcpStream::from_std(stream),
            SocketState::New(None) => Err(ErrorKind::NotConnected.into()),
            SocketState::Registered(stream) => Ok(stream),
        }
    }
}

impl hyper::rt::Read for ConnectionSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // SAFETY: neither `recv` nor a `ReadBuf` makes initialized bytes uninitialized.
        let free = unsafe { cursor.as_mut() };
        let n = match this.attempt(|stream| SockRef::from(stream).recv(free)) {
            Some(received) => received?,
            None => {
                let mut buffer = ReadBuf::uninit(free);
                task::ready!(this.registered()?.poll_read(cx, &mut buffer))?;
                buffer.filled().len()
            }
        };
        if n > 0 {
            this.pace.received(this.register.now.get());
        }
        // SAFETY: the read initialized the first n bytes.
        unsafe { cursor.advance(n) };
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for ConnectionSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // `finish` sends the end of the last response.
        let more = if this.pace.is_last.get() {
            SendFlags::MORE
        } else {
            SendFlags::empty()
        };
        let flags = SendFlags::NOSIGNAL | more;
        let polled = match this.attempt(|stream| Ok(send(stream, bytes, flags)?)) {
            Some(sent) => Poll::Ready(sent),
            None => poll_send(this.registered()?.as_ref().get_ref(), cx, bytes, flags),
        };
        match polled {
            Poll::Pending => this.pace.write_blocked.set(true),
            Poll::Ready(_) => this.pace.sent(this.register.now.get()),
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
