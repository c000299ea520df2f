//! Reads whole files given by the user.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;

/// Maximum size of a file or a request body, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;

/// Reads a file of at most [`MAX_BYTES`] bytes.
///
/// # Errors
/// The file cannot be read or is too large. The message contains the reason and a fix.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    File::open(path)
        .map_err(|error| format!("{error}; name a readable file"))
        .and_then(read_whole)
}

/// Returns the content of stdin, at most [`MAX_BYTES`] bytes. Stdin is read once.
///
/// # Errors
/// Stdin cannot be read or is too long. The message contains the reason and a fix.
pub fn stdin() -> Result<Vec<u8>, String> {
    static CONTENT: OnceLock<Result<Vec<u8>, String>> = OnceLock::new();
    CONTENT.get_or_init(|| read_whole(io::stdin())).clone()
}

fn read_whole(source: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // Limit the read itself, because devices and pipes do not report a size.
    match source.take(MAX_BYTES + 1).read_to_end(&mut bytes) {
        Err(error) => Err(format!("{error}; use a readable file")),
        Ok(_) if bytes.len() as u64 > MAX_BYTES => {
            Err(format!("larger than {MAX_BYTES} bytes; use a smaller file"))
        }
        Ok(_) => Ok(bytes),
    }
}
