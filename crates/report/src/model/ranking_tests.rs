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
    let load =
        |(name, figures): &(&str, &[f64])| ((*name).to_owned(), figures.iter().map(run).collect());
    figures.iter().map(load).collect()
}

fn ranking(figures: &[(&str, &[f64])]) -> Option<Ranking> {
    of_runs(&loads(figures))
}

fn of_runs(loads: &[(String, Vec<Run>)]) -> Option<Ranking> {
    let named: Vec<Vec<NamedRun<'_>>> =
        loads.iter().map(|(name, runs)| named(runs, name)).collect();
    ranked_loads(&named.iter().map(Vec::as_slice).collect::<Vec<_>>())
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
fn an_unsteady_run_can_be_a_lower_bound() {
    let mut loads = loads(&[("a", &[9.0, 9.5]), ("b", &[3.0]), ("c", &[1.0])]);
    let unsteady = Emphasis::Warn.span("unsteady");
    let bound = Emphasis::Warn.span("lower bound");
    loads[0].1[0].validity.status = Status::Unsteady;
    assert_eq!(
        of_runs(&loads).unwrap().bars[0].about.last(),
        Some(&unsteady)
    );
    loads[0].1[0].validity.unsteady_bound = true;
    loads[0].1[1].validity.status = Status::Bound;
    let ranking = of_runs(&loads).unwrap();
    assert!(ranking.bars[0].about.ends_with(&[unsteady, bound]));
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
    assert!(ranked_loads(&[&open, &open, &open]).is_none());
    let runs = [fixture::closed()];
    let closed = named(&runs, "closed");
    let ranking = ranked_loads(&[&closed, &open, &closed, &closed]);
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
