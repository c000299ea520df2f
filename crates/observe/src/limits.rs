//! Resource limits of this process: `/proc/self/limits`.

use std::collections::BTreeMap;

use floodmark_record::host::LimitFacts;

use crate::Root;
use crate::kernel_file::labelled;

/// Limits that matter under load, with floodmark's name and the kernel's name for each.
const LIMITS: [(&str, &str); 3] = [
    ("nofile", "Max open files"),
    ("nproc", "Max processes"),
    ("memlock", "Max locked memory"),
];

/// Parses the contents of `/proc/self/limits` into `nofile`, `nofile_hard` and so on. `u64::MAX`
/// means unlimited.
pub(crate) fn parse(text: &str) -> BTreeMap<String, u64> {
    let limit = |word: &str| match word {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    };
    let mut limits = BTreeMap::new();
    for (name, kernel_name) in LIMITS {
        let words = labelled(text, kernel_name).unwrap_or_default();
        let mut words = words.split_ascii_whitespace().map(limit);
        if let (Some(Some(soft)), Some(Some(hard))) = (words.next(), words.next()) {
            limits.insert(name.to_owned(), soft);
            limits.insert(format!("{name}_hard"), hard);
        }
    }
    limits
}

/// Reads the limits of this process. Returns an empty map if the file can't be read.
pub(crate) fn read(root: &Root) -> BTreeMap<String, u64> {
    parse(&root.read("/proc/self/limits").unwrap_or_default())
}

/// Returns the limits on open files of this process, or `None` if the file can't be read.
pub(crate) fn open_files(root: &Root) -> Option<LimitFacts> {
    let limits = read(root);
    Some(LimitFacts {
        soft: *limits.get("nofile")?,
        hard: *limits.get("nofile_hard")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_soft_and_hard_limits() {
        let text = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max processes             96365                96365                processes 
Max open files            1024                 1048576              files     
Max locked memory         8388608              unlimited            bytes     
";
        let limits = parse(text);
        assert_eq!(limits["nofile"], 1024);
        assert_eq!(limits["nofile_hard"], 1_048_576);
        assert_eq!(limits["nproc"], 96_365);
        assert_eq!(limits["memlock"], 8_388_608);
        assert_eq!(limits["memlock_hard"], u64::MAX);
        assert_eq!(limits.len(), 6);
        assert!(parse("Max open files  x  y\n").is_empty());
    }

    #[test]
    fn reads_the_limits_of_this_process() {
        let files = open_files(&Root::host()).unwrap();
        assert!(files.soft >= 3 && files.soft <= files.hard, "{files:?}");
    }
}
