//! How two machines' clocks stand to each other: by what their kernels say of them, and by the load that both saw.

use floodmark_record::elsewhere::{Aligned, Clocks, Method};
use floodmark_record::units::show_ns;
use floodmark_stats::alignment::{Found, NotFound};

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
        correlation: None,
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

/// The same by the wall clocks, whatever they are worth.
pub fn by_wall_ms(here: &Clocks, there: &Clocks) -> f64 {
    begin_ms(there, there.unix_ns) - begin_ms(here, here.unix_ns)
}

/// Chooses between the kernels' word and the load's: the more precise of the two, and the load's where they contradict each other.
///
/// # Errors
/// Neither tells.
pub fn choose(word: Option<Aligned>, load: Result<Found, NotFound>) -> Result<Aligned, String> {
    let load = load.map(|found| Aligned {
        method: Method::Load,
        offset_ms: found.offset_ms,
        error_ms: found.error_ms + ROUNDING_MS,
        correlation: Some(found.correlation),
        but: None,
    });
    match (word, load) {
        (Some(word), Err(_)) => Ok(word),
        (None, Ok(load)) => Ok(load),
        (Some(word), Ok(load)) => {
            let apart_ms = (word.offset_ms - load.offset_ms).abs();
            let but = (apart_ms > word.error_ms + load.error_ms).then(|| {
                format!(
                    "the wall clocks, which both kernels take for synchronised, differ from that by {}",
                    show_ns(apart_ms * 1e6)
                )
            });
            match but.is_none() && word.error_ms <= load.error_ms {
                true => Ok(word),
                false => Ok(Aligned { but, ..load }),
            }
        }
        (None, Err(why)) => Err(format!(
            "the two machines' clocks cannot be put together: not both kernels take theirs for synchronised (NTP), and {}",
            not_found(why)
        )),
    }
}

/// Why the load did not tell.
fn not_found(why: NotFound) -> String {
    match why {
        NotFound::TooShort => {
            "the load is too short, or was not observed from before its begin to after its end"
                .to_owned()
        }
        NotFound::Weak(best) => {
            format!("the server's CPU does not follow the load's (correlation {best:.2} at best)")
        }
        NotFound::Ambiguous(ms) => format!(
            "the load is found in the server's CPU at several places, {} apart",
            show_ns(ms * 1e6)
        ),
    }
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
        assert!((by_wall_ms(&here, &there) - -4_900.0).abs() < 1e-3);
    }

    #[test]
    fn the_more_precise_counts_and_the_load_where_they_contradict() {
        let word = |error_ms| Aligned {
            method: Method::WallClocks,
            offset_ms: 1_000.0,
            error_ms,
            correlation: None,
            but: None,
        };
        let load = |offset_ms| Found {
            offset_ms,
            error_ms: 50.0,
            correlation: 0.9,
        };
        let chosen = choose(Some(word(20.0)), Ok(load(1_060.0))).unwrap();
        assert_eq!(chosen, word(20.0));
        let chosen = choose(Some(word(400.0)), Ok(load(1_060.0))).unwrap();
        assert_eq!((chosen.method, chosen.but), (Method::Load, None));
        let chosen = choose(Some(word(20.0)), Ok(load(3_000.0))).unwrap();
        assert_eq!((chosen.method, chosen.error_ms), (Method::Load, 50.5));
        assert!(chosen.but.unwrap().contains("by 2.00 s"));
        assert_eq!(choose(None, Ok(load(0.0))).unwrap().correlation, Some(0.9));
        let none = choose(Some(word(20.0)), Err(NotFound::TooShort)).unwrap();
        assert_eq!(none, word(20.0));
        for (why, said) in [
            (NotFound::TooShort, "too short"),
            (NotFound::Weak(0.314), "correlation 0.31 at best"),
            (NotFound::Ambiguous(12_000.0), "12.0 s apart"),
        ] {
            let error = choose(None, Err(why)).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
