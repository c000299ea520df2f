//! Coordinates the agents that send one load.
//!
//! ```text
//! all greet → inputs → all are ready, clocks measured → all wait → start → … → all end → clocks again
//! ```
//!
//! An agent that fails is lost. If too few are left, the others are stopped and the result is
//! partial.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use floodmark_host::Stop;
use floodmark_record::Event;
use floodmark_record::agent_lines::{AgentCommand, AgentHello, AgentLine};
use floodmark_record::events::{Connecting, Phase, WorkerReady};
use floodmark_record::plan::{Backend, Schedule};
use floodmark_record::worker_input::{AgentShare, WorkerInput};

use crate::agent::{
    Agent, AgentFacts, AgentLaunch, AgentProcess, AgentState, EXIT_TIMEOUT, FromAgent,
};
use crate::agent_clock::{SteadyClock, monotonic_ns};
use crate::kept::{KeptPart, join_kept};
use crate::merger::Merger;
use crate::single::{STOP_TIMEOUT, WorkerFailure};

/// Interval between checks of the timeouts and of the stop flag.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Number of pings in each of two groups: before and after the load. Only the best ping of each
/// group counts.
pub(crate) const EXCHANGES: usize = 16;

/// Maximum duration of the pings after the load.
const LAST_EXCHANGES: Duration = Duration::from_secs(2);

/// Interval between pings during the load.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which a silent agent counts as lost. A live agent answers a ping every second.
const SILENCE: Duration = Duration::from_secs(5);

/// Minimum time between sending the start of a phase and the start itself, so that all agents
/// receive it in time.
const LEAD: Duration = Duration::from_millis(50);

/// Interval between events about opening connections.
const CONNECTING_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of messages queued for the coordinator. Agents block when the queue is full.
pub(crate) const QUEUE_LIMIT: usize = 1024;

/// A load for several agents.
#[derive(Debug)]
pub struct AgentsLoad<'a> {
    /// How to start each agent.
    pub launches: Vec<AgentLaunch>,
    /// Minimum number of remaining agents with which the load continues.
    pub min_agents: usize,
    /// The whole load.
    pub input: &'a WorkerInput,
    /// Version that the agents must have.
    pub version: &'a str,
    /// Ends the load early.
    pub stop: &'a Stop,
}

/// An event for the caller.
#[derive(Debug)]
pub enum AgentsEvent<'a> {
    /// One agent's own event, before it is merged.
    Of(usize, &'a Event),
    /// A merged event, in the form that a single worker emits.
    Merged(Box<Event>),
}

/// How the load of several agents ended.
#[derive(Debug)]
pub struct AgentsEnd {
    /// One entry per agent, in the order of the launches.
    pub agents: Vec<AgentFacts>,
    /// Why the result is partial, if it is.
    pub failure: Option<WorkerFailure>,
}

/// Starts the agents, coordinates their load and forwards their events. Nothing is left running.
pub fn run_agents(
    mut load: AgentsLoad<'_>,
    on_event: &mut dyn FnMut(AgentsEvent<'_>),
) -> AgentsEnd {
    let (out, received) = sync_channel(QUEUE_LIMIT);
    let clock = SteadyClock::start();
    let launches = std::mem::take(&mut load.launches).into_iter().enumerate();
    let agents = launches.map(|(number, launch)| Agent::start(launch, number, clock, &out));
    let agents = Vec::from_iter(agents);
    let names = agents.iter().map(|agent| agent.name.clone()).collect();
    let coordinator = Coordinator {
        agents,
        load,
        merger: Merger::new(names),
        clock,
        origin_ns: clock.now_ns(),
        monotonic_ns: monotonic_ns().unsigned_abs(),
        has_inputs: false,
        is_ready: false,
        start_ns: None,
        began: None,
        connecting: None,
        last_exchanges: None,
        stopping: None,
        failure: None,
        unkept: None,
        on_event,
    };
    coordinator.run(&received)
}

/// Explains why an agent cannot be used, if it has another version.
pub(crate) fn other_version(hello: &AgentHello, version: &str) -> Option<String> {
    (hello.version != version).then(|| {
        format!(
            "runs floodmark {}, but this host runs {version}; install {version} there",
            hello.version
        )
    })
}

/// Explains why an agent cannot use the plan's backend; `None` if it can. The record names one
/// backend for all agents.
fn lacks_backend(hello: &AgentHello, backend: Backend) -> Option<String> {
    let why = hello.no_uring.as_ref()?;
    (backend == Backend::Uring).then(|| format!("{why}, or use --backend epoll for all agents"))
}

struct Coordinator<'a, 'e> {
    agents: Vec<Agent>,
    /// The load, without its launches.
    load: AgentsLoad<'a>,
    merger: Merger,
    clock: SteadyClock,
    /// Origin of the merged events' clock, in ns since 1970.
    origin_ns: i64,
    /// The same time on the host's monotonic clock.
    monotonic_ns: u64,
    /// Whether the agents have received their inputs.
    has_inputs: bool,
    /// Whether all agents were ready.
    is_ready: bool,
    /// Start of the latest phase in ns since 1970.
    start_ns: Option<i64>,
    /// The latest phase that has begun.
    began: Option<Phase>,
    /// When progress in opening connections was last reported.
    connecting: Option<Instant>,
    /// When the pings after the load began.
    last_exchanges: Option<Instant>,
    /// When the agents were asked to stop.
    stopping: Option<Instant>,
    failure: Option<WorkerFailure>,
    /// Why kept responses could not be written.
    unkept: Option<String>,
    on_event: &'e mut dyn FnMut(AgentsEvent<'_>),
}

impl Coordinator<'_, '_> {
    fn run(mut self, received: &Receiver<(usize, FromAgent)>) -> AgentsEnd {
        // All agents may be lost already.
        self.tick();
        let mut next_tick = Instant::now() + TICK;
        while !self.is_over() {
            match received.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
                Ok((agent, from)) => self.take(agent, from),
                Err(RecvTimeoutError::Timeout) => {}
                // Every agent has closed its pipes.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
            }
            if Instant::now() >= next_tick {
                self.tick();
                next_tick = Instant::now() + TICK;
            }
        }
        self.finish()
    }

    fn emit(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            (self.on_event)(AgentsEvent::Merged(Box::new(event)));
        }
    }

    /// Returns the agents that are not lost.
    fn live(&self) -> impl Iterator<Item = &Agent> {
        self.agents.iter().filter(|agent| !agent.is_lost())
    }

    fn all_live(&self, has: impl Fn(&Agent) -> bool) -> bool {
        self.live().next().is_some() && self.live().all(has)
    }

    fn is_over(&self) -> bool {
        use AgentState::{Greeted, Starting};
        let runs = |agent: &Agent| agent.is_active() || matches!(agent.state, Starting | Greeted);
        if self.agents.iter().any(runs) {
            return false;
        }
        let measured = |agent: &Agent| agent.is_closed || agent.clock.count >= EXCHANGES;
        self.failure.is_some()
            || self.live().next().is_none()
            || self
                .last_exchanges
                .is_some_and(|since| since.elapsed() > LAST_EXCHANGES || self.live().all(measured))
    }

    /// Checks everything that depends on time or on several agents.
    fn tick(&mut self) {
        if self.load.stop.is_set() {
            self.stop_all("the run was interrupted before it started");
        }
        self.check_timeouts();
        let live = self.live().count();
        if live < self.load.min_agents.max(1) && self.failure.is_none() && !self.load.stop.is_set()
        {
            self.fail();
        }
        if !self.has_inputs
            && self.stopping.is_none()
            && self.all_live(|agent| agent.state == AgentState::Greeted)
        {
            self.send_inputs();
        }
        if !self.is_ready && self.all_live(|agent| agent.ready.is_some()) {
            self.is_ready = true;
            let ready = self.ready();
            self.emit([Event::Ready(ready)]);
        }
        let can_start =
            |agent: &Agent| agent.state == AgentState::Waiting && agent.clock.count >= EXCHANGES;
        if self.stopping.is_none() && self.all_live(can_start) {
            self.start();
        }
        let has_ended = |agent: &Agent| agent.state == AgentState::Ended;
        if self.last_exchanges.is_none() && self.all_live(has_ended) {
            self.last_exchanges = Some(Instant::now());
            for agent in self.agents.iter_mut().filter(|agent| !agent.is_lost()) {
                agent.clock.load_ended();
                agent.ping();
            }
        }
    }

    fn check_timeouts(&mut self) {
        let is_late = (self.stopping).is_some_and(|since| since.elapsed() > STOP_TIMEOUT);
        for number in 0..self.agents.len() {
            let agent = &mut self.agents[number];
            if !agent.is_lost()
                && let Some(failure) = agent.failure()
            {
                self.lose(number, &failure);
                continue;
            }
            let silent = agent.heard.elapsed();
            let must_start = matches!(agent.state, AgentState::Starting)
                || (agent.state == AgentState::Preparing && agent.ready.is_none());
            let failure = if is_late && agent.is_active() {
                format!(
                    "did not stop within {} s and was killed",
                    STOP_TIMEOUT.as_secs()
                )
            } else if must_start && silent > agent.start_timeout {
                format!("did not start within {} s", agent.start_timeout.as_secs())
            } else if agent.is_active() && !must_start && silent > SILENCE {
                format!(
                    "sent nothing for {} s: it hangs, or its connection is broken",
                    SILENCE.as_secs()
                )
            } else {
                let is_due = agent.pinged.elapsed() >= PING_INTERVAL;
                if agent.is_active() && !must_start && is_due {
                    agent.ping();
                }
                continue;
            };
            let failure = agent.explain(&failure);
            self.lose(number, &failure);
        }
    }

    /// Marks an agent as lost, and kills the process that runs it or connects to it.
    fn lose(&mut self, number: usize, why: &str) {
        let started = self.start_ns;
        let after_s = started.map(|start_ns| (self.clock.now_ns() - start_ns) as f64 / 1e9);
        let agent = &mut self.agents[number];
        agent.state = AgentState::Lost(match after_s {
            Some(after_s) if after_s > 0.0 => format!("after {after_s:.1} s: {why}"),
            _ => why.to_owned(),
        });
        agent.process = None;
        let events = self.merger.lose(number);
        self.emit(events);
    }

    /// Ends the load because too few agents are left.
    fn fail(&mut self) {
        let lost = self.agents.iter().filter_map(|agent| {
            let why = agent.loss()?;
            Some(format!("agent {}: {why}", agent.name))
        });
        self.failure = Some(WorkerFailure::Agents(lost.collect::<Vec<_>>().join("; ")));
        self.stop_all("stopped: another agent did not start");
    }

    /// Stops the load of all agents. Agents without an input are lost for the reason `why`.
    fn stop_all(&mut self, why: &str) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(Instant::now());
        for number in 0..self.agents.len() {
            let agent = &self.agents[number];
            if matches!(agent.state, AgentState::Starting | AgentState::Greeted) {
                self.lose(number, why);
            } else if let Some(process) = &agent.process {
                process.command(AgentCommand::Stop);
            }
        }
    }

    /// Divides the load among the agents that have greeted.
    fn send_inputs(&mut self) {
        self.has_inputs = true;
        let count = self.live().count() as u32;
        let mut input = self.load.input.clone();
        let timetable = match input.plan.schedule() {
            Some(Schedule::Replay { replay, .. }) => replay.timetable.encode(),
            _ => Vec::new(),
        };
        let live = self.agents.iter_mut().filter(|agent| !agent.is_lost());
        for (index, agent) in (0..).zip(live) {
            input.share = Some(AgentShare { index, count });
            match input.to_json() {
                Ok(mut line) => {
                    line.push(b'\n');
                    line.extend_from_slice(&timetable);
                    if let Some(process) = &agent.process {
                        process.send(line);
                    }
                    agent.state = AgentState::Preparing;
                    agent.heard = Instant::now();
                }
                Err(error) => agent.state = AgentState::Lost(error.to_string()),
            }
        }
    }

    /// Returns the merged ready event.
    fn ready(&self) -> WorkerReady {
        let all = || self.live().filter_map(|agent| agent.ready.as_ref());
        let mut notices: Vec<String> = Vec::new();
        for agent in self.live() {
            let of_agent = agent.ready.iter().flat_map(|ready| &ready.notices);
            notices.extend(of_agent.map(|notice| format!("{}: {notice}", agent.name)));
        }
        WorkerReady {
            pid: all().next().map_or(0, |ready| ready.pid),
            notices,
            fd_limit: all().filter_map(|ready| ready.fd_limit).min(),
            fd_limit_before: all().filter_map(|ready| ready.fd_limit_before).min(),
            clock_origin_ns: Some(self.monotonic_ns),
        }
    }

    /// Starts the next phase at the same time on all agents.
    fn start(&mut self) {
        let events = self.merger.next_phase();
        self.emit(events);
        let round_trip_ns = self.live().map(|agent| agent.clock.longest_ns).max();
        let lead_ns = LEAD.as_nanos() as i64 + 2 * round_trip_ns.unwrap_or(0) as i64;
        let start_ns = self.clock.now_ns() + lead_ns;
        self.start_ns = Some(start_ns);
        for agent in self.agents.iter_mut().filter(|agent| !agent.is_lost()) {
            agent.state = AgentState::Running;
            agent.start_ns = start_ns + agent.clock.offset_ns();
            if let Some(process) = &agent.process {
                process.command(AgentCommand::Start(agent.start_ns));
            }
        }
    }

    fn finish(mut self) -> AgentsEnd {
        let merger = std::mem::replace(&mut self.merger, Merger::new(Vec::new()));
        let (events, end) = merger.finish();
        self.emit(events);
        if let Some(mut end) = end {
            let kept = self.join_kept(self.load.input.answers_file.as_deref());
            match (kept, &mut end.answers) {
                (Ok(count), Some(answers)) => answers.count = count,
                (Ok(_), None) => {}
                (Err(why), answers) => {
                    *answers = None;
                    let why = format!("the responses for the check cannot be written: {why}");
                    self.failure.get_or_insert(WorkerFailure::Agents(why));
                }
            }
            self.emit([Event::End(end)]);
        }
        let mut processes = Vec::from_iter(self.agents.iter_mut().filter_map(|a| a.process.take()));
        processes.iter_mut().for_each(AgentProcess::close);
        for mut process in processes {
            // A process that cannot be waited for is killed when it is dropped.
            let _ = process.end(EXIT_TIMEOUT);
        }
        AgentsEnd {
            agents: self.agents.iter().map(Agent::facts).collect(),
            failure: self.failure,
        }
    }

    /// Merges the agents' kept responses into one file and returns their number.
    fn join_kept(&self, file: Option<&Path>) -> Result<u64, String> {
        if let Some(why) = &self.unkept {
            return Err(why.clone());
        }
        let (Some(file), Some(check)) = (file, &self.load.input.plan.check) else {
            return Ok(0);
        };
        let parts = self
            .agents
            .iter()
            .filter_map(|agent| agent.kept(self.origin_ns));
        let parts: Vec<KeptPart<'_>> = parts.collect();
        let joined = join_kept(check, &parts, file).map_err(|error| error.to_string());
        // If the merge failed, the parts remain.
        for part in parts.iter().filter(|_| joined.is_ok()) {
            // A part that cannot be removed does no harm.
            let _ = std::fs::remove_file(part.path);
        }
        joined
    }

    /// Handles a message from an agent.
    fn take(&mut self, number: usize, from: FromAgent) {
        let agent = &mut self.agents[number];
        if !agent.is_lost()
            && let Some((line, at_ns)) = agent.take(from)
        {
            self.take_line(number, line, at_ns);
        }
    }

    fn take_line(&mut self, number: usize, line: AgentLine, at_ns: i64) {
        let agent = &mut self.agents[number];
        match line {
            AgentLine::Hello(hello) if agent.state == AgentState::Starting => {
                let other = other_version(&hello, self.load.version)
                    .or_else(|| lacks_backend(&hello, self.load.input.plan.backend));
                agent.hello = Some(hello);
                agent.state = AgentState::Greeted;
                match other {
                    Some(why) => self.lose(number, &why),
                    None => agent.ping(),
                }
            }
            AgentLine::Hello(_) | AgentLine::Checkup(_) => {
                self.lose(number, "sent an unexpected line");
            }
            AgentLine::Refused(why) => {
                self.lose(number, &why);
                if self.failure.is_none() {
                    self.fail();
                }
            }
            AgentLine::Pong { sent_ns, agent_ns } => {
                agent.clock.add(sent_ns, agent_ns, at_ns);
                if agent.clock.count < EXCHANGES {
                    agent.ping();
                }
            }
            AgentLine::Waiting => {
                agent.state = AgentState::Waiting;
                let events = self.merger.phase_ended(number);
                self.emit(events);
            }
            AgentLine::Began { agent_ns, clock_ns } => {
                agent.began_ns = Some((agent_ns, clock_ns));
            }
            AgentLine::Responses(bytes) => self.keep(number, &bytes),
            AgentLine::Event(event) => self.take_event(number, *event),
        }
    }

    fn keep(&mut self, number: usize, bytes: &[u8]) {
        if let (Some(file), None) = (&self.load.input.answers_file, &self.unkept) {
            let kept = self.agents[number].keep(number, bytes, file);
            self.unkept = kept.err().map(|error| error.to_string());
        }
    }

    fn take_event(&mut self, number: usize, event: Event) {
        (self.on_event)(AgentsEvent::Of(number, &event));
        let agent = &mut self.agents[number];
        match event {
            Event::Ready(ready) => agent.ready = Some(ready),
            Event::Connecting(progress) => {
                agent.connecting = progress;
                self.report_connecting();
            }
            Event::Began { phase, .. } => {
                let at_ns = self.start_ns.map_or(0, |ns| ns - self.origin_ns);
                if self.began != Some(phase) {
                    self.began = Some(phase);
                    let at_ns = at_ns.unsigned_abs();
                    self.emit([Event::Began { phase, at_ns }]);
                }
            }
            Event::End(end) => {
                agent.state = AgentState::Ended;
                agent.line = end.scored.as_ref().and_then(|scored| scored.line);
                let mut events = self.merger.take(number, Event::End(end));
                events.extend(self.merger.phase_ended(number));
                self.emit(events);
            }
            event => {
                let events = self.merger.take(number, event);
                self.emit(events);
            }
        }
    }

    fn report_connecting(&mut self) {
        if (self.connecting).is_some_and(|since| since.elapsed() < CONNECTING_INTERVAL) {
            return;
        }
        self.connecting = Some(Instant::now());
        let sum = |of: fn(&Connecting) -> u64| self.live().map(|agent| of(&agent.connecting)).sum();
        let progress = Connecting {
            standing: sum(|of| of.standing),
            failed: sum(|of| of.failed),
            of: sum(|of| of.of),
        };
        self.emit([Event::Connecting(progress)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_fix_for_an_agent_without_io_uring() {
        let mut hello = AgentHello {
            version: "1".to_owned(),
            host: "h".to_owned(),
            boot_id: None,
            cpus: 1,
            pid: 1,
            no_uring: Some("the kernel lacks io_uring".to_owned()),
        };
        let lacks = lacks_backend(&hello, Backend::Uring);
        let expected = "the kernel lacks io_uring, or use --backend epoll for all agents";
        assert_eq!(lacks.as_deref(), Some(expected));
        assert_eq!(lacks_backend(&hello, Backend::Epoll), None);
        hello.no_uring = None;
        assert_eq!(lacks_backend(&hello, Backend::Uring), None);
    }
}
