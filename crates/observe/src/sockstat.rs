//! TCP socket statistics of a network namespace: `/proc/net/sockstat`.

use crate::kernel_file::labelled;

/// Returns the number of sockets in TIME_WAIT for both IP versions together.
pub(crate) fn time_wait(sockstat: &str) -> Option<u64> {
    let mut words = labelled(sockstat, "TCP:")?.split_ascii_whitespace();
    words.find(|word| *word == "tw")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_sockets_in_time_wait() {
        let text = "sockets: used 1216\nTCP: inuse 101 orphan 2 tw 27804 alloc 215 mem 233\nUDP: inuse 0 mem 0\n";
        assert_eq!(time_wait(text), Some(27_804));
        assert_eq!(time_wait("sockets: used 16\n"), None);
    }
}
