//! Files that a user names, read whole.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest file that is read, bytes: as much as a request's body may have.
pub const LARGEST: u64 = 64 << 20;

/// Reads a file of at most [`LARGEST`] bytes.
///
/// # Errors
/// Why not, in words.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // A device or a pipe has no size to ask for: it is read up to the limit.
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(error.to_string()),
        Ok(_) if bytes.len() as u64 > LARGEST => Err(format!(
            "it has more than the {LARGEST} bytes that are read"
        )),
        Ok(_) => Ok(bytes),
    }
}
