//! Adds the observations that `floodmark observe` made on the server's host to a run. The offset
//! between the clocks of the two hosts is computed from readings of these clocks.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use excerpt::{END_SLACK_MS, Excerpt, json_length};
use file::ObserverFile;
use floodmark_plan::FileError;
use floodmark_record::Observation;
use floodmark_record::watch::{
    AlignmentMethod, ClockAlignment, ClockReading, MeasuredOffset, Observed, RemoteObservation,
};

mod excerpt;
mod file;
pub mod series;

/// Timeout for the next line, which is due every second.
const LINE_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum length of a run's observed values in the record, in characters. This is 4 MiB in total,
/// minus the space for descriptions.
const VALUES_LIMIT: usize = 3_700_000;

/// The observer on the server's host, accessed through its output file.
#[derive(Debug)]
pub struct RemoteObserver(RefCell<ObserverFile>);

impl RemoteObserver {
    /// Opens the file of an observation in progress.
    ///
    /// # Errors
    /// The file is missing, does not grow, was not written by an observer, or describes another
    /// port.
    pub fn open(path: &Path, port: u16) -> Result<Self, FileError> {
        let mut file = ObserverFile::open(path)?;
        let observed = file.opened.port;
        if observed != port {
            let what = format!(
                "port {observed} is observed, but the load targets port {port}; run floodmark observe --port {port}"
            );
            return Err(FileError::on_line(path, 1, what));
        }
        let lines = file.lines;
        let grows = file.wait_for(LINE_TIMEOUT, |file| file.lines > lines)?;
        if let Some(why) = &file.ended {
            return Err(file.invalid(format!(
                "the observation has ended ({why}); restart floodmark observe"
            )));
        }
        if !grows {
            return Err(file.invalid(format!(
                "the file has not grown for {} s; check that floodmark observe is running and writes to this file",
                LINE_TIMEOUT.as_secs()
            )));
        }
        Ok(Self(RefCell::new(file)))
    }

    /// Adds remote observations to the local observations of an attempt that has just ended.
    /// Returns a one-line message per missing observation.
    pub fn add_to(&self, observed: &mut Observed) -> Vec<String> {
        let mut file = self.0.borrow_mut();
        let missing = add_to(&mut file, observed);
        file.drop_old();
        missing.unwrap_or_else(|error| vec![format!("server: {}: {error}", file.path().display())])
    }
}

fn add_to(file: &mut ObserverFile, observed: &mut Observed) -> Result<Vec<String>, String> {
    let clocks = observed.clocks.clone();
    let clocks = clocks.ok_or("the clock readings of this host are missing")?;
    let end_ms = observed.watcher.map_or(0.0, |watcher| watcher.wall_s * 1e3);
    let mut missing: Vec<String> = Vec::new();
    let read = file.wait_for(LINE_TIMEOUT, |file| {
        let Some(last) = file.seconds.back() else {
            return false;
        };
        let covers_end = |offset_ms| last.to_ms as f64 + offset_ms >= end_ms;
        align(&clocks, &last.clocks, file.offset)
            .map_or(true, |alignment| covers_end(alignment.offset_ms))
    });
    if let Err(error) = read {
        missing.push(format!("server: {error}"));
    }
    let aligned = align(&clocks, file.clocks(), file.offset)?;
    let excerpt = Excerpt::new(file, &aligned, observed.measured_from_ms, end_ms)?;
    let length = |o: &Observation| o.values.iter().map(json_length).sum::<usize>();
    let taken = observed.observations.iter().map(length).sum::<usize>();
    let room = VALUES_LIMIT.saturating_sub(taken);
    observed.observations.extend(excerpt.observations(room));
    observed.server = excerpt.server();
    if excerpt.to_ms + END_SLACK_MS < end_ms {
        missing.push(format!(
            "server: {}: only the first {:.1} s of {:.1} s were observed",
            file.path().display(),
            excerpt.to_ms / 1e3,
            end_ms / 1e3
        ));
    } else if observed.server.is_none() {
        let path = file.path().display();
        missing.push(format!(
            "server: {path}: no sample of the server during the load; run longer"
        ));
    }
    missing.extend(
        file.missing
            .iter()
            .map(|line| format!("server host: {line}")),
    );
    observed.remote = Some(RemoteObservation {
        environment: file.opened.environment.clone(),
        from_ms: excerpt.from_ms as u64,
        to_ms: excerpt.to_ms as u64,
        watcher_cpu_s: excerpt.watcher_cpu_s(),
        aligned,
    });
    Ok(missing)
}

#[cfg(test)]
mod tests;

/// Maximum rounding error of a series' start, which is rounded to milliseconds.
const ROUNDING_MS: f64 = 0.5;

/// Maximum difference, in ns, between the offsets (wall clock minus monotonic clock) in two
/// readings from the same host. If the difference is larger, one of the clocks is in a time
/// namespace, or the hosts are copies of one virtual machine image.
const SAME_HOST_NS: u128 = 100_000_000;

/// Returns the offset between the clocks of the series. A `remote` time plus the offset is a
/// `local` time.
///
/// `measured` is the offset between the hosts' monotonic clocks, if it was measured.
///
/// # Errors
/// The clocks belong to different hosts, their offset was not measured, and at least one of these
/// clocks is not synchronized.
fn align(
    local: &ClockReading,
    remote: &ClockReading,
    measured: Option<MeasuredOffset>,
) -> Result<ClockAlignment, String> {
    let alignment = |method, start_ms: fn(&ClockReading) -> f64, error_ms| ClockAlignment {
        method,
        offset_ms: start_ms(remote) - start_ms(local),
        error_ms: error_ms + ROUNDING_MS,
        correlation: None,
        but: None,
    };
    if is_same_host(local, remote) {
        let start_ms = |clock: &ClockReading| start_ms(clock, clock.monotonic_ns);
        return Ok(alignment(AlignmentMethod::SameClock, start_ms, 0.0));
    }
    if let Some(measured) = measured {
        let remote_ms = start_ms(remote, remote.monotonic_ns) - measured.offset_ns as f64 / 1e6;
        return Ok(ClockAlignment {
            method: AlignmentMethod::Pings,
            offset_ms: remote_ms - start_ms(local, local.monotonic_ns),
            error_ms: measured.bound_ns as f64 / 1e6 + ROUNDING_MS,
            correlation: None,
            but: None,
        });
    }
    let error_us = error_us(local, "this host")? + error_us(remote, "the server's host")?;
    let start_ms = |clock: &ClockReading| start_ms(clock, clock.unix_ns);
    let error_ms = error_us as f64 / 1e3;
    Ok(alignment(AlignmentMethod::WallClocks, start_ms, error_ms))
}

/// Returns the maximum error of a wall clock, in microseconds.
fn error_us(clock: &ClockReading, host: &str) -> Result<u64, String> {
    let known = clock.max_error_us.filter(|_| clock.synchronised);
    known.ok_or_else(|| {
        format!(
            "the clock of {host} is not synchronized (NTP), so the observation cannot be matched to the run; \
             synchronize it"
        )
    })
}

/// Returns when the series of `clock` began, in ms. `ns` is the reading of the monotonic clock or
/// of the wall clock in `clock`, and the result is a time on that clock.
fn start_ms(clock: &ClockReading, ns: u64) -> f64 {
    // Nanoseconds since 1970 need 61 bits and an `f64` has 53, so the result is exact to 256 ns.
    ns as f64 / 1e6 - clock.at_ms
}

fn is_same_host(local: &ClockReading, remote: &ClockReading) -> bool {
    let wall_offset = |c: &ClockReading| i128::from(c.unix_ns) - i128::from(c.monotonic_ns);
    local.boot_id.is_some()
        && local.boot_id == remote.boot_id
        && (wall_offset(local) - wall_offset(remote)).unsigned_abs() < SAME_HOST_NS
}

#[cfg(test)]
mod alignment_tests {
    use super::*;

    fn clock(at_ms: f64, monotonic_ms: u64, unix_ms: u64) -> ClockReading {
        ClockReading {
            at_ms,
            boot_id: Some("a".to_owned()),
            monotonic_ns: monotonic_ms * 1_000_000,
            unix_ns: unix_ms * 1_000_000,
            synchronised: true,
            max_error_us: Some(1_000),
        }
    }

    const UNIX_MS: u64 = 1_700_000_000_000;

    #[test]
    fn uses_the_monotonic_clock_on_one_host() {
        // On the monotonic clock, the series start at 100 ms (remote) and 5,000 ms (local).
        let local = clock(1_000.0, 6_000, UNIX_MS + 6_000);
        let remote = clock(6_100.0, 6_200, UNIX_MS + 6_200);
        let alignment = align(&local, &remote, None).unwrap();
        assert_eq!(alignment.method, AlignmentMethod::SameClock);
        assert!(
            (alignment.offset_ms - -4_900.0).abs() < 1e-6,
            "{alignment:?}"
        );
        assert_eq!(alignment.error_ms, ROUNDING_MS);
    }

    #[test]
    fn uses_synchronized_wall_clocks_on_two_hosts() {
        let local = clock(1_000.0, 6_000, UNIX_MS);
        let mut remote = clock(6_100.0, 900_000, UNIX_MS + 200);
        // If the boot IDs are equal, only the monotonic times show that the clocks differ.
        for boot_id in [None, Some("b".to_owned()), Some("a".to_owned())] {
            remote.boot_id = boot_id;
            let alignment = align(&local, &remote, None).unwrap();
            assert_eq!(alignment.method, AlignmentMethod::WallClocks);
            assert!(
                (alignment.offset_ms - -4_900.0).abs() < 1e-3,
                "{alignment:?}"
            );
            assert!((alignment.error_ms - 2.5).abs() < 1e-9, "{alignment:?}");
        }
    }

    #[test]
    fn uses_a_measured_offset_between_unsynchronized_clocks() {
        let local = clock(1_000.0, 6_000, UNIX_MS);
        let remote = ClockReading {
            boot_id: None,
            synchronised: false,
            ..clock(6_100.0, 900_200, UNIX_MS + 77_000)
        };
        let measured = MeasuredOffset {
            offset_ns: 894_000_000_000,
            bound_ns: 40_000,
        };
        // On the local clock, the remote series starts at 100 ms and the local one at 5,000 ms.
        let alignment = align(&local, &remote, Some(measured)).unwrap();
        assert_eq!(alignment.method, AlignmentMethod::Pings);
        assert!(
            (alignment.offset_ms - -4_900.0).abs() < 1e-6,
            "{alignment:?}"
        );
        assert!((alignment.error_ms - 0.54).abs() < 1e-9, "{alignment:?}");
    }

    #[test]
    fn refuses_an_unsynchronized_clock() {
        let good = clock(0.0, 0, UNIX_MS);
        let foreign = |synchronised, max_error_us| ClockReading {
            boot_id: None,
            synchronised,
            max_error_us,
            ..clock(0.0, 0, UNIX_MS)
        };
        for bad in [foreign(false, Some(1)), foreign(true, None)] {
            let error = align(&good, &bad, None).unwrap_err();
            assert!(error.contains("the server's host"), "{error}");
            let error = align(&bad, &good, None).unwrap_err();
            assert!(error.contains("this host"), "{error}");
        }
    }
}
