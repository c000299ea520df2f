//! The one next step that is worth most after a run, given how it was made.

use floodmark_record::cause::Cause;
use floodmark_record::events::EndReason;
use floodmark_record::plan::{Arrivals, Model};
use floodmark_record::profile::Profile;
use floodmark_record::run::{Run, Saturation, Status, SteadyClass};
use floodmark_record::units::{show_count, show_rate};
use floodmark_stats::saturation::KEPT_UP_SHARE;

use crate::asking;
use crate::notes::SHORT_RUN_S;
use crate::tls;
use crate::validity::load_threads;

/// From this share of failed requests on they are the finding, not the throughput.
pub const FAILED_SHARE: f64 = 0.01;

/// An offered load counts as met when this share of it was answered ok.
pub const MET_SHARE: f64 = 0.99;

/// Where to look at latency below a limit: a server near its limit queues, at 70 % of it hardly.
pub const BELOW_LIMIT: f64 = 0.7;

/// How much more to offer a server that met its load.
pub const STEP_UP: f64 = 1.5;

/// One line, without a full stop, that begins with what to do. `cpus` is how many the load process may use
/// (`environment.cpus`).
#[must_use]
pub fn next_step(run: &Run, cpus: u32) -> String {
    tls::never_stood(run)
        .or_else(|| ended(run))
        .or_else(|| checks(run))
        .or_else(|| unanswered(run))
        .or_else(|| untrusted(run, cpus))
        .or_else(|| failed(run))
        .or_else(|| unsettled(run))
        .or_else(|| because(run))
        .unwrap_or_else(|| explore(run))
}

fn ended(run: &Run) -> Option<String> {
    match run.ended.reason {
        EndReason::Completed => None,
        EndReason::ClientFailed => Some(
            "find out in its log, which is kept in the result, why the client failed".to_owned(),
        ),
        EndReason::Interrupted => {
            Some("let it run to its end, or ask for less with -d or -n".to_owned())
        }
        EndReason::NotHttp => Some(format!(
            "find out what listens on {}, or load another port",
            run.plan.target.authority
        )),
        EndReason::ServerGone => Some(format!(
            "find out in the server's log why {} went away, start it and repeat",
            run.plan.target.authority
        )),
    }
}

fn checks(run: &Run) -> Option<String> {
    let check = run.checks.iter().find(|c| !c.held)?;
    Some(format!(
        "mend what the check \"{}\" found before reading any figure: a server that answers wrongly can be as fast as it likes",
        check.name
    ))
}

fn unanswered(run: &Run) -> Option<String> {
    let counts = &run.requests;
    (counts.ended() == 0 && counts.connect_failed > 0).then(|| {
        format!(
            "see that a server listens at {} ({}): no connection could be opened",
            run.plan.target.authority,
            run.plan.target.show_addresses()
        )
    })
}

fn untrusted(run: &Run, cpus: u32) -> Option<String> {
    match run.validity.status {
        Status::Valid => None,
        Status::Bound => Some(match load_threads(&run.client.threads)?.more(cpus) {
            Some(threads) => format!("find the server's own limit: -t {threads}"),
            None => "give floodmark and the server CPUs of their own (taskset -c), or run floodmark on another machine"
                .to_owned(),
        }),
        Status::Invalid if run.errors.contains_key("ports_exhausted") => {
            Some(format!("use more source addresses (--sources 127.0.0.2-127.0.0.20 on loopback), kept connections or {}", asking::lower(&run.plan)))
        }
        Status::Invalid if run.errors.contains_key("fds_exhausted") => {
            Some("raise the limit of open files (ulimit -n 65536) or use fewer connections (-c)".to_owned())
        }
        Status::Invalid => Some(match run.plan.model {
            Model::Open => format!("see what disturbs this machine (floodmark doctor), then repeat, or use {}", asking::scaled(&run.plan, 0.5)),
            Model::Closed => "see what disturbs this machine (floodmark doctor), then repeat".to_owned(),
        }),
    }
}

/// What went wrong most often, where enough did.
fn failed(run: &Run) -> Option<String> {
    let counts = &run.requests;
    let kinds = [
        counts.wrong,
        counts.rejected,
        counts.timed_out,
        counts.reset,
        counts.malformed,
        counts.connect_failed,
    ];
    let most = kinds.iter().copied().max().unwrap_or(0);
    if (kinds.iter().sum::<u64>() as f64) < FAILED_SHARE * counts.intended.max(1) as f64 {
        return None;
    }
    let less = asking::scaled(&run.plan, 0.5);
    Some(if most == counts.wrong {
        let status = counts
            .statuses
            .iter()
            .filter(|(status, _)| !matches!(**status, 200..=399 | 429 | 503))
            .max_by_key(|(_, n)| **n);
        match status {
            Some((status, n)) => format!(
                "see why {} answers had status {status} (curl -i {}), or say that it is right: --expect status={status}",
                show_count(*n),
                run.plan.target.url
            ),
            None => format!(
                "see why {} answers were not what --expect asks for (curl -i {})",
                show_count(counts.wrong),
                run.plan.target.url
            ),
        }
    } else if most == counts.rejected {
        format!(
            "the server declined {} requests (429 or 503): see what it takes with {less}",
            show_count(counts.rejected)
        )
    } else if most == counts.timed_out {
        format!(
            "{} requests timed out: see what the server keeps up with, {less}",
            show_count(counts.timed_out)
        )
    } else if most == counts.reset {
        format!(
            "see in the server's log why it closed connections without an answer ({} times)",
            show_count(counts.reset)
        )
    } else if most == counts.malformed {
        format!(
            "see whether {} speaks HTTP/1.1 (curl -i {}): {} answers could not be read",
            run.plan.target.authority,
            run.plan.target.url,
            show_count(counts.malformed)
        )
    } else {
        format!(
            "see why {} connections could not be opened; try fewer at once: {less}",
            show_count(counts.connect_failed)
        )
    })
}

fn unsettled(run: &Run) -> Option<String> {
    let seconds = run.sending_s;
    let longer = asking::longer(&run.plan)?;
    if seconds < SHORT_RUN_S {
        return Some(format!("measure for longer: {longer}"));
    }
    let never = match run.steady.class {
        SteadyClass::Unsteady => !run.steady.changes_s.is_empty(),
        SteadyClass::Warming | SteadyClass::Slowing => run.steady.from_s.is_none(),
        SteadyClass::Steady | SteadyClass::Varied => false,
    };
    never.then(|| {
        format!(
            "the server did not settle: load it before with --warmup {:.0}s, or measure for longer: -d {:.0}s",
            seconds,
            seconds * 3.0
        )
    })
}

/// What the cause of the figure asks for. Where an offer was met, or nothing is known, there is more to be asked of the server.
fn because(run: &Run) -> Option<String> {
    let verdict = run.verdict.as_ref()?;
    let open = matches!(
        verdict.cause,
        Cause::None | Cause::OfferedRate | Cause::Unknown
    );
    (!open && run.plan.profile.is_none()).then(|| verdict.next.clone())
}

fn explore(run: &Run) -> String {
    let Some(throughput) = run.throughput_per_s.filter(|x| *x > 0.0) else {
        return match asking::longer(&run.plan) {
            Some(longer) => format!("measure for longer: {longer}"),
            None => format!("ask for more: {}", asking::scaled(&run.plan, 2.0)),
        };
    };
    if let Some(profile) = &run.plan.profile {
        return explore_changing(run, profile, throughput);
    }
    match (run.plan.model, run.plan.arrivals, run.plan.rate_per_s) {
        (Model::Open, Some(Arrivals::Burst), _) => {
            let n = run.requests.intended;
            if run.requests.ok as f64 >= MET_SHARE * n as f64 {
                format!(
                    "see whether it takes twice as many: --burst {}",
                    n.saturating_mul(2)
                )
            } else {
                format!(
                    "see whether it takes half as many: --burst {}",
                    (n / 2).max(1)
                )
            }
        }
        (Model::Open, _, Some(rate)) if throughput >= MET_SHARE * rate => format!(
            "the load was met; see how much more it takes: --rate {}",
            asking::rate(rate * STEP_UP)
        ),
        (Model::Open, _, Some(_)) => format!(
            "the server gave less than it was asked for; see how it answers below that: --rate {}",
            asking::rate(throughput * BELOW_LIMIT)
        ),
        _ => format!(
            "see how latency holds below the limit: --rate {}",
            asking::rate(throughput * BELOW_LIMIT)
        ),
    }
}

/// The same where the rate changed: a limit that was seen is to be held, one that was not is to be looked for.
fn explore_changing(run: &Run, profile: &Profile, throughput: f64) -> String {
    let hold = |per_s: f64| format!("--rate {}", asking::rate(per_s * BELOW_LIMIT));
    let met = |share: f64| throughput >= share * run.plan.rate_per_s.unwrap_or(0.0);
    let more = |factor| asking::scaled(&run.plan, factor);
    let beyond = run
        .steps
        .iter()
        .find(|step| step.throughput_per_s < KEPT_UP_SHARE * step.offered_per_s);
    match (profile, &run.saturation, beyond) {
        (Profile::Ramp(_), Some(Saturation::FellBehind(found)), _) => format!(
            "it fell behind at {}/s; see how it answers below that for longer: {}",
            show_rate(found.offered_per_s),
            hold(found.achieved_per_s)
        ),
        (Profile::Steps(_), _, Some(step)) if step.throughput_per_s > 0.0 => format!(
            "the step of {}/s was not met; see how it answers below what it gave: {}",
            show_rate(step.offered_per_s),
            hold(step.throughput_per_s)
        ),
        (Profile::Ramp(_), Some(Saturation::Undecided { .. }), _) => format!(
            "whether it kept up cannot be told; let the rate grow for longer: -d {:.0}s",
            run.sending_s * 2.0
        ),
        (Profile::Ramp(_) | Profile::Steps(_), _, None) if met(KEPT_UP_SHARE) => {
            format!("it kept up; see how much more it takes: {}", more(STEP_UP))
        }
        (Profile::Replay(_), ..) if met(MET_SHARE) => {
            format!(
                "the load was met; see whether it takes it twice as fast: {}",
                more(2.0)
            )
        }
        _ => format!(
            "the server gave less than it was asked for; see how it answers less: {}",
            more(0.5)
        ),
    }
}

#[cfg(test)]
#[path = "next_tests.rs"]
pub(crate) mod tests;
