//! Messages and trailers of unary gRPC calls over HTTP/2 (the gRPC project's `PROTOCOL-HTTP2.md`).
//! A message has a 5-byte prefix: a compression flag and the length in big-endian order.

use strum::{EnumString, IntoStaticStr};

/// Length of a message's prefix, in bytes.
pub const PREFIX_BYTES: usize = 5;

/// Code of a successful call.
pub const OK: u32 = 0;

/// Returns an uncompressed message with its prefix. Returns `None` if the message is 4 GiB or more.
#[must_use]
pub fn frame(message: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(message.len()).ok()?;
    let mut framed = Vec::with_capacity(PREFIX_BYTES + message.len());
    framed.push(0);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    Some(framed)
}

/// Reason for rejecting the response to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, EnumString, IntoStaticStr)]
#[cfg_attr(test, derive(strum::VariantNames))]
pub enum GrpcFault {
    /// The response has status 200, but no `grpc-status`.
    #[error("the response has no grpc-status in its trailers")]
    #[strum(serialize = "grpc_no_status")]
    NoStatus,
    /// `grpc-status` is not a decimal number.
    #[error("grpc-status is not a decimal number")]
    #[strum(serialize = "grpc_invalid_status")]
    InvalidStatus,
    /// A message is compressed although the client accepts only uncompressed messages.
    #[error("a message is compressed, although the request does not accept compression")]
    #[strum(serialize = "grpc_compressed")]
    Compressed,
    /// The first byte of a message is neither 0 nor 1.
    #[error("the flag at the start of a message is neither 0 nor 1")]
    #[strum(serialize = "grpc_invalid_flag")]
    InvalidFlag,
    /// The response ends within a message.
    #[error("the response ends within a message: its length prefix is too large")]
    #[strum(serialize = "grpc_truncated_message")]
    TruncatedMessage,
    /// The call succeeded without a message.
    #[error("the response has status OK, but no message")]
    #[strum(serialize = "grpc_no_message")]
    NoMessage,
    /// Bytes follow the only message of a unary call.
    #[error(
        "bytes follow the first message: its length prefix is too small, or there is a second message"
    )]
    #[strum(serialize = "grpc_second_message")]
    SecondMessage,
}

impl GrpcFault {
    /// Returns the stable name under which responses rejected for this reason are counted.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the reason with this name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// Reads the response to a unary call in parts of any size. Does not store the message.
///
/// ```
/// use floodmark_wire::grpc::GrpcResponse;
///
/// let mut response = GrpcResponse::default();
/// response.data(b"\0\0\0\0\x02ab");
/// response.status(b"0");
/// assert_eq!(response.finish(), Ok(0));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GrpcResponse {
    /// Number of prefix bytes read.
    prefix: u8,
    /// Message length decoded so far, until the prefix is complete; then the bytes still missing.
    left: u32,
    status: Option<u32>,
    fault: Option<GrpcFault>,
}

impl GrpcResponse {
    /// Reads a part of the body.
    #[inline]
    pub fn data(&mut self, mut bytes: &[u8]) {
        while usize::from(self.prefix) < PREFIX_BYTES {
            let Some((&byte, rest)) = bytes.split_first() else {
                return;
            };
            match (self.prefix, byte) {
                (0, 0) => {}
                (0, 1) => self.reject(GrpcFault::Compressed),
                (0, _) => self.reject(GrpcFault::InvalidFlag),
                _ => self.left = self.left << 8 | u32::from(byte),
            }
            self.prefix += 1;
            bytes = rest;
        }
        let length = bytes.len().min(self.left as usize);
        self.left -= length as u32;
        if length < bytes.len() {
            self.reject(GrpcFault::SecondMessage);
        }
    }

    /// Reads the value of `grpc-status`.
    #[inline]
    pub fn status(&mut self, value: &[u8]) {
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let code = std::str::from_utf8(value).ok().filter(|_| is_number);
        match code.and_then(|code| code.parse().ok()) {
            Some(code) => self.status = Some(code),
            None => self.reject(GrpcFault::InvalidStatus),
        }
    }

    /// Returns the code in `grpc-status` after the end of a response with HTTP status 200.
    ///
    /// # Errors
    /// The response is malformed. The response to a failed call may end at any point.
    pub fn finish(&self) -> Result<u32, GrpcFault> {
        match (self.fault, self.status) {
            (Some(fault), _) => Err(fault),
            (None, None) => Err(GrpcFault::NoStatus),
            (None, Some(OK)) if self.prefix == 0 => Err(GrpcFault::NoMessage),
            (None, Some(OK)) if usize::from(self.prefix) < PREFIX_BYTES || self.left > 0 => {
                Err(GrpcFault::TruncatedMessage)
            }
            (None, Some(code)) => Ok(code),
        }
    }

    fn reject(&mut self, fault: GrpcFault) {
        self.fault = self.fault.or(Some(fault));
    }
}

/// Appends at most `max` bytes of a decoded `grpc-message` to `out`. A `%` that is not followed by
/// two hexadecimal digits stays unchanged.
pub fn decode_message(value: &[u8], max: usize, out: &mut Vec<u8>) {
    let mut rest = value;
    let end = out.len() + max;
    while out.len() < end
        && let Some((&byte, after)) = rest.split_first()
    {
        let digit = |index: usize| {
            after
                .get(index)
                .and_then(|byte| (*byte as char).to_digit(16))
        };
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                rest = &after[2..];
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use strum::VariantNames;

    use super::*;

    /// Returns the result of a response whose body arrives in these parts.
    fn read(parts: &[&[u8]], status: Option<&str>) -> Result<u32, GrpcFault> {
        let mut response = GrpcResponse::default();
        parts.iter().for_each(|part| response.data(part));
        if let Some(status) = status {
            response.status(status.as_bytes());
        }
        response.finish()
    }

    #[test]
    fn names_each_fault() {
        use GrpcFault::*;
        let ok = Some("0");
        for (body, status, result) in [
            (&b"\0\0\0\0\x02ab"[..], ok, Ok(0)),
            (b"\0\0\0\0\0", ok, Ok(0)),
            (b"", Some("5"), Ok(5)),
            (b"", Some("16"), Ok(16)),
            (b"\0\0\0\0\x02a", Some("13"), Ok(13)),
            (b"", ok, Err(NoMessage)),
            (b"\0\0\0", ok, Err(TruncatedMessage)),
            (b"\0\0\0\0\x02a", ok, Err(TruncatedMessage)),
            (b"\0\0\0\0\x02abc", ok, Err(SecondMessage)),
            (b"\0\0\0\0\0\0\0\0\0\0", ok, Err(SecondMessage)),
            (b"\x01\0\0\0\x02ab", ok, Err(Compressed)),
            (b"\x02\0\0\0\x02ab", ok, Err(InvalidFlag)),
            (b"<html>", None, Err(InvalidFlag)),
            (b"\0\0\0\0\x02ab", None, Err(NoStatus)),
            (b"", Some(""), Err(InvalidStatus)),
            (b"", Some("+5"), Err(InvalidStatus)),
            (b"", Some("5 "), Err(InvalidStatus)),
            (b"", Some("99999999999"), Err(InvalidStatus)),
        ] {
            assert_eq!(read(&[body], status), result, "{body:?} {status:?}");
        }
    }

    #[test]
    fn names_are_stable() {
        assert_eq!(GrpcFault::NoStatus.name(), "grpc_no_status");
        assert_eq!(
            GrpcFault::named("grpc_second_message"),
            Some(GrpcFault::SecondMessage)
        );
        assert_eq!(GrpcFault::named("no_status"), None);
        assert_eq!(GrpcFault::VARIANTS.len(), 7);
    }

    #[test]
    fn decodes_messages() {
        for (value, text) in [
            ("no%20such%20user", "no such user"),
            ("100% of %zz %4", "100% of %zz %4"),
            ("%C3%a9", "é"),
            ("", ""),
        ] {
            let mut out = Vec::new();
            decode_message(value.as_bytes(), 100, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        let mut out = b"x".to_vec();
        decode_message(b"abc%20def", 4, &mut out);
        assert_eq!(out, b"xabc ");
    }

    proptest! {
        /// The result does not depend on how the body is split.
        #[test]
        fn splits_do_not_matter(
            flag in 0u8..3,
            length in 0u32..12,
            body in proptest::collection::vec(any::<u8>(), 0..12),
            cuts in proptest::collection::vec(0usize..17, 0..4),
        ) {
            let mut bytes = vec![flag];
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&body);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut from = 0;
            let mut parts: Vec<&[u8]> = Vec::new();
            for cut in cuts {
                parts.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(read(&parts, Some("0")), read(&[&bytes[..]], Some("0")));
            let fits = flag == 0 && body.len() == length as usize;
            prop_assert_eq!(read(&parts, Some("0")).is_ok(), fits);
        }

        #[test]
        fn a_framed_message_is_valid(message in proptest::collection::vec(any::<u8>(), 0..300)) {
            let framed = frame(&message).unwrap();
            prop_assert_eq!(read(&[&framed[..]], Some("0")), Ok(OK));
            prop_assert_eq!(&framed[PREFIX_BYTES..], &message[..]);
        }
    }
}
