//! From flags to a plan: contradictions, ranges and what the machine cannot give are refused here, before anything is sent.

use std::net::SocketAddr;
use std::path::Path;

use floodmark_lab::input;
use floodmark_load::budget::{self, Offer, Sockets};
use floodmark_load::scoring;
use floodmark_load::sources::unusable;
use floodmark_observe::{Root, sysctl};
use floodmark_record::plan::{
    Backend, Check, CloseFirst, ConnectionUse, DEFAULT_CONNECTIONS, FiguresOf, Model, Plan,
    RequestPlan, Target,
};
use floodmark_record::tls::TrustAnchor;
use floodmark_record::units::{show_count, show_rate};

use super::args::{CheckArg, LoadArgs, Warmup};
use super::schedule::Schedule;
use super::target::{self, Resolved};
use super::{sockets, tls};
use crate::exit::Ending;

/// Most connections of one load process; their state alone is 2 GiB at most.
const MOST_CONNECTIONS: u64 = 1_000_000;

/// A plan, with what the user should know of it beforehand.
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// The certificate authorities to trust, where the plan has TLS and verifies.
    pub anchors: Vec<TrustAnchor>,
    /// Lines to print before the run.
    pub remarks: Vec<String>,
    /// What floodmark has to settle for, for the record.
    pub notices: Vec<String>,
}

/// Makes the plan.
pub fn plan(
    args: &LoadArgs,
    resolved: Resolved,
    open_files: Option<u64>,
) -> Result<Planned, Ending> {
    let Resolved {
        mut target,
        https_host,
    } = resolved;
    let far = |address: &SocketAddr| !target::is_near(address.ip());
    if let Some(far) = target.ip_addresses().find(far).filter(|_| !args.public) {
        return Err(Ending::usage(format!(
            "{} is a public address ({}); load goes there only with --public, and only if its owner agrees",
            target.authority,
            far.ip()
        )));
    }
    let mut notices = Vec::from_iter(addresses_of_sources(args, &mut target)?);
    contradictions(args, &target)?;
    let schedule = Schedule::of(args)?;
    let mut offer = offer(&target, open_files);
    notices.extend(not_known(&target, &offer));
    let (tls, anchors) = tls::plan(args, https_host)?;
    let mut plan = Plan {
        tls,
        request: request(args)?,
        mix: None,
        target,
        model: if schedule.arrivals.is_some() {
            Model::Open
        } else {
            Model::Closed
        },
        rate_per_s: schedule.rate_per_s,
        arrivals: schedule.arrivals,
        connections: 0,
        hold: args.hold,
        threads: threads(args)?,
        connection_use: match (args.fresh, args.requests_per_connection) {
            (true, _) | (false, Some(1)) => ConnectionUse::Fresh,
            (false, Some(_)) => ConnectionUse::PerConnection,
            (false, None) => ConnectionUse::Kept,
        },
        requests_per_connection: args.requests_per_connection.filter(|n| *n > 1),
        close_first: args.close_first.into(),
        duration_s: schedule.duration_s,
        requests: schedule.requests,
        warmup_s: match args.warmup {
            Warmup::Auto => 0.0,
            Warmup::Before(duration) => duration.as_secs_f64(),
        },
        figures_of: if args.warmup == Warmup::Auto && schedule.profile.is_none() {
            FiguresOf::Steady
        } else {
            FiguresOf::Whole
        },
        timeout_s: args.timeout.as_secs_f64(),
        deadline_s: args.deadline.unwrap_or(args.timeout).as_secs_f64(),
        drain: !args.no_drain,
        expect: args.expect.clone(),
        check: None,
        sources: args.sources,
        ports_per_source: offer.ports,
        backend: Backend::Epoll,
        seed: args.seed,
        profile: schedule.profile,
    };
    if plan.hold && plan.model == Model::Closed {
        return Err(Ending::usage(
            "--hold keeps connections open that a rate leaves idle (--rate, --ramp, --steps, --replay); without one all of them are \
             open and in use anyway",
        ));
    }
    plan.check = check(args, &plan.request)?;
    let file = super::mix::read(args, &plan.target)?;
    plan.mix = file.as_ref().map(|file| file.mix.clone());
    let longest = super::mix::longest_request(&plan, file.as_ref())?;
    let (backend, notice) = sockets::choose(args, &plan, &mut offer, longest)?;
    plan.backend = backend;
    notices.extend(notice);
    plan.connections = connections(args, &plan, &offer)?;
    if let Some(shortage) = budget::shortage(&plan, &offer)
        && !args.anyway
    {
        return Err(Ending::usage(format!("{shortage}, or run it --anyway")));
    }
    let mut remarks = remarks(&plan, &offer);
    remarks.extend_from_slice(&notices);
    remarks.extend(schedule.remark);
    Ok(Planned {
        plan,
        anchors,
        remarks,
        notices,
    })
}

fn contradictions(args: &LoadArgs, target: &Target) -> Result<(), Ending> {
    let kept = !args.fresh && args.requests_per_connection.is_none();
    let close_first: CloseFirst = args.close_first.into();
    if kept && close_first != CloseFirst::Server {
        return Err(Ending::usage(
            "--close-first says who closes a connection that is used up, but kept connections never are; add --fresh or \
             --requests-per-connection",
        ));
    }
    if let Some(sources) = args.sources
        && let Some((address, why)) = unusable(sources)
    {
        return Err(Ending::usage(format!(
            "--sources: {address} is no address that this machine can send from ({why}); give it to an interface (ip address add), or \
             use others, such as 127.0.0.2-127.0.0.9 for a server on this machine"
        )));
    }
    if close_first == CloseFirst::Reset && target.address.unix().is_some() {
        return Err(Ending::usage(
            "--close-first reset: a unix socket has no RST; use --close-first client",
        ));
    }
    Ok(())
}

/// Leaves out the addresses that no source address can reach, being of another family; says so.
fn addresses_of_sources(args: &LoadArgs, target: &mut Target) -> Result<Option<String>, Ending> {
    let Some(sources) = args.sources else {
        return Ok(None);
    };
    let all: Vec<SocketAddr> = target.ip_addresses().collect();
    let same = |address: &SocketAddr| address.is_ipv4() == sources.first.is_ipv4();
    let mut reachable = all.iter().copied().filter(same);
    let Some(first) = reachable.next() else {
        return Err(Ending::usage(format!(
            "--sources {}-{} are of another family than {}",
            sources.first,
            sources.last,
            target.show_addresses()
        )));
    };
    let notice = format!(
        "of the addresses {} only those of the family of --sources are used",
        target.show_addresses()
    );
    target.address = first.into();
    target.further_addresses = reachable.collect();
    Ok((target.addresses().count() < all.len()).then_some(notice))
}

fn threads(args: &LoadArgs) -> Result<u32, Ending> {
    let cpus = floodmark_observe::cpu::allowed(&Root::host()).max(1);
    match args.threads {
        None => Ok((cpus / 2).max(1)),
        Some(n) if n <= 1024 => Ok(n as u32),
        Some(n) => Err(Ending::usage(format!(
            "--threads {n}: at most 1024; this machine has {cpus} CPUs"
        ))),
    }
}

fn connections(args: &LoadArgs, plan: &Plan, offer: &Offer) -> Result<u32, Ending> {
    match (args.connections, plan.model) {
        (Some(n), _) if n > MOST_CONNECTIONS => Err(Ending::usage(format!(
            "--connections {n}: at most {}; use several machines for more",
            show_count(MOST_CONNECTIONS)
        ))),
        (Some(n), _) => Ok(n as u32),
        (None, Model::Closed) => Ok(DEFAULT_CONNECTIONS),
        (None, Model::Open) => {
            let most = budget::most_connections(plan, offer).unwrap_or(MOST_CONNECTIONS);
            Ok(most.clamp(1, MOST_CONNECTIONS) as u32)
        }
    }
}

fn request(args: &LoadArgs) -> Result<RequestPlan, Ending> {
    let body = match (&args.body, &args.body_file) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(path)) => body_file(path)?,
        (None, None) => Vec::new(),
    };
    let method = match &args.method {
        Some(method) => method.clone(),
        None if args.body.is_some() || args.body_file.is_some() => "POST".to_owned(),
        None => "GET".to_owned(),
    };
    Ok(RequestPlan {
        method,
        headers: args.headers.clone(),
        body,
    })
}

/// The check, with what it has to know of the request.
fn check(args: &LoadArgs, request: &RequestPlan) -> Result<Option<Check>, Ending> {
    Ok(match args.check {
        None => None,
        Some(CheckArg::Sequence) => Some(Check::Sequence),
        Some(CheckArg::Scoring) => Some(Check::Scoring {
            score: scoring::score(&request.body)
                .map_err(|why| Ending::usage(format!("--check scoring: {why}")))?,
        }),
    })
}

fn body_file(path: &Path) -> Result<Vec<u8>, Ending> {
    input::read(path).map_err(|why| Ending::usage(format!("--body-file {}: {why}", path.display())))
}

fn offer(target: &Target, open_files: Option<u64>) -> Offer {
    let root = Root::host();
    let loopback = target
        .ip_addresses()
        .all(|address| address.ip().to_canonical().is_loopback());
    let reuse = sysctl::number(&root, "net.ipv4.tcp_tw_reuse");
    let delay_s =
        sysctl::number(&root, "net.ipv4.tcp_tw_reuse_delay").map_or(1.0, |ms| ms as f64 / 1e3);
    Offer {
        ports: target
            .address
            .ip()
            .and_then(|_| Some(sysctl::ports(&root)?.usable())),
        fds: open_files,
        sockets: Sockets::Files,
        time_wait_s: reuse.map(|reuse| budget::time_wait_s(reuse, delay_s, loopback)),
    }
}

/// What could not be read of the machine, and what is therefore not known of the run.
fn not_known(target: &Target, offer: &Offer) -> Vec<String> {
    let by_ports = target.address.ip().is_some();
    [
        (
            by_ports && offer.ports.is_none(),
            "net.ipv4.ip_local_port_range could not be read: whether local ports suffice is not known",
        ),
        (
            by_ports && offer.time_wait_s.is_none(),
            "net.ipv4.tcp_tw_reuse could not be read: how long a port rests after its connection is not known",
        ),
        (
            offer.fds.is_none(),
            "the limit of open files could not be read: whether it suffices is not known",
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
            "the client closes first: its {ports} local ports, each {time_wait_s} s in TIME_WAIT, allow {} new connections per \
             second for long",
            show_rate(per_s)
        ));
    }
    if plan.close_first == CloseFirst::Reset {
        remarks.push("connections end with RST (--close-first reset): servers may treat that unlike an orderly close".to_owned());
    }
    remarks
}
