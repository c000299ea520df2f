//! How two machines' clocks stand to each other, by what their kernels say of them.

use floodmark_record::elsewhere::{Aligned, Clocks, Method};

/// Series begin at whole milliseconds.
pub const ROUNDING_MS: f64 = 0.5;

/// By how much the wall clock may differ from the monotonic one, as two processes on one machine see it within a few seconds, ns.
/// More than that are a time namespace, or two copies of a virtual machine that were started from one image.
const ONE_MACHINE_NS: u128 = 100_000_000;

/// What is added to a time on the series' clock `there` to have it on that `here`; none where the kernels do not tell.
pub fn by_word(here: &Clocks, there: &Clocks) -> Option<Aligned> {
    let aligned = |method, begin: fn(&Clocks) -> f64, error_ms| Aligned {
        method,
        offset_ms: begin(there) - begin(here),
        error_ms: error_ms + ROUNDING_MS,
        but: None,
    };
    if same(here, there) {
        return Some(aligned(
            Method::SameClock,
            |c| begin_ms(c, c.monotonic_ns),
            0.0,
        ));
    }
    let error_us = |clocks: &Clocks| clocks.max_error_us.filter(|_| clocks.synchronised);
    let error_ms = (error_us(here)? as f64 + error_us(there)? as f64) / 1e3;
    Some(aligned(
        Method::WallClocks,
        |c| begin_ms(c, c.unix_ns),
        error_ms,
    ))
}

/// Where the series began on a clock that now says `ns`.
fn begin_ms(clocks: &Clocks, ns: u64) -> f64 {
    // Nanoseconds since 1970 have 61 bits, a float 53: it is exact to 256 ns.
    ns as f64 / 1e6 - clocks.at_ms
}

/// Whether it is one machine, with one clock for both.
fn same(here: &Clocks, there: &Clocks) -> bool {
    let apart = |c: &Clocks| i128::from(c.unix_ns) - i128::from(c.monotonic_ns);
    here.boot_id.is_some()
        && here.boot_id == there.boot_id
        && (apart(here) - apart(there)).unsigned_abs() < ONE_MACHINE_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks(at_ms: f64, monotonic_ms: u64, unix_ms: u64) -> Clocks {
        Clocks {
            at_ms,
            boot_id: Some("a".to_owned()),
            monotonic_ns: monotonic_ms * 1_000_000,
            unix_ns: unix_ms * 1_000_000,
            synchronised: true,
            max_error_us: Some(1_000),
        }
    }

    const UNIX: u64 = 1_700_000_000_000;

    #[test]
    fn one_machine_has_one_clock() {
        // There the series began at 100 ms, here at 5,000 ms of the monotonic clock.
        let here = clocks(1_000.0, 6_000, UNIX + 6_000);
        let there = clocks(6_100.0, 6_200, UNIX + 6_200);
        let aligned = by_word(&here, &there).unwrap();
        assert_eq!(aligned.method, Method::SameClock);
        assert!((aligned.offset_ms - -4_900.0).abs() < 1e-6, "{aligned:?}");
        assert_eq!(aligned.error_ms, ROUNDING_MS);
    }

    #[test]
    fn two_machines_have_their_wall_clocks_if_the_kernels_vouch_for_them() {
        let here = clocks(1_000.0, 6_000, UNIX);
        let mut there = clocks(6_100.0, 900_000, UNIX + 200);
        for boot_id in [None, Some("b".to_owned()), Some("a".to_owned())] {
            // The last is another time namespace: its monotonic clock stands otherwise.
            there.boot_id = boot_id;
            let aligned = by_word(&here, &there).unwrap();
            assert_eq!(aligned.method, Method::WallClocks);
            assert!((aligned.offset_ms - -4_900.0).abs() < 1e-3, "{aligned:?}");
            assert!((aligned.error_ms - 2.5).abs() < 1e-9, "{aligned:?}");
        }
        there.synchronised = false;
        assert_eq!(by_word(&here, &there), None);
        there.synchronised = true;
        there.max_error_us = None;
        assert_eq!(by_word(&here, &there), None);
    }
}
