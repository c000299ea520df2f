//! Tests with typical valid files and with invalid files.

use std::fs;

use proptest::prelude::*;

use super::*;

/// Reads a file that contains `text`, for a replay at `speed` times the file's speed.
fn of(text: &str, unit: TimestampUnit, speed: f64) -> Result<Recording, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("times.log");
    fs::write(&path, text).unwrap();
    let place = directory.path().display().to_string() + "/";
    read(&path, unit, speed).map_err(|error| error.to_string().replace(&place, ""))
}

fn seconds(text: &str) -> Result<Recording, String> {
    of(text, TimestampUnit::Seconds, 1.0)
}

#[test]
fn starts_at_the_first_timestamp() {
    let recording = seconds("# time\n\n100.25\n100.5\r\n100.5\n101.25").unwrap();
    let replay = recording.replay;
    assert_eq!(
        replay.timetable.times(),
        [0, 250_000_000, 250_000_000, 1_000_000_000]
    );
    // The four arrivals are a third of a second apart on average. The window has four such gaps.
    assert!((replay.window_s - 4.0 / 3.0).abs() < 1e-12);
    assert_eq!(replay.peak_per_s, 3);
    assert_eq!(recording.remark, None);
    let bytes = replay.timetable.encode();
    assert_eq!(replay.timetable_bytes.0, bytes.len() as u64);
    assert_eq!(
        Timetable::decode(&bytes, &replay.timetable_checksum),
        Ok(replay.timetable)
    );
}

#[test]
fn scales_times_by_speed() {
    for (speed, last) in [(2.0, 500_000_000), (0.5, 2_000_000_000)] {
        let replay = of("5\n5.4\n6", TimestampUnit::Seconds, speed)
            .unwrap()
            .replay;
        assert_eq!(replay.timetable.times().last(), Some(&last), "{speed}");
    }
    let replay = of("5000\n6000", TimestampUnit::Milliseconds, 1.0)
        .unwrap()
        .replay;
    assert_eq!(replay.timetable.times(), [0, NS_PER_S]);
}

#[test]
fn simultaneous_requests_take_one_second() {
    for text in ["7", "7\n7\n7"] {
        assert_eq!(seconds(text).unwrap().replay.window_s, 1.0, "{text:?}");
    }
}

#[test]
fn warns_about_whole_second_timestamps() {
    let line = |second| {
        format!("::1 - - [21/Nov/2026:16:08:{second} +0000] \"GET / HTTP/1.1\" 200 2 \"-\" \"-\"\n")
    };
    let log = [line(16), line(16), line(17), line(19)].concat();
    let recording = seconds(&log).unwrap();
    assert_eq!(
        recording.replay.timetable.times(),
        [0, 0, NS_PER_S, 3 * NS_PER_S]
    );
    assert!(recording.remark.unwrap().contains("$msec"));
    assert_eq!(seconds("1\n2\n3").unwrap().remark, None);
}

#[test]
fn names_line_and_fix_of_each_error() {
    for (text, begin, fix) in [
        ("", "times.log: no timestamps", "one timestamp per line"),
        (
            "# nothing\n\n",
            "times.log: no timestamps",
            "one timestamp per line",
        ),
        (
            "1\nabc\n",
            "times.log:2: \"abc\" is not a timestamp",
            "1763741296.123",
        ),
        (
            "1\n\n-2\n",
            "times.log:3: \"-2\" is negative",
            "non-negative",
        ),
        (
            "2\n1.5\n",
            "times.log:2: the timestamp is 500 ms before",
            "sort -n",
        ),
        (
            "1e300",
            "times.log:1: \"1e300\" is not a timestamp",
            "seconds",
        ),
        (
            "1\n99999999999999999999\n",
            "times.log:2: \"99999999999999999999\" is too large",
            "--replay-unit",
        ),
        (
            "1763741296123\n1763744896123\n",
            "times.log:1: \"1763741296123\" is too large",
            "--replay-unit",
        ),
        (
            "0\n3600000\n",
            "times.log:2: the timestamp is more than 31 days",
            "--replay-unit",
        ),
    ] {
        let said = seconds(text).unwrap_err();
        assert!(
            said.starts_with(begin) && said.contains(fix),
            "{text:?}: {said}"
        );
        assert_eq!(said.lines().count(), 1);
    }
    let endless = seconds(&"1".repeat(70_000)).unwrap_err();
    assert!(
        endless.starts_with("times.log:1: the line is longer"),
        "{endless}"
    );
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.log");
    let error = read(&missing, TimestampUnit::Seconds, 1.0).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("{}: ", missing.display()))
    );
    assert!(matches!(
        read(directory.path(), TimestampUnit::Seconds, 1.0),
        Err(ReplayError::Read { .. })
    ));
}

#[test]
fn limits_the_duration_at_the_replay_speed() {
    let said = of("0\n2000000\n2000000", TimestampUnit::Seconds, 1e-6).unwrap_err();
    assert!(
        said.starts_with("times.log:2: the timestamp is more than 31 days")
            && said.contains("--replay-speed"),
        "{said}"
    );
    // Forty days are replayed in four days.
    let replay = of("0\n3456000", TimestampUnit::Seconds, 10.0)
        .unwrap()
        .replay;
    assert_eq!(replay.timetable.times(), [0, 345_600 * NS_PER_S]);
}

proptest! {
    /// A replay lasts as long as the file's time span divided by the speed. A replay that would be
    /// too long is refused.
    #[test]
    fn keeps_any_gaps_at_any_speed(
        first in any::<u64>(),
        distances in proptest::collection::vec((0u32..64).prop_flat_map(|bits| 0..=u64::MAX >> bits), 0..5),
        exponent in -6f64..=6.0,
    ) {
        let mut stamps = vec![first];
        for distance in distances {
            stamps.push(stamps[stamps.len() - 1].saturating_add(distance));
        }
        let length = (stamps[stamps.len() - 1] - first) as f64 / 10f64.powf(exponent);
        let text: String = stamps.iter().map(|stamp| format!("{stamp}\n")).collect();
        match of(&text, TimestampUnit::Nanoseconds, 10f64.powf(exponent)) {
            Err(said) => {
                prop_assert!(said.contains("the timestamp is more than 31 days"), "{}", said);
                prop_assert!(length > LONGEST_NS as f64);
            }
            Ok(recording) => {
                let replay = recording.replay;
                let times = replay.timetable.times();
                prop_assert!(length <= LONGEST_NS as f64);
                prop_assert!(times.is_sorted() && times[0] == 0);
                prop_assert!((times[times.len() - 1] as f64 - length).abs() <= 0.5);
                prop_assert!((1..=times.len() as u64).contains(&replay.peak_per_s));
                prop_assert!(replay.window_s >= times[times.len() - 1] as f64 / NS_PER_S as f64);
            }
        }
    }
}

#[test]
fn refuses_too_many_timestamps() {
    let text = "1\n".repeat(MAX_ARRIVALS + 1);
    let said = seconds(&text).unwrap_err();
    assert!(
        said.contains(":10000001: the file has more than 10,000,000 timestamps"),
        "{said}"
    );
}
