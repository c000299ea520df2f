//! The main result of each load in one paragraph: figure, validity, cause and next step.

use floodmark_record::Record;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::result::Overall;
use floodmark_record::run::{Run, Status};

use super::figures::{count_of, extremes, rate, time};
use super::names::{NamedRun, by_load};
use super::{
    Block, Blocks, Emphasis, Ranking, Span, attempts, comparison, crash, experiment, gate,
    outcomes, plain, run, sweep, trial_capacities, tuning, tuning_result, verdict,
};

/// What a page says about the loads of a record.
pub(crate) struct Answer {
    /// The answer to the record's question.
    pub(crate) short: Blocks,
    /// Results of the single loads and comparisons, if `short` only ranks them.
    pub(crate) details: Blocks,
}

/// Returns the answer to a record's question.
pub(crate) fn answer(record: &Record, all: &[NamedRun<'_>], next: Option<&str>) -> Answer {
    let mut short = Blocks::default();
    let loads: Vec<&[NamedRun<'_>]> = by_load(all).collect();
    let several = loads.len() > 1;
    // A curve needs at least two points.
    let has_curves = loads.iter().filter(|load| is_swept(record, load)).count() > 1;
    let is_single = |load: &&[NamedRun<'_>]| !has_curves || !is_swept(record, load);
    let single: Vec<_> = loads.iter().copied().filter(is_single).collect();
    // The points of a sweep and the settings of a tuning are shown as curves instead of sentences,
    // and the loads of a search in tables.
    let single = match record.tuning.is_none() && record.trial_capacities.is_empty() {
        true => single,
        false => Vec::new(),
    };
    for trial in &record.crash {
        let sentence = format!("{}.", crash::sentence(trial));
        short.paragraph([match trial.lost {
            0 => plain(sentence),
            _ => Emphasis::Bad.span(sentence),
        }]);
    }
    if let Some(gate) = &record.gate {
        short.paragraph(gate::paragraph(gate));
    }
    if all.is_empty() && record.crash.is_empty() {
        short.paragraph([plain("Nothing was measured.")]);
    }
    // The figures of other loads do not answer the question of a sweep.
    let ranked = if has_curves { &[] } else { &single[..] };
    let ranking = Ranking::of_loads(ranked).map(|of| (of, ComparedMetric::Throughput));
    let ranking =
        ranking.or_else(|| Some((Ranking::of_capacities(record)?, ComparedMetric::Capacity)));
    let is_ranked = ranking.is_some();
    let next = match several {
        false => next.map(|next| vec![Emphasis::Strong.span("Next:"), plain(format!("{next}."))]),
        true => {
            let step = next_step(record, ranking.as_ref().map(|(of, _)| of), &loads);
            step.or_else(|| see_why(&loads))
        }
    };
    let mut details = Blocks::default();
    if has_curves {
        for swept in &record.sweeps {
            short.0.extend(sweep::answer(swept, &record.runs));
            short.tables(sweep::cause_table(swept, &record.runs));
        }
    }
    if let Some((ranking, metric)) = ranking {
        if let Some(conclusion) = ranking.conclusion(metric, &record.comparisons) {
            let conclusion = format!("{}.", capitalized(&conclusion));
            short.paragraph([Emphasis::Strong.span(conclusion)]);
        }
        short.0.push(Block::Ranking(ranking));
    }
    let of_loads = match is_ranked || has_curves {
        true => &mut details,
        false => &mut short,
    };
    for sentence in trial_capacities::sentences(record) {
        of_loads.paragraph([plain(format!("{sentence}."))]);
    }
    for load in &single {
        let name = several.then(|| Emphasis::Strong.span(format!("{}:", load_name(load))));
        let mut spans = Vec::from_iter(name);
        spans.extend(result(load, record.overall.as_ref().filter(|_| !several)));
        of_loads.paragraph(spans);
        of_loads.0.extend(cause(
            load,
            several,
            is_ranked || has_curves || single.len() <= verdict::FEW,
        ));
    }
    for sentence in comparison::results(&record.comparisons) {
        of_loads.paragraph([plain(format!("{}.", capitalized(&sentence)))]);
    }
    let tuned = tuning::of(record).into_iter();
    for sentence in tuned.flat_map(|(tuning, of)| tuning_result::sentences(tuning, &of)) {
        short.paragraph([plain(format!("{}.", capitalized(&sentence)))]);
    }
    if let Some(sentence) = experiment::resumed(record) {
        short.paragraph([plain(format!("{}.", capitalized(&sentence)))]);
    }
    for skipped in &record.skipped {
        short.paragraph([plain(format!("Skipped: {skipped}"))]);
    }
    if let Some(next) = next {
        short.paragraph(next);
    }
    Answer { short, details }
}

/// Returns whether a load is a point of a sweep.
fn is_swept(record: &Record, load: &[NamedRun<'_>]) -> bool {
    let mut points = record.sweeps.iter().flat_map(|swept| &swept.sweep.points);
    let trial = load[0].run.trial.as_ref();
    trial.is_some_and(|trial| points.any(|point| point.trial == *trial))
}

/// Returns the next step for the best point of the first sweep or, without a sweep, for the last
/// entry in the ranking, which has the most to gain.
fn next_step(
    record: &Record,
    ranking: Option<&Ranking>,
    loads: &[&[NamedRun<'_>]],
) -> Option<Vec<Span>> {
    let trial = record.sweeps.iter().find_map(|swept| swept.best.clone());
    let ranking = ranking.filter(|ranking| ranking.is_sorted);
    let last = || ranking?.bars.last().map(|bar| bar.name.clone());
    let trial = trial.or_else(last)?;
    let mut loads = loads.iter();
    let load = loads
        .find(|load| load_name(load) == trial || load[0].run.trial.as_ref() == Some(&trial))?;
    let (verdict, _) = verdict::most_frequent(load.iter().map(|one| one.run))?;
    let label = Emphasis::Strong.span(format!("Next step for {trial}:"));
    Some(vec![label, plain(format!("{}.", verdict.next))])
}

/// Returns a paragraph that refers to `floodmark why`, or `None` if each load shows its own next step
/// or no load has a verdict.
fn see_why(loads: &[&[NamedRun<'_>]]) -> Option<Vec<Span>> {
    let is_judged = |one: &NamedRun<'_>| one.run.verdict.is_some();
    let are_judged = loads.iter().any(|load| load.iter().any(is_judged));
    let label = Emphasis::Strong.span("Next:");
    let text = plain(format!("{}.", verdict::SEE_WHY));
    (loads.len() > verdict::FEW && are_judged).then(|| vec![label, text])
}

/// Returns the most frequent cause among the attempts at a load. The block includes the evidence if
/// `show_evidence` is set, and the next step if `show_next` is also set.
fn cause(load: &[NamedRun<'_>], show_next: bool, show_evidence: bool) -> Option<Block> {
    let (verdict, cause) = verdict::most_frequent(load.iter().map(|one| one.run))?;
    let mut lead = vec![plain("Why:")];
    lead.extend(cause.spans);
    let mut items = Vec::new();
    if show_evidence && !verdict.evidence.is_empty() {
        let lines = verdict::evidence(verdict)
            .into_iter()
            .chain(verdict::tests(verdict));
        items.extend(lines.map(|line| line.spans));
        if show_next {
            items.push(vec![Emphasis::Strong.span("Next:"), plain(&verdict.next)]);
        }
    }
    Some(Block::List(lead, items))
}

/// Returns the name of a load, which is a run's name without the process and attempt.
pub(super) fn load_name(load: &[NamedRun<'_>]) -> String {
    let name = &load[0].name;
    let cut = name.find(", process ").or_else(|| name.find(", attempt "));
    match (load, cut) {
        ([_], _) | (_, None) => name.clone(),
        (_, Some(at)) => name[..at].to_owned(),
    }
}

/// Describes the throughput, times, failures and validity of a load.
fn result(load: &[NamedRun<'_>], overall: Option<&Overall>) -> Vec<Span> {
    let mut spans = match (load, overall) {
        ([one], _) => result_of_one(one.run),
        (_, Some(overall)) => attempts::throughput(overall).spans,
        (several, None) => {
            let all = several.iter().filter_map(|one| one.run.throughput_per_s);
            let attempts = count_of(several.len() as u64, "attempt");
            vec![plain(match extremes(&all.collect::<Vec<_>>()) {
                Some((least, most)) => {
                    format!("{} to {} ok over {attempts}", rate(least), rate(most))
                }
                None => format!("no throughput was measured in {attempts}"),
            })]
        }
    };
    if let Some(last) = spans.last_mut() {
        last.text.push('.');
    }
    spans.extend(validity(load));
    spans.extend(failed_check(load));
    spans
}

fn result_of_one(run: &Run) -> Vec<Span> {
    let mut spans = run::ended(run).map_or_else(Vec::new, |line| line.spans);
    if let Some(last) = spans.last_mut() {
        last.text.push(';');
    }
    let failed = outcomes::not_ok(&run.requests);
    let requests = count_of(failed, "request");
    if run.requests.ok == 0 {
        spans.push(plain(format!("none of {requests} succeeded")));
        return spans;
    }
    if let Some(line) = run::throughput(run).into_iter().next() {
        spans.extend(line.spans);
    }
    let times = &run.response_time_us;
    let response = |us| time(us, times, &run.plan);
    let took = match times.count {
        0 => String::new(),
        _ => format!(
            "; response time p50 {}, p99 {}",
            response(times.p50),
            response(times.p99)
        ),
    };
    let failed = match failed {
        0 => "all requests ok".to_owned(),
        _ => format!("{requests} not ok"),
    };
    spans.push(plain(format!("{took}; {failed}")));
    spans
}

/// Capitalizes the first letter of a sentence.
pub(super) fn capitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Returns the worst status of a load's attempts and the first reason for this status, or no spans
/// if no throughput was measured.
fn validity(load: &[NamedRun<'_>]) -> Vec<Span> {
    let runs = || load.iter().map(|one| one.run);
    let Some(worst) = runs().max_by_key(|run| run.validity.status) else {
        return Vec::new();
    };
    let status = worst.validity.status;
    let measured = |run: &Run| run.requests.ok > 0 && run.throughput_per_s.is_some();
    if status == Status::Valid && !runs().any(measured) {
        return Vec::new();
    }
    let alike = runs().filter(|run| run.validity.status == status).count();
    let mut spans = vec![plain("The figure is")];
    let lines = run::validity(worst).into_iter();
    spans.extend(lines.take(1).flat_map(|line| line.spans));
    if alike < load.len() {
        spans.push(plain(format!("({alike} of {} attempts)", load.len())));
    }
    if worst.client.tool.is_some() {
        spans.push(plain("as reported by the external client"));
    }
    spans.push(plain("."));
    spans
}

/// Returns the first violated check and the number of attempts in which a check was violated. If
/// there is none, does the same for checks that were not evaluated.
fn failed_check(load: &[NamedRun<'_>]) -> Vec<Span> {
    let with_result = |held: Option<bool>| -> Vec<_> {
        let first = |one: &NamedRun<'_>| {
            let mut checks = one.run.checks.iter();
            checks.find(|check| check.held == held).map(run::check)
        };
        load.iter().filter_map(first).collect()
    };
    let mut all = with_result(Some(false));
    if all.is_empty() {
        all = with_result(None);
    }
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let mut spans = vec![plain("Check")];
    spans.extend(first.spans.iter().cloned());
    if load.len() > 1 {
        spans.push(plain(format!("({} of {} attempts)", all.len(), load.len())));
    }
    spans.push(plain("."));
    spans
}
