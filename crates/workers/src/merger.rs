//! Merges the events of several agents into one stream, and their end events into one end event.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use floodmark_record::events::{PartRow, Phase};
use floodmark_record::{Counts, Event, SecondRow, TimeKind, WorkerEnd};
use floodmark_stats::Histogram;

/// Merges the events of several agents into the events of one worker.
///
/// All agents have the same plan, so their parts and rows have the same boundaries. Only the last
/// part and row of a phase may end earlier in some agents. An event is ignored if the merged stream
/// has already passed its place. Such an event violates the protocol, because agents send events in
/// order.
///
/// Memory: the merger keeps the sums of the parts and rows that the slowest live agent has not sent
/// yet. Because of its histograms, a row takes up to 2.5 MB, regardless of the number of agents. To
/// bound memory, the caller must declare silent agents lost.
#[derive(Debug)]
pub(crate) struct Merger {
    agents: Vec<MergedAgent>,
    /// Sums of the events that have not been emitted yet.
    pending: BTreeMap<EventPlace, EventSum>,
    /// Place of the latest emitted event.
    emitted: Option<EventPlace>,
}

/// Place of a part or row in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EventPlace {
    phase: Phase,
    /// Index of the row. Parts have the index of the row to which they belong.
    row: u64,
    /// Start of a part in ns. Rows have the maximum, because they follow their parts.
    from_ns: u64,
}

/// What the merger knows about one agent.
#[derive(Debug, Default)]
struct MergedAgent {
    name: String,
    /// Place of the agent's latest event.
    reached: Option<EventPlace>,
    has_ended_phase: bool,
    is_lost: bool,
    /// Parts of the second that has no row yet.
    parts: Vec<PartRow>,
    /// Open connections at the end of the latest row.
    open_connections: u64,
    /// Totals of the agent's rows. They replace the missing end event if the agent is lost.
    totals: WorkerEnd,
    end: Option<Box<WorkerEnd>>,
}

impl MergedAgent {
    /// Returns whether the agent may still send an event for `place`.
    fn may_send(&self, place: EventPlace) -> bool {
        !self.is_lost && !self.has_ended_phase && self.reached < Some(place)
    }

    /// Returns whether the agent ended the phase before `place`. Its connections stay open.
    fn has_ended(&self, place: EventPlace) -> bool {
        !self.is_lost && self.has_ended_phase && self.reached < Some(place)
    }

    /// Returns the index of the row to which the agent's next part of `phase` belongs.
    fn row(&self, phase: Phase) -> u64 {
        match self.reached {
            Some(place) if place.phase == phase && place.from_ns == u64::MAX => place.row + 1,
            Some(place) if place.phase == phase => place.row,
            _ => 0,
        }
    }
}

/// Sum of one part or row over the agents that have sent it.
#[derive(Debug)]
struct EventSum {
    /// The part or row, excluding its histograms.
    event: Event,
    times: BTreeMap<TimeKind, Histogram>,
}

impl EventSum {
    /// Decodes the histograms of a row. Ignores invalid ones.
    fn new(mut event: Event) -> Self {
        let texts = match &mut event {
            Event::Second(row) => std::mem::take(&mut row.histograms),
            _ => BTreeMap::new(),
        };
        let times = texts
            .into_iter()
            .filter_map(|(kind, text)| Some((kind, Histogram::decode(&text).ok()?)));
        EventSum {
            event,
            times: times.collect(),
        }
    }

    fn merge(&mut self, other: &EventSum) {
        match (&mut self.event, &other.event) {
            (Event::Part(sum), Event::Part(part)) => sum.merge(part),
            (Event::Second(sum), Event::Second(row)) => sum.merge(row),
            // A part and a row have different places.
            _ => {}
        }
        for (kind, times) in &other.times {
            self.times.entry(*kind).or_default().merge(times);
        }
    }

    fn into_event(mut self) -> Event {
        if let Event::Second(row) = &mut self.event {
            let times = self.times.iter().filter(|(_, times)| !times.is_empty());
            row.histograms = times.map(|(kind, times)| (*kind, times.encode())).collect();
        }
        self.event
    }
}

impl Merger {
    /// Creates a merger for agents with these names. The names of threads become `NAME/load-0`.
    /// Other methods identify an agent by its index in `names`.
    pub(crate) fn new(names: Vec<String>) -> Self {
        let agent = |name| MergedAgent {
            name,
            ..MergedAgent::default()
        };
        Merger {
            agents: names.into_iter().map(agent).collect(),
            pending: BTreeMap::new(),
            emitted: None,
        }
    }

    /// Takes a part, a row or the end of an agent, and ignores other events. Returns the merged
    /// parts and rows that are now complete.
    pub(crate) fn take(&mut self, agent: usize, event: Event) -> Vec<Event> {
        if self.agents[agent].is_lost {
            return Vec::new();
        }
        match event {
            Event::Part(part) => self.add_part(agent, part),
            Event::Second(row) => self.add_row(agent, row),
            Event::End(end) => {
                self.agents[agent].end = Some(Box::new(end));
                return self.phase_ended(agent);
            }
            _ => return Vec::new(),
        }
        self.complete()
    }

    /// Records that an agent has sent all parts and rows of the current phase. Returns the merged
    /// parts and rows that are now complete.
    pub(crate) fn phase_ended(&mut self, agent: usize) -> Vec<Event> {
        self.agents[agent].has_ended_phase = true;
        self.complete()
    }

    /// Starts the next phase after all agents have ended the current one. Returns the remaining
    /// parts and rows of the current phase.
    pub(crate) fn next_phase(&mut self) -> Vec<Event> {
        for agent in &mut self.agents {
            agent.has_ended_phase = true;
        }
        let events = self.complete();
        for agent in &mut self.agents {
            agent.has_ended_phase = agent.end.is_some();
        }
        events
    }

    /// Records that an agent was lost. What it has sent remains, and the parts of its last second
    /// become a row. Returns the merged parts and rows that are now complete.
    pub(crate) fn lose(&mut self, agent: usize) -> Vec<Event> {
        let lost = &mut self.agents[agent];
        let parts = std::mem::take(&mut lost.parts);
        let index = parts.last().map_or(0, |part| lost.row(part.phase));
        if let Some(row) = SecondRow::of_parts(&parts, index) {
            self.add_row(agent, row);
        }
        self.agents[agent].is_lost = true;
        self.complete()
    }

    /// Ends the run. Returns the remaining parts and rows, and the merged end. The end is `None` if
    /// no agent has sent its end. Agents that have not sent it are lost.
    pub(crate) fn finish(mut self) -> (Vec<Event>, Option<WorkerEnd>) {
        let mut events = Vec::new();
        for agent in 0..self.agents.len() {
            if self.agents[agent].end.is_none() {
                events.extend(self.lose(agent));
            }
        }
        (events, merged_end(self.agents))
    }

    fn add_part(&mut self, agent: usize, part: PartRow) {
        let from = &mut self.agents[agent];
        let place = EventPlace {
            phase: part.phase,
            row: from.row(part.phase),
            from_ns: part.from_ns,
        };
        if self.emitted < Some(place) {
            from.reached = from.reached.max(Some(place));
            add_part(&mut from.totals, &part);
            from.parts.push(part.clone());
            self.add(place, Event::Part(part));
        }
    }

    fn add_row(&mut self, agent: usize, row: SecondRow) {
        let from = &mut self.agents[agent];
        let place = EventPlace {
            phase: row.phase,
            row: row.index,
            from_ns: u64::MAX,
        };
        if self.emitted < Some(place) {
            from.reached = from.reached.max(Some(place));
            from.parts.clear();
            from.open_connections = row.open_connections;
            add_row(&mut from.totals, &row);
            self.add(place, Event::Second(row));
        }
    }

    fn add(&mut self, place: EventPlace, event: Event) {
        let event = EventSum::new(event);
        match self.pending.entry(place) {
            Entry::Occupied(mut sum) => sum.get_mut().merge(&event),
            Entry::Vacant(vacant) => drop(vacant.insert(event)),
        }
    }

    /// Emits, in time order, the parts and rows to which no agent can still contribute.
    fn complete(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(first) = self.pending.first_entry() {
            let place = *first.key();
            if self.agents.iter().any(|agent| agent.may_send(place)) {
                break;
            }
            self.emitted = Some(place);
            let mut event = first.remove().into_event();
            if let Event::Second(row) = &mut event {
                let ended = self.agents.iter().filter(|agent| agent.has_ended(place));
                row.open_connections += ended.map(|agent| agent.open_connections).sum::<u64>();
            }
            events.push(event);
        }
        events
    }
}

/// Extends the measurement window in an agent's totals to the end of a part. The part's counts are
/// added with the row that contains it.
fn add_part(totals: &mut WorkerEnd, part: &PartRow) {
    if part.phase == Phase::Measure && part.sums.counts.intended > 0 {
        // In the closed model, a lost agent may have sent requests after the other agents finished.
        totals.window_ns = totals.window_ns.max(part.to_ns);
        totals.ended_ns = totals.window_ns;
    }
}

/// Adds a row to the totals of its agent.
fn add_row(totals: &mut WorkerEnd, row: &SecondRow) {
    totals.connects += row.connects;
    match row.phase {
        Phase::Warmup => (totals.warmup_counts.get_or_insert_default()).merge(&row.counts),
        Phase::Measure => {
            totals.counts.merge(&row.counts);
            totals.bytes_sent += row.bytes_sent;
            totals.bytes_received += row.bytes_received;
            totals.user_s += row.user_s;
            totals.system_s += row.system_s;
        }
    }
}

/// Added to the next request number for each lost agent, to skip the numbers of requests that it
/// sent but did not report. No agent sends that many requests in one run.
const LOST_NUMBERS: u64 = 1 << 32;

/// Merges the end events of all agents. Returns `None` if no agent has sent its end event.
fn merged_end(agents: Vec<MergedAgent>) -> Option<WorkerEnd> {
    let (mut ends, mut lost) = (Vec::new(), Vec::new());
    for agent in agents {
        if let Some(mut end) = agent.end {
            for thread in &mut end.threads {
                thread.name = format!("{}/{}", agent.name, thread.name);
            }
            ends.push(*end);
        } else {
            let mut totals = agent.totals;
            totals.counts.complete();
            totals.warmup_counts.iter_mut().for_each(Counts::complete);
            lost.push(totals);
        }
    }
    if ends.is_empty() {
        return None;
    }
    let lost_numbers = LOST_NUMBERS * lost.len() as u64;
    ends.append(&mut lost);
    let mut merged = WorkerEnd::default();
    ends.iter().for_each(|end| merged.merge(end));
    merged.groups = groups(&ends);
    merged.next_number += lost_numbers;
    Some(merged)
}

/// Merges the histograms of each group.
fn groups(ends: &[WorkerEnd]) -> Vec<BTreeMap<TimeKind, String>> {
    let count = ends.iter().map(|end| end.groups.len()).max().unwrap_or(0);
    let group = |group: usize| {
        let of_kind = |kind: TimeKind| {
            let texts = ends
                .iter()
                .filter_map(|end| end.groups.get(group)?.get(&kind));
            // Only two histograms are in memory at a time.
            let sum = texts
                .filter_map(|text| Histogram::decode(text).ok())
                .reduce(|mut sum, times| {
                    sum.merge(&times);
                    sum
                })?;
            (!sum.is_empty()).then(|| (kind, sum.encode()))
        };
        TimeKind::ALL.into_iter().filter_map(of_kind).collect()
    };
    (0..count).map(group).collect()
}

#[cfg(test)]
#[path = "merger_tests.rs"]
mod merger_tests;

#[cfg(test)]
#[path = "merged_end_tests.rs"]
mod merged_end_tests;
