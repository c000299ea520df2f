//! Plans for this crate's tests.

use std::net::SocketAddr;
use std::time::Duration;

use floodmark_record::api_check::{ApiCheck, ApiCheckKind};
use floodmark_record::body::RequestBody;
use floodmark_record::feed::{Feed, FeedColumn, RowChoice};
use floodmark_record::plan::{
    Arrivals, Check, FiguresOf, Length, Mix, MixRequest, Model, Plan, Ramp, RateStep, Replay,
    Schedule, Spacing, Timetable, checksum,
};
use floodmark_record::pointer::JsonPointer;
use floodmark_record::units::{Bytes, Rate};

/// Returns a closed-model plan that sends `requests` requests on kept connections to `127.0.0.1:1`.
pub fn closed_plan(connections: u32, requests: u64) -> Plan {
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    Plan {
        connections,
        model: Model::Closed {
            length: Length::Requests(requests),
        },
        figures_of: FiguresOf::Whole,
        ..Plan::of(address.into())
    }
}

/// Returns the length of a window limited by a duration in seconds, a number of requests, or both.
pub fn length(duration_s: Option<f64>, requests: Option<u64>) -> Length {
    match (duration_s.map(Duration::from_secs_f64), requests) {
        (Some(duration), Some(requests)) => Length::Earlier { duration, requests },
        (Some(duration), None) => Length::Duration(duration),
        (None, requests) => Length::Requests(requests.unwrap_or(0)),
    }
}

/// Returns an open-model plan with a schedule.
fn scheduled(schedule: Schedule) -> Plan {
    Plan {
        model: Model::Open {
            schedule,
            hold: false,
        },
        connections: 1000,
        ..closed_plan(1, 0)
    }
}

/// Returns an open-model plan that holds all connections.
pub fn held_plan(mut plan: Plan) -> Plan {
    if let Model::Open { hold, .. } = &mut plan.model {
        *hold = true;
    }
    plan
}

/// Returns an open-model plan with a constant rate or a burst.
pub fn open_plan(
    arrivals: Arrivals,
    rate: f64,
    duration_s: Option<f64>,
    requests: Option<u64>,
) -> Plan {
    let rate = Rate::new(rate).unwrap();
    scheduled(match arrivals {
        Arrivals::Burst => Schedule::Burst {
            requests: requests.unwrap_or(0),
            rate,
        },
        _ => Schedule::Constant {
            rate,
            spacing: match arrivals {
                Arrivals::Poisson => Spacing::Poisson,
                _ => Spacing::Constant,
            },
            length: length(duration_s, requests),
        },
    })
}

/// Returns a plan whose rate changes linearly.
pub fn ramp_plan(from_per_s: f64, to_per_s: f64, duration_s: f64) -> Plan {
    scheduled(Schedule::Ramp {
        ramp: Ramp {
            from_per_s,
            to_per_s,
            duration_s,
        },
        spacing: Spacing::Constant,
    })
}

/// Returns a plan with steps. Each step consists of a rate per second and a duration in seconds.
pub fn steps_plan(steps: &[(f64, f64)]) -> Plan {
    let step = |(rate_per_s, duration_s): &(f64, f64)| RateStep {
        rate_per_s: *rate_per_s,
        duration_s: *duration_s,
    };
    scheduled(Schedule::Steps {
        steps: steps.iter().map(step).collect(),
        spacing: Spacing::Constant,
    })
}

/// Returns a plan with arrivals at `times` (in ns) within a window of `window_s` seconds.
pub fn replay_plan(times: Vec<u64>, window_s: f64) -> Plan {
    let requests = times.len() as u64;
    let timetable = Timetable::new(times);
    let bytes = timetable.encode();
    let replay = Replay {
        file: "times".to_owned(),
        speed: 1.0,
        peak_per_s: requests,
        window_s,
        timetable_bytes: Bytes(bytes.len() as u64),
        timetable_checksum: checksum(&bytes),
        timetable,
    };
    scheduled(Schedule::Replay { replay, requests })
}

/// Returns the plan with a check of a register. The first request of the mix writes, and the second
/// reads.
pub fn checked(plan: Plan, keys: u64) -> Plan {
    let api = ApiCheck {
        kind: ApiCheckKind::Register,
        keys,
        write_value: None,
        read_value: Some(JsonPointer::default()),
        readback: None,
        value_places: Vec::new(),
    };
    Plan {
        check: Some(Check::Api(Box::new(api))),
        ..plan
    }
}

/// Returns the plan with a mix of GET requests that have the given weights.
pub fn with_mix(plan: Plan, weights: &[u32]) -> Plan {
    let requests = weights.iter().enumerate().map(|(i, weight)| MixRequest {
        name: format!("request-{i}"),
        weight: *weight,
        path: format!("/{i}"),
        request: plan.request.clone(),
        expect: Vec::new(),
        templates: true,
    });
    let mix = Mix {
        file: "mix.toml".to_owned(),
        requests: requests.collect(),
        feeds: Vec::new(),
    };
    Plan {
        mix: Some(mix),
        ..plan
    }
}

/// Returns a feed with two columns, whose values are not percent-encoded.
pub fn feed(take: RowChoice, names: [&str; 2], rows: &[[&str; 2]]) -> Feed {
    let values = rows.iter().flatten().flat_map(|value| {
        let length = (value.len() as u32).to_le_bytes();
        length.into_iter().chain(value.bytes())
    });
    let column = |name: &str| FeedColumn {
        name: name.to_owned(),
        is_encoded: false,
    };
    Feed {
        file: "feed.csv".to_owned(),
        take,
        rows: rows.len() as u64,
        columns: names.map(column).into(),
        values: RequestBody::unrecorded(values.collect()),
    }
}
