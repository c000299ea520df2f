//! TCP counters of a network namespace: `/proc/net/netstat` and `/proc/net/snmp`.

use crate::kernel_file::labelled;

/// Parses counters from the contents of either file, in the order of `names`.
pub(crate) fn pick(text: &str, names: &[&str]) -> Option<Vec<f64>> {
    let mut values = vec![f64::NAN; names.len()];
    for group in ["TcpExt:", "Tcp:"] {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
        while let (Some(heads), Some(counters)) = (lines.next(), lines.next()) {
            let heads = heads.split_ascii_whitespace();
            for (head, counter) in heads.zip(counters.split_ascii_whitespace()) {
                if let Some(at) = names.iter().position(|name| *name == head) {
                    values[at] = counter.parse::<u64>().ok()? as f64;
                }
            }
        }
    }
    let all = values.iter().all(|value| !value.is_nan());
    all.then_some(values)
}

/// Returns the number of sockets in TIME_WAIT for both IP versions together.
pub(crate) fn time_wait(sockstat: &str) -> Option<u64> {
    let mut words = labelled(sockstat, "TCP:")?.split_ascii_whitespace();
    words.find(|word| *word == "tw")?;
    words.next()?.parse().ok()
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
    fn reads_counters_in_the_order_of_their_names() {
        let values = pick(NETSTAT, &["TWRecycled", "TW"]);
        assert_eq!(values, Some(vec![709.0, 217_333.0]));
        assert_eq!(pick(SNMP, &["ActiveOpens"]), Some(vec![83.0]));
        assert_eq!(pick(SNMP, &["TW"]), None, "in the other file");
    }

    #[test]
    fn rejects_damaged_texts() {
        for text in [
            "",
            "TcpExt: TW",
            "TcpExt: TW\nTcpExt:\n",
            "TcpExt: TW\nTcpExt: x\n",
        ] {
            assert_eq!(pick(text, &["TW"]), None, "{text:?}");
        }
    }

    #[test]
    fn counts_sockets_in_time_wait() {
        let text = "sockets: used 1216\nTCP: inuse 101 orphan 2 tw 27804 alloc 215 mem 233\nUDP: inuse 0 mem 0\n";
        assert_eq!(time_wait(text), Some(27_804));
        assert_eq!(time_wait("sockets: used 16\n"), None);
    }
}
