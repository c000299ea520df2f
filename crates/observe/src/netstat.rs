//! Counters of the network stack: `/proc/net/netstat` and `/proc/net/snmp`, both of this network namespace.

use std::collections::BTreeMap;
use std::io;

use crate::Root;

/// Counters of the TCP stack that tell of load, by the names the kernel gives them. All but none only grow.
///
/// Those of `/proc/net/netstat` (`TcpExt:`) come first, then those of `/proc/net/snmp` (`Tcp:`).
pub const COUNTERS: [&str; 20] = [
    "ListenOverflows",
    "ListenDrops",
    "TCPReqQFullDrop",
    "TCPReqQFullDoCookies",
    "TCPBacklogDrop",
    "TCPSynRetrans",
    "TCPTimeouts",
    "TW",
    "TWRecycled",
    "TCPTimeWaitOverflow",
    "DelayedACKs",
    "DelayedACKLocked",
    "DelayedACKLost",
    "TCPAbortOnTimeout",
    "ActiveOpens",
    "PassiveOpens",
    "AttemptFails",
    "EstabResets",
    "RetransSegs",
    "OutRsts",
];

/// Counters by their kernel names; a kernel that does not have one leaves it out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// The value of a counter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// How many counters of [`COUNTERS`] the kernel has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What each counter grew by since an earlier reading. One that went back (the kernel wraps at 32 bits on some
    /// machines) counts as no growth rather than as an absurd one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(
            self.0
                .iter()
                .map(|(name, now)| {
                    let before = earlier.get(name).unwrap_or(*now);
                    (name.clone(), now.saturating_sub(before))
                })
                .collect(),
        )
    }

    /// Takes the [`COUNTERS`] of one group (`TcpExt:`, `Tcp:`) out of a text in pairs of lines: names, then values.
    fn take(&mut self, text: &str, group: &str) {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            for (name, value) in names
                .split_ascii_whitespace()
                .zip(values.split_ascii_whitespace())
            {
                if let (true, Ok(value)) = (COUNTERS.contains(&name), value.parse()) {
                    self.0.insert(name.to_owned(), value);
                }
            }
        }
    }
}

/// Takes counters of one group out of the text of either file, in the order of `names`, without allocating.
pub(crate) fn pick(text: &str, names: &[&str], into: &mut Vec<f64>) -> Option<()> {
    let begin = into.len();
    into.resize(begin + names.len(), f64::NAN);
    for group in ["TcpExt:", "Tcp:"] {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
        while let (Some(heads), Some(values)) = (lines.next(), lines.next()) {
            for (head, value) in heads
                .split_ascii_whitespace()
                .zip(values.split_ascii_whitespace())
            {
                if let Some(at) = names.iter().position(|name| *name == head) {
                    into[begin + at] = value.parse::<u64>().ok()? as f64;
                }
            }
        }
    }
    let all = into[begin..].iter().all(|value| !value.is_nan());
    all.then_some(())
}

/// Reads the texts of `/proc/net/netstat` and `/proc/net/snmp`.
#[must_use]
pub fn parse(netstat: &str, snmp: &str) -> Counters {
    let mut counters = Counters::default();
    counters.take(netstat, "TcpExt:");
    counters.take(snmp, "Tcp:");
    counters
}

/// Reads the counters of this network namespace.
///
/// # Errors
/// Either file cannot be read.
pub fn read(root: &Root) -> io::Result<Counters> {
    Ok(parse(
        &root.read("/proc/net/netstat")?,
        &root.read("/proc/net/snmp")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETSTAT: &str = "\
TcpExt: SyncookiesSent TW TWRecycled DelayedACKs DelayedACKLocked DelayedACKLost ListenOverflows ListenDrops TCPTimeWaitOverflow TCPReqQFullDoCookies TCPReqQFullDrop TCPSynRetrans
TcpExt: 3 217333 709 1 2 4 12 13 0 5 6 7
IpExt: InNoRoutes InOctets
IpExt: 0 55240573
MPTcpExt: MPCapableSYNRX MPJoinRejected
MPTcpExt: 9 9
";
    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives
Ip: 2 64 2886
IcmpMsg: InType3
IcmpMsg: 1
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors
Tcp: 1 200 120000 -1 83 2 1 59 0 2718 2142 11 0 90 0
Udp: InDatagrams NoPorts
Udp: 167 0
";

    #[test]
    fn counters_of_both_files_by_name() {
        let counters = parse(NETSTAT, SNMP);
        for (name, value) in [
            ("ListenOverflows", 12),
            ("ListenDrops", 13),
            ("TCPReqQFullDoCookies", 5),
            ("TCPReqQFullDrop", 6),
            ("TCPSynRetrans", 7),
            ("TW", 217_333),
            ("TWRecycled", 709),
            ("TCPTimeWaitOverflow", 0),
            ("DelayedACKLost", 4),
            ("ActiveOpens", 83),
            ("AttemptFails", 1),
            ("RetransSegs", 11),
            ("OutRsts", 90),
        ] {
            assert_eq!(counters.get(name), Some(value), "{name}");
        }
        assert_eq!(counters.get("TCPBacklogDrop"), None, "not in this kernel");
        assert_eq!(counters.get("MPJoinRejected"), None, "not of interest");
    }

    #[test]
    fn picked_counters_come_in_the_order_asked_for() {
        let mut values = vec![1.0];
        assert_eq!(pick(NETSTAT, &["TWRecycled", "TW"], &mut values), Some(()));
        assert_eq!(values, [1.0, 709.0, 217_333.0]);
        values.clear();
        assert_eq!(pick(SNMP, &["ActiveOpens"], &mut values), Some(()));
        assert_eq!(values, [83.0]);
        assert_eq!(pick(SNMP, &["TW"], &mut values), None, "of the other file");
    }

    #[test]
    fn growth_is_never_negative() {
        let before = parse(NETSTAT, SNMP);
        let now = parse(
            &NETSTAT.replace("217333 709", "217433 700"),
            &SNMP.replace("Tcp: 1 200 120000 -1 83", "Tcp: 1 200 120000 -1 90"),
        );
        let grown = now.since(&before);
        assert_eq!(grown.get("TW"), Some(100));
        assert_eq!(grown.get("TWRecycled"), Some(0));
        assert_eq!(grown.get("ActiveOpens"), Some(7));
    }

    #[test]
    fn odd_texts_are_no_counters() {
        for text in [
            "",
            "TcpExt: TW",
            "TcpExt: TW\nTcpExt:\n",
            "TcpExt: TW\nTcpExt: x\n",
        ] {
            assert!(parse(text, text).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn a_connection_is_seen_in_the_real_counters() {
        let before = read(&Root::host()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let grown = read(&Root::host()).unwrap().since(&before);
        drop(client);
        assert!(grown.get("ActiveOpens") >= Some(1), "{grown:?}");
        assert!(grown.get("ListenOverflows").is_some(), "{grown:?}");
    }
}
