//! One crash round: load, signal, restart under load, recovery, and judgment of the responses. The
//! seed determines the time of the signal.
//!
//! A check must provide the acknowledged requests, the number of requests with an unknown outcome,
//! and the state after the restart. The set check reads the items back. The other checks get this
//! state from the responses after the restart.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, thread};

use floodmark_check::crash::{RoundContext, crashed_scoring, crashed_sequence};
use floodmark_check::{
    ApiRound, ApiState, CheckContext, FoundItems, decode_numbers, decode_operations, decode_scores,
};
use floodmark_record::api_check::ApiCheckKind;
use floodmark_record::crash::{
    CrashRound, CrashSettings, CrashSignal, DurableState, RoundFindings,
};
use floodmark_record::kept::{KeptScore, TotalLine};
use floodmark_record::operation::{KeptOperation, OperationKind, mix64};
use floodmark_record::plan::{Check, Plan};
use floodmark_record::units::show_duration;
use floodmark_record::worker_input::WorkerInput;
use floodmark_record::{Counts, WorkerEnd};
use floodmark_stats::crash::{BEFORE_NS, FULL, recovery};
use floodmark_workers::WorkerFailure;

use super::CrashProcesses;
use super::load::RunningLoad;
use crate::experiment::StepError;
use crate::response_checks::unknown;

/// Interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum time until the load starts, in addition to the warm-up.
const LOAD_START: Duration = Duration::from_secs(30);

/// Time by which the pause of a stopped process exceeds the request timeout.
const STOPPED_BEYOND_TIMEOUT: Duration = Duration::from_millis(500);

/// Minimum time for which the load continues after the first ok response.
const LOAD_AFTER: Duration = Duration::from_millis(300);

/// Maximum time to wait, after the first ok response, for the server to reach full speed again.
const FULL_SPEED_LIMIT: Duration = Duration::from_secs(2);

/// Why a round was not completed.
#[derive(Debug)]
pub(super) enum RoundError {
    /// The server, the store or a file failed, or floodmark was interrupted.
    Step(StepError),
    /// The worker failed.
    Worker(WorkerFailure),
    /// The load ended before the round did.
    LoadEnded,
}

impl From<StepError> for RoundError {
    fn from(error: StepError) -> Self {
        RoundError::Step(error)
    }
}

impl From<String> for RoundError {
    fn from(what: String) -> Self {
        RoundError::Step(StepError::Failed(what))
    }
}

impl From<WorkerFailure> for RoundError {
    fn from(failure: WorkerFailure) -> Self {
        RoundError::Worker(failure)
    }
}

/// A round to run.
pub(super) struct NextRound {
    /// Number of the round, from 1.
    pub(super) number: u32,
    /// Whether floodmark started the server before this round.
    pub(super) is_fresh_start: bool,
    /// The state at the end of the previous round.
    pub(super) earlier: Option<DurableState>,
    /// Number (`{seq}`) of the first request.
    pub(super) first_number: u64,
}

/// Times of a crash on the worker's clock, in ns.
struct CrashTimes {
    began: u64,
    signaled: u64,
    restarted: u64,
}

impl NextRound {
    /// Runs the round.
    pub(super) fn run(
        self,
        processes: &mut CrashProcesses<'_, '_>,
        api: &mut ApiState,
    ) -> Result<CrashRound, RoundError> {
        let (settings, planned, hosts) = (processes.settings, processes.planned, processes.hosts);
        let first = &planned.plan;
        let plan = Plan {
            seed: first.seed.wrapping_add(u64::from(self.number) - 1),
            ..first.clone()
        };
        let check = (first.check.as_ref()).ok_or_else(|| "the plan has no check".to_owned())?;
        let after = crash_time(settings, first.seed, self.number);
        let name = format!("crash-{}-{}.bin", processes.trial.name, self.number);
        let path = processes.experiment.directory.path().join(&name);
        let input = WorkerInput {
            answers_file: Some(path.clone()),
            outlasts_server: true,
            ..WorkerInput::new(plan, self.first_number, planned.credentials.clone())
        };
        let side = &hosts.client;
        let (times, end) = thread::scope(|scope| {
            let load = RunningLoad::start(scope, side, &input)?;
            let times = crash(processes, &load, after);
            // The load must end in any case, because the scope waits for its thread.
            let end = load.end();
            match times {
                Ok(times) => Ok((times, end?)),
                Err(RoundError::LoadEnded) => Err(end.map_or_else(RoundError::Worker, |end| {
                    let failed = show_counts(&end.counts);
                    let trial = &processes.trial.name;
                    format!("{trial}: the load ended before the round did ({failed})").into()
                })),
                Err(error) => Err(error),
            }
        })?;
        self.judged((check, api), &times, &end, (path, name), processes)
    }

    /// Judges the responses of the round. Removes the response file if nothing was lost.
    fn judged(
        &self,
        (check, api): (&Check, &mut ApiState),
        times: &CrashTimes,
        end: &WorkerEnd,
        (path, name): (PathBuf, String),
        processes: &CrashProcesses<'_, '_>,
    ) -> Result<CrashRound, RoundError> {
        let unreadable = |error: String| format!("{}: {error}", path.display());
        let bytes = fs::read(&path).map_err(|error| unreadable(error.to_string()))?;
        let found = processes.items(end.next_number)?;
        let round = RoundContext {
            restarted_ns: processes.restarts_server().then_some(times.restarted),
            resumed_ns: times.restarted,
            is_fresh_start: self.is_fresh_start,
            earlier: self.earlier,
            responses: CheckContext {
                unknown: unknown(end),
                out_of_order_on_connection: end.out_of_order,
                offenders: &end.offenders,
                unreadable: end.not_numbers,
            },
        };
        let (trial, number) = (&processes.trial.name, self.number);
        let unjudged = |why| format!("{trial}: crash round {number}: {why}");
        let mut judged = judge(check, &bytes, &round, end, found, api).map_err(unjudged)?;
        // If the first round is inconclusive, the load is probably unsuitable and would waste all
        // rounds. Later rounds can be inconclusive by chance.
        if number == 1 && judged.findings.is_inconclusive() {
            return Err(unjudged(inconclusive(check)).into());
        }
        let recovered = recovery(
            &mut judged.done_ns,
            times.began,
            times.signaled,
            times.restarted,
        );
        let keeps_responses = !judged.findings.violations.is_empty();
        if !keeps_responses {
            if recovered.first_ok_ns.is_none() {
                return Err(unjudged("no ok response after the restart".to_owned()).into());
            }
            fs::remove_file(&path).map_err(|error| unreadable(error.to_string()))?;
        }
        let mut counts = end.warmup_counts.clone().unwrap_or_default();
        counts.merge(&end.counts);
        Ok(CrashRound {
            trial: trial.clone(),
            round: number,
            signaled_ns: times.signaled - times.began,
            restarted_ns: times.restarted - times.began,
            counts,
            first_ok_ns: recovered.first_ok_ns,
            full_speed_ns: recovered.full_speed_ns,
            rate_before_per_s: recovered.rate_before_per_s,
            found: judged.findings,
            responses: keeps_responses.then_some(name),
            state: DurableState {
                next_number: end.next_number,
                ..judged.state
            },
        })
    }
}

/// Lists the request outcomes of a load that ended too early.
fn show_counts(counts: &Counts) -> String {
    format!(
        "{} ok, {} reset, {} timed out, {} connect failures",
        counts.ok, counts.reset, counts.timed_out, counts.connect_failed
    )
}

/// Waits for the time of the crash, sends the signal, restarts the process and waits until the
/// server has recovered.
fn crash(
    processes: &mut CrashProcesses<'_, '_>,
    load: &RunningLoad<'_>,
    after: Duration,
) -> Result<CrashTimes, RoundError> {
    processes.phase = "before the crash";
    let within = LOAD_START + processes.planned.plan.warmup;
    let deadline = Instant::now() + within;
    let started = wait(processes, load, deadline, || load.began_ns().is_some())?;
    let began = load.began_ns().filter(|_| started);
    let began = began.ok_or_else(|| {
        format!(
            "{}: the load did not start within {}",
            processes.trial.name,
            show_duration(within)
        )
    })?;
    let crash_at = began + after.as_nanos() as u64;
    let left = Duration::from_nanos(crash_at.saturating_sub(load.now_ns()));
    wait(processes, load, Instant::now() + left, || false)?;
    let signaled = load.now_ns();
    let restarted = match processes.settings.signal {
        CrashSignal::Stop => {
            processes.phase = "while it was stopped";
            let stopped = processes.stop()?;
            let pause = processes.planned.plan.timeout + STOPPED_BEYOND_TIMEOUT;
            wait(processes, load, Instant::now() + pause, || false)?;
            let restarted = load.now_ns();
            stopped.resume()?;
            restarted
        }
        CrashSignal::Kill | CrashSignal::Term => {
            processes.end()?;
            let restarted = load.now_ns();
            processes.restart()?;
            restarted
        }
    };
    processes.phase = "after the restart";
    let within = processes.trial.server.start.ready_within();
    let recovered = |load: &RunningLoad<'_>| load.highest_rate_since(restarted) > 0.0;
    if !wait(processes, load, Instant::now() + within, || recovered(load))? {
        return Err(processes.not_recovered(within).into());
    }
    let before = load.rate_per_s(signaled.saturating_sub(BEFORE_NS).max(began), signaled);
    let first_ok = Instant::now();
    wait(processes, load, first_ok + FULL_SPEED_LIMIT, || {
        let is_full = |rate: f64| load.highest_rate_since(restarted) >= FULL * rate;
        first_ok.elapsed() >= LOAD_AFTER && before.is_none_or(is_full)
    })?;
    Ok(CrashTimes {
        began,
        signaled,
        restarted,
    })
}

/// Waits until a condition holds. Returns false if it does not hold by the deadline.
fn wait(
    processes: &mut CrashProcesses<'_, '_>,
    load: &RunningLoad<'_>,
    deadline: Instant,
    condition: impl Fn() -> bool,
) -> Result<bool, RoundError> {
    loop {
        if processes.experiment.runner.stop.is_set() {
            return Err(StepError::Interrupted.into());
        }
        if let Some(what) = processes.exit() {
            return Err(what.into());
        }
        if condition() {
            return Ok(true);
        }
        if load.has_ended() {
            return Err(RoundError::LoadEnded);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        thread::sleep(POLL_INTERVAL.min(left));
    }
}

/// Result of judging a round.
#[derive(Debug)]
struct JudgedRound {
    findings: RoundFindings,
    state: DurableState,
    /// Times of all ok responses, on the worker's clock.
    done_ns: Vec<u64>,
}

/// Judges a round from the content of its response file. `found` contains the items that were read
/// back after the load; `None` for checks other than the set check. `api` is the state of an API
/// that a check file describes.
///
/// # Errors
/// The file is damaged.
fn judge(
    check: &Check,
    bytes: &[u8],
    round: &RoundContext<'_>,
    end: &WorkerEnd,
    found: Option<FoundItems>,
    api: &mut ApiState,
) -> Result<JudgedRound, String> {
    Ok(match check {
        Check::Sequence => {
            let mut numbers = decode_numbers(bytes).map_err(|error| error.to_string())?;
            let (findings, state) = crashed_sequence(&mut numbers, round);
            JudgedRound {
                findings,
                state,
                done_ns: done_times(&numbers, round, |one| (one.sent_ns, one.done_ns)),
            }
        }
        Check::Scoring { score } => {
            let scored = end.scored.clone().unwrap_or_default();
            let first = round.earlier.and_then(|state| state.line);
            let line = first.or(scored.line);
            let line = line.unwrap_or(TotalLine::through(*score, 0, 0.0));
            let by = scored.line.map_or(Some(0), |own| own.ahead_of(&line));
            let scores = decode_scores(bytes).map_err(|error| error.to_string())?;
            let mut scores: Vec<KeptScore> = scores.iter().map(|one| one.moved(by, 0)).collect();
            let (findings, state) = crashed_scoring(&mut scores, line, &scored, round);
            JudgedRound {
                findings,
                state,
                done_ns: done_times(&scores, round, |one| (one.sent_ns(), one.done_ns())),
            }
        }
        Check::Api(check) => {
            let operations: Vec<KeptOperation> = decode_operations(bytes)
                .and_then(Iterator::collect)
                .map_err(|error| error.to_string())?;
            let ok = operations.iter().filter(|operation| is_ok(operation));
            let ok: Vec<KeptOperation> = ok.copied().collect();
            let done_ns = done_times(&ok, round, |one| (one.sent_ns(), one.done_ns()));
            let responses = ApiRound {
                operations,
                found: found.unwrap_or_default(),
                unreadable: end.not_numbers,
                restarts_server: round.restarted_ns.is_some(),
                resumed_ns: round.resumed_ns,
            };
            JudgedRound {
                findings: api.judge(check, responses)?,
                state: DurableState::default(),
                done_ns,
            }
        }
    })
}

/// Returns why the first round could not have detected a loss.
fn inconclusive(check: &Check) -> String {
    let advice = match check.api().map(|api| api.kind) {
        Some(ApiCheckKind::Register) => {
            "no key with an acknowledged write was read after the restart, before it was written \
             again; increase the weight of the read"
        }
        _ => {
            "no request was acknowledged before the restart; check the server's log, or set a \
             later time with `at`"
        }
    };
    format!("inconclusive: {advice}")
}

/// Returns whether an operation has an ok response.
fn is_ok(operation: &KeptOperation) -> bool {
    !matches!(
        operation.kind(),
        OperationKind::Refused | OperationKind::Unknown
    )
}

/// Returns the time of each response. A busy client may read a response from the killed server only
/// after the restart. Such a response counts as received just before the restart.
fn done_times<T>(
    responses: &[T],
    round: &RoundContext<'_>,
    times: impl Fn(&T) -> (u64, u64),
) -> Vec<u64> {
    let restarted = round.restarted_ns.unwrap_or(0);
    let done = responses.iter().map(|response| match times(response) {
        (sent, done) if sent < restarted => done.min(restarted - 1),
        (_, done) => done,
    });
    done.collect()
}

/// Returns the delay from the start of the load to the round's crash, uniformly distributed over
/// the range in `settings`. `seed` and `round` determine the delay.
pub fn crash_time(settings: &CrashSettings, seed: u64, round: u32) -> Duration {
    // 53 bits give every multiple of 2⁻⁵³ in [0, 1).
    let share = (mix(mix(seed) ^ u64::from(round)) >> 11) as f64 / (1_u64 << 53) as f64;
    let (from_s, to_s) = (settings.from_s, settings.to_s);
    Duration::try_from_secs_f64(from_s + share * (to_s - from_s)).unwrap_or_default()
}

/// Returns the first output of a SplitMix64 generator with this seed.
fn mix(seed: u64) -> u64 {
    mix64(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::crash::{CrashSignal, CrashTarget};
    use proptest::prelude::*;

    fn settings(from_s: f64, to_s: f64) -> CrashSettings {
        CrashSettings {
            rounds: 1,
            kill: CrashTarget::Server,
            signal: CrashSignal::Kill,
            from_s,
            to_s,
        }
    }

    #[test]
    fn spreads_the_times_evenly() {
        let settings = settings(0.5, 2.5);
        let mut counts = [0; 10];
        for round in 1..=10_000 {
            let time = crash_time(&settings, 7, round).as_secs_f64();
            counts[((time - 0.5) / 0.2) as usize] += 1;
        }
        // Each count has a mean of 1,000 and a standard deviation of 30.
        assert!(
            counts.iter().all(|n| (880..=1120).contains(n)),
            "{counts:?}"
        );
    }

    proptest! {
        #[test]
        fn depends_only_on_seed_and_round(
            from_s in 0.0f64..10.0, more_s in 0.0f64..10.0, seed in any::<u64>(), round in 1u32..1000,
        ) {
            let settings = settings(from_s, from_s + more_s);
            let time = crash_time(&settings, seed, round);
            prop_assert_eq!(time, crash_time(&settings, seed, round));
            let s = time.as_secs_f64();
            prop_assert!(s >= from_s - 1e-9 && s <= from_s + more_s + 1e-9);
            if more_s > 0.001 {
                prop_assert_ne!(time, crash_time(&settings, seed, round + 1));
                prop_assert_ne!(time, crash_time(&settings, seed.wrapping_add(1), round));
            }
        }
    }
}
