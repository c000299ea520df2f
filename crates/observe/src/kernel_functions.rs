//! Addresses of kernel functions, from `/proc/kallsyms`.

use std::io;
use std::ops::Range;

use memchr::memmem;

use crate::Root;

/// The kernel functions that write a file to disk: the system calls for this purpose, and the
/// file system functions that also serve writes to files opened with `O_SYNC` or `O_DSYNC`.
#[derive(Debug)]
pub(crate) struct FileSyncFunctions(Vec<Range<u64>>);

impl FileSyncFunctions {
    /// Reads the addresses of the functions.
    ///
    /// # Errors
    /// The kernel hides the addresses.
    pub(crate) fn read(root: &Root) -> io::Result<Self> {
        let functions = Self::parse(&root.read("/proc/kallsyms")?);
        let hidden = || io::Error::other("kernel addresses are hidden (kernel.kptr_restrict)");
        functions.ok_or_else(hidden)
    }

    fn parse(symbols: &str) -> Option<Self> {
        // The file has over 100,000 lines, so only the lines that may matter are read completely.
        let mut functions = Vec::new();
        for at in memmem::find_iter(symbols.as_bytes(), "sync") {
            let from = symbols[..at].rfind('\n').map_or(0, |end| end + 1);
            let line = symbols[from..].lines().next();
            if let Some((address, name)) = line.and_then(code)
                && is_file_sync(name)
            {
                functions.push(address..u64::MAX);
            }
        }
        functions.sort_unstable_by_key(|function| function.start);
        functions.dedup();
        // A function ends where the next one starts. Several symbols can have the same address.
        for (address, _) in symbols.lines().filter_map(code) {
            let after = functions.partition_point(|function| function.start < address);
            if let Some(function) = functions[..after].last_mut() {
                function.end = function.end.min(address);
            }
        }
        functions.retain(|function| function.end < u64::MAX);
        (!functions.is_empty()).then_some(Self(functions))
    }

    /// Returns whether any of these addresses is in one of the functions.
    pub(crate) fn contain(&self, addresses: &[u64]) -> bool {
        let is_inside = |address: &u64| self.0.iter().any(|range| range.contains(address));
        addresses.iter().any(is_inside)
    }
}

/// Returns the address and the symbol name in a line of `/proc/kallsyms` if the line describes code
/// at a known address.
fn code(line: &str) -> Option<(u64, &str)> {
    let (address, rest) = line.split_once(' ')?;
    let name = ["t ", "T ", "w ", "W "]
        .iter()
        .find_map(|kind| rest.strip_prefix(kind))?;
    let address = u64::from_str_radix(address, 16).ok()?;
    (address > 0).then_some((address, name.split('\t').next()?))
}

/// Returns whether a kernel function writes a file to disk. The prefixes of system calls differ
/// between architectures and versions (`__x64_sys_fsync`, `__arm64_sys_fsync`, `sys_fsync`). File
/// systems use function names such as `ext4_sync_file`, `xfs_file_fsync` and `blkdev_fsync`.
fn is_file_sync(name: &str) -> bool {
    let prefixed = name.split_once("_sys_").map(|(_, call)| call);
    let call = prefixed.or_else(|| name.strip_prefix("sys_"));
    let is_call = |call| {
        [
            "fsync",
            "fdatasync",
            "msync",
            "sync",
            "syncfs",
            "sync_file_range",
        ]
        .contains(&call)
    };
    let of_file_system = ["_sync_file", "_fsync"];
    name == "vfs_fsync_range"
        || call.is_some_and(is_call)
        || of_file_system.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_functions_that_write_files_to_disk() {
        let symbols = "ffffffff81000200 T __x64_sys_fsync\n\
                       ffffffff81000240 t __ia32_sys_fsync\n\
                       ffffffff81000200 t alias\n\
                       ffffffff81000280 T vfs_read\n\
                       ffffffff81000100 T vfs_write\n\
                       ffffffff81000290 D __x64_sys_sync\n\
                       ffffffffc0000000 t ext4_file_write_iter\t[ext4]\n";
        let functions = FileSyncFunctions::parse(symbols).unwrap();
        assert!(functions.contain(&[0xffff_ffff_8100_0110, 0xffff_ffff_8100_0210]));
        assert!(functions.contain(&[0xffff_ffff_8100_027f]));
        for outside in [
            0xffff_ffff_8100_01ff,
            0xffff_ffff_8100_0280,
            0xffff_ffff_8100_0290,
        ] {
            assert!(!functions.contain(&[outside]), "{outside:x}");
        }
    }

    #[test]
    fn knows_the_names_of_functions_that_write_files_to_disk() {
        for name in [
            "vfs_fsync_range",
            "__arm64_sys_fdatasync",
            "sys_fsync",
            "ext4_sync_file",
            "xfs_file_fsync",
            "blkdev_fsync",
        ] {
            assert!(is_file_sync(name), "{name}");
        }
        for name in [
            "vfs_write",
            "__x64_sys_read",
            "__traceiter_ext4_sync_file_enter",
        ] {
            assert!(!is_file_sync(name), "{name}");
        }
    }

    #[test]
    fn hidden_addresses_are_rejected() {
        let symbols = "0000000000000000 T __x64_sys_fsync\n0000000000000000 T vfs_read\n";
        assert!(FileSyncFunctions::parse(symbols).is_none());
        assert!(FileSyncFunctions::parse("").is_none());
    }
}
