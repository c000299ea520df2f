//! A connection whose handshake is over: plaintext in, records out, and the other way round.

use std::rc::Rc;

use rustls::ProtocolVersion;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;

use super::buffers::{Partial, PartialBuffers, SealedBuffers};
use super::failure::Failure;
use super::keys::Keys;
use super::record::{Content, HEADER, Header};
use crate::backend::Bytes;

/// The alert that says that no more will come (RFC 8446, section 6.1): a warning, number 0.
pub const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// The alert of a user who gave up, which a close_notify follows (RFC 8446, section 6.1).
const USER_CANCELED: u8 = 90;

/// Message types (RFC 8446, section 4; RFC 5246, section 7.4).
const HELLO_REQUEST: u8 = 0;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// A whole key update that asks for none in return (RFC 8446, section 4.6.3).
const UPDATE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];

/// Longest message after a handshake: a ticket of 2^16 bytes with what is around it.
const LONGEST_MESSAGE: usize = (1 << 16) + 1024;

/// A connection whose handshake is over.
pub struct Session {
    write: Keys,
    read: Keys,
    /// What derives keys and keeps tickets; TLS 1.3 only.
    kernel: Option<Box<KernelConnection<ClientConnectionData>>>,
    partial: Option<Partial>,
    /// A handshake message of which only a part has come.
    message: Vec<u8>,
    /// The end of our part of the handshake, which goes with whatever is sent first.
    pub before: Vec<u8>,
    owes_update: bool,
    /// Whether the peer has said that no more will come.
    pub ended: bool,
    /// Whether we have.
    pub closed: bool,
}

impl Session {
    /// A connection with these keys.
    #[must_use]
    pub fn new(
        write: Keys,
        read: Keys,
        kernel: Option<Box<KernelConnection<ClientConnectionData>>>,
    ) -> Self {
        Session {
            write,
            read,
            kernel,
            partial: None,
            message: Vec::new(),
            before: Vec::new(),
            owes_update: false,
            ended: false,
            closed: false,
        }
    }

    /// Opens what came: application data is added to `plain`, everything else is seen to. Nothing behind the peer's
    /// close_notify counts.
    ///
    /// # Errors
    /// A record that does not open or is against the rules, or an alert. What was opened before is in `plain`.
    pub fn feed(
        &mut self,
        mut data: &[u8],
        plain: &mut Vec<u8>,
        partials: &mut PartialBuffers,
    ) -> Result<(), Failure> {
        while !data.is_empty() && !self.ended {
            if self.partial.is_none()
                && let Some(header) = Header::first(data)?
                && let Some((record, behind)) = data.split_at_checked(HEADER + header.length)
            {
                data = behind;
                self.record(&header, &record[HEADER..], plain)?;
                continue;
            }
            let mut partial = self.partial.take().unwrap_or_else(|| partials.take());
            data = partial.fill(HEADER, data);
            let header = Header::first(partial.bytes())?;
            if let Some(header) = header {
                data = partial.fill(HEADER + header.length, data);
                if partial.filled == HEADER + header.length {
                    let opened = self.record(&header, &partial.bytes()[HEADER..], plain);
                    partials.put(partial);
                    opened?;
                    continue;
                }
            }
            self.partial = Some(partial);
        }
        Ok(())
    }

    /// Gives back what the connection holds of its thread's memory.
    pub fn release(&mut self, partials: &mut PartialBuffers) {
        self.partial
            .take()
            .into_iter()
            .for_each(|p| partials.put(p));
    }

    fn record(
        &mut self,
        header: &Header,
        fragment: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let start = plain.len();
        plain.extend_from_slice(fragment);
        let opened = self.read.open(header, &mut plain[start..]);
        let seen = match opened {
            Ok((Content::Data, length)) => {
                plain.truncate(start + length);
                // Between the parts of a message nothing else may stand (RFC 8446, section 5.1).
                return self.between_messages();
            }
            Ok((Content::Alert, length)) => self.alert(&plain[start..start + length]),
            Ok((Content::Handshake, length)) => self.messages(&plain[start..start + length]),
            Ok((Content::ChangeCipherSpec, _)) => {
                Err(Failure::unexpected("a change of the cipher"))
            }
            Err(failure) => Err(failure),
        };
        plain.truncate(start);
        seen
    }

    fn between_messages(&self) -> Result<(), Failure> {
        if self.message.is_empty() {
            Ok(())
        } else {
            Err(Failure::unexpected("a record within a message"))
        }
    }

    fn alert(&mut self, alert: &[u8]) -> Result<(), Failure> {
        self.between_messages()?;
        match *alert {
            [_, 0] => self.ended = true,
            [_, USER_CANCELED] => {}
            // A warning of TLS 1.2; TLS 1.3 has none.
            [1, _] if self.kernel.is_none() => {}
            [_, number] => return Err(Failure::alert(number)),
            _ => return Err(Failure::unexpected("an alert of a wrong length")),
        }
        Ok(())
    }

    /// Handshake messages, which may be cut anywhere.
    fn messages(&mut self, part: &[u8]) -> Result<(), Failure> {
        let mut message = std::mem::take(&mut self.message);
        message.extend_from_slice(part);
        let mut rest = message.as_slice();
        while let Some(([kind, length @ ..], body)) = rest.split_first_chunk::<4>() {
            let [high, middle, low] = *length;
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            if length > LONGEST_MESSAGE {
                return Err(Failure::unexpected("a message that is too long"));
            }
            let Some((body, behind)) = body.split_at_checked(length) else {
                break;
            };
            self.message(*kind, body, behind.is_empty())?;
            rest = behind;
        }
        self.message = rest.to_vec();
        Ok(())
    }

    fn message(&mut self, kind: u8, body: &[u8], last: bool) -> Result<(), Failure> {
        let Some(kernel) = &mut self.kernel else {
            // A client may pass over the wish to negotiate anew (RFC 5246, section 7.4.1.1).
            return match kind {
                HELLO_REQUEST => Ok(()),
                _ => Err(Failure::unexpected("a handshake message")),
            };
        };
        match (kind, body) {
            (NEW_SESSION_TICKET, ticket) => Ok(kernel.handle_new_session_ticket(ticket)?),
            (KEY_UPDATE, [asked @ (0 | 1)]) if last => {
                self.read = Keys::new(ProtocolVersion::TLSv1_3, kernel.update_rx_secret()?)?;
                self.owes_update |= *asked == 1;
                Ok(())
            }
            _ => Err(Failure::unexpected("a handshake message")),
        }
    }

    /// Seals `plain` into a buffer of the thread, behind what has to go before it. New keys that are owed or due are
    /// announced first: the answer to a key update may wait until then (RFC 8446, section 4.6.3).
    ///
    /// # Errors
    /// None that a caller or a server could cause.
    pub fn seal(
        &mut self,
        content: Content,
        plain: &[u8],
        buffers: &mut SealedBuffers,
    ) -> Result<Bytes, Failure> {
        let renews = content == Content::Data && (self.owes_update || self.write.worn());
        let update = if renews {
            self.write.sealed_length(UPDATE.len())
        } else {
            0
        };
        let before = std::mem::take(&mut self.before);
        let length = before.len() + update + self.write.sealed_length(plain.len());
        let mut buffer = buffers.take(length);
        let out = Rc::get_mut(&mut buffer).ok_or_else(|| Failure::protocol("a buffer in use"))?;
        let (first, rest) = out.split_at_mut(before.len());
        first.copy_from_slice(&before);
        let (announced, sealed) = rest.split_at_mut(update);
        if renews {
            self.renew(announced)?;
        }
        self.write.seal(content, plain, sealed)?;
        Ok(buffer)
    }

    /// Tells the peer that new keys follow, and takes them.
    fn renew(&mut self, out: &mut [u8]) -> Result<(), Failure> {
        let Some(kernel) = &mut self.kernel else {
            return Err(Failure::protocol("a key update without TLS 1.3"));
        };
        self.write.seal(Content::Handshake, &UPDATE, out)?;
        self.write = Keys::new(ProtocolVersion::TLSv1_3, kernel.update_tx_secret()?)?;
        self.owes_update = false;
        Ok(())
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
