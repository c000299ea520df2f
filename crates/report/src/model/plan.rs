//! Descriptions of plans: `closed, 50 kept connections, 1 thread, 10 s`.

use floodmark_record::plan::{
    Address, Arrivals, CloseFirst, ConnectionUse, Length, Plan, Schedule,
};
use floodmark_record::run::Run;

use super::document::{Emphasis, Span, plain};
use super::figures::{count_of, duration, rate};

/// Returns the first line of a summary:
///
/// `floodmark load http://127.0.0.1:8080/  closed, 50 kept connections, 1 thread, 10 s`.
pub(crate) fn headline(run: &Run, attempts: usize) -> [Span; 2] {
    let plan = &run.plan;
    let what = match (&run.client.name, plan.request.method.as_str()) {
        (Some(client), _) => format!("{client} {}", plan.target.url),
        (None, "GET") => format!("floodmark load {}", plan.target.url),
        (None, method) => format!("floodmark load {method} {}", plan.target.url),
    };
    let how = plain(format!("\u{a0}{}", describe(plan, attempts)));
    [Emphasis::Strong.span(what), how]
}

/// Returns text such as `closed, 50 kept connections, 1 thread, 10 s`.
#[must_use]
pub fn describe(plan: &Plan, attempts: usize) -> String {
    let mix = plan.mix.as_ref().map(|mix| {
        let requests = count_of(mix.requests.len() as u64, "request");
        format!("a mix of {requests} ({})", mix.file)
    });
    let mut parts = Vec::from_iter(mix);
    parts.extend([model(plan), connections(plan)]);
    parts.extend(addresses(plan));
    parts.push(count_of(plan.threads.into(), "thread"));
    parts.push(match attempts {
        0 | 1 => length(plan),
        n => format!("{} of {}", count_of(n as u64, "attempt"), length(plan)),
    });
    if !plan.warmup.is_zero() {
        let warmup = duration(plan.warmup.as_secs_f64());
        parts.push(format!("after {warmup} of warm-up"));
    }
    parts.join(", ")
}

/// Describes the target addresses. Returns `None` for a single IP address: the URL is enough.
fn addresses(plan: &Plan) -> Option<String> {
    match (&plan.target.address, plan.target.addresses().count()) {
        (unix @ Address::Unix(_), _) => Some(format!("through {unix}")),
        (Address::Ip(_), 1) => None,
        (Address::Ip(_), n) => Some(format!("to {n} addresses")),
    }
}

fn model(plan: &Plan) -> String {
    let Some(schedule) = plan.schedule() else {
        return "closed".to_owned();
    };
    let poisson = match schedule.arrivals() {
        Arrivals::Poisson => " Poisson",
        _ => "",
    };
    format!("open, {}{poisson}", describe_schedule(schedule))
}

/// Returns `1,000/s`, `ramp from 100/s to 5,000/s`, `3 steps from 1,000/s to 5,000/s` or `replay of
/// times.log at 2x`.
fn describe_schedule(schedule: &Schedule) -> String {
    match schedule {
        Schedule::Constant { rate: per_s, .. } => rate(per_s.per_s()),
        Schedule::Burst { .. } => "burst".to_owned(),
        Schedule::Ramp { ramp, .. } => {
            format!(
                "ramp from {} to {}",
                rate(ramp.from_per_s),
                rate(ramp.to_per_s)
            )
        }
        Schedule::Steps { steps, .. } => {
            let rates = [steps.first(), steps.last()];
            let [first, last] = rates.map(|step| rate(step.map_or(0.0, |step| step.rate_per_s)));
            match steps.len() {
                1 => format!("1 step of {first}"),
                n => format!("{n} steps from {first} to {last}"),
            }
        }
        Schedule::Replay { replay, .. } if (replay.speed - 1.0).abs() > f64::EPSILON => {
            format!("replay of {} at {}x", replay.file, replay.speed)
        }
        Schedule::Replay { replay, .. } => format!("replay of {}", replay.file),
    }
}

fn connections(plan: &Plan) -> String {
    let n = u64::from(plan.connections);
    let cap = if plan.is_open() { "up to " } else { "" };
    let close = match plan.close_first {
        CloseFirst::Server => "",
        CloseFirst::Client => ", closed by the client first",
        CloseFirst::Reset => ", reset by the client",
    };
    if plan.hold() {
        return count_of(n, "held connection");
    }
    match plan.connection_use {
        ConnectionUse::Kept => format!("{cap}{}", count_of(n, "kept connection")),
        ConnectionUse::PerConnection(each) => {
            let (connections, requests) = (count_of(n, "connection"), count_of(each, "request"));
            format!("{cap}{connections} with {requests} each{close}")
        }
        ConnectionUse::Fresh => {
            format!("{cap}{} at once{close}", count_of(n, "fresh connection"))
        }
    }
}

/// Describes the length of the load: `10 s`, `500,000 requests`, `200,000 requests within 10 s`.
fn length(plan: &Plan) -> String {
    match (plan.schedule(), plan.length()) {
        (
            Some(schedule @ (Schedule::Burst { .. } | Schedule::Replay { .. })),
            Length::Requests(n),
        ) => format!(
            "{} within {}",
            count_of(n, "request"),
            duration(schedule.window_s())
        ),
        (_, Length::Duration(length)) => duration(length.as_secs_f64()),
        (_, Length::Requests(n)) => count_of(n, "request"),
    }
}
