//! Merges the ends of several agents into the end of one worker.

use std::collections::BTreeMap;

use floodmark_record::events::{
    AddressUse, AnswersFile, EndReason, HeldConnections, PartRow, Phase, add_counts,
};
use floodmark_record::kept::{SHOWN, ScoringSummary};
use floodmark_record::outcome::{MAX_STATUSES, NotOkResponse};
use floodmark_record::tls::TlsUse;
use floodmark_record::{Counts, SecondRow, ThreadUsage, TimeKind, WorkerEnd};
use floodmark_stats::Histogram;

/// What one agent contributes to the merged end.
#[derive(Debug)]
pub(crate) struct AgentEnd {
    /// Name of the agent.
    pub(crate) name: String,
    /// The agent's end; `None` if the agent was lost.
    pub(crate) end: Option<Box<WorkerEnd>>,
    /// Totals of the agent's rows, which replace the end of a lost agent.
    pub(crate) totals: RowTotals,
}

/// Totals of the rows of one agent.
#[derive(Debug, Default)]
pub(crate) struct RowTotals {
    /// Counts of the warm-up; `None` if the agent sent no row of a warm-up.
    warmup: Option<Counts>,
    /// Counts of the measurement.
    counts: Counts,
    bytes_sent: u64,
    bytes_received: u64,
    connects: u64,
    user_s: f64,
    system_s: f64,
    /// End of the last part of the measurement in which requests were due, in ns.
    sending_to_ns: u64,
}

impl RowTotals {
    /// Adds a part, which is also contained in a row.
    pub(crate) fn add_part(&mut self, part: &PartRow) {
        if part.phase == Phase::Measure && part.sums.counts.intended > 0 {
            self.sending_to_ns = self.sending_to_ns.max(part.to_ns);
        }
    }

    /// Adds a row.
    pub(crate) fn add_row(&mut self, row: &SecondRow) {
        self.connects += row.connects;
        match row.phase {
            Phase::Warmup => self.warmup.get_or_insert_default().merge(&row.counts),
            Phase::Measure => {
                self.counts.merge(&row.counts);
                self.bytes_sent += row.bytes_sent;
                self.bytes_received += row.bytes_received;
                self.user_s += row.user_s;
                self.system_s += row.system_s;
            }
        }
    }

    /// Adds the totals to the end of the other agents.
    fn add_to(mut self, end: &mut WorkerEnd) {
        end.next_number += LOST_NUMBERS;
        self.counts.complete();
        end.counts.merge(&self.counts);
        if let Some(mut warmup) = self.warmup {
            warmup.complete();
            end.warmup_counts.get_or_insert_default().merge(&warmup);
        }
        end.bytes_sent += self.bytes_sent;
        end.bytes_received += self.bytes_received;
        end.connects += self.connects;
        end.user_s += self.user_s;
        end.system_s += self.system_s;
        // In the closed model, the lost agent may have sent requests after the other agents finished.
        end.window_ns = end.window_ns.max(self.sending_to_ns);
        end.ended_ns = end.ended_ns.max(self.sending_to_ns);
    }
}

/// Added to the next request number for each lost agent, to skip the numbers of requests that it
/// sent but did not report. No agent sends more requests in one run.
const LOST_NUMBERS: u64 = 1 << 32;

/// Merges the ends of all agents. Returns `None` if no agent has sent its end.
pub(crate) fn merged_end(agents: Vec<AgentEnd>) -> Option<WorkerEnd> {
    let (mut ends, mut lost) = (Vec::new(), Vec::new());
    for agent in agents {
        let Some(mut end) = agent.end else {
            lost.push(agent.totals);
            continue;
        };
        for thread in &mut end.threads {
            thread.name = format!("{}/{}", agent.name, thread.name);
        }
        ends.push(*end);
    }
    let mut merged = (!ends.is_empty()).then(|| merged(&ends))?;
    lost.into_iter().for_each(|rows| rows.add_to(&mut merged));
    Some(merged)
}

fn merged(ends: &[WorkerEnd]) -> WorkerEnd {
    let sum = |of: fn(&WorkerEnd) -> u64| ends.iter().map(of).sum();
    let sum_s = |of: fn(&WorkerEnd) -> f64| ends.iter().map(of).sum();
    let max = |of: fn(&WorkerEnd) -> u64| ends.iter().map(of).max().unwrap_or(0);
    let by_reason = |of: fn(&WorkerEnd) -> &BTreeMap<String, u64>| {
        let mut sum = BTreeMap::new();
        ends.iter().for_each(|end| add_counts(&mut sum, of(end)));
        sum
    };
    let offenders = ends.iter().flat_map(|end| &end.offenders);
    WorkerEnd {
        reason: reason(ends),
        last_response_ns: ends.iter().filter_map(|end| end.last_response_ns).max(),
        window_ns: max(|end| end.window_ns),
        ended_ns: max(|end| end.ended_ns),
        counts: counts(ends.iter().map(|end| &end.counts)).unwrap_or_default(),
        warmup_counts: counts(ends.iter().filter_map(|end| end.warmup_counts.as_ref())),
        warmup_ns: max(|end| end.warmup_ns),
        bytes_sent: sum(|end| end.bytes_sent),
        bytes_received: sum(|end| end.bytes_received),
        connects: sum(|end| end.connects),
        peak_connections: sum(|end| end.peak_connections),
        held: held(ends),
        longest_stall_ns: max(|end| end.longest_stall_ns),
        errors: by_reason(|end| &end.errors),
        not_ok_responses: not_ok_responses(ends),
        unawaited: by_reason(|end| &end.unawaited),
        user_s: sum_s(|end| end.user_s),
        system_s: sum_s(|end| end.system_s),
        peak_rss_bytes: (ends.iter().filter_map(|end| end.peak_rss_bytes)).reduce(|a, b| a + b),
        threads: threads(ends),
        addresses: addresses(ends),
        answers: answers(ends),
        out_of_order: sum(|end| end.out_of_order),
        offenders: offenders.take(SHOWN).cloned().collect(),
        not_numbers: sum(|end| end.not_numbers),
        scored: scored(ends),
        tls: (ends.iter().filter_map(|end| end.tls.clone())).reduce(TlsUse::merged),
        groups: groups(ends),
        next_number: max(|end| end.next_number),
    }
}

fn reason(ends: &[WorkerEnd]) -> EndReason {
    let reasons = [
        EndReason::Interrupted,
        EndReason::ServerGone,
        EndReason::NotHttp,
    ];
    let occurs = |reason: &EndReason| ends.iter().any(|end| end.reason == *reason);
    reasons
        .into_iter()
        .find(occurs)
        .unwrap_or(EndReason::Completed)
}

fn counts<'a>(each: impl Iterator<Item = &'a Counts>) -> Option<Counts> {
    each.cloned().reduce(|mut sum, counts| {
        sum.merge(&counts);
        sum
    })
}

fn held(ends: &[WorkerEnd]) -> Option<HeldConnections> {
    let each = ends.iter().filter_map(|end| end.held.clone());
    each.reduce(|mut sum, held| {
        sum.merge(&held);
        sum
    })
}

fn not_ok_responses(ends: &[WorkerEnd]) -> Vec<NotOkResponse> {
    let mut first = BTreeMap::new();
    for response in ends.iter().flat_map(|end| &end.not_ok_responses) {
        first.entry(response.status).or_insert(response);
    }
    first.into_values().take(MAX_STATUSES).cloned().collect()
}

fn threads(ends: &[WorkerEnd]) -> Vec<ThreadUsage> {
    ends.iter().flat_map(|end| end.threads.clone()).collect()
}

fn addresses(ends: &[WorkerEnd]) -> Vec<AddressUse> {
    let mut merged: Vec<AddressUse> = Vec::new();
    for one in ends.iter().flat_map(|end| &end.addresses) {
        match merged.iter_mut().find(|sum| sum.address == one.address) {
            Some(sum) => sum.merge(one),
            None => merged.push(one.clone()),
        }
    }
    merged
}

fn answers(ends: &[WorkerEnd]) -> Option<AnswersFile> {
    let each = ends.iter().filter_map(|end| end.answers.clone());
    each.reduce(|mut sum, answers| {
        sum.count += answers.count;
        sum
    })
}

/// Joins the summaries of all agents. Scores are relative to the line of the first agent with
/// responses, as in the joined file.
fn scored(ends: &[WorkerEnd]) -> Option<ScoringSummary> {
    let each = || ends.iter().filter_map(|end| end.scored.as_ref());
    each().next()?;
    let mut joined = ScoringSummary {
        line: each().find_map(|scored| scored.line),
        ..ScoringSummary::default()
    };
    each().for_each(|scored| joined.join(scored));
    Some(joined)
}

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
#[path = "merged_end_tests.rs"]
mod tests;
