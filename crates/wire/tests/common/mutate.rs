//! Damages responses the way attackers and broken servers do.

use super::check::Random;

/// Text fragments that matter in HTTP.
const TOKENS: [&[u8]; 28] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b"\0",
    b"\x7f",
    b":",
    b";",
    b",",
    b"0",
    b"00",
    b"5",
    b"ffffffffffffffff",
    b"18446744073709551616",
    b"Content-Length: 5\r\n",
    b"Content-Length: 7\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b" folded\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
];

/// Damages `bytes` in one to four places.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() + 1);
        let to = at + random.below(bytes.len() - at + 1).min(20);
        match random.below(6) {
            0 => drop(bytes.drain(at..to)),
            1 => drop(bytes.splice(at..at, TOKENS[random.below(TOKENS.len())].iter().copied())),
            2 => drop(bytes.splice(
                at..to.min(at + 2),
                TOKENS[random.below(TOKENS.len())].iter().copied(),
            )),
            3 => bytes.extend_from_within(at..to),
            4 => {
                // Insert the token at the start of a line, where it is most likely to change the
                // meaning.
                let start = bytes[..at]
                    .iter()
                    .rposition(|&b| b == b'\n')
                    .map_or(0, |i| i + 1);
                let token = TOKENS[random.below(TOKENS.len())];
                drop(bytes.splice(start..start, token.iter().copied()));
            }
            _ if at < bytes.len() => bytes[at] = random.below(256) as u8,
            _ => bytes.truncate(at.saturating_sub(1)),
        }
    }
}
