//! Files as users have them, and files that are no schedule.

use std::fs;

use proptest::prelude::*;

use super::*;

/// What a file of this text comes to, `speed` times as fast.
fn of(text: &str, unit: Unit, speed: f64) -> Result<Recording, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("times.log");
    fs::write(&path, text).unwrap();
    let place = folder.path().display().to_string() + "/";
    read(&path, unit, speed).map_err(|error| error.to_string().replace(&place, ""))
}

fn seconds(text: &str) -> Result<Recording, String> {
    of(text, Unit::Seconds, 1.0)
}

#[test]
fn the_first_timestamp_is_the_start() {
    let recording = seconds("# time\n\n100.25\n100.5\r\n100.5\n101.25").unwrap();
    let replay = recording.replay;
    assert_eq!(
        replay.timetable.times(),
        [0, 250_000_000, 250_000_000, 1_000_000_000]
    );
    // Four arrivals in a second are a third of a second apart, and the window is four such distances long.
    assert!((replay.window_s - 4.0 / 3.0).abs() < 1e-12);
    assert_eq!(replay.peak_per_s, 3);
    assert_eq!(recording.remark, None);
    let bytes = replay.timetable.encode();
    assert_eq!(replay.timetable_bytes, bytes.len() as u64);
    assert_eq!(
        Timetable::decode(&bytes, &replay.timetable_checksum),
        Ok(replay.timetable)
    );
}

#[test]
fn faster_and_slower() {
    for (speed, last) in [(2.0, 500_000_000), (0.5, 2_000_000_000)] {
        let replay = of("5\n5.4\n6", Unit::Seconds, speed).unwrap().replay;
        assert_eq!(replay.timetable.times().last(), Some(&last), "{speed}");
    }
    let replay = of("5000\n6000", Unit::Milliseconds, 1.0).unwrap().replay;
    assert_eq!(replay.timetable.times(), [0, NS_PER_S]);
}

#[test]
fn requests_that_all_come_at_once_have_a_second() {
    for text in ["7", "7\n7\n7"] {
        assert_eq!(seconds(text).unwrap().replay.window_s, 1.0, "{text:?}");
    }
}

#[test]
fn an_access_log_with_whole_seconds_is_remarked_upon() {
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
fn what_is_wrong_is_named_with_its_place_and_mend() {
    for (text, begin, mend) in [
        ("", "times.log: holds no timestamp", "one a line"),
        (
            "# nothing\n\n",
            "times.log: holds no timestamp",
            "one a line",
        ),
        (
            "1\nabc\n",
            "times.log:2: \"abc\" is no timestamp",
            "1763741296.123",
        ),
        ("1\n\n-2\n", "times.log:3: \"-2\" is negative", "count from"),
        ("2\n1.5\n", "times.log:2: lies 500 ms before", "sort -n"),
        ("1e300", "times.log:1: \"1e300\" is no timestamp", "seconds"),
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
            "times.log:2: lies more than 31 days",
            "--replay-unit",
        ),
    ] {
        let said = seconds(text).unwrap_err();
        assert!(
            said.starts_with(begin) && said.contains(mend),
            "{text:?}: {said}"
        );
        assert_eq!(said.lines().count(), 1);
    }
    let endless = seconds(&"1".repeat(70_000)).unwrap_err();
    assert!(endless.starts_with("times.log:1: is longer"), "{endless}");
    let missing = read(Path::new("/no/such/file"), Unit::Seconds, 1.0).unwrap_err();
    assert!(missing.to_string().starts_with("/no/such/file: "));
    assert!(matches!(
        read(Path::new("/"), Unit::Seconds, 1.0),
        Err(ReplayError::Read { .. })
    ));
}

#[test]
fn the_bound_is_on_what_is_played() {
    let said = of("0\n2000000\n2000000", Unit::Seconds, 1e-6).unwrap_err();
    assert!(
        said.starts_with("times.log:2: lies more than 31 days") && said.contains("--replay-speed"),
        "{said}"
    );
    // Forty days in four.
    let replay = of("0\n3456000", Unit::Seconds, 10.0).unwrap().replay;
    assert_eq!(replay.timetable.times(), [0, 345_600 * NS_PER_S]);
}

proptest! {
    /// Whatever the file and the speed: a replay is refused in words, or is as long as its file at that speed.
    #[test]
    fn any_distances_at_any_speed(
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
        match of(&text, Unit::Nanoseconds, 10f64.powf(exponent)) {
            Err(said) => {
                prop_assert!(said.contains("lies more than 31 days"), "{}", said);
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
fn no_more_than_can_be_held() {
    let text = "1\n".repeat(MOST_ARRIVALS + 1);
    let said = seconds(&text).unwrap_err();
    assert!(
        said.contains(":10000001: is one more than the 10,000,000"),
        "{said}"
    );
}
