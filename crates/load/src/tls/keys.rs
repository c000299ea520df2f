//! The keys of one direction: sealing and opening records in place.

use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    UnboundKey,
};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};

use super::failure::Failure;
use super::record::{Content, HEADER, Header, LONGEST_PLAIN};

/// Length of the authentication tag, the same for all suites.
const TAG: usize = 16;

/// Length of the part of an AES-GCM nonce that TLS 1.2 sends along.
const EXPLICIT: usize = 8;

/// Records that may be sealed with one AES-GCM key (RFC 8446, section 5.5: 2^24.5).
const SEALED_AT_MOST: u64 = 1 << 24;

/// How nonces are made and what is authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// TLS 1.3: the kind of content is sealed with it (RFC 8446, section 5.2).
    Tls13,
    /// TLS 1.2 with AES-GCM: eight bytes of the nonce go with the record (RFC 5288, section 3).
    Tls12Explicit,
    /// TLS 1.2 with ChaCha20-Poly1305: no byte of the nonce goes with it (RFC 7905, section 2).
    Tls12Implicit,
}

/// The keys of one direction of a connection, and how many records they have protected.
#[derive(Debug)]
pub struct Keys {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
    form: Form,
}

impl Keys {
    /// The keys that a handshake came to.
    ///
    /// # Errors
    /// A protection that is not known here.
    pub fn new(
        version: ProtocolVersion,
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Self, Failure> {
        use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match &secrets {
            Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(Failure::protocol("a cipher that floodmark does not know")),
        };
        let form = match version {
            ProtocolVersion::TLSv1_3 => Form::Tls13,
            ProtocolVersion::TLSv1_2 if algorithm == &CHACHA20_POLY1305 => Form::Tls12Implicit,
            ProtocolVersion::TLSv1_2 => Form::Tls12Explicit,
            _ => return Err(Failure::protocol("a version that floodmark does not know")),
        };
        let wrong = || Failure::protocol("keys of a wrong length");
        Ok(Keys {
            key: LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).map_err(|_| wrong())?),
            iv: iv.as_ref().try_into().map_err(|_| wrong())?,
            sequence,
            form,
        })
    }

    /// Length of `plain` bytes once sealed: records of the greatest length and one for the rest; nothing is one record too.
    #[must_use]
    pub fn sealed_length(&self, plain: usize) -> usize {
        plain + plain.div_ceil(LONGEST_PLAIN).max(1) * (HEADER + self.overhead())
    }

    /// What sealing adds to a record's content.
    fn overhead(&self) -> usize {
        match self.form {
            Form::Tls13 => 1 + TAG,
            Form::Tls12Explicit => EXPLICIT + TAG,
            Form::Tls12Implicit => TAG,
        }
    }

    /// Whether new keys are due.
    #[must_use]
    pub fn worn(&self) -> bool {
        self.form == Form::Tls13 && self.sequence >= SEALED_AT_MOST
    }

    /// Makes new keys due.
    #[cfg(test)]
    pub fn wear_out(&mut self) {
        self.sequence = SEALED_AT_MOST;
    }

    /// Seals `plain` into `out`, which must have [`Keys::sealed_length`] bytes.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn seal(&mut self, content: Content, plain: &[u8], out: &mut [u8]) -> Result<(), Failure> {
        let overhead = self.overhead();
        let mut rest = out;
        let mut pieces = plain.chunks(LONGEST_PLAIN);
        let mut piece = pieces.next().unwrap_or_default();
        loop {
            let length = HEADER + overhead + piece.len();
            let (record, behind) = rest
                .split_at_mut_checked(length)
                .ok_or_else(|| Failure::protocol("no room for a record"))?;
            self.seal_one(content, piece, record)?;
            rest = behind;
            match pieces.next() {
                Some(next) => piece = next,
                None => return Ok(()),
            }
        }
    }

    fn seal_one(&mut self, content: Content, plain: &[u8], out: &mut [u8]) -> Result<(), Failure> {
        let (header, body) = out.split_at_mut(HEADER);
        let nonce = self.nonce();
        let (outer, from, to) = match self.form {
            Form::Tls13 => (Content::Data, 0, plain.len() + 1),
            Form::Tls12Explicit => {
                body[..EXPLICIT].copy_from_slice(&nonce[NONCE_LEN - EXPLICIT..]);
                (content, EXPLICIT, EXPLICIT + plain.len())
            }
            Form::Tls12Implicit => (content, 0, plain.len()),
        };
        header.copy_from_slice(&Header::new(outer, to + TAG).bytes);
        body[from..from + plain.len()].copy_from_slice(plain);
        if self.form == Form::Tls13 {
            body[plain.len()] = content as u8;
        }
        let (sealed, tag) = body.split_at_mut(to);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = &mut sealed[from..];
        let made = if self.form == Form::Tls13 {
            let aad = Aad::from(&*header);
            self.key.seal_in_place_separate_tag(nonce, aad, sealed)
        } else {
            let aad = Aad::from(self.tls12_data(content, plain.len()));
            self.key.seal_in_place_separate_tag(nonce, aad, sealed)
        };
        let made = made.map_err(|_| Failure::protocol("a record cannot be sealed"))?;
        tag.copy_from_slice(made.as_ref());
        self.sequence += 1;
        Ok(())
    }

    /// Opens the record behind `header` in place: what it holds, and its plaintext at the front of `fragment`.
    ///
    /// # Errors
    /// A record that was not sealed with these keys, or is against the rules.
    pub fn open(
        &mut self,
        header: &Header,
        fragment: &mut [u8],
    ) -> Result<(Content, usize), Failure> {
        let plain = match self.form {
            Form::Tls13 => self.open_tls13(header, fragment)?,
            Form::Tls12Explicit | Form::Tls12Implicit => self.open_tls12(header, fragment)?,
        };
        self.sequence += 1;
        Ok(plain)
    }

    fn open_tls13(
        &self,
        header: &Header,
        fragment: &mut [u8],
    ) -> Result<(Content, usize), Failure> {
        if header.content != Content::Data {
            return Err(Failure::unexpected("an unprotected record"));
        }
        let nonce = Nonce::assume_unique_for_key(self.nonce());
        let aad = Aad::from(header.bytes);
        let inner = self
            .key
            .open_in_place(nonce, aad, fragment)
            .map_err(|_| Failure::bad_record())?;
        // The content is followed by its kind and any number of zeros (RFC 8446, section 5.2).
        let kind = inner.iter().rposition(|byte| *byte != 0);
        let kind = kind.ok_or_else(|| Failure::unexpected("a record without content"))?;
        if kind > LONGEST_PLAIN {
            return Err(Failure::record_too_long(kind));
        }
        Content::of(inner[kind])
            .map(|content| (content, kind))
            .ok_or_else(|| Failure::unexpected("a record of unknown content"))
    }

    fn open_tls12(
        &self,
        header: &Header,
        fragment: &mut [u8],
    ) -> Result<(Content, usize), Failure> {
        let mut nonce = self.nonce();
        let overhead = self.overhead();
        let explicit = overhead - TAG;
        let length = fragment.len().checked_sub(overhead);
        let length = length.ok_or_else(Failure::bad_record)?;
        if length > LONGEST_PLAIN {
            return Err(Failure::record_too_long(length));
        }
        if explicit > 0 {
            // The fixed part is the key's, the rest is what the peer says.
            nonce = self.iv;
            nonce[NONCE_LEN - EXPLICIT..].copy_from_slice(&fragment[..EXPLICIT]);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let aad = Aad::from(self.tls12_data(header.content, length));
        self.key
            .open_within(nonce, aad, fragment, explicit..)
            .map_err(|_| Failure::bad_record())?;
        Ok((header.content, length))
    }

    /// The sequence number laid over the IV (RFC 8446, section 5.3; RFC 7905, section 2).
    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, sequence) in nonce[NONCE_LEN - 8..]
            .iter_mut()
            .zip(self.sequence.to_be_bytes())
        {
            *byte ^= sequence;
        }
        nonce
    }

    /// What TLS 1.2 authenticates beside the content (RFC 5246, section 6.2.3.3).
    fn tls12_data(&self, content: Content, length: usize) -> [u8; 13] {
        let mut data = [0; 13];
        data[..8].copy_from_slice(&self.sequence.to_be_bytes());
        data[8..].copy_from_slice(&Header::new(content, length).bytes);
        data
    }
}
