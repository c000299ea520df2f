//! Reads whole files given by the user.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum size of a file or a request body, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;

/// Reads a file of at most [`MAX_BYTES`] bytes.
///
/// # Errors
/// The file cannot be read or is too large. The message contains the reason and a fix.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // Limit the read itself, because devices and pipes do not report a size.
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(format!("{error}; name a readable file")),
        Ok(_) if bytes.len() as u64 > MAX_BYTES => {
            Err(format!("larger than {MAX_BYTES} bytes; use a smaller file"))
        }
        Ok(_) => Ok(bytes),
    }
}
