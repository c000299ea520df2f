//! Disk faults, injected into the calls of a traced process.

/// Kind of call that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultyCall {
    /// fsync and fdatasync of a file or folder in the watched folder.
    Sync,
    /// Writes to a file in the watched folder.
    Write,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The call fails with EIO. A write at an offset (pwrite) first writes half of its bytes.
    InputOutput,
    /// The call fails with ENOSPC.
    NoSpace,
    /// A write writes only half of its bytes. A sync or a write of a single byte does not fail.
    Short,
}

impl FaultKind {
    /// Returns the error number, or `None` if the call succeeds partially.
    pub(super) fn error(self) -> Option<i32> {
        match self {
            FaultKind::InputOutput => Some(libc::EIO),
            FaultKind::NoSpace => Some(libc::ENOSPC),
            FaultKind::Short => None,
        }
    }
}

/// A fault of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskFault {
    /// Calls that can fail.
    pub call: FaultyCall,
    /// Number of the first such call that fails, starting at 1.
    pub first: u64,
    /// Whether all later calls fail too.
    pub is_lasting: bool,
    /// How the calls fail.
    pub kind: FaultKind,
}

impl DiskFault {
    /// Returns whether the call with this number fails.
    pub(super) fn applies(&self, number: u64) -> bool {
        number == self.first || self.is_lasting && number > self.first
    }
}
