//! A handshake under way: rustls does it, record by record.
//!
//! rustls is given one whole record at a time. So when it says that the handshake is over it has taken nothing behind the
//! server's last message, and what follows can be opened with the keys taken out of it.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, SupportedCipherSuite};

use super::failure::Failure;
use super::keys::Keys;
use super::record::{HEADER, Header};
use super::session::Session;

/// A handshake under way.
pub struct Handshake {
    connection: UnbufferedClientConnection,
    /// What has come and was not used up.
    incoming: Vec<u8>,
    /// How much of it rustls may see: whole records.
    shown: usize,
    outgoing: Vec<u8>,
}

/// A handshake that is over.
pub struct Shaken {
    /// The connection's keys.
    pub session: Session,
    /// What is still to be sent, before anything else.
    pub outgoing: Vec<u8>,
    /// What came behind the handshake.
    pub behind: Vec<u8>,
    /// What was agreed on.
    pub suite: SupportedCipherSuite,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
}

/// What rustls wants next.
enum Wants {
    /// To be called again.
    Turn,
    /// Another record.
    Record,
    /// Nothing: the handshake is over.
    Nothing,
}

impl Handshake {
    /// Begins a handshake; [`Handshake::outgoing`] has the first message.
    ///
    /// # Errors
    /// A configuration that rustls does not take.
    pub fn begin(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Failure> {
        let mut handshake = Handshake {
            connection: UnbufferedClientConnection::new(config, name)?,
            incoming: Vec::new(),
            shown: 0,
            outgoing: Vec::new(),
        };
        handshake.advance()?;
        Ok(handshake)
    }

    /// What is to be sent now.
    pub fn outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Takes bytes of the server in; whether the handshake is over.
    ///
    /// # Errors
    /// Whatever ends a handshake; [`Handshake::outgoing`] has the alert that tells the server.
    pub fn feed(&mut self, data: &[u8]) -> Result<bool, Failure> {
        self.incoming.extend_from_slice(data);
        self.advance()
    }

    fn advance(&mut self) -> Result<bool, Failure> {
        loop {
            match self.turn()? {
                Wants::Turn => {}
                Wants::Nothing => return Ok(true),
                Wants::Record => match Header::first(&self.incoming[self.shown..])? {
                    Some(header) if self.incoming.len() - self.shown >= HEADER + header.length => {
                        self.shown += HEADER + header.length;
                    }
                    _ => return Ok(false),
                },
            }
        }
    }

    fn turn(&mut self) -> Result<Wants, Failure> {
        let shown = &mut self.incoming[..self.shown];
        let UnbufferedStatus { discard, state } = self.connection.process_tls_records(shown);
        let wants = match state {
            Ok(ConnectionState::EncodeTlsData(mut message)) => {
                let length = match message.encode(&mut []) {
                    Err(EncodeError::InsufficientSize(size)) => size.required_size,
                    _ => 0,
                };
                let at = self.outgoing.len();
                self.outgoing.resize(at + length, 0);
                // A buffer of the length that was asked for is long enough.
                let _ = message.encode(&mut self.outgoing[at..]);
                Wants::Turn
            }
            Ok(ConnectionState::TransmitTlsData(sent)) => {
                sent.done();
                Wants::Turn
            }
            Ok(ConnectionState::BlockedHandshake) => Wants::Record,
            Ok(ConnectionState::WriteTraffic(_)) => Wants::Nothing,
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                let detail = "the server closed the connection within the handshake";
                return Err(Failure::cut(detail.to_owned()));
            }
            Ok(_) => return Err(Failure::unexpected("data within the handshake")),
            Err(error) => {
                let failure = Failure::from(error);
                self.tell();
                return Err(failure);
            }
        };
        self.incoming.drain(..discard);
        self.shown -= discard;
        Ok(wants)
    }

    /// Takes the alert that rustls has for the server after a failure.
    fn tell(&mut self) {
        let status = self.connection.process_tls_records(&mut []);
        if let Ok(ConnectionState::EncodeTlsData(mut alert)) = status.state
            && let Err(EncodeError::InsufficientSize(size)) = alert.encode(&mut [])
        {
            self.outgoing = vec![0; size.required_size];
            let _ = alert.encode(&mut self.outgoing);
        }
    }

    /// Takes the keys of a handshake that is over.
    ///
    /// # Errors
    /// A server that broke off a message behind its last one, or a cipher that is not known here.
    pub fn finish(self) -> Result<Shaken, Failure> {
        if self.shown > 0 {
            return Err(Failure::unexpected("a message behind the handshake's last"));
        }
        let resumed = self.connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let (secrets, kernel) = self.connection.dangerous_into_kernel_connection()?;
        let version = kernel.protocol_version();
        let suite = kernel.negotiated_cipher_suite();
        let write = Keys::new(version, secrets.tx)?;
        let read = Keys::new(version, secrets.rx)?;
        // Later messages, which rustls must see, are of TLS 1.3 only.
        let kernel = (version == ProtocolVersion::TLSv1_3).then(|| Box::new(kernel));
        Ok(Shaken {
            session: Session::new(write, read, kernel),
            outgoing: self.outgoing,
            behind: self.incoming,
            suite,
            resumed,
        })
    }
}
