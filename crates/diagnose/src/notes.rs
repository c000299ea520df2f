//! Remarks on a run that do not change its validity: each says what was seen, what it means, and what to do.

use floodmark_record::events::{AddressUse, EndReason};
use floodmark_record::plan::{ConnectionUse, Model};
use floodmark_record::tls::Trust;
use floodmark_record::units::{show_ns, show_rate};

use crate::asking;
use crate::held;
use crate::validity::{EXPECTABLE, Evidence, load_threads, plural};

/// Shorter runs than this say little of what a server does for long: warm-up and chance weigh too much, seconds.
pub const SHORT_RUN_S: f64 = 5.0;

/// By Little's law as many requests are under way as throughput times response time; a closed run that is off
/// by more than this share counted or timed something wrongly.
pub const LITTLE_SHARE: f64 = 0.02;

/// Little's law is asked only where the mean response time is below this share of the window: at either end of it one
/// response time goes uncounted.
pub const LITTLE_EDGE: f64 = 0.005;

/// Above this share of what floodmark reaches against a server that costs nothing, floodmark's own cost is a
/// good part of the figure (T10 of the known-truth tests).
pub const CEILING_SHARE: f64 = 0.70;

/// The remarks on a run, the weightiest first.
pub(crate) fn notes(evidence: &Evidence<'_>) -> Vec<String> {
    [
        ended(evidence),
        expected(evidence),
        unverified(evidence),
        timed_out(evidence),
        held::unopened(evidence),
        held::lost(evidence),
        redirects(evidence),
        listen_queue(evidence),
        syn_retransmits(evidence),
        little(evidence),
        ceiling(evidence),
        left_out(evidence),
        unread_waits(evidence),
        untold_stall(evidence),
        short(evidence),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn ended(evidence: &Evidence<'_>) -> Option<String> {
    match evidence.ended {
        // The latter is no run of floodmark's own, which this judges.
        EndReason::Completed | EndReason::ClientFailed => None,
        EndReason::NotHttp => Some(
            "the run was ended: nothing that answered spoke HTTP/1.1; check the port".to_owned(),
        ),
        EndReason::Interrupted => {
            Some("the run was interrupted: the figures are of the part before that".to_owned())
        }
        EndReason::ServerGone => {
            let since = match evidence.server_gone_since_s {
                Some(s) => format!("no answer came after {s:.1} s"),
                None => "no answer came any more".to_owned(),
            };
            Some(format!(
                "the server went away: {since} and it accepts no connection; the figures include the time without it. \
                 Look into its log, start it again and measure again"
            ))
        }
    }
}

/// What is ours, and would spoil the figures if the experiment were not about it.
fn expected(evidence: &Evidence<'_>) -> Option<String> {
    let met = |name: &str| evidence.met_by_requests(name);
    let (name, cause) = EXPECTABLE
        .into_iter()
        .find(|(name, _)| evidence.is_expected(name) && met(name) > 0)?;
    let lacked = match name {
        "ports_exhausted" => "no local port",
        _ => "no open file",
    };
    Some(format!(
        "there was {lacked} left for {}, as the experiment expects ({cause}): the figures are of that, not of the server",
        plural(met(name), "connection", "connections")
    ))
}

fn unverified(evidence: &Evidence<'_>) -> Option<String> {
    let tls = evidence.plan.tls.as_ref()?;
    (tls.trust == Trust::Nothing).then(|| {
        "the server's certificate was not verified (--insecure): the figures are of whoever answered at its address".to_owned()
    })
}

fn timed_out(evidence: &Evidence<'_>) -> Option<String> {
    let n = evidence.counts.timed_out;
    (n > 0).then(|| {
        format!(
            "{} got no answer within {} (--timeout): they count in the percentiles as at least that long",
            plural(n, "request", "requests"),
            show_ns(evidence.plan.timeout_s * 1e9)
        )
    })
}

/// Statuses that send the client elsewhere (RFC 9110 section 15.4).
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

fn redirects(evidence: &Evidence<'_>) -> Option<String> {
    let found = REDIRECTS.iter().filter_map(|status| {
        let n = evidence.counts.statuses.get(status).filter(|n| **n > 0)?;
        Some((status.to_string(), n))
    });
    let (statuses, n): (Vec<String>, Vec<u64>) = found.unzip();
    let n = n.iter().sum();
    (n > 0).then(|| {
        format!(
            "{} ({}), which floodmark does not follow: load the target itself",
            plural(n, "answer was a redirect", "answers were redirects"),
            statuses.join(", ")
        )
    })
}

/// Overflows are drops too: the larger of both counters is the number of connections concerned.
fn listen_queue(evidence: &Evidence<'_>) -> Option<String> {
    let overflows = evidence.host.listen_overflows.unwrap_or(0.0);
    let drops = evidence.host.listen_drops.unwrap_or(0.0);
    if overflows > 0.0 {
        Some(format!(
            "{} on this machine met a full accept queue (ListenOverflows) and waited a second or more to try again: a server \
             here took new connections too slowly. Raise its listen backlog and net.core.somaxconn, or open fewer \
             connections at once",
            plural(overflows as u64, "new connection", "new connections")
        ))
    } else if drops > 0.0 {
        Some(format!(
            "{} dropped by a listening socket on this machine (ListenDrops), not for a full queue: memory or a limit of \
             the kernel may be short. See dmesg",
            plural(drops as u64, "new connection was", "new connections were")
        ))
    } else {
        None
    }
}

fn syn_retransmits(evidence: &Evidence<'_>) -> Option<String> {
    let n = evidence.host.syn_retransmits.filter(|n| *n > 0.0)?;
    Some(format!(
        "{} sent again because nobody answered the first time (TCPSynRetrans); each repeat costs that connection a \
         second or more. The server's accept queue was full or packets were lost: see the connect times, and raise the server's \
         listen backlog",
        plural(
            n as u64,
            "connection request was",
            "connection requests were"
        )
    ))
}

/// N = X·R on kept connections, each always with one request under way.
fn little(evidence: &Evidence<'_>) -> Option<String> {
    let plan = evidence.plan;
    let counts = evidence.counts;
    if plan.model != Model::Closed
        || plan.connection_use != ConnectionUse::Kept
        || counts.ok != counts.sent
        || counts.reconnects > 0
        || evidence.ended != EndReason::Completed
    {
        return None;
    }
    let n = f64::from(plan.connections);
    let mean_s = evidence.response.mean? / 1e6;
    if n < 1.0 || mean_s > LITTLE_EDGE * evidence.window_s {
        return None;
    }
    let under_way = evidence.throughput_per_s? * mean_s;
    if ((n - under_way) / n).abs() <= LITTLE_SHARE {
        return None;
    }
    Some(format!(
        "throughput times mean response time gives {under_way:.1} requests under way at once, but {n:.0} connections were kept \
         busy (Little's law): connections stood idle for {:.0} % of the time inside floodmark, or a time was taken wrongly. See \
         lateness and blocked time",
        ((n - under_way) / n * 100.0).abs()
    ))
}

fn ceiling(evidence: &Evidence<'_>) -> Option<String> {
    let ceiling = evidence.ceiling_per_s.filter(|c| *c > 0.0)?;
    let throughput = evidence.throughput_per_s?;
    let share = throughput / ceiling;
    (share > CEILING_SHARE).then(|| {
        format!(
            "{}/s is {:.0} % of the {}/s that floodmark reaches here against a server that costs nothing: part of \
             the figure is floodmark's own cost. Use more threads (-t) or another machine for the load",
            show_rate(throughput),
            share * 100.0,
            show_rate(ceiling)
        )
    })
}

/// Addresses of the host that were tried in vain, while others were used.
fn left_out(evidence: &Evidence<'_>) -> Option<String> {
    let used = evidence.addresses.iter().filter(|one| one.opened > 0);
    let used: Vec<String> = used.map(|one| one.address.to_string()).collect();
    let in_vain = |one: &AddressUse| {
        let why = one.left_out.as_deref()?.replace('_', " ");
        let moved = plural(one.moved, "connection", "connections");
        Some(format!("{} ({why}, {moved})", one.address))
    };
    let unused: Vec<String> = evidence.addresses.iter().filter_map(in_vain).collect();
    (!used.is_empty() && !unused.is_empty()).then(|| {
        format!(
            "of the addresses of {} nobody accepted at {}; all went to {}",
            evidence.plan.target.authority,
            unused.join(", "),
            used.join(", ")
        )
    })
}

/// Without it a thread that has no CPU looks like one that has nothing to do.
fn unread_waits(evidence: &Evidence<'_>) -> Option<String> {
    let threads = load_threads(evidence.threads).filter(|threads| threads.waiting.is_none())?;
    Some(format!(
        "how long floodmark's threads waited for a CPU (/proc/thread-self/schedstat) could not be read: they ran {:.0} % of the time, and whether they were full beyond that is not known. See that other work leaves them a CPU (floodmark doctor)",
        threads.on_cpu * 100.0
    ))
}

fn untold_stall(evidence: &Evidence<'_>) -> Option<String> {
    evidence.longest_stall_ns.is_none().then(|| {
        "the load process did not live to tell whether it stood still: that its figures are the server's is not known"
            .to_owned()
    })
}

/// A burst is short by intent, a replay by its file.
fn short(evidence: &Evidence<'_>) -> Option<String> {
    let cut = evidence.ended != EndReason::Completed;
    let longer = asking::longer(evidence.plan)?;
    (evidence.sending_s < SHORT_RUN_S && !cut).then(|| {
        format!(
            "the run lasted only {}: start-up and chance weigh much in it. Use {longer} or longer",
            show_ns(evidence.sending_s * 1e9)
        )
    })
}
