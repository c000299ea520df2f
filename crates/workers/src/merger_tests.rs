use std::collections::{BTreeSet, VecDeque};

use floodmark_record::Counts;
use floodmark_record::events::GroupRow;
use proptest::prelude::*;

use super::*;
use crate::testing::worker_end;

/// Length of a part in ns, and number of parts per row.
const PART_NS: u64 = 100;
const ROW_PARTS: u64 = 3;

/// Requests of one part: intended, sent and ok. Each number is at most the previous one.
type Requests = (u64, u64, u64);

/// One agent's parts in each phase, and the number of ns cut from the end of its last part.
#[derive(Debug, Clone)]
struct Script {
    phases: Vec<Vec<Requests>>,
    cut_ns: u64,
    has_groups: bool,
    /// Number of events after which the agent is lost.
    lost_after: Option<usize>,
}

fn scripts() -> impl Strategy<Value = Vec<Script>> {
    let requests = (0u64..20, 0u64..20, 0u64..20);
    let requests = requests.prop_map(|(a, b, c)| (a.max(b).max(c), b.max(c), c));
    let script = move |phases: usize| {
        let parts = proptest::collection::vec(requests.clone(), 1..12);
        (
            proptest::collection::vec(parts, phases),
            0..PART_NS,
            any::<bool>(),
            proptest::option::weighted(0.3, 0usize..20),
        )
            .prop_map(|(phases, cut_ns, has_groups, lost_after)| Script {
                phases,
                cut_ns,
                has_groups,
                lost_after,
            })
    };
    (1usize..=2).prop_flat_map(move |phases| proptest::collection::vec(script(phases), 1..5))
}

fn sums(requests: &[Requests]) -> GroupRow {
    let mut sums = GroupRow::default();
    for &(intended, sent, ok) in requests {
        sums.counts.intended += intended;
        sums.counts.sent += sent;
        sums.counts.ok += ok;
        *sums
            .counts
            .statuses
            .entry(200 + intended as u16)
            .or_default() += ok;
        sums.ok_in_window += ok;
        sums.bytes_sent += 7 * sent;
        sums.bytes_received += 11 * ok;
    }
    sums
}

/// Response times of the requests of a row.
fn times(agent: usize, requests: &[Requests]) -> Vec<u64> {
    let times = requests.iter().map(|&(intended, sent, ok)| {
        let base = (agent as u64 + 1) * 1_000_003 + intended * 50_021 + sent * 7;
        (0..ok).map(move |i| base + i * i * 90_001)
    });
    times.flatten().collect()
}

fn encoded(times: &[u64]) -> BTreeMap<TimeKind, String> {
    let mut histogram = Histogram::new();
    times.iter().for_each(|ns| histogram.record(*ns));
    let known = (!times.is_empty()).then(|| (TimeKind::Response, histogram.encode()));
    known.into_iter().collect()
}

/// Returns the parts and rows of one phase of an agent.
fn phase_events(
    agent: usize,
    script: &Script,
    phase: Phase,
    requests: &[Requests],
) -> VecDeque<Event> {
    let groups = |sums: &GroupRow| {
        if script.has_groups {
            vec![sums.clone(), GroupRow::default()]
        } else {
            Vec::new()
        }
    };
    let to_ns = |end: usize| {
        let is_last = end == requests.len();
        end as u64 * PART_NS - if is_last { script.cut_ns } else { 0 }
    };
    let mut events = VecDeque::new();
    for (index, row) in requests.chunks(ROW_PARTS as usize).enumerate() {
        let first = index * ROW_PARTS as usize;
        for (i, part) in row.iter().enumerate() {
            let sums = sums(&[*part]);
            events.push_back(Event::Part(PartRow {
                phase,
                from_ns: (first + i) as u64 * PART_NS,
                to_ns: to_ns(first + i + 1),
                groups: groups(&sums),
                sums,
            }));
        }
        let sums = sums(row);
        let count = row.len() as u64;
        events.push_back(Event::Second(SecondRow {
            phase,
            index: index as u64,
            from_ns: first as u64 * PART_NS,
            to_ns: to_ns(first + row.len()),
            good: 0,
            ok_in_window: sums.ok_in_window,
            good_in_window: 0,
            bytes_sent: sums.bytes_sent,
            bytes_received: sums.bytes_received,
            connects: count,
            open_connections: 5 * agent as u64 + sums.counts.sent,
            user_s: 0.25 * count as f64,
            system_s: 0.5,
            histograms: encoded(&times(agent, row)),
            groups: groups(&sums),
            counts: sums.counts,
        }));
    }
    events
}

/// Place of a part (its start) or of a row (its index).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    Part(u64),
    Row(u64),
}

fn sent(event: &Event) -> (Phase, Sent) {
    match event {
        Event::Part(part) => (part.phase, Sent::Part(part.from_ns)),
        Event::Second(row) => (row.phase, Sent::Row(row.index)),
        other => panic!("unexpected {other:?}"),
    }
}

/// A simulated agent and what it has sent so far.
struct Simulated {
    script: Script,
    left: VecDeque<Event>,
    sent: Vec<Event>,
    has_ended_phase: bool,
    is_lost: bool,
    open_connections: u64,
}

impl Simulated {
    fn has_sent(&self, place: (Phase, Sent)) -> bool {
        self.sent.iter().any(|event| sent(event) == place)
    }

    /// Returns whether the agent may still send the event. After a row, it sends no more parts of
    /// that row.
    fn may_send(&self, place: (Phase, Sent)) -> bool {
        let has_sent_row = match place.1 {
            Sent::Part(from_ns) => {
                self.has_sent((place.0, Sent::Row(from_ns / PART_NS / ROW_PARTS)))
            }
            Sent::Row(_) => false,
        };
        !(self.is_lost || self.has_ended_phase || self.has_sent(place) || has_sent_row)
    }

    /// Returns the complete counts of what the agent has sent in a phase.
    fn counts(&self, phase: Phase) -> Counts {
        let mut sum = Counts::default();
        for event in &self.sent {
            if let Event::Part(part) = event
                && part.phase == phase
            {
                sum.merge(&part.sums.counts);
            }
        }
        sum.complete();
        sum
    }

    /// Returns what the agent contributes to the row or part at `place`. A lost agent's unfinished
    /// second contributes its parts.
    fn requests(&self, phases: &[Phase], place: (Phase, Sent)) -> Vec<Requests> {
        let phase = phases.iter().position(|phase| *phase == place.0).unwrap();
        let parts = self.script.phases[phase].iter().enumerate();
        let was_sent = |i: usize| self.has_sent((place.0, Sent::Part(i as u64 * PART_NS)));
        let belongs = |i: u64| match place.1 {
            Sent::Part(from_ns) => i * PART_NS == from_ns,
            Sent::Row(index) => i / ROW_PARTS == index,
        };
        let parts = parts.filter(|(i, _)| belongs(*i as u64) && was_sent(*i));
        parts.map(|(_, requests)| *requests).collect()
    }
}

struct Simulation {
    phases: Vec<Phase>,
    agents: Vec<Simulated>,
    merger: Merger,
    emitted: Vec<Event>,
}

impl Simulation {
    fn new(scripts: Vec<Script>) -> Self {
        let phases = match scripts[0].phases.len() {
            1 => vec![Phase::Measure],
            _ => vec![Phase::Warmup, Phase::Measure],
        };
        let names = (0..scripts.len()).map(|agent| format!("agent-{agent}"));
        let mut merger = Merger::new(names.collect());
        // All agents wait for the first phase.
        for agent in 0..scripts.len() {
            assert!(merger.phase_ended(agent).is_empty());
        }
        let agents = scripts.into_iter().map(|script| Simulated {
            script,
            left: VecDeque::new(),
            sent: Vec::new(),
            has_ended_phase: false,
            is_lost: false,
            open_connections: 0,
        });
        Simulation {
            phases,
            agents: agents.collect(),
            merger,
            emitted: Vec::new(),
        }
    }

    /// Runs all phases. `picks` selects the agents that send next.
    fn run(mut self, mut picks: impl Iterator<Item = usize>) -> (Self, Option<WorkerEnd>) {
        for phase in 0..self.phases.len() {
            assert!(
                self.merger.next_phase().is_empty(),
                "a phase is complete when all agents have ended it"
            );
            for (number, agent) in self.agents.iter_mut().enumerate() {
                let (script, requests) = (&agent.script, &agent.script.phases[phase]);
                agent.left = phase_events(number, script, self.phases[phase], requests);
                agent.has_ended_phase = false;
            }
            loop {
                let active = |agent: &Simulated| !agent.is_lost && !agent.has_ended_phase;
                let active: Vec<usize> = (0..self.agents.len())
                    .filter(|agent| active(&self.agents[*agent]))
                    .collect();
                if active.is_empty() {
                    break;
                }
                let pick = picks.next().unwrap_or(0);
                self.step(active[pick % active.len()], phase);
            }
        }
        let merger = std::mem::replace(&mut self.merger, Merger::new(Vec::new()));
        let (events, end) = merger.finish();
        assert!(
            events.is_empty(),
            "events emitted after all agents ended: {events:?}"
        );
        (self, end)
    }

    /// Lets one agent send its next event, end its phase or be lost.
    fn step(&mut self, number: usize, phase: usize) {
        let agent = &mut self.agents[number];
        let events = if agent
            .script
            .lost_after
            .is_some_and(|n| n <= agent.sent.len())
        {
            agent.is_lost = true;
            self.merger.lose(number)
        } else if let Some(event) = agent.left.pop_front() {
            agent.sent.push(event.clone());
            if let Event::Second(row) = &event {
                agent.open_connections = row.open_connections;
            }
            self.merger.take(number, event)
        } else if phase + 1 < self.phases.len() {
            agent.has_ended_phase = true;
            self.merger.phase_ended(number)
        } else {
            agent.has_ended_phase = true;
            let own = |phase: &Phase| agent.counts(*phase);
            let end = WorkerEnd {
                counts: own(&Phase::Measure),
                warmup_counts: self.phases.first().filter(|_| phase > 0).map(own),
                ..worker_end()
            };
            self.merger.take(number, Event::End(end))
        };
        for event in events {
            self.check(&event);
            self.emitted.push(event);
        }
        self.check_pending();
    }

    /// Checks that no agent can still contribute to an event, and that the event is the sum of what
    /// the agents sent.
    fn check(&self, event: &Event) {
        let place = sent(event);
        let (mut requests, mut all_times, mut open, mut to_ns) = (Vec::new(), Vec::new(), 0, 0);
        let (mut cpu_s, mut connects, mut group_count) = ((0.0, 0.0), 0, 0);
        for (number, agent) in self.agents.iter().enumerate() {
            let has_sent = agent.has_sent(place);
            assert!(!agent.may_send(place), "{place:?} is too early");
            let own = agent.requests(&self.phases, place);
            if has_sent {
                all_times.extend(times(number, &own));
                cpu_s.0 += 0.25 * own.len() as f64;
                cpu_s.1 += 0.5;
                connects += own.len() as u64;
                open += 5 * number as u64 + sums(&own).counts.sent;
            } else if !agent.is_lost {
                open += agent.open_connections;
            }
            if agent.script.has_groups && !own.is_empty() {
                group_count = 2;
            }
            requests.push(sums(&own));
            let ends = agent
                .sent
                .iter()
                .filter_map(|event| match (event, place.1) {
                    (Event::Part(part), Sent::Part(_)) if sent(event) == place => Some(part.to_ns),
                    (Event::Part(part), Sent::Row(index)) => {
                        let is_in = part.from_ns / (PART_NS * ROW_PARTS) == index;
                        (is_in && part.phase == place.0).then_some(part.to_ns)
                    }
                    _ => None,
                });
            to_ns = ends.fold(to_ns, u64::max);
        }
        let mut expected = GroupRow::default();
        requests.iter().for_each(|row| expected.merge(row));
        match event {
            Event::Part(part) => {
                assert_eq!((&part.sums, part.to_ns), (&expected, to_ns));
                assert_eq!(part.groups.len(), group_count);
            }
            Event::Second(row) => {
                assert_eq!((&row.counts, row.to_ns), (&expected.counts, to_ns));
                assert_eq!(row.ok_in_window, expected.ok_in_window);
                assert_eq!(
                    (row.bytes_sent, row.bytes_received),
                    (expected.bytes_sent, expected.bytes_received)
                );
                assert_eq!((row.connects, row.open_connections), (connects, open));
                assert_eq!((row.user_s, row.system_s), cpu_s);
                assert_eq!(row.histograms, encoded(&all_times));
                assert_eq!(row.groups.len(), group_count);
                let grouped = self.agents.iter().filter(|agent| agent.script.has_groups);
                let grouped = grouped.flat_map(|agent| agent.requests(&self.phases, place));
                let group = row.groups.first().cloned().unwrap_or_default();
                assert_eq!(group.counts.ok, grouped.map(|(_, _, ok)| ok).sum::<u64>());
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Checks that only events that an agent can still send are pending.
    fn check_pending(&self) {
        let emitted: BTreeSet<_> = self.emitted.iter().map(sent).collect();
        let all = self.agents.iter().flat_map(|agent| &agent.sent);
        for place in all.map(sent).filter(|place| !emitted.contains(place)) {
            assert!(
                self.agents.iter().any(|agent| agent.may_send(place)),
                "{place:?} is still pending, but no agent can send it"
            );
        }
    }

    /// Checks the order of all emitted events.
    fn check_order(&self) {
        let mut reached = None;
        let (mut next_row, mut end_ns) = (0, 0);
        for event in &self.emitted {
            let (phase, _) = sent(event);
            if reached != Some(phase) {
                assert!(reached < Some(phase));
                (reached, next_row, end_ns) = (Some(phase), 0, 0);
            }
            match event {
                Event::Part(part) => {
                    assert_eq!(part.from_ns / PART_NS / ROW_PARTS, next_row);
                    assert_eq!(part.from_ns, end_ns, "a gap before {part:?}");
                    end_ns = part.to_ns;
                }
                Event::Second(row) => {
                    assert_eq!((row.index, row.to_ns), (next_row, end_ns));
                    next_row += 1;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn merged_events_are_the_sums_of_all_agents(
        scripts in scripts(), picks in proptest::collection::vec(any::<usize>(), 0..200),
    ) {
        let (simulation, end) = Simulation::new(scripts).run(picks.into_iter());
        simulation.check_order();
        let agents = &simulation.agents;
        prop_assert_eq!(end.is_some(), agents.iter().any(|agent| !agent.is_lost));
        if let Some(end) = end {
            let sum = |phase| {
                let mut sum = Counts::default();
                agents.iter().for_each(|agent| sum.merge(&agent.counts(phase)));
                sum
            };
            prop_assert_eq!(end.counts.balance(), Ok(()));
            prop_assert_eq!(end.counts, sum(Phase::Measure));
            if let Some(warmup) = end.warmup_counts {
                prop_assert_eq!(warmup.balance(), Ok(()));
                prop_assert_eq!(warmup, sum(Phase::Warmup));
            }
        }
    }
}

/// Returns the rows among the events, with their open connections.
fn rows(events: &[Event]) -> Vec<(u64, u64)> {
    let row = |event: &Event| match event {
        Event::Second(row) => Some((row.index, row.open_connections)),
        _ => None,
    };
    events.iter().filter_map(row).collect()
}

fn second(index: u64, open_connections: u64, histogram: &str) -> Event {
    let part = PartRow {
        phase: Phase::Measure,
        from_ns: index * 10,
        to_ns: index * 10 + 10,
        sums: GroupRow::default(),
        groups: Vec::new(),
    };
    let histograms = [(TimeKind::Response, histogram.to_owned())];
    Event::Second(SecondRow {
        open_connections,
        histograms: histograms.into_iter().collect(),
        ..SecondRow::of_parts(&[part], index).unwrap()
    })
}

#[test]
fn an_invalid_histogram_does_not_affect_the_others() {
    let mut merger = Merger::new(vec!["a".to_owned(), "b".to_owned()]);
    let valid = encoded(&[100, 2000])[&TimeKind::Response].clone();
    assert!(merger.take(0, second(0, 1, "invalid")).is_empty());
    let events = merger.take(1, second(0, 1, &valid));
    let [Event::Second(row)] = &events[..] else {
        panic!("unexpected {events:?}");
    };
    assert_eq!(row.histograms[&TimeKind::Response], valid);
}

#[test]
fn connections_of_an_ended_agent_stay_open_until_it_is_lost() {
    let names = ["a", "b", "c"].map(str::to_owned);
    let mut merger = Merger::new(names.to_vec());
    merger.take(0, second(0, 1, ""));
    merger.phase_ended(0);
    merger.take(1, second(0, 10, ""));
    merger.take(1, second(1, 20, ""));
    merger.take(1, second(2, 30, ""));
    assert_eq!(rows(&merger.take(2, second(0, 100, ""))), [(0, 111)]);
    assert_eq!(rows(&merger.take(2, second(1, 200, ""))), [(1, 221)]);
    assert!(merger.lose(0).is_empty());
    assert_eq!(rows(&merger.lose(2)), [(2, 30)]);
    assert!(merger.take(2, second(3, 1, "")).is_empty());
    assert!(
        merger.take(1, second(1, 1, "")).is_empty(),
        "already emitted"
    );
}

#[test]
fn a_later_phase_does_not_wait_for_an_agent_that_sent_its_end() {
    let mut merger = Merger::new(vec!["a".to_owned(), "b".to_owned()]);
    assert!(merger.take(0, Event::End(worker_end())).is_empty());
    assert!(merger.next_phase().is_empty());
    assert_eq!(rows(&merger.take(1, second(0, 3, ""))), [(0, 3)]);
    let (events, end) = merger.finish();
    assert!(events.is_empty() && end.is_some());
}
