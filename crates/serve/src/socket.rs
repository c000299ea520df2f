//! A connection's socket, registered with the event loop only when it has to wait.
//!
//! A fresh connection usually has its request in it by the time it is accepted: it is then read, answered and closed
//! without ever being added to and removed from epoll.

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

/// A non-blocking socket that reports its progress.
pub(crate) struct Socket {
    stage: Stage,
    pace: Rc<Pace>,
    register: Rc<Register>,
}

enum Stage {
    /// Not known to the event loop yet. `None` only while it is being registered, or where that failed.
    New(Option<StdStream>),
    /// Known to the event loop.
    Registered(TcpStream),
}

impl Socket {
    /// Takes a socket that is non-blocking already.
    pub(crate) fn new(stream: StdStream, pace: Rc<Pace>, register: Rc<Register>) -> Self {
        Socket {
            stage: Stage::New(Some(stream)),
            pace,
            register,
        }
    }

    /// Says that nothing more will be sent, and keeps reading possible.
    pub(crate) fn end_sending(&self) -> io::Result<()> {
        match &self.stage {
            Stage::New(Some(stream)) => stream.shutdown(Shutdown::Write),
            Stage::New(None) => Err(ErrorKind::NotConnected.into()),
            Stage::Registered(stream) => SockRef::from(stream).shutdown(Shutdown::Write),
        }
    }

    fn registered(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if let Stage::New(stream) = &mut self.stage {
            let stream = stream.take().ok_or(ErrorKind::NotConnected)?;
            self.stage = Stage::Registered(TcpStream::from_std(stream)?);
        }
        match &mut self.stage {
            Stage::Registered(stream) => Ok(Pin::new(stream)),
            Stage::New(_) => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Reads into a plain buffer; 0 is the end.
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
        if let Stage::New(Some(stream)) = &self.stage {
            // SAFETY: `recv` writes only initialised bytes into the slice, and only the written ones are counted.
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
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        self.registered()?.poll_read(cx, buffer)
    }
}

impl hyper::rt::Read for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // SAFETY: a `ReadBuf` never makes initialised bytes uninitialised.
        let mut buffer = ReadBuf::uninit(unsafe { cursor.as_mut() });
        let polled = this.poll_fill(cx, &mut buffer);
        let n = buffer.filled().len();
        if n > 0 {
            this.pace.received(this.register.now());
        }
        // SAFETY: `poll_fill` initialised the first n bytes.
        unsafe { cursor.advance(n) };
        polled
    }
}

impl hyper::rt::Write for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut sent = None;
        if let Stage::New(Some(stream)) = &mut this.stage {
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

    /// Nothing to do: dropping the socket sends the FIN with one system call less.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
