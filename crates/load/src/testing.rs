//! Plans for this crate's tests.

use std::net::SocketAddr;

use floodmark_record::mix::{Mix, MixRequest};
use floodmark_record::plan::{Arrivals, FiguresOf, Model, Plan};
use floodmark_record::profile::{Profile, Ramp, Replay, Step};
use floodmark_record::timetable::{Timetable, checksum};

/// A closed-model plan of `requests` on kept connections to `127.0.0.1:1`.
pub fn closed_plan(connections: u32, requests: u64) -> Plan {
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    Plan {
        connections,
        duration_s: None,
        requests: Some(requests),
        figures_of: FiguresOf::Whole,
        ..Plan::of(address.into())
    }
}

/// An open-model plan.
pub fn open_plan(
    arrivals: Arrivals,
    rate: f64,
    duration_s: Option<f64>,
    requests: Option<u64>,
) -> Plan {
    Plan {
        model: Model::Open,
        rate_per_s: Some(rate),
        arrivals: Some(arrivals),
        connections: 1000,
        duration_s,
        requests,
        ..closed_plan(1, 0)
    }
}

/// An open-model plan whose rate changes, with the mean rate that belongs to it.
fn profile_plan(profile: Profile) -> Plan {
    let window_s = profile.window_s();
    let mean = profile.expected_by(window_s).unwrap_or(0.0) / window_s;
    Plan {
        profile: Some(profile),
        ..open_plan(Arrivals::Constant, mean, Some(window_s), None)
    }
}

/// A rate that changes in a straight line.
pub fn ramp_plan(from_per_s: f64, to_per_s: f64, duration_s: f64) -> Plan {
    profile_plan(Profile::Ramp(Ramp {
        from_per_s,
        to_per_s,
        duration_s,
    }))
}

/// Rates per second, each for a time in seconds.
pub fn steps_plan(steps: &[(f64, f64)]) -> Plan {
    let step = |(rate_per_s, duration_s): &(f64, f64)| Step {
        rate_per_s: *rate_per_s,
        duration_s: *duration_s,
    };
    profile_plan(Profile::Steps(steps.iter().map(step).collect()))
}

/// Arrivals at given times, ns, in a window of given length.
pub fn replay_plan(times: Vec<u64>, window_s: f64) -> Plan {
    let n = times.len() as u64;
    let timetable = Timetable::new(times);
    let bytes = timetable.encode();
    Plan {
        profile: Some(Profile::Replay(Replay {
            file: "times".to_owned(),
            speed: 1.0,
            peak_per_s: n,
            window_s,
            timetable_bytes: bytes.len() as u64,
            timetable_checksum: checksum(&bytes),
            timetable,
        })),
        ..open_plan(Arrivals::Replay, n as f64 / window_s, None, Some(n))
    }
}

/// The plan with a mix of GET requests with these weights.
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
    };
    Plan {
        mix: Some(mix),
        ..plan
    }
}
