//! One request before a load, to find out whether the server responds as expected.

use std::time::Duration;

use floodmark_host::{ProcessPlacement, Stop};
use floodmark_plan::Planned;
use floodmark_record::events::RunId;
use floodmark_record::plan::{FiguresOf, Length, Mix, MixRequest, Model, Plan, RequestPlan};
use floodmark_record::run::Run;
use floodmark_workers::WorkerFailure;

use crate::attempt::send_unrecorded;

/// Maximum time to wait for the response. A load reports a slower server itself.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Number (`{seq}`) of the request, as in the first request of a load. A server may have no
/// resource with the number 0.
const NUMBER: u64 = 1;

/// Sends one request of a plan from the client's host. Returns the run that consists of this
/// request, or `None` if the plan has no request that can be sent without an effect: it has a
/// check, which counts all requests, or each of its requests may change the server's state.
///
/// # Errors
/// The worker failed.
pub fn preflight(
    planned: &Planned,
    side: &ProcessPlacement,
    run: RunId,
    stop: &Stop,
) -> Result<Option<Run>, WorkerFailure> {
    let Some(plan) = single_request(&planned.plan) else {
        return Ok(None);
    };
    let mut number = NUMBER;
    send_unrecorded((run, plan), &planned.credentials, side, &mut number, stop).map(Some)
}

/// Returns the plan for one safe request of a plan (RFC 9110 section 9.2.1).
fn single_request(plan: &Plan) -> Option<Plan> {
    let is_safe = |of: &RequestPlan| matches!(&*of.method, "GET" | "HEAD" | "OPTIONS");
    let mix = match &plan.mix {
        None if is_safe(&plan.request) => None,
        None => return None,
        Some(mix) => {
            let request = mix.requests.iter().find(|one| is_safe(&one.request))?;
            Some(Mix {
                file: mix.file.clone(),
                requests: vec![MixRequest {
                    weight: 1,
                    ..request.clone()
                }],
                feeds: mix.feeds.clone(),
            })
        }
    };
    let timeout = plan.timeout.min(TIMEOUT);
    plan.check.is_none().then(|| Plan {
        mix,
        model: Model::Closed {
            length: Length::Requests(1),
        },
        connections: 1,
        threads: 1,
        warmup: Duration::ZERO,
        figures_of: FiguresOf::Whole,
        timeout,
        deadline: timeout,
        drain: true,
        ..plan.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::plan::Check;
    use std::net::SocketAddr;

    #[test]
    fn sends_only_requests_without_an_effect() {
        let plan = |method: &str| {
            let mut plan = Plan::of(SocketAddr::from(([127, 0, 0, 1], 80)).into());
            plan.request.method = method.to_owned();
            plan
        };
        assert_eq!(single_request(&plan("GET")).unwrap().connections, 1);
        assert_eq!(single_request(&plan("POST")), None);
        let mut checked = plan("GET");
        checked.check = Some(Check::Sequence);
        assert_eq!(single_request(&checked), None);
        let of_mix = |methods: &[&str]| {
            let request = |(index, method): (usize, &&str)| MixRequest {
                name: format!("r{index}"),
                weight: 3,
                path: "/".to_owned(),
                request: plan(method).request,
                expect: Vec::new(),
                templates: true,
            };
            let mut plan = plan("POST");
            plan.mix = Some(Mix {
                file: "mix.toml".to_owned(),
                requests: methods.iter().enumerate().map(request).collect(),
                feeds: Vec::new(),
            });
            let mix = single_request(&plan)?.mix.unwrap();
            Some((mix.requests.len(), mix.requests[0].name.clone()))
        };
        assert_eq!(of_mix(&["POST", "GET", "GET"]), Some((1, "r1".to_owned())));
        assert_eq!(of_mix(&["POST", "PUT"]), None);
    }
}
