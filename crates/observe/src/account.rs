//! What the kernel accounts to a process or thread, in the kernel's own units: `/proc/PID/stat` and `schedstat`, read without
//! allocating.

/// Fields of `/proc/PID/stat` or `/proc/PID/task/TID/stat`, times in clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// As `proc(5)` has it: `R` runs or is ready to, `S` and `D` wait.
    pub state: u8,
    pub parent: u32,
    pub user: u64,
    pub system: u64,
    /// Of children that ended and were waited for, and of theirs.
    pub children_user: u64,
    pub children_system: u64,
    pub threads: u64,
    /// Resident memory, pages.
    pub rss_pages: u64,
}

impl Account {
    /// Reads a `stat` file. The name in it may hold any byte, a ')' too: the last one ends it, and only numbers follow.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().rposition(|byte| *byte == b')')?;
        let tail = std::str::from_utf8(&bytes[end + 1..]).ok()?;
        let mut account = Self::default();
        let mut last = 0;
        // proc(5) numbers the fields from 1; the state, field 3, is the first one after the name.
        for (number, word) in (3..=24).zip(tail.split_ascii_whitespace()) {
            let value = || word.parse::<u64>().ok();
            match number {
                3 => account.state = *word.as_bytes().first()?,
                4 => account.parent = word.parse().ok()?,
                14 => account.user = value()?,
                15 => account.system = value()?,
                16 => account.children_user = value()?,
                17 => account.children_system = value()?,
                20 => account.threads = value()?,
                24 => account.rss_pages = value()?,
                _ => {}
            }
            last = number;
        }
        (last == 24).then_some(account)
    }
}

/// The name in a `stat` file, cut to 15 bytes by the kernel.
pub(crate) fn name(bytes: &[u8]) -> String {
    let begin = bytes.iter().position(|byte| *byte == b'(').map(|at| at + 1);
    let end = bytes.iter().rposition(|byte| *byte == b')');
    begin
        .zip(end)
        .and_then(|(begin, end)| bytes.get(begin..end))
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .unwrap_or_default()
}

/// Reads a `schedstat` file: time on a CPU and time ready but waiting for one, ns.
pub(crate) fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Reads the switches of a `status` file: voluntary (it waited) and involuntary (it was taken off the CPU).
pub(crate) fn parse_switches(text: &str) -> Option<(u64, u64)> {
    let value = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.trim().parse().ok()
    };
    Some((
        value("voluntary_ctxt_switches:")?,
        value("nonvoluntary_ctxt_switches:")?,
    ))
}

/// Reads an `io` file: bytes that were read from and written to storage, page cache left out.
pub(crate) fn parse_io(text: &str) -> Option<(u64, u64)> {
    let value = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.trim().parse().ok()
    };
    Some((value("read_bytes:")?, value("write_bytes:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str =
        "S 7493 7493 4358 0 -1 4194304 104 0 0 0 250 125 30 40 20 0 17 0 89214 3133440 388 184";

    #[test]
    fn fields_behind_any_name() {
        for given in [&b"cat"[..], b"a) R 1 (b", b"(sd-pam)", b"", b"\xff\xfe)"] {
            let mut bytes = b"7508 (".to_vec();
            bytes.extend_from_slice(given);
            bytes.extend_from_slice(b") ");
            bytes.extend_from_slice(REST.as_bytes());
            let account = Account::parse(&bytes).unwrap();
            assert_eq!(
                account,
                Account {
                    state: b'S',
                    parent: 7493,
                    user: 250,
                    system: 125,
                    children_user: 30,
                    children_system: 40,
                    threads: 17,
                    rss_pages: 388
                }
            );
            assert_eq!(name(&bytes), String::from_utf8_lossy(given));
        }
        for bad in ["", "7508", "7508 (cat", "7508 (cat) S 1 2", ") ("] {
            assert_eq!(Account::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(name(b") ("), "");
    }

    #[test]
    fn the_other_files() {
        assert_eq!(parse_schedstat("14 99 3\n"), Some((14, 99)));
        assert_eq!(parse_schedstat("1"), None);
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(parse_switches(status), Some((150, 545)));
        assert_eq!(parse_switches("Name:\tx\n"), None);
        let io = "rchar: 9\nwchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\n";
        assert_eq!(parse_io(io), Some((4096, 8192)));
    }
}
