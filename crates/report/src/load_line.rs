//! What was loaded and how, as the first line of a summary.

use floodmark_record::plan::{Address, Arrivals, CloseFirst, ConnectionUse, Model, Plan};
use floodmark_record::run::Run;

use crate::changing;
use crate::figures::{count_of, rate, seconds};
use crate::page::{Page, Span, glue, plain};
use crate::style::Paint;

/// `floodmark load http://127.0.0.1:8080/  closed, 50 kept connections, 1 thread, 10 s`. Of another load generator its name.
pub(crate) fn draw(page: &mut Page, run: &Run, attempts: usize) {
    let plan = &run.plan;
    let method = match plan.request.method.as_str() {
        "GET" => String::new(),
        other => format!("{other} "),
    };
    let what: Span = (
        Paint::Strong,
        match &run.client.name {
            Some(name) => format!("{name} {}", plan.target.url),
            None => format!("floodmark load {method}{}", plan.target.url),
        },
    );
    page.headline(&[what, plain(format!("\u{a0}{}", describe(plan, attempts)))]);
}

/// `closed, 50 kept connections, 1 thread, 10 s`.
pub(crate) fn describe(plan: &Plan, attempts: usize) -> String {
    let mix = plan.mix.as_ref().map(|mix| {
        let requests = count_of(mix.requests.len() as u64, "request");
        format!("a mix of {requests} ({})", mix.file)
    });
    let mut how = Vec::from_iter(mix);
    how.extend([model(plan), connections(plan)]);
    how.extend(addresses(plan));
    how.push(count_of(plan.threads.into(), "thread"));
    let mut length = length(plan);
    if attempts > 1 {
        length = format!("{} of {length}", count_of(attempts as u64, "attempt"));
    }
    how.push(length);
    if plan.warmup_s > 0.0 {
        how.push(format!(
            "after {} of warm-up",
            glue(&seconds(plan.warmup_s))
        ));
    }
    how.join(", ")
}

/// Where connections go, if not to the one address that the URL says.
fn addresses(plan: &Plan) -> Option<String> {
    match (&plan.target.address, plan.target.addresses().count()) {
        (unix @ Address::Unix(_), _) => Some(format!("through {unix}")),
        (Address::Ip(_), 1) => None,
        (Address::Ip(_), n) => Some(format!("to {n} addresses")),
    }
}

fn model(plan: &Plan) -> String {
    if let Some(profile) = &plan.profile {
        let random = match plan.arrivals {
            Some(Arrivals::Poisson) => " Poisson",
            _ => "",
        };
        return format!("open, {}{random}", changing::describe(profile));
    }
    match (plan.model, plan.arrivals, plan.rate_per_s) {
        (Model::Closed, ..) => "closed".to_owned(),
        (Model::Open, Some(Arrivals::Burst), _) => "open, burst".to_owned(),
        (Model::Open, Some(Arrivals::Poisson), Some(r)) => format!("open, {} Poisson", rate(r)),
        (Model::Open, _, Some(r)) => format!("open, {}", rate(r)),
        (Model::Open, _, None) => "open".to_owned(),
    }
}

fn connections(plan: &Plan) -> String {
    let n = u64::from(plan.connections);
    let cap = match plan.model {
        Model::Closed => "",
        Model::Open => "up to ",
    };
    let close = match plan.close_first {
        CloseFirst::Server => "",
        CloseFirst::Client => ", closed by the client first",
        CloseFirst::Reset => ", reset by the client",
    };
    if plan.hold {
        return count_of(n, "held connection");
    }
    match (plan.connection_use, plan.requests_per_connection) {
        (ConnectionUse::Kept, _) => format!("{cap}{}", count_of(n, "kept connection")),
        (ConnectionUse::PerConnection, Some(each)) => format!(
            "{cap}{} of {} each{close}",
            count_of(n, "connection"),
            count_of(each, "request"),
        ),
        (ConnectionUse::Fresh | ConnectionUse::PerConnection, _) => {
            format!("{cap}{} at once{close}", count_of(n, "fresh connection"))
        }
    }
}

/// How long the load was meant to last: `10 s`, `500,000 requests`, `200,000 requests within 10 s`.
fn length(plan: &Plan) -> String {
    if let Some(length) = changing::length(plan) {
        return length;
    }
    match (plan.duration_s, plan.requests, plan.rate_per_s) {
        (_, Some(n), Some(rate)) if plan.arrivals == Some(Arrivals::Burst) => {
            let within = seconds(n as f64 / rate);
            format!("{} within {}", count_of(n, "request"), glue(&within))
        }
        (Some(s), ..) => glue(&seconds(s)),
        (None, Some(n), _) => count_of(n, "request"),
        (None, None, _) => "no end".to_owned(),
    }
}
