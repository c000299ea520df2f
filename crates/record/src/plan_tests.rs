//! Tests that read and write the load model of a plan.

use super::*;
use crate::plan::{ConnectionUse, Plan, Target};
use crate::units::Bytes;

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
    let closed = [Length::seconds(1.5), Length::Requests(7)];
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
        ("closed", Some(1.0), Some(1)),
        ("closed", None, None),
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
