//! Merges the events of several agents into one stream.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use floodmark_record::events::{PartRow, Phase};
use floodmark_record::{Event, SecondRow, TimeKind, WorkerEnd};
use floodmark_stats::Histogram;

use crate::merged_end::{AgentEnd, RowTotals, merged_end};

/// Merges the events of several agents into the events of one worker.
///
/// All agents have the same plan, so their parts and rows have the same boundaries. Only the last
/// part and row of a phase may end earlier in some agents. An event whose place in the stream was
/// already emitted is ignored. It violates the protocol, because agents send events in order.
///
/// Memory: the merger keeps the sums of the parts and rows that the slowest live agent has not sent
/// yet. A row takes up to 2.5 MB because of its histograms, for any number of agents. To bound
/// memory, the caller must declare silent agents lost.
#[derive(Debug)]
pub struct Merger {
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
    totals: RowTotals,
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
enum EventSum {
    Part(Box<PartRow>),
    Row(Box<RowSum>),
}

impl EventSum {
    fn merge(&mut self, other: EventSum) {
        match (self, other) {
            (EventSum::Part(sum), EventSum::Part(part)) => sum.merge(&part),
            (EventSum::Row(sum), EventSum::Row(row)) => sum.merge(&row),
            // A part and a row have different places.
            _ => {}
        }
    }
}

/// Sum of one row over the agents that have sent it.
#[derive(Debug)]
struct RowSum {
    /// The row without its histograms.
    row: SecondRow,
    times: BTreeMap<TimeKind, Histogram>,
}

impl RowSum {
    /// Decodes the histograms of a row. Ignores invalid ones.
    fn new(mut row: SecondRow) -> Self {
        let texts = std::mem::take(&mut row.histograms);
        let times = texts
            .into_iter()
            .filter_map(|(kind, text)| Some((kind, Histogram::decode(&text).ok()?)));
        RowSum {
            row,
            times: times.collect(),
        }
    }

    fn merge(&mut self, other: &RowSum) {
        self.row.merge(&other.row);
        for (kind, times) in &other.times {
            self.times.entry(*kind).or_default().merge(times);
        }
    }

    fn into_row(mut self) -> SecondRow {
        let times = self.times.iter().filter(|(_, times)| !times.is_empty());
        self.row.histograms = times.map(|(kind, times)| (*kind, times.encode())).collect();
        self.row
    }
}

impl Merger {
    /// Creates a merger for agents with these names. The names of threads become `NAME/load-0`.
    /// Other methods identify an agent by its index in `names`.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
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
    pub fn take(&mut self, agent: usize, event: Event) -> Vec<Event> {
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
    pub fn phase_ended(&mut self, agent: usize) -> Vec<Event> {
        self.agents[agent].has_ended_phase = true;
        self.complete()
    }

    /// Starts the next phase after all agents have ended the current one. Returns the remaining
    /// parts and rows of the current phase.
    pub fn next_phase(&mut self) -> Vec<Event> {
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
    pub fn lose(&mut self, agent: usize) -> Vec<Event> {
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
    #[must_use]
    pub fn finish(mut self) -> (Vec<Event>, Option<WorkerEnd>) {
        let mut events = Vec::new();
        for agent in 0..self.agents.len() {
            if self.agents[agent].end.is_none() {
                events.extend(self.lose(agent));
            }
        }
        let ends = self.agents.into_iter().map(|agent| AgentEnd {
            name: agent.name,
            end: agent.end,
            totals: agent.totals,
        });
        (events, merged_end(ends.collect()))
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
            from.totals.add_part(&part);
            from.parts.push(part.clone());
            self.add(place, EventSum::Part(Box::new(part)));
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
            from.totals.add_row(&row);
            self.add(place, EventSum::Row(Box::new(RowSum::new(row))));
        }
    }

    fn add(&mut self, place: EventPlace, event: EventSum) {
        match self.pending.entry(place) {
            Entry::Occupied(mut sum) => sum.get_mut().merge(event),
            Entry::Vacant(vacant) => {
                vacant.insert(event);
            }
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
            events.push(match first.remove() {
                EventSum::Part(part) => Event::Part(*part),
                EventSum::Row(sum) => {
                    let mut row = sum.into_row();
                    let ended = self.agents.iter().filter(|agent| agent.has_ended(place));
                    row.open_connections += ended.map(|agent| agent.open_connections).sum::<u64>();
                    Event::Second(row)
                }
            });
        }
        events
    }
}

#[cfg(test)]
#[path = "merger_tests.rs"]
mod tests;
