//! The loads of an experiment, ranked by their figure and drawn as bars.

use std::collections::BTreeMap;

use floodmark_record::Record;
use floodmark_record::comparison::counted_attempts;
use floodmark_record::run::{Run, Status};
use floodmark_stats::attempts::geometric_median;

use super::document::{Emphasis, RankedBar, Ranking, plain};
use super::figures::extremes;
use super::names::{NamedRun, load_name};
use super::run::status_word;
use super::verdict;

/// Minimum number of loads; fewer need no chart.
const FEWEST: usize = 3;

/// Ranks closed-model loads by throughput, which is computed as in comparisons. Leaves out
/// open-model loads. If the workloads differ, keeps the original order. Returns `None` for fewer
/// than [`FEWEST`] loads, or if the throughput of any load was not measured.
pub(crate) fn of_loads(loads: &[&[NamedRun<'_>]]) -> Option<Ranking> {
    let is_closed = |load: &&&[NamedRun<'_>]| load.iter().all(|one| !one.run.plan.is_open());
    let loads: Vec<&[NamedRun<'_>]> = loads.iter().filter(is_closed).copied().collect();
    let mut workloads = loads.iter().map(|load| &load[0].run.workload);
    let first = workloads.next()?;
    let is_sorted = workloads.all(|workload| workload == first);
    let bars: Option<Vec<RankedBar>> = loads.iter().map(|load| bar(load)).collect();
    let attempts = loads.iter().map(|load| load.len()).max()?;
    let caption = match attempts {
        1 => "ok responses per second".to_owned(),
        _ => "ok responses per second; bar: mean of the server processes, line: range of the attempts \
              that count".to_owned(),
    };
    of_bars(is_sorted, caption, bars?)
}

/// Ranks the trials of an experiment by their capacity.
pub(crate) fn of_capacities(record: &Record) -> Option<Ranking> {
    let bars = record.trial_capacities.iter().map(|trial| {
        Some(RankedBar {
            name: trial.trial.clone(),
            per_s: trial.rate_per_s?,
            range: trial.interval.as_ref().map(|of| (of.low, of.high)),
            about: Vec::new(),
        })
    });
    let bars: Option<Vec<RankedBar>> = bars.collect();
    let caption = "capacity in requests per second; line: 95 % interval";
    of_bars(true, caption.to_owned(), bars?)
}

fn of_bars(is_sorted: bool, caption: String, mut bars: Vec<RankedBar>) -> Option<Ranking> {
    if is_sorted {
        bars.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
    }
    (bars.len() >= FEWEST).then_some(Ranking { caption, bars })
}

/// Returns the attempts that count in comparisons, by server process. If there are none, all attempts
/// count.
fn counted<'a>(load: &[NamedRun<'a>]) -> BTreeMap<u32, Vec<&'a Run>> {
    let mut all: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
    for one in load {
        all.entry(one.run.process).or_default().push(one.run);
    }
    let counted = all.iter().map(|(n, runs)| (*n, counted_attempts(runs)));
    let counted: BTreeMap<u32, Vec<&Run>> = counted.filter(|(_, runs)| !runs.is_empty()).collect();
    if counted.is_empty() { all } else { counted }
}

/// Returns the geometric mean of the throughputs of the server processes. The throughput of a process
/// is the median of its attempts on a logarithmic scale.
fn geometric_mean<'a>(processes: impl Iterator<Item = &'a Vec<&'a Run>>) -> Option<f64> {
    let figures = processes.filter_map(|runs| {
        let figures: Vec<f64> = runs.iter().filter_map(|run| run.throughput_per_s).collect();
        (!figures.is_empty()).then(|| geometric_median(&figures))
    });
    let logs: Vec<f64> = figures.map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

fn bar(load: &[NamedRun<'_>]) -> Option<RankedBar> {
    let counted = counted(load);
    let runs = || counted.values().flatten().copied();
    let figures: Vec<f64> = runs().filter_map(|run| run.throughput_per_s).collect();
    let (least, most) = extremes(&figures)?;
    let mut about = Vec::new();
    if let Some((verdict, _)) = verdict::most_frequent(load.iter().map(|one| one.run)) {
        about.push(plain(verdict.cause.name()));
    }
    let worst = runs().map(|run| run.validity.status).max()?;
    match worst {
        Status::Valid => {}
        Status::Invalid => about.push(status_word(worst)),
        Status::Bound => about.push(Emphasis::Warn.span("lower bound")),
    }
    let mut checks = load.iter().flat_map(|one| &one.run.checks);
    if checks.any(|check| check.held == Some(false)) {
        about.push(Emphasis::Bad.span("check violated"));
    }
    Some(RankedBar {
        name: load_name(load),
        per_s: geometric_mean(counted.values())?,
        range: (least < most).then_some((least, most)),
        about,
    })
}

#[cfg(test)]
mod tests {
    use floodmark_record::run::{CheckResult, SteadyClass};

    use super::*;
    use crate::fixture;

    fn named<'a>(runs: &'a [Run], name: &str) -> Vec<NamedRun<'a>> {
        let one = |run| NamedRun {
            name: format!("{name}, process 1"),
            run,
        };
        runs.iter().map(one).collect()
    }

    fn loads(figures: &[(&str, &[f64])]) -> Vec<(String, Vec<Run>)> {
        let run = |per_s: &f64| Run {
            throughput_per_s: Some(*per_s),
            ..fixture::closed()
        };
        let load = |(name, figures): &(&str, &[f64])| {
            ((*name).to_owned(), figures.iter().map(run).collect())
        };
        figures.iter().map(load).collect()
    }

    fn ranking(figures: &[(&str, &[f64])]) -> Option<Ranking> {
        of_runs(&loads(figures))
    }

    fn of_runs(loads: &[(String, Vec<Run>)]) -> Option<Ranking> {
        let named: Vec<Vec<NamedRun<'_>>> =
            loads.iter().map(|(name, runs)| named(runs, name)).collect();
        of_loads(&named.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn the_highest_median_comes_first() {
        let found = ranking(&[
            ("a", &[10.0, 12.0, 11.0]),
            ("b", &[30.0, 31.0]),
            ("c", &[1.0]),
        ]);
        let bars = found.unwrap().bars;
        let order: Vec<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
        assert_eq!(order, ["b", "a", "c, process 1"]);
        assert!((bars[1].per_s - 11.0).abs() < 1e-9, "{bars:?}");
        assert_eq!(bars[1].range, Some((10.0, 12.0)));
        assert_eq!(bars[2].range, None);
        assert!(ranking(&[("a", &[1.0]), ("b", &[2.0])]).is_none());
    }

    #[test]
    fn attempts_that_comparisons_exclude_do_not_count() {
        let mut loads = loads(&[("a", &[1.0, 9.0, 9.5]), ("b", &[3.0]), ("c", &[2.0])]);
        loads[0].1[0].steady.class = SteadyClass::Warming;
        loads[0].1[1].validity.status = Status::Invalid;
        let bar = &of_runs(&loads).unwrap().bars[0];
        assert!((bar.per_s - 9.5).abs() < 1e-9, "{bar:?}");
        assert_eq!(bar.range, None);
        loads[0].1[2].validity.status = Status::Invalid;
        loads[0].1[0].validity.status = Status::Invalid;
        let ranking = of_runs(&loads).unwrap();
        let bar = ranking.bars.iter().find(|bar| bar.name == "a").unwrap();
        assert_eq!(bar.range, Some((1.0, 9.5)));
        assert_eq!(bar.about.last(), Some(&Emphasis::Bad.span("invalid")));
    }

    #[test]
    fn a_violated_check_is_marked() {
        let mut loads = loads(&[("a", &[9.0]), ("b", &[3.0]), ("c", &[1.0])]);
        loads[0].1[0].checks = vec![CheckResult {
            name: "sequence".to_owned(),
            held: Some(false),
            detail: String::new(),
            history: Vec::new(),
        }];
        let ranking = of_runs(&loads).unwrap();
        let marked = Emphasis::Bad.span("check violated");
        assert_eq!(ranking.bars[0].about.last(), Some(&marked));
    }

    #[test]
    fn offered_rates_are_not_ranked() {
        let runs = [fixture::open_censored()];
        let open = named(&runs, "open");
        assert!(of_loads(&[&open, &open, &open]).is_none());
        let runs = [fixture::closed()];
        let closed = named(&runs, "closed");
        let ranking = of_loads(&[&closed, &open, &closed, &closed]);
        assert_eq!(ranking.unwrap().bars.len(), 3);
    }

    #[test]
    fn figures_for_different_workloads_keep_their_order() {
        let mut loads = loads(&[("a", &[1.0]), ("b", &[3.0]), ("c", &[2.0])]);
        loads[2].1[0].workload = "json".to_owned();
        let ranking = of_runs(&loads).unwrap();
        let figures: Vec<f64> = ranking.bars.iter().map(|bar| bar.per_s.round()).collect();
        assert_eq!(figures, [1.0, 3.0, 2.0]);
    }
}
