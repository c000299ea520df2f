//! Chooses the number of connections of an open-model load for which the user gave none.

use std::time::Duration;

use floodmark_plan::Planned;
use floodmark_record::plan::{
    DEFAULT_CONNECTIONS, FiguresOf, Length, Model, Plan, Schedule, Spacing,
};
use floodmark_record::run::Run;
use floodmark_record::units::Rate;

use crate::attempt::{Attempts, send_unrecorded};

/// Duration of the short load that measures the service time.
const LENGTH: Duration = Duration::from_millis(500);

/// Minimum rate of the short load, as a share of the highest rate. The start of a ramp can send too
/// few requests to measure the service time.
const MIN_RATE_SHARE: f64 = 0.1;

/// Returns the plan with the number of connections to use. First sends a short load to measure the
/// service time, unless the plan, agents or an external client rule this out.
/// `first_number` is the next unused request number.
pub(crate) fn sized_plan(attempts: &Attempts<'_>, first_number: &mut u64) -> Plan {
    let Planned {
        plan,
        sizes_connections,
        max_connections,
        ..
    } = attempts.planned;
    let is_own = attempts.client.is_none() && attempts.agents.is_none();
    let short = short_load(plan).filter(|_| *sizes_connections && is_own);
    let send = |short| {
        let load = (attempts.run.clone(), short);
        let credentials = &attempts.planned.credentials;
        // If this fails, the measurement fails for the same reason and reports it.
        send_unrecorded(
            load,
            credentials,
            attempts.side,
            first_number,
            attempts.stop,
        )
        .ok()
    };
    let sent = short.and_then(send);
    let connections = sent.and_then(|run| needed(&run, plan, *max_connections));
    Plan {
        connections: connections.unwrap_or(plan.connections),
        ..plan.clone()
    }
}

/// Converts a plan into a short load at its initial rate or at [`MIN_RATE_SHARE`] of its highest
/// rate, whichever is higher. Returns `None` in the closed model, or if the initial rate is
/// unknown.
fn short_load(plan: &Plan) -> Option<Plan> {
    let schedule = plan.schedule()?;
    let least_per_s = MIN_RATE_SHARE * schedule.peak_per_s();
    let rate = Rate::new(schedule.first_per_s()?.max(least_per_s))?;
    let schedule = Schedule::Constant {
        rate,
        spacing: Spacing::Constant,
        length: Length::Duration(LENGTH),
    };
    Some(Plan {
        model: Model::Open {
            schedule,
            hold: false,
        },
        connections: plan.connections_for(DEFAULT_CONNECTIONS),
        warmup: Duration::ZERO,
        figures_of: FiguresOf::Whole,
        drain: true,
        ..plan.clone()
    })
}

/// Returns the number of connections for `plan`, at most `max_connections`. The number allows for
/// the default number of requests in flight at the mean service time of `run`. If a request of
/// `run` timed out, the timeout replaces the mean. Returns `None` if `run` measured no service
/// time.
fn needed(run: &Run, plan: &Plan, max_connections: u32) -> Option<u32> {
    let service_s = match run.requests.timed_out {
        0 => run.service_time_us.mean? / 1e6,
        _ => plan.timeout.as_secs_f64(),
    };
    let allowed = run.max_streams().unwrap_or(u32::MAX);
    let streams = plan.http.streams().min(allowed);
    let connections = plan.default_in_flight(service_s).div_ceil(streams);
    // Each load thread needs a connection.
    Some(connections.max(plan.threads).min(max_connections))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;

    use crate::fold::JoinedRun;
    use floodmark_record::events::RunId;
    use floodmark_record::plan::{Http, Http2, Ramp};
    use floodmark_record::times::Times;

    use super::*;

    #[test]
    fn uses_twice_the_requests_in_flight_at_the_highest_rate() {
        let schedule = |from_per_s, to_per_s| Schedule::Ramp {
            ramp: Ramp {
                from_per_s,
                to_per_s,
                duration_s: 1.0,
            },
            spacing: Spacing::Constant,
        };
        let address: SocketAddr = ([127, 0, 0, 1], 80).into();
        let plan = Plan {
            model: Model::Open {
                schedule: schedule(100.0, 1000.0),
                hold: false,
            },
            connections: 500,
            ..Plan::of(address.into())
        };
        let short = short_load(&plan).unwrap();
        assert_eq!((short.rate_per_s(), short.connections), (Some(100.0), 50));
        let needed_with = |plan: &Plan, mean: Option<f64>, timed_out| {
            let id = RunId {
                system: "server".to_owned(),
                workload: "GET /".to_owned(),
                trial: None,
                setting: BTreeMap::new(),
                process: 1,
                attempt: 1,
            };
            let mut run = JoinedRun::new(id, short.clone()).finish();
            run.service_time_us = Times {
                mean,
                ..Times::default()
            };
            run.requests.timed_out = timed_out;
            needed(&run, plan, 20_000)
        };
        let with_mean = |mean, timed_out| needed_with(&plan, mean, timed_out);
        assert_eq!(with_mean(Some(100_000.0), 0), Some(200));
        assert_eq!(with_mean(Some(1_000.0), 0), Some(50));
        assert_eq!(with_mean(None, 0), None);
        assert_eq!(
            with_mean(Some(1_000.0), 1),
            Some(10_000),
            "the timeout is 5 s"
        );
        assert_eq!(with_mean(Some(60e6), 0), Some(20_000));
        let streams = 30;
        let multiplexed = Plan {
            http: Http::V2(Http2 {
                streams,
                ..Http2::default()
            }),
            ..plan.clone()
        };
        assert_eq!(short_load(&multiplexed).unwrap().connections, 2);
        assert_eq!(needed_with(&multiplexed, Some(100_000.0), 0), Some(7));
        assert_eq!(needed_with(&multiplexed, Some(1_000.0), 0), Some(2));
    }

    #[test]
    fn a_ramp_from_a_low_rate_is_sized_at_a_share_of_its_highest_rate() {
        let address: SocketAddr = ([127, 0, 0, 1], 80).into();
        let ramp = |from_per_s, to_per_s| Plan {
            model: Model::Open {
                schedule: Schedule::Ramp {
                    ramp: Ramp {
                        from_per_s,
                        to_per_s,
                        duration_s: 1.0,
                    },
                    spacing: Spacing::Constant,
                },
                hold: false,
            },
            ..Plan::of(address.into())
        };
        for (from_per_s, expected) in [(0.0, 100.0), (1.0, 100.0), (200.0, 200.0)] {
            let short = short_load(&ramp(from_per_s, 1000.0)).unwrap();
            assert_eq!(short.rate_per_s(), Some(expected));
        }
        assert!(short_load(&ramp(0.0, 0.0)).is_none());
    }

    #[test]
    fn a_closed_load_is_not_sized() {
        let address: SocketAddr = ([127, 0, 0, 1], 80).into();
        assert!(short_load(&Plan::of(address.into())).is_none());
    }
}
