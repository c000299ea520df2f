//! Tests of the load model, the addresses and the timetable of a plan.

use super::*;
use crate::plan::{ConnectionUse, Plan, Target};
use crate::units::Bytes;
use proptest::prelude::*;

fn plan(model: Model) -> Plan {
    Plan {
        model,
        ..Plan::of(Target::from(std::net::SocketAddr::from((
            [127, 0, 0, 1],
            80,
        ))))
    }
}

fn schedules() -> Vec<Schedule> {
    let (rate, spacing) = (Rate::new(1000.0).unwrap(), Spacing::Poisson);
    let step = |rate_per_s, duration_s| RateStep {
        rate_per_s,
        duration_s,
    };
    vec![
        Schedule::Constant {
            rate,
            spacing,
            length: Length::Requests(7),
        },
        Schedule::Ramp {
            ramp: Ramp {
                from_per_s: 0.0,
                to_per_s: 1000.0,
                duration_s: 10.0,
            },
            spacing,
        },
        Schedule::Steps {
            steps: vec![step(100.0, 1.0), step(0.0, 2.0), step(10.0, 1.0)],
            spacing: Spacing::Constant,
        },
        Schedule::Burst { requests: 9, rate },
        Schedule::Replay {
            replay: Replay {
                file: "times".to_owned(),
                speed: 1.0,
                peak_per_s: 3,
                window_s: 3.5,
                timetable_bytes: Bytes(0),
                timetable_checksum: String::new(),
                timetable: crate::Timetable::default(),
            },
            requests: 7,
        },
    ]
}

#[test]
fn plans_round_trip_through_json() {
    let open = |schedule| Model::Open {
        schedule,
        hold: true,
    };
    let closed = [
        Length::seconds(1.5),
        Length::Requests(7),
        Length::Earlier {
            duration: Duration::from_secs(2),
            requests: 7,
        },
    ];
    let closed = closed.map(|length| Model::Closed { length });
    for model in schedules().into_iter().map(open).chain(closed) {
        let plan = Plan {
            connection_use: ConnectionUse::PerConnection(3),
            ..plan(model)
        };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }
}

#[test]
fn streams_multiply_the_requests_in_flight() {
    let on_20 = |http| Plan {
        http,
        connections: 20,
        ..plan(Model::closed(10.0))
    };
    let settings = Http2 {
        streams: 10,
        ..Http2::default()
    };
    let [one, ten] = [Http::V1, Http::V2(settings)].map(on_20);
    assert_eq!((one.max_in_flight(), ten.max_in_flight()), (20, 200));
    assert_eq!([50, 51, 1000].map(|n| ten.connections_for(n)), [5, 6, 20]);
    assert_eq!([5, 50].map(|n| one.connections_for(n)), [5, 20]);
}

#[test]
fn reads_a_null_limit_of_kept_connections() {
    let mut json = serde_json::to_value(plan(Model::closed(10.0))).unwrap();
    assert_eq!(json["connection_use"], "kept");
    json["requests_per_connection"] = serde_json::Value::Null;
    let read: Plan = serde_json::from_value(json).unwrap();
    assert_eq!(read.connection_use, ConnectionUse::Kept);
}

#[test]
fn refuses_contradictory_plans() {
    let json = serde_json::to_value(plan(Model::closed(10.0))).unwrap();
    for (model, duration_s, requests) in [
        ("closed", None, None::<u64>),
        ("closed", Some(-1.0), None),
        ("open", Some(1.0), None),
    ] {
        let mut json = json.clone();
        json["model"] = serde_json::json!(model);
        json["duration_s"] = serde_json::json!(duration_s);
        json["requests"] = serde_json::json!(requests);
        assert!(serde_json::from_value::<Plan>(json).is_err());
    }
}

#[test]
fn integrates_the_rate() {
    let [_, ramp, steps, ..] = &schedules()[..] else {
        unreachable!()
    };
    assert_eq!(ramp.expected_by(5.0), Some(1250.0));
    assert_eq!(ramp.expected_by(10.0), Some(5000.0));
    assert_eq!(ramp.expected_by(99.0), Some(5000.0));
    assert_eq!(ramp.expected_by(-1.0), Some(0.0));
    assert_eq!(steps.expected_by(2.0), Some(100.0));
    assert_eq!(steps.expected_by(4.0), Some(110.0));
    assert_eq!((steps.peak_per_s(), steps.window_s()), (100.0, 4.0));
    assert_eq!(steps.first_per_s(), Some(100.0));
}

#[test]
fn parses_and_formats_addresses() {
    for text in [
        "127.0.0.1:80",
        "[::1]:8080",
        "unix:/run/a b.sock",
        "unix:here",
    ] {
        let address = Address::try_from(text.to_owned()).unwrap();
        assert_eq!(address.to_string(), text);
        let json = serde_json::to_string(&address).unwrap();
        assert_eq!(json, format!("{text:?}"));
        assert_eq!(serde_json::from_str::<Address>(&json).unwrap(), address);
        assert_eq!(text.starts_with("unix:"), address.ip().is_none());
    }
    for text in ["", "unix:", "127.0.0.1", "::1:80:x", "localhost:80"] {
        let error = Address::try_from(text.to_owned()).unwrap_err();
        assert!(error.contains("unix:/path"), "{error}");
    }
}

#[test]
fn reads_a_target_of_an_older_record() {
    let json = r#"{"url": "http://127.0.0.1:80/", "address": "127.0.0.1:80", "resolve_us": null,
        "authority": "127.0.0.1:80", "path": "/"}"#;
    let target: Target = serde_json::from_str(json).unwrap();
    assert_eq!(target.show_addresses(), "127.0.0.1:80");
    assert!(!serde_json::to_string(&target).unwrap().contains("further"));
}

#[test]
fn shows_only_the_first_of_many_addresses() {
    let mut target = Target::from(SocketAddr::from(([10, 0, 0, 1], 80)));
    target.further_addresses = (2..=4)
        .map(|i| SocketAddr::from(([10, 0, 0, i], 80)))
        .collect();
    assert!(target.show_addresses().ends_with(", 10.0.0.4:80"));
    target
        .further_addresses
        .push(SocketAddr::from(([10, 0, 0, 5], 80)));
    assert!(target.show_addresses().ends_with("10.0.0.4:80 and 1 more"));
    assert_eq!(
        (target.addresses().count(), target.ip_addresses().count()),
        (5, 5)
    );
    target.further_addresses.clear();
    target.address = Address::Unix("/s".into());
    assert_eq!(
        (target.addresses().count(), target.ip_addresses().count()),
        (1, 0)
    );
}

fn steps(rates: &[(f64, f64)]) -> Vec<RateStep> {
    rates
        .iter()
        .map(|(rate_per_s, duration_s)| RateStep {
            rate_per_s: *rate_per_s,
            duration_s: *duration_s,
        })
        .collect()
}

#[test]
fn a_step_includes_its_begin_but_not_its_end() {
    let steps = steps(&[(1.0, 1.0), (2.0, 0.5), (3.0, 1.0)]);
    let at = [0.0, 0.99, 1.0, 1.49, 1.5, 2.5, 9.0].map(|s| step_at(&steps, s));
    assert_eq!(at, [0, 0, 1, 1, 2, 2, 2]);
}

#[test]
fn computes_fnv_1a() {
    assert_eq!(checksum(b""), "cbf29ce484222325");
    assert_eq!(checksum(b"foobar"), "85944171f73967e8");
}

#[test]
fn refuses_other_bytes() {
    let bytes = Timetable::new(vec![0, 5, 1_000_000]).encode();
    let sum = checksum(&bytes);
    assert!(Timetable::decode(&bytes, &sum).is_ok());
    assert_eq!(Timetable::decode(&bytes[1..], &sum), Err(TimetableError));
    let endless = [0xff; 11];
    for bad in [&endless[..], &[0x80], &[0xff; 10]] {
        assert_eq!(
            Timetable::decode(bad, &checksum(bad)),
            Err(TimetableError),
            "{bad:?}"
        );
    }
    let mut overflowing = Timetable::new(vec![u64::MAX]).encode();
    overflowing.push(1);
    let sum = checksum(&overflowing);
    assert_eq!(Timetable::decode(&overflowing, &sum), Err(TimetableError));
}

#[test]
fn a_changed_rate_is_a_sequence_of_steps() {
    let mut schedule = Schedule::Constant {
        rate: Rate::new(1000.0).unwrap(),
        spacing: Spacing::Poisson,
        length: Length::seconds(10.5),
    };
    let constant = schedule.clone();
    let mut change = |from_s, rate_per_s| {
        schedule.change_rate(RateChange { from_s, rate_per_s });
        schedule.clone()
    };
    let steps = |parts: &[(f64, f64)]| {
        let step = |(rate_per_s, duration_s): &(f64, f64)| RateStep {
            rate_per_s: *rate_per_s,
            duration_s: *duration_s,
        };
        Schedule::Steps {
            steps: parts.iter().map(step).collect(),
            spacing: Spacing::Poisson,
        }
    };
    let first = [(1000.0, 3.0), (1100.0, 7.5)];
    assert_eq!(change(3.0, 1100.0), steps(&first));
    // Taken back before it applies.
    assert_eq!(change(3.0, 1000.0), constant);
    assert_eq!(change(3.0, 1100.0), steps(&first));
    assert_eq!(change(3.0, 900.0), steps(&[(1000.0, 3.0), (900.0, 7.5)]));
    let third = [(1000.0, 3.0), (900.0, 5.0), (990.0, 2.5)];
    assert_eq!(change(8.0, 990.0), steps(&third));
    assert_eq!(change(10.5, 5.0), steps(&third));
}

#[test]
fn some_rates_cannot_be_changed_while_the_load_runs() {
    let adjustable = |schedule, connection_use| {
        let hold = false;
        let mut plan = plan(Model::Open { schedule, hold });
        plan.connection_use = connection_use;
        plan.adjustable_rate().is_some()
    };
    for schedule in schedules() {
        assert!(!adjustable(schedule, ConnectionUse::Kept));
    }
    let constant = || Schedule::Constant {
        rate: Rate::new(10.0).unwrap(),
        spacing: Spacing::Constant,
        length: Length::seconds(1.0),
    };
    assert!(adjustable(constant(), ConnectionUse::Kept));
    assert!(!adjustable(constant(), ConnectionUse::Fresh));
}

proptest! {
    #[test]
    fn decodes_what_it_encoded(mut times in proptest::collection::vec(any::<u64>(), 0..200)) {
        times.sort_unstable();
        let timetable = Timetable::new(times);
        let bytes = timetable.encode();
        prop_assert_eq!(Timetable::decode(&bytes, &checksum(&bytes)), Ok(timetable));
    }

    #[test]
    fn never_panics_on_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = Timetable::decode(&bytes, &checksum(&bytes));
    }
}

#[test]
fn reads_expectations() {
    let at = |text: &str| JsonPointer::try_from(text.to_owned()).unwrap();
    let json_at = |place, value| Expect::JsonAt {
        at: at(place),
        value,
    };
    let pattern = BodyPattern::try_from("^a.b$".to_owned()).unwrap();
    for (text, expected) in [
        ("status=204", Expect::Status(204)),
        ("grpc-status=0", Expect::GrpcStatus(GrpcStatus::Ok)),
        (
            "grpc-status=NOT_FOUND",
            Expect::GrpcStatus(GrpcStatus::NotFound),
        ),
        ("body=json:$.a=1", Expect::Body("json:$.a=1".to_owned())),
        ("json={\"a\":1}", Expect::Json(serde_json::json!({"a": 1}))),
        ("json:$.a[0]=5", json_at("/a/0", 5.into())),
        ("json:$.a=\"5\"", json_at("/a", "5".into())),
        ("json:$.a=", json_at("/a", "".into())),
        ("json:$.a=to be=or", json_at("/a", "to be=or".into())),
        ("json:$=null", json_at("", serde_json::Value::Null)),
        ("json:$.errors=absent", Expect::JsonAbsent(at("/errors"))),
        ("contains:a=b: c", Expect::Contains("a=b: c".to_owned())),
        ("regex:^a.b$", Expect::Regex(pattern)),
    ] {
        assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
        let json = serde_json::to_string(&expected).unwrap();
        assert_eq!(serde_json::from_str::<Expect>(&json).unwrap(), expected);
    }
    for (text, words) in [
        ("stat=200", "unknown expectation \"stat\""),
        ("grpc-status=17", "a number from 0 to 16, or a name"),
        ("grpc-status=not_found", "a number from 0 to 16, or a name"),
        ("json:$.a", "no \"=\""),
        ("json:a=1", "write $.name"),
        ("json:$.a[*]=1", "write $.name"),
        ("contains:", "matches every body"),
        ("regex:", "matches every body"),
        (
            "regex:a(b",
            "unclosed group; correct it, or write contains:TEXT",
        ),
    ] {
        let error = text.parse::<Expect>().unwrap_err();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
}
