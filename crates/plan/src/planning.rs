//! Turns settings into a plan. Rejects settings that contradict each other or exceed the host's
//! limits.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use floodmark_load::budget::{self, Offer, SocketLocation};
use floodmark_load::judge::score;
use floodmark_load::targets::unusable;
use floodmark_load::worker;
use floodmark_observe::{Root, cpu, environment};
use floodmark_record::body::RequestBody;
use floodmark_record::plan::{
    Backend, Check, CloseFirst, ConnectionUse, DEFAULT_CONNECTIONS, DEFAULT_TIMEOUT, FiguresOf,
    Model, Plan, RequestPlan, Schedule, Target,
};
use floodmark_record::tls::TlsCredentials;
use floodmark_record::units::{show_count, show_rate};
use floodmark_record::worker_input::WorkerInput;

use crate::grpc::{self, CallEncoder};
use crate::negotiation::{Negotiated, negotiate};
use crate::spec::{BodySource, CheckKind, HttpVersion, LoadSpec, Origin, PlanSpec, Warmup};
use crate::target::{self, Resolved};
use crate::{api_check, http, input, io_backend, mix, schedule, trust};

/// Maximum number of connections per client. The state of 1,000,000 connections takes up to 2 GiB.
/// The same limit applies to the number of requests in flight.
pub const MAX_CONNECTIONS: u64 = 1_000_000;

/// Service time, in seconds, that the default number of connections in the open model assumes if no
/// short load can measure the service time.
const ASSUMED_SERVICE_S: f64 = 0.25;

/// Maximum number of requests in flight for an assumed service time. With a higher limit, a server
/// stall at a high rate could open a connection per request.
const MAX_ASSUMED_IN_FLIGHT: u32 = 10_000;

/// Maximum number of load threads.
pub const MAX_THREADS: u64 = 1024;

/// A validated plan, with remarks for the user.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Source of the settings.
    pub origin: Origin,
    /// Whether a short load can determine the number of connections.
    pub sizes_connections: bool,
    /// Maximum number of connections that a load may open if it chooses the number itself.
    pub max_connections: u32,
    /// Certificates to trust and to send, and the client's private key.
    pub credentials: TlsCredentials,
    /// Lines to print before the run.
    pub remarks: Vec<String>,
    /// Limitations of this host, for the record.
    pub notices: Vec<String>,
}

/// Returns the plan for a load on a resolved target. `open_files` is the client's hard limit on
/// open files, if known.
///
/// # Errors
/// The settings contradict each other, are out of range, or need more than the host provides.
pub fn plan(
    spec: &PlanSpec,
    resolved: Resolved,
    open_files: Option<u64>,
) -> Result<Planned, String> {
    let Resolved {
        mut target,
        https_host,
    } = resolved;
    refuse_public(spec, &target)?;
    let mut notices = Vec::from_iter(drop_unreachable_addresses(spec, &mut target)?);
    refuse_conflicts(spec)?;
    grpc::refuse_conflicts(spec, &target)?;
    refuse_unusable(spec, &target)?;
    let (model, remark) = schedule::of(spec)?;
    let mut offer = offer(&target, open_files);
    notices.extend(unknown_limits(&target, &offer));
    if let Some(agents) = spec.agents {
        offer = of_all_agents(offer, agents);
    }
    let (tls, credentials) = trust::plan(spec, https_host)?;
    let load = &spec.load;
    let timeout = load.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let connection_use = match (load.fresh, load.requests_per_connection) {
        (Some(true), _) | (_, Some(1)) => ConnectionUse::Fresh,
        (_, Some(n)) => ConnectionUse::PerConnection(n),
        (_, None) => ConnectionUse::Kept,
    };
    let negotiated = (load.http() == HttpVersion::Auto).then(|| {
        if spec.is_offline && tls.is_some() {
            return match &load.grpc {
                Some(_) => Negotiated::Http2,
                None => Negotiated::Http1,
            };
        }
        let tls = tls.as_ref().map(|tls| (tls, &credentials));
        negotiate(tls, &target, timeout)
    });
    let http = http::plan(spec, connection_use, negotiated.as_ref())?;
    let server = target.clone();
    let calls = CallEncoder {
        origin: spec.origin,
        proto_path: (spec.origin, &load.proto_path),
        target: &server,
        tls: tls.as_ref().map(|tls| (tls, &credentials)),
        timeout,
        described: &RefCell::default(),
        is_offline: spec.is_offline,
    };
    let mut request = request(spec)?;
    if let Some(method) = &load.grpc {
        request = calls.encode(method, load.proto.as_deref(), request)?;
        grpc::set_path(&mut target, method);
    }
    let mut plan = Plan {
        tls: tls.clone(),
        http,
        request,
        mix: None,
        target,
        model,
        connections: 0,
        threads: threads(spec)?,
        connection_use,
        close_first: http::close_first(spec, http),
        retry: load.retry.unwrap_or_default(),
        warmup: load.warmup_length(),
        figures_of: FiguresOf::Whole,
        timeout,
        deadline: load.deadline.unwrap_or(timeout),
        drain: !spec.no_drain,
        expect: load.expect.clone(),
        check: None,
        sources: load.sources,
        ports_per_source: offer.ports,
        backend: Backend::Epoll,
        seed: load.seed.unwrap_or(1),
    };
    if load.warmup.unwrap_or_default() == Warmup::Auto && !plan.rate_changes() {
        plan.figures_of = FiguresOf::Steady;
    }
    if spec.hold && !plan.is_open() {
        return Err(format!(
            "{} needs a rate (--rate, --ramp, --steps or --replay); in the closed model all connections are always in use",
            spec.name("hold")
        ));
    }
    plan.check = check(spec, &plan.request)?;
    let (longest, file_remarks) = requests_of_files(spec, &mut plan, &calls)?;
    grpc::disable_ping(&mut plan);
    let (backend, notice) = io_backend::choose(spec, &plan, &mut offer, longest)?;
    plan.backend = backend;
    notices.extend(notice);
    if let Some(failed @ Negotiated::Failed(_)) = &negotiated {
        notices.push(failed.to_string());
    }
    let max_connections = max_connections(&plan, &offer);
    plan.connections = connections(spec, &plan, max_connections)?;
    refuse_idle_agents(spec, &plan)?;
    if let Some(shortage) = budget::shortage(&plan, &offer)
        && !spec.anyway
    {
        return Err(match spec.origin {
            Origin::CommandLine => format!("{shortage}, or add --anyway"),
            Origin::File => shortage,
        });
    }
    let mut remarks = remarks(&plan, &offer);
    remarks.extend(trust::warning(spec, &credentials));
    remarks.extend(file_remarks);
    remarks.extend_from_slice(&notices);
    remarks.extend(remark);
    // A failure is among the notices.
    let negotiated = negotiated.filter(|of| !matches!(of, Negotiated::Failed(_)));
    remarks.extend(negotiated.map(|of| of.to_string()));
    Ok(Planned {
        origin: spec.origin,
        sizes_connections: sizes_connections(spec, &plan),
        max_connections,
        plan,
        credentials,
        remarks,
        notices,
    })
}

fn refuse_public(spec: &PlanSpec, target: &Target) -> Result<(), String> {
    let public = |address: &SocketAddr| !target::is_private(address.ip());
    match target.ip_addresses().find(public) {
        Some(address) if !spec.public => Err(public_address(&target.authority, address.ip())),
        _ => Ok(()),
    }
}

/// Returns the error for a public address. If the URL contains the address, the message does not
/// repeat it.
fn public_address(authority: &str, address: IpAddr) -> String {
    let address = address.to_string();
    let resolved = if authority.contains(&address) {
        String::new()
    } else {
        format!(" ({address})")
    };
    format!("{authority} is a public address{resolved}; add --public if its owner agrees")
}

/// Rejects settings that conflict or lack a required setting.
fn refuse_conflicts(spec: &PlanSpec) -> Result<(), String> {
    let load = &spec.load;
    let is_given = |key: &str| load.given().any(|given| given == key);
    const CONFLICTS: [(&str, &str); 6] = [
        ("burst", "duration"),
        ("burst", "requests"),
        ("burst", "rate"),
        ("burst", "arrivals"),
        ("burst", "connections"),
        ("fresh", "requests-per-connection"),
    ];
    if let Some((a, b)) = CONFLICTS.iter().find(|(a, b)| is_given(a) && is_given(b)) {
        let (a, b) = (spec.name(a), spec.name(b));
        return Err(format!("{a} conflicts with {b}; remove one of them"));
    }
    let has_rate = load.rate.is_some() || spec.ramp.is_some() || spec.steps.is_some();
    let missing = [
        ("burst", "within", load.within.is_some()),
        ("within", "burst", load.burst.is_some()),
        ("arrivals", "rate", has_rate),
    ];
    match missing
        .iter()
        .find(|(key, _, fulfilled)| is_given(key) && !fulfilled)
    {
        Some((key, needed, _)) => {
            let (key, needed) = (spec.name(key), spec.name(needed));
            Err(format!(
                "{key} needs {needed}; add {needed} or remove {key}"
            ))
        }
        None => Ok(()),
    }
}

/// Rejects connection settings that conflict, or that the host or the target does not support.
fn refuse_unusable(spec: &PlanSpec, target: &Target) -> Result<(), String> {
    let LoadSpec {
        close_first,
        sources,
        ..
    } = spec.load;
    let kept = spec.load.fresh != Some(true) && spec.load.requests_per_connection.is_none();
    let name = spec.name("close-first");
    if kept && close_first.is_some_and(|who| who != CloseFirst::Server) {
        return Err(format!(
            "{name} has no effect on kept connections; add {} or {}",
            spec.name("fresh"),
            spec.name("requests-per-connection")
        ));
    }
    if let Some(sources) = sources
        && let Some((address, why)) = unusable(sources)
    {
        return Err(format!(
            "{}: this host cannot send from {address} ({why}); add the address to an interface (ip address add), or use \
             other addresses, such as 127.0.0.2-127.0.0.9 for a server on this host",
            spec.name("sources")
        ));
    }
    if close_first == Some(CloseFirst::Reset) && target.address.ip().is_none() {
        return Err(format!(
            "{name} reset: unix sockets do not support RST; use {name} client"
        ));
    }
    Ok(())
}

/// Removes target addresses whose family differs from that of the source addresses. Returns a
/// notice if any addresses are removed.
fn drop_unreachable_addresses(
    spec: &PlanSpec,
    target: &mut Target,
) -> Result<Option<String>, String> {
    let Some(sources) = spec.load.sources else {
        return Ok(None);
    };
    let all: Vec<SocketAddr> = target.ip_addresses().collect();
    let same = |address: &SocketAddr| address.is_ipv4() == sources.first.is_ipv4();
    let mut reachable = all.iter().copied().filter(same);
    let name = spec.name("sources");
    let Some(first) = reachable.next() else {
        return Err(format!(
            "{name} {}-{}: the address family differs from that of {}; use source addresses of the same family",
            sources.first,
            sources.last,
            target.show_addresses()
        ));
    };
    let notice = format!(
        "{}: only addresses of the same family as {name} are used",
        target.show_addresses()
    );
    target.address = first.into();
    target.further_addresses = reachable.collect();
    Ok((target.addresses().count() < all.len()).then_some(notice))
}

fn threads(spec: &PlanSpec) -> Result<u32, String> {
    let cpus = cpu::allowed(&Root::host()).max(1);
    match spec.load.threads {
        None => Ok((cpus / 2).max(1)),
        Some(n) if n <= MAX_THREADS => Ok(n as u32),
        Some(n) => Err(format!(
            "{} {n}: the maximum is {MAX_THREADS}; this host has {cpus} CPUs",
            spec.name("threads")
        )),
    }
}

/// Returns the maximum number of connections that the ports, the open files and
/// [`MAX_CONNECTIONS`] allow.
fn max_connections(plan: &Plan, offer: &Offer) -> u32 {
    let most = budget::most_connections(plan, offer).unwrap_or(MAX_CONNECTIONS);
    most.clamp(1, MAX_CONNECTIONS / u64::from(plan.http.streams())) as u32
}

fn connections(spec: &PlanSpec, plan: &Plan, most: u32) -> Result<u32, String> {
    let streams = u64::from(plan.http.streams());
    match (spec.load.connections, &plan.model) {
        (Some(n), _) if n > MAX_CONNECTIONS => Err(format!(
            "{} {n}: the maximum is {}; use several hosts for more",
            spec.name("connections"),
            show_count(MAX_CONNECTIONS)
        )),
        (Some(n), _) if n * streams > MAX_CONNECTIONS => Err(format!(
            "{} {n} and {} {streams}: {} requests in flight exceed the maximum of {}; use fewer streams or connections",
            spec.name("connections"),
            spec.name("streams"),
            show_count(n * streams),
            show_count(MAX_CONNECTIONS)
        )),
        (Some(n), _) => Ok(n as u32),
        (None, Model::Closed { .. }) => Ok(DEFAULT_CONNECTIONS),
        (None, Model::Open { schedule, .. }) => {
            let in_flight = match schedule {
                // All requests of a burst may be in flight at the same time.
                Schedule::Burst { requests, .. } => u32::try_from(*requests)
                    .unwrap_or(u32::MAX)
                    .max(DEFAULT_CONNECTIONS),
                _ => plan
                    .default_in_flight(ASSUMED_SERVICE_S)
                    .min(MAX_ASSUMED_IN_FLIGHT),
            };
            // Each load thread of each agent needs a connection.
            let threads = plan.threads.saturating_mul(spec.agents.unwrap_or(1));
            let connections = in_flight.div_ceil(plan.http.streams());
            Ok(connections.max(threads).min(most))
        }
    }
}

/// Returns whether a short load before the first measurement can determine the number of
/// connections: only in the open model, without `-c`, bursts, fresh connections, a request limit, a
/// check, unique rows or `--warmup 0s`.
fn sizes_connections(spec: &PlanSpec, plan: &Plan) -> bool {
    let load = &spec.load;
    let has_no_warmup = load.warmup == Some(Warmup::Before(Duration::ZERO));
    plan.is_open()
        && load.connections.is_none()
        && load.burst.is_none()
        && plan.connection_use == ConnectionUse::Kept
        && plan.request_limit().is_none()
        && plan.check.is_none()
        && plan.unique_rows().is_none()
        && !has_no_warmup
}

fn request(spec: &PlanSpec) -> Result<RequestPlan, String> {
    let body = match &spec.load.body {
        Some(BodySource::Text(text)) => {
            refuse_file_name(spec, text)?;
            text.clone().into_bytes().into()
        }
        Some(BodySource::File(path)) => {
            let is_stdin = spec.origin == Origin::CommandLine && path == Path::new("-");
            let read = if is_stdin {
                input::stdin()
            } else {
                input::read(path)
            };
            read.map(RequestBody::from)
                .map_err(|why| format!("{} {}: {why}", spec.name("body-file"), path.display()))?
        }
        None => RequestBody::default(),
    };
    let method = match &spec.method {
        Some(method) => method,
        None if spec.load.body.is_some() => "POST",
        None => "GET",
    };
    Ok(RequestPlan {
        method: method.to_owned(),
        headers: spec.headers.clone(),
        body,
        is_grpc: false,
    })
}

/// Rejects a body in curl's `@FILE` syntax if the file exists.
fn refuse_file_name(spec: &PlanSpec, body: &str) -> Result<(), String> {
    match body.strip_prefix('@') {
        Some(file) if Path::new(file).is_file() => Err(format!(
            "{} {body}: the body is sent as text; to send the content of the file, use {} {file}",
            spec.name("body"),
            spec.name("body-file")
        )),
        _ => Ok(()),
    }
}

/// Reads the mix file or check file of a plan, if any. Returns the length of the longest request, in
/// bytes, and remarks about the files.
fn requests_of_files(
    spec: &PlanSpec,
    plan: &mut Plan,
    calls: &CallEncoder<'_>,
) -> Result<(usize, Vec<String>), String> {
    if let Some(file) = api_check::of_spec(spec, plan)? {
        plan.mix = Some(file.mix.clone());
        plan.check = Some(Check::Api(Box::new(file.check.clone())));
        let name = spec.name("check");
        let place = |request, part| Some(format!("{name} {}", file.place(request, part)));
        file.check_readback(&plan.target)
            .map_err(|error| format!("{name} {error}"))?;
        let longest = mix::longest_request(plan, place)?;
        return Ok((longest, mix::literal_templates(plan, place)));
    }
    let file = mix::of_spec(spec, &plan.target, plan.http, calls)?;
    plan.mix = file.as_ref().map(|file| file.mix.clone());
    if file.is_none() {
        grpc::check_expectations(&plan.expect, plan.request.is_grpc)
            .map_err(|why| format!("{}: {why}", spec.name("expect")))?;
    }
    mix::check_rows(spec, plan)?;
    let place = |request, part| {
        let place = file.as_ref()?.place(request, part);
        Some(format!("{} {place}", spec.name("mix")))
    };
    let longest = mix::longest_request(plan, place)?;
    Ok((longest, mix::literal_templates(plan, place)))
}

/// Returns the check for the responses, unless a file describes it. For `scoring`, reads the score
/// from the request body.
fn check(spec: &PlanSpec, request: &RequestPlan) -> Result<Option<Check>, String> {
    Ok(match spec.load.check {
        None | Some(CheckKind::File(_)) => None,
        Some(CheckKind::Sequence) => Some(Check::Sequence),
        Some(CheckKind::Scoring) => Some(Check::Scoring {
            score: score(request.body.bytes().unwrap_or_default())
                .map_err(|why| format!("{} scoring: {why}", spec.name("check")))?,
        }),
    })
}

/// Explains why this host cannot run an agent's share of a load. Returns `None` if it can, if the
/// load is not divided, or with `--anyway`. `open_files` is the hard limit on open files.
///
/// All agents are assumed to have the same limits, so the calculation covers all of them together.
#[must_use]
pub fn agent_shortage(input: &WorkerInput, open_files: u64) -> Option<String> {
    let agents = input.share.filter(|_| !input.anyway)?.count;
    let plan = &input.plan;
    let of_host = offer(&plan.target, Some(open_files));
    let of_host = Offer {
        // The worker itself reports a request that cannot be sent.
        sockets: worker::sockets(plan).unwrap_or(of_host.sockets),
        ..of_host
    };
    budget::shortage(plan, &of_all_agents(of_host, agents))
}

/// Returns the resources of all agents if each has those of one host.
fn of_all_agents(of_host: Offer, agents: u32) -> Offer {
    let times = |n: u64| n.saturating_mul(agents.into());
    Offer {
        ports: of_host.ports.map(times),
        fds: of_host.fds.map(times),
        ..of_host
    }
}

/// Rejects a load with more agents than connections, because some agents would send nothing.
fn refuse_idle_agents(spec: &PlanSpec, plan: &Plan) -> Result<(), String> {
    match spec.agents {
        Some(agents) if agents > plan.connections => Err(format!(
            "{} {}: each of the {agents} agents needs a connection; use more connections or fewer agents",
            spec.name("connections"),
            plan.connections,
        )),
        _ => Ok(()),
    }
}

/// Returns the local ports and open files that this host provides.
fn offer(target: &Target, open_files: Option<u64>) -> Offer {
    let root = Root::host();
    let loopback = target
        .ip_addresses()
        .all(|address| address.ip().to_canonical().is_loopback());
    let reuse = environment::sysctl(&root, "net.ipv4.tcp_tw_reuse");
    let delay_s =
        environment::sysctl(&root, "net.ipv4.tcp_tw_reuse_delay").map_or(1.0, |ms| ms as f64 / 1e3);
    Offer {
        ports: target
            .address
            .ip()
            .and_then(|_| Some(environment::ports(&root)?.usable())),
        fds: open_files,
        sockets: SocketLocation::Files,
        time_wait_s: reuse.map(|reuse| budget::time_wait_s(reuse, delay_s, loopback)),
    }
}

/// Returns a notice for each limit that could not be read.
fn unknown_limits(target: &Target, offer: &Offer) -> Vec<String> {
    let by_ports = target.address.ip().is_some();
    [
        (
            by_ports && offer.ports.is_none(),
            "net.ipv4.ip_local_port_range cannot be read; the number of local ports is unknown",
        ),
        (
            by_ports && offer.time_wait_s.is_none(),
            "net.ipv4.tcp_tw_reuse cannot be read; the duration of TIME_WAIT is unknown",
        ),
        (
            offer.fds.is_none(),
            "the limit on open files cannot be read and may be too low",
        ),
    ]
    .into_iter()
    .filter(|(unknown, _)| *unknown)
    .map(|(_, line)| line.to_owned())
    .collect()
}

fn remarks(plan: &Plan, offer: &Offer) -> Vec<String> {
    let mut remarks = Vec::new();
    if let (Some(per_s), Some(ports), Some(time_wait_s)) = (
        budget::connections_per_s(plan, offer),
        budget::ports_in_all(plan, offer),
        offer.time_wait_s,
    ) {
        remarks.push(format!(
            "the client closes first: its {ports} local ports, each {time_wait_s} s in TIME_WAIT, sustain {} new connections \
             per second",
            show_rate(per_s)
        ));
    }
    if plan.close_first == CloseFirst::Reset {
        remarks.push(
            "connections end with RST (`close-first` is `reset`); servers may treat RST as an error"
                .to_owned(),
        );
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_a_public_address_once() {
        let message = |authority| public_address(authority, IpAddr::from([192, 0, 2, 1]));
        let advice = "; add --public if its owner agrees";
        assert_eq!(
            message("192.0.2.1:80"),
            format!("192.0.2.1:80 is a public address{advice}")
        );
        assert_eq!(
            message("example.org"),
            format!("example.org is a public address (192.0.2.1){advice}")
        );
    }
}
