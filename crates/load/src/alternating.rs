//! Loads two servers alternately in the closed model, a few milliseconds at a time.
//!
//! Both servers run all the time, but only one of them is loaded. A host's speed often changes
//! within a second, for example when other virtual machines use its caches. Such changes then
//! affect both servers alike. They would distort the ratio of two consecutive loads. Bulej et al.
//! ("Duet Benchmarking: Improving Measurement Accuracy in the Cloud", ICPE 2020) use the same idea,
//! but load both servers at the same time, each on its own CPUs.
//!
//! A turn ends when all of its requests have an outcome, so only one server processes requests at a
//! time, unless a request times out. All threads take the same turns. The lengths of the turns are
//! random: otherwise, a server's periodic work could always fall into the other server's turns.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use floodmark_record::events::{EndReason, Phase};
use floodmark_record::gate::{AlternatingEnd, SideFigures};
use floodmark_record::plan::Plan;
use floodmark_record::worker_input::{AgentShare, OtherSide, WorkerInput};
use floodmark_record::{Event, TimeKind};
use floodmark_stats::Histogram;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::backend::IoBackend;
use crate::clock::{Clock, Ns, seconds};
use crate::core::Core;
use crate::mix::Picks;
use crate::outgoing::Outgoing;
use crate::recorder::Recorder;
use crate::request::PlanRequests;
use crate::schedule::ThreadShare;
use crate::slice::{Message, SLICES, Slice};
use crate::thread::{LoadThread, SharedState};
use crate::tls::Tls;
use crate::worker::{self, BackendWork, StopFlag, WorkerError};

/// Maximum length of a phase in multiples of its planned length. Slow responses extend turns.
const MAX_EXTENSION: u64 = 4;

/// The plans and requests of both sides, and the state that all threads share.
struct Sides<'a> {
    plans: [&'a Plan; 2],
    requests: [PlanRequests; 2],
    tls: Option<Tls>,
    /// Number of the first request of each side.
    first_number: u64,
    /// Mean length of a turn.
    mean: Ns,
    shared: SharedState,
    /// The turns; `None` until all connections are open.
    turns: Mutex<Option<TurnSchedule>>,
}

/// Schedules the turns.
struct TurnSchedule {
    random: Xoshiro256PlusPlus,
    /// Mean length of a turn.
    mean: Ns,
    /// Planned time per side in the warm-up and in the measurement.
    planned: [Ns; 2],
    phase: Phase,
    /// Start of the phase.
    begin: Ns,
    /// Total turn time per side in the phase so far.
    loaded: [Ns; 2],
    /// The current turn, if any.
    turn: Option<Turn>,
    reason: EndReason,
}

/// A turn of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    side: usize,
    phase: Phase,
    begin: Ns,
    /// End of sending.
    end: Ns,
}

impl TurnSchedule {
    fn new(plan: &Plan, mean: Ns, now: Ns) -> Self {
        TurnSchedule {
            random: Xoshiro256PlusPlus::seed_from_u64(plan.seed),
            mean: mean.max(1),
            planned: [
                plan.warmup.as_nanos() as Ns,
                seconds(plan.duration_s().unwrap_or_default()),
            ],
            phase: first_phase(plan),
            begin: now,
            loaded: [0; 2],
            turn: None,
            reason: EndReason::Completed,
        }
    }

    /// Ends the current turn and returns the next one. Returns `None` at the end of the load.
    fn next(&mut self, now: Ns) -> Option<Turn> {
        let last = self.turn.take();
        if let Some(turn) = last {
            self.loaded[turn.side] += now - turn.begin;
        }
        let planned = self.planned[self.phase as usize];
        let is_over = self.loaded.iter().all(|loaded| *loaded >= planned)
            || now - self.begin > MAX_EXTENSION * 2 * planned;
        if self.reason != EndReason::Completed || (is_over && self.phase == Phase::Measure) {
            return None;
        }
        if is_over {
            (self.phase, self.begin, self.loaded) = (Phase::Measure, now, [0; 2]);
        }
        let side = last.map_or(0, |turn| 1 - turn.side);
        let half = self.mean / 2;
        let length = half + self.random.next_u64() % (2 * half).max(1);
        self.turn = Some(Turn {
            side,
            phase: self.phase,
            begin: now,
            end: now + length.max(1),
        });
        self.turn
    }
}

fn first_phase(plan: &Plan) -> Phase {
    if plan.warmup.is_zero() {
        Phase::Measure
    } else {
        Phase::Warmup
    }
}

/// Loads the server of `input` and the server of `other` alternately. Emits [`Event::Alternated`].
///
/// # Errors
/// A request or the TLS configuration is invalid, a system call fails, or a thread panics.
pub fn run(
    input: &WorkerInput,
    other: &OtherSide,
    stop: &StopFlag,
    emit: impl FnOnce(Event),
) -> Result<(), WorkerError> {
    let plan = &input.plan;
    let threads = plan.connections.clamp(1, plan.threads.max(1));
    let mean = other.mean_turn.as_nanos() as Ns;
    let sides = Sides {
        plans: [plan, &other.plan],
        requests: [PlanRequests::of(plan)?, PlanRequests::of(&other.plan)?],
        first_number: input.first_number,
        tls: Tls::of(plan, &input.credentials)?,
        mean,
        shared: SharedState::new(threads, stop.clone(), Clock::start(), 1),
        turns: Mutex::new(None),
    };
    let sums = thread::scope(|scope| -> Result<[Slice; 2], WorkerError> {
        let mut loading = Vec::new();
        let (mut back, mut outs) = ([Vec::new(), Vec::new()], Vec::new());
        let receivers = [(); 2].map(|()| {
            let (out, messages) = sync_channel(threads as usize * SLICES);
            outs.push(out);
            messages
        });
        for share in ThreadShare::of_agent(AgentShare::WHOLE, threads) {
            let number = share.thread;
            let cores = [0, 1].map(|side: usize| {
                let (give_back, returned) = worker::stocked(number, 0);
                back[side].push(give_back);
                let (plan, out) = (sides.plans[side], outs[side].clone());
                let recorder = Recorder::new(plan, Slice::new(number, 0), out, returned);
                Core::new(plan, share, recorder, &sides.requests[side])
            });
            let job = ThreadJob {
                sides: &sides,
                share,
                cores,
            };
            let handle = thread::Builder::new()
                .name(format!("load-{number}"))
                .spawn_scoped(scope, move || job.load());
            loading.push(handle.map_err(WorkerError::system("starting a load thread"))?);
        }
        drop(outs);
        let mut collecting = Vec::new();
        for (messages, back) in receivers.into_iter().zip(back) {
            collecting.push(scope.spawn(move || collect(&messages, &back)));
        }
        for handle in loading {
            let loaded = handle.join().map_err(|_| WorkerError::Thread)?;
            loaded?;
        }
        let mut sums = collecting.into_iter().map(|handle| handle.join());
        let mut next = || sums.next().and_then(Result::ok).ok_or(WorkerError::Thread);
        Ok([next()?, next()?])
    })?;
    let turns = (sides.turns.into_inner()).unwrap_or_else(PoisonError::into_inner);
    let turns: TurnSchedule = turns.ok_or(WorkerError::Thread)?;
    let [first, second] = [0, 1].map(|side: usize| figures(&sums[side], turns.loaded[side]));
    emit(Event::Alternated(AlternatingEnd {
        reason: turns.reason,
        turn_s: mean as f64 / 1e9,
        first,
        second,
    }));
    Ok(())
}

/// Sums the slices of one side's measurement.
fn collect(messages: &Receiver<Message>, back: &[Sender<Box<Slice>>]) -> Slice {
    let mut sum = Slice::new(0, 0);
    while let Ok(message) = messages.recv() {
        if let Message::Slice(mut slice) = message {
            if slice.phase == Phase::Measure {
                sum.merge(&slice);
            }
            slice.clear();
            // Sending fails only after the thread has ended.
            let _ = back[slice.thread as usize].send(slice);
        }
    }
    sum
}

fn figures(sum: &Slice, loaded: Ns) -> SideFigures {
    let of = |kind: TimeKind| &sum.times[kind as usize];
    let none = Histogram::default();
    SideFigures {
        loaded_s: loaded as f64 / 1e9,
        requests: sum.all.to_row().counts,
        good: sum.all.row.good,
        response_us: Histogram::summarise(of(TimeKind::Response), of(TimeKind::Censored), &none),
        service_us: Histogram::summarise(of(TimeKind::Service), &none, &none),
    }
}

/// A load thread whose backends are not connected yet.
struct ThreadJob<'a> {
    sides: &'a Sides<'a>,
    share: ThreadShare,
    cores: [Core; 2],
}

impl ThreadJob<'_> {
    /// Runs the thread with one backend for each side.
    fn load(self) -> Result<(), WorkerError> {
        let (sides, share) = (self.sides, self.share);
        let servers = [0, 1].map(|side: usize| (sides.plans[side], &sides.requests[side]));
        worker::with_backends(servers, sides.tls.as_ref(), share, sides.shared.clock, self)
    }
}

impl BackendWork<2> for ThreadJob<'_> {
    type Done = Result<(), WorkerError>;

    /// Opens the connections, and takes turns until the load ends. A thread that fails stops the
    /// load, but still waits at the barrier. Otherwise, the other threads would wait forever.
    fn run<B: IoBackend>(self, backends: [io::Result<B>; 2]) -> Result<(), WorkerError> {
        let broken = |error| WorkerError::system("waiting for sockets")(error);
        let sides = self.sides;
        let shared = &sides.shared;
        let mut threads = Vec::new();
        let mut failure = None;
        let parts = backends.into_iter().zip(self.cores);
        for (side, (backend, core)) in parts.enumerate() {
            let plan = sides.plans[side];
            let ready = backend.and_then(|backend| {
                let outgoing = Outgoing::new(sides.requests[side].http1(), plan.seed);
                let mut thread = LoadThread::new(shared.clock, core, backend, outgoing);
                thread.prepare(shared, |_| {})?;
                let picks = Picks::new(plan, self.share, sides.first_number);
                thread.begin_turns(first_phase(plan), picks);
                Ok(thread)
            });
            match ready {
                Ok(thread) => threads.push(thread),
                Err(error) => failure = Some(broken(error)),
            }
        }
        let mut phase = first_phase(sides.plans[0]);
        loop {
            if failure.is_some() {
                shared.stop.stop();
            }
            let lock = || sides.turns.lock().unwrap_or_else(PoisonError::into_inner);
            if shared.barrier.wait().is_leader() {
                let now = shared.clock.now();
                let mut turns = lock();
                let turns =
                    turns.get_or_insert_with(|| TurnSchedule::new(sides.plans[0], sides.mean, now));
                if shared.stop.is_set() {
                    turns.reason = EndReason::Interrupted;
                }
                turns.next(now);
            }
            shared.barrier.wait();
            let Some(turn) = lock().as_ref().and_then(|turns| turns.turn) else {
                break;
            };
            if turn.phase != phase {
                phase = turn.phase;
                threads.iter_mut().for_each(LoadThread::begin_measurement);
            }
            let Some(thread) = threads.get_mut(turn.side).filter(|_| failure.is_none()) else {
                continue;
            };
            match catch_unwind(AssertUnwindSafe(|| thread.take_turn(turn.end, shared))) {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(reason))) => {
                    if let Some(turns) = lock().as_mut() {
                        turns.reason = reason;
                    }
                }
                Ok(Err(error)) => failure = Some(broken(error)),
                Err(_) => failure = Some(WorkerError::Thread),
            }
        }
        threads.iter_mut().for_each(LoadThread::end_turns);
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::closed_plan;
    use floodmark_record::plan::{Length, Model};
    use std::time::Duration;

    const MS: Ns = 1_000_000;

    fn turns(warmup_ms: u64, seconds: f64) -> TurnSchedule {
        let mut plan = closed_plan(1, 0);
        plan.warmup = Duration::from_millis(warmup_ms);
        plan.model = Model::Closed {
            length: Length::seconds(seconds),
        };
        TurnSchedule::new(&plan, 5 * MS, 0)
    }

    #[test]
    fn alternates_turns_of_random_length() {
        let mut turns = turns(0, 1.0);
        let (mut now, mut last, mut lengths) = (0, 1, Vec::new());
        while let Some(turn) = turns.next(now) {
            assert_eq!((turn.side, turn.begin), (1 - last, now));
            last = turn.side;
            lengths.push(turn.end - turn.begin);
            // The second side takes longer to complete its requests.
            now = turn.end + turn.side as Ns * MS;
        }
        assert!(
            lengths
                .iter()
                .all(|length| (5 * MS / 2..=15 * MS / 2).contains(length))
        );
        assert!(lengths.windows(2).all(|two| two[0] != two[1]));
        let mean = lengths.iter().sum::<Ns>() / lengths.len() as Ns;
        assert!(mean.abs_diff(5 * MS) < MS / 2, "{mean}");
        assert!(turns.loaded.iter().all(|loaded| *loaded >= 1000 * MS));
        assert!(turns.loaded[1] > turns.loaded[0] * 11 / 10);
    }

    #[test]
    fn warms_up_both_sides_before_the_measurement() {
        let mut turns = turns(200, 1.0);
        let (mut now, mut times) = (0, [[0; 2]; 2]);
        while let Some(turn) = turns.next(now) {
            now = turn.end;
            times[turn.phase as usize][turn.side] += turn.end - turn.begin;
        }
        for (planned, times) in [(200 * MS, times[0]), (1000 * MS, times[1])] {
            assert!(
                times
                    .iter()
                    .all(|time| (planned..planned + 20 * MS).contains(time))
            );
        }
    }

    #[test]
    fn slow_responses_do_not_extend_the_load_forever() {
        let mut turns = turns(0, 1.0);
        let mut now = 0;
        while let Some(turn) = turns.next(now) {
            now += if turn.side == 1 { 600 * MS } else { MS };
        }
        assert!((8000 * MS..9000 * MS).contains(&now), "{now}");
        assert!(turns.loaded[0] < 100 * MS);
    }
}
