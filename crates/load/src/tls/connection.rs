//! One TLS connection, which decrypts received bytes and encrypts bytes to send.

use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{ClientConfig, Error, HandshakeKind, ProtocolVersion};

use super::config::{CertificateSender, offers_http2};
use crate::failure::{CertificateExchange, TlsFailure};

/// Size in bytes of the overhead in a request's records: headers, nonces, tags and a key update.
const RECORD_ROOM: usize = 64;

type Writer<'a> = WriteTraffic<'a, ClientConnectionData>;

/// The client's side of a TLS connection.
pub struct TlsConnection {
    rustls: UnbufferedClientConnection,
    /// Sends the client certificate on this and other connections.
    certificate_sender: Arc<CertificateSender>,
    /// Whether the client offers HTTP/2, and no other protocol.
    offers_http2: bool,
    /// The received part of an incomplete record.
    partial: Vec<u8>,
    /// Bytes to send before anything else.
    outgoing: Vec<u8>,
    /// Whether the handshake is complete.
    pub is_established: bool,
    /// Whether the server has sent close_notify.
    pub has_ended: bool,
    has_closed: bool,
}

impl TlsConnection {
    /// Starts a handshake. [`TlsConnection::outgoing`] returns its first message.
    ///
    /// # Errors
    /// Fails if rustls rejects the configuration.
    pub fn begin(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        certificate_sender: Arc<CertificateSender>,
    ) -> Result<Self, TlsFailure> {
        let offers_http2 = offers_http2(&config);
        let rustls = UnbufferedClientConnection::new(config, name).map_err(|error| {
            let exchange = CertificateExchange::NotRequested;
            TlsFailure::from_rustls(&error, &[], exchange, offers_http2)
        })?;
        let mut connection = TlsConnection {
            rustls,
            certificate_sender,
            offers_http2,
            partial: Vec::new(),
            outgoing: Vec::new(),
            is_established: false,
            has_ended: false,
            has_closed: false,
        };
        connection.receive(&[], &mut Vec::new(), &mut Vec::new())?;
        Ok(connection)
    }

    /// Returns whether the handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.rustls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns whether the server chose no protocol in a completed handshake, although the client
    /// offers HTTP/2. Without a choice, the server speaks HTTP/1.1.
    pub fn lacks_http2(&self) -> bool {
        self.offers_http2 && self.rustls.alpn_protocol().is_none()
    }

    /// Returns the version and cipher suite of a completed handshake, such as `TLS 1.3
    /// AES_256_GCM_SHA384`.
    pub fn suite(&self) -> String {
        let suite = self.rustls.negotiated_cipher_suite();
        let name = suite.map_or_else(String::new, |suite| format!("{:?}", suite.suite()));
        let version = match self.rustls.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
            _ => "TLS 1.2",
        };
        let short = name.trim_start_matches("TLS13_").trim_start_matches("TLS_");
        format!("{version} {short}")
    }

    /// Processes bytes from the server, and appends the application data to `plain`.
    /// `records` is working memory. All bytes after the server's close_notify are ignored.
    ///
    /// # Errors
    /// Fails if the bytes violate the protocol or contain an alert. `plain` then contains the data
    /// up to the error, and [`TlsConnection::outgoing`] returns the alert for the server.
    pub fn receive(
        &mut self,
        data: &[u8],
        records: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> Result<(), TlsFailure> {
        records.clear();
        records.append(&mut self.partial);
        records.extend_from_slice(data);
        let mut rest = records.as_mut_slice();
        loop {
            let (discard, is_waiting) = self.advance(rest, plain).map_err(|error| {
                // rustls has queued an alert for the server. This call collects the alert.
                let _ = self.advance(&mut [], &mut Vec::new());
                let exchange = self.certificate_sender.exchange();
                TlsFailure::from_rustls(&error, data, exchange, self.offers_http2)
            })?;
            rest = &mut rest[discard..];
            if is_waiting {
                break;
            }
        }
        if !self.has_ended {
            self.partial.extend_from_slice(rest);
        }
        Ok(())
    }

    /// Executes one step in rustls.
    /// Returns the number of bytes consumed from `records`, and whether more bytes are needed.
    fn advance(&mut self, records: &mut [u8], plain: &mut Vec<u8>) -> Result<(usize, bool), Error> {
        let UnbufferedStatus { mut discard, state } = self.rustls.process_tls_records(records);
        let mut is_waiting = false;
        match state? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    plain.extend_from_slice(record.payload);
                    discard += record.discard;
                }
            }
            ConnectionState::EncodeTlsData(mut message) => {
                let start = self.outgoing.len();
                if let Err(EncodeError::InsufficientSize(size)) = message.encode(&mut []) {
                    self.outgoing.resize(start + size.required_size, 0);
                    // The buffer has the required size, so encoding cannot fail.
                    let _ = message.encode(&mut self.outgoing[start..]);
                }
            }
            ConnectionState::TransmitTlsData(sent) => sent.done(),
            ConnectionState::PeerClosed => self.has_ended = true,
            ConnectionState::WriteTraffic(_) => {
                self.is_established = true;
                is_waiting = true;
            }
            _ => is_waiting = true,
        }
        Ok((discard, is_waiting))
    }

    /// Returns the bytes to send now.
    pub fn outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Encrypts `plain`, and prepends the bytes that must be sent first.
    /// A TLS 1.2 connection cannot change its keys. If it needs new keys, the result contains
    /// close_notify instead of `plain`.
    pub fn encrypt(&mut self, plain: &[u8]) -> Vec<u8> {
        let room = plain.len() + RECORD_ROOM;
        self.write(room, |traffic, out| traffic.encrypt(plain, out))
    }

    /// Returns the bytes of a close_notify message to the server.
    /// Returns no bytes if the message was already sent or the handshake is incomplete.
    pub fn close(&mut self) -> Vec<u8> {
        if !self.is_established || std::mem::replace(&mut self.has_closed, true) {
            return Vec::new();
        }
        self.write(RECORD_ROOM, |traffic, out| traffic.queue_close_notify(out))
    }

    /// Appends records to the bytes that must be sent first. The records usually fit into `room`
    /// bytes.
    fn write(
        &mut self,
        room: usize,
        mut encrypt: impl FnMut(&mut Writer<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Vec<u8> {
        let mut out = self.outgoing();
        let start = out.len();
        out.resize(start + room, 0);
        let mut written = Ok(0);
        let state = self.rustls.process_tls_records(&mut []).state;
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state {
            written = encrypt(&mut traffic, &mut out[start..]);
            if let Err(EncryptError::InsufficientSize(size)) = &written {
                out.resize(start + size.required_size, 0);
                written = encrypt(&mut traffic, &mut out[start..]);
            }
        }
        out.truncate(start + written.as_ref().map_or(0, |n| *n));
        if written.is_err() {
            // rustls has queued an alert instead. This call collects the alert.
            let _ = self.advance(&mut [], &mut Vec::new());
            out.append(&mut self.outgoing);
        }
        out
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
