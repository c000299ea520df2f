//! Kernel settings under `/proc/sys`.

use std::collections::BTreeMap;

use floodmark_record::host::PortFacts;

use crate::Root;

/// Settings that matter under load. Settings that the kernel lacks are omitted from the record.
const SETTINGS: [&str; 13] = [
    "kernel.io_uring_disabled",
    "net.core.somaxconn",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_max_orphans",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_max_tw_buckets",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_tw_reuse_delay",
    "net.netfilter.nf_conntrack_max",
];

/// Reads a setting. Multiple values are separated by single spaces.
fn text(root: &Root, name: &str) -> Option<String> {
    let line = root.line(format!("/proc/sys/{}", name.replace('.', "/")))?;
    Some(line.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

/// Reads a setting with a single number.
#[must_use]
pub fn number(root: &Root, name: &str) -> Option<u64> {
    text(root, name)?.parse().ok()
}

/// Reads all settings of [`SETTINGS`] that the kernel has.
pub(crate) fn all(root: &Root) -> BTreeMap<String, String> {
    let setting = |name: &str| Some((name.to_owned(), text(root, name)?));
    SETTINGS.into_iter().filter_map(setting).collect()
}

/// Reads the range of local ports for outgoing connections.
#[must_use]
pub fn ports(root: &Root) -> Option<PortFacts> {
    let range = text(root, "net.ipv4.ip_local_port_range")?;
    let (low, high) = range.split_once(' ')?;
    let (low, high) = (low.parse().ok()?, high.parse().ok()?);
    let reserved = text(root, "net.ipv4.ip_local_reserved_ports").unwrap_or_default();
    Some(PortFacts {
        low,
        high,
        reserved: reserved_within(&reserved, low, high),
    })
}

/// Returns how many ports in a list such as `8080,9148-9150` lie within a range. The kernel prints
/// a sorted list with merged ranges.
fn reserved_within(list: &str, low: u16, high: u16) -> u32 {
    let within = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = first.trim().parse::<u16>().ok()?.max(low);
        let last = last.trim().parse::<u16>().ok()?.min(high);
        Some(u32::from(last.checked_sub(first)?) + 1)
    };
    list.split(',').filter_map(within).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join("proc/sys").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::at(folder.path());
        (folder, root)
    }

    #[test]
    fn counts_reserved_ports() {
        let (_folder, root) = fixture(&[
            ("net/ipv4/ip_local_port_range", "32768\t60999\n"),
            (
                "net/ipv4/ip_local_reserved_ports",
                "8080,32760-32769,60999,61000-65535\n",
            ),
        ]);
        let ports = ports(&root).unwrap();
        assert_eq!((ports.low, ports.high, ports.reserved), (32_768, 60_999, 3));
        assert_eq!(ports.usable(), 28_232 - 3);
        assert_eq!(all(&root)["net.ipv4.ip_local_port_range"], "32768 60999");
        assert_eq!(number(&root, "net.core.somaxconn"), None);
    }

    #[test]
    fn an_empty_list_reserves_nothing() {
        assert_eq!(reserved_within("", 1, 65_535), 0);
        assert_eq!(reserved_within("x-y,7-3", 1, 65_535), 0);
    }

    #[test]
    fn reads_the_settings_of_this_host() {
        let root = Root::host();
        let settings = all(&root);
        assert!(settings.contains_key("net.core.somaxconn"), "{settings:?}");
        assert!(ports(&root).unwrap().usable() > 0);
        assert!(number(&root, "net.ipv4.tcp_tw_reuse") <= Some(2));
    }
}
