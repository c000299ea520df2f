use floodmark_record::outcome::Counts;
use floodmark_record::path::PathStep;
use floodmark_record::run::WarmupRun;

use super::*;
use crate::fixture;
use crate::model::names::NamedRun;

#[test]
fn a_second_without_the_servers_cpu_is_a_gap() {
    let mut run = fixture::watched();
    run.series[4].server_user_cpus = None;
    let drawn = [NamedRun {
        name: String::new(),
        run: &run,
    }];
    let time = TimeAxis::of(&drawn).unwrap();
    let charts = cpu_charts(&time, &run, &Environment::default());
    for curve in &charts[0].curves {
        assert_eq!(curve.pieces.len(), 2, "{}", curve.name);
        assert_eq!(curve.pieces[0].points.last().unwrap().0, 4.0);
        assert_eq!(curve.pieces[1].points[0].0, 5.0);
    }
}

#[test]
fn each_second_is_a_column_and_rare_times_stay_visible() {
    let mut run = fixture::closed();
    for row in &mut run.series {
        row.response_times = TimeBuckets::of([(500_000, 99_999), (40_000_000, 1)]);
    }
    let drawn = [NamedRun {
        name: String::new(),
        run: &run,
    }];
    let time = TimeAxis::of(&drawn).unwrap();
    let map = heat_map(&time, &run).unwrap();
    assert_eq!(map.cells.len(), 2 * run.series.len());
    let intensities: Vec<u8> = map.cells[..2].iter().map(|cell| cell.intensity).collect();
    assert_eq!(intensities, [8, 1]);
    assert!(map.y.from <= 500.0 && map.y.to >= 40_000.0, "{:?}", map.y);
    run.series
        .iter_mut()
        .for_each(|row| row.response_times = None);
    assert!(heat_map(&time, &run).is_none());
}

#[test]
fn a_long_run_has_few_columns() {
    let mut run = fixture::closed();
    let row = SeriesRow {
        response_times: TimeBuckets::of([(500_000, 10)]),
        ..run.series[0].clone()
    };
    run.series = (0..1_000)
        .map(|i| SeriesRow {
            from_s: f64::from(i),
            to_s: f64::from(i + 1),
            ..row.clone()
        })
        .collect();
    let drawn = [NamedRun {
        name: String::new(),
        run: &run,
    }];
    let map = heat_map(&TimeAxis::of(&drawn).unwrap(), &run).unwrap();
    assert!(map.cells.len() <= MAX_COLUMNS, "{}", map.cells.len());
}

#[test]
fn a_second_without_a_value_is_a_gap() {
    let mut run = fixture::closed();
    run.series[4].p99_us = None;
    let pieces = of_series(&run, Aggregation::Largest, |row| row.p99_us);
    assert_eq!(pieces.len(), 2);
    assert_eq!(pieces[0].points.last(), Some(&(4.0, 1210.0)));
    assert_eq!(pieces[1].points.first(), Some(&(5.0, 1210.0)));
}

#[test]
fn pieces_outside_the_window_are_faint_and_connected() {
    let mut run = fixture::closed();
    run.window.from_s = 3.0;
    let pieces = of_series(&run, Aggregation::Mean, |row| Some(row.throughput_per_s));
    let faint: Vec<bool> = pieces.iter().map(|piece| piece.faint).collect();
    assert_eq!(faint, [true, false]);
    assert_eq!(pieces[1].points[0], *pieces[0].points.last().unwrap());
}

#[test]
fn a_long_run_has_few_steps_and_keeps_its_worst_second() {
    let mut run = fixture::closed();
    run.series = (0..4000)
        .map(|i| SeriesRow {
            from_s: f64::from(i),
            to_s: f64::from(i + 1),
            throughput_per_s: 100.0,
            p99_us: Some(if i == 1234 { 90_000.0 } else { 10.0 }),
            ..SeriesRow::default()
        })
        .collect();
    run.window.to_s = 4000.0;
    let worst = of_series(&run, Aggregation::Largest, |row| row.p99_us);
    assert!(worst[0].points.len() <= 2 * MAX_STEPS);
    assert!(worst[0].points.iter().any(|(_, y)| *y == 90_000.0));
    let mean = of_series(&run, Aggregation::Mean, |row| Some(row.throughput_per_s));
    assert!(
        mean[0]
            .points
            .iter()
            .all(|(_, y)| (*y - 100.0).abs() < 1e-9)
    );
    run.series[1234].p99_us = None;
    assert_eq!(
        of_series(&run, Aggregation::Largest, |row| row.p99_us).len(),
        2
    );
}

#[test]
fn a_late_clock_tick_does_not_count_as_many_cpus() {
    let mut run = fixture::closed();
    run.series.push(SeriesRow {
        from_s: 10.0,
        to_s: 10.000_2,
        client_system_cpus: 20.0,
        ..SeriesRow::default()
    });
    let cpu = of_series(&run, Aggregation::Mean, |row| Some(row.client_system_cpus));
    assert!(cpu[0].points.iter().all(|(_, y)| *y < 0.52), "{cpu:?}");
    let p99 = of_series(&run, Aggregation::Largest, |row| row.p99_us);
    assert_eq!(p99[0].points.last(), Some(&(10.000_2, 1210.0)));
}

#[test]
fn short_samples_are_merged_evenly() {
    // The computed length of some of these samples is slightly less than 50 ms.
    let steps = (0..3000).map(|i| CurveStep {
        from_s: f64::from(i) * 0.05,
        to_s: f64::from(i) * 0.05 + 0.05,
        value: Some(1.0),
    });
    let merged = joined(steps, Aggregation::Mean);
    assert_eq!(merged.len(), MAX_STEPS);
    assert!(
        merged
            .iter()
            .all(|step| (length_s(step) - 0.5).abs() < 1e-6)
    );
}

#[test]
fn the_drain_does_not_change_the_second_before() {
    let mut run = fixture::closed();
    run.series.push(SeriesRow {
        from_s: 10.0,
        to_s: 10.002,
        p50_us: Some(9_000.0),
        ..SeriesRow::default()
    });
    let before = run.series[9].p50_us.unwrap();
    let p50 = of_series(&run, Aggregation::Largest, |row| row.p50_us);
    assert_eq!(p50[0].points.last(), Some(&(10.002, before)));
}

#[test]
fn leaves_out_damaged_rows() {
    let mut run = fixture::closed();
    run.series[0].from_s = f64::NAN;
    run.series[1].to_s = -1.0;
    run.series[2].throughput_per_s = f64::INFINITY;
    let pieces = of_series(&run, Aggregation::Mean, |row| Some(row.throughput_per_s));
    assert_eq!(pieces[0].points[0].0, 3.0);
}

#[test]
fn failure_metrics_come_first_and_duplicates_are_left_out() {
    let seen = |metric, is_peak| Observation {
        metric,
        is_peak,
        source: String::new(),
        start_ms: 0,
        step_ms: 1000,
        values: vec![0.0, 1.0],
    };
    let mut run = fixture::closed();
    run.observations = vec![
        seen(Metric::Host(None, HostFigure::Busy), false),
        seen(Metric::Process(Role::Server, ProcessFigure::User), false),
        seen(Metric::Process(Role::Server, ProcessFigure::Rss), false),
        seen(Metric::Process(Role::Server, ProcessFigure::Rss), true),
        seen(Metric::Network(None, NetworkFigure::FailedAttempts), false),
        seen(Metric::Sockets(Role::Client, SocketFigure::TimeWait), false),
    ];
    let drawn = [NamedRun {
        name: String::new(),
        run: &run,
    }];
    let (charts, left) = observed_charts(&drawn);
    let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "Client sockets: connections in TIME_WAIT",
            "Network: connection attempts that failed",
            "Server: resident memory",
            "Host: busy CPUs"
        ]
    );
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_change_during_the_warmup_has_no_chart() {
    let mut run = fixture::closed();
    run.warmup = Some(WarmupRun {
        duration_s: 1.0,
        requests: Counts::default(),
    });
    run.measured_from_ms = Some(1000);
    let seen = |metric, values: &[f64]| Observation {
        metric,
        is_peak: false,
        source: String::new(),
        start_ms: 0,
        step_ms: 500,
        values: values.to_vec(),
    };
    run.observations = vec![
        seen(
            Metric::Disk(None, DiskFigure::BusyTime),
            &[5.0, 1.0, 0.0, 0.0],
        ),
        seen(Metric::Host(None, HostFigure::Busy), &[0.0, 0.0, 1.0, 2.0]),
        // Sampling ended before the measurement.
        seen(Metric::Host(None, HostFigure::Steal), &[1.0, 2.0]),
    ];
    let drawn = [NamedRun {
        name: String::new(),
        run: &run,
    }];
    let (charts, left) = observed_charts(&drawn);
    let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
    assert_eq!(titles, ["Host: busy CPUs"]);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn omits_values_of_the_warmup() {
    let mut run = fixture::closed();
    run.measured_from_ms = None;
    let seen = Observation {
        metric: Metric::Network(None, NetworkFigure::TimeWait),
        is_peak: false,
        source: "/proc/net/sockstat".to_owned(),
        start_ms: 0,
        step_ms: 1000,
        values: vec![900.0, 901.0, 1.0, 2.0],
    };
    let drawn = |warmup_s: f64, run: &mut Run| {
        run.warmup = Some(WarmupRun {
            duration_s: warmup_s,
            requests: Counts::default(),
        });
        let steps = joined(steps(run, &seen), Aggregation::Mean);
        steps
            .iter()
            .map(|step| (step.from_s, step.value))
            .collect::<Vec<_>>()
    };
    let whole = drawn(2.0004, &mut run);
    assert_eq!(whole.len(), 2);
    assert_eq!(whole[0], (0.0, Some(1.0)));
    assert_eq!(whole[1].1, Some(2.0));
    // Skip a value that covers part of the warm-up and part of the measurement.
    assert_eq!(drawn(2.5, &mut run), [(0.5, Some(2.0))]);
    // The measured start is more accurate than the sum of the step lengths.
    run.measured_from_ms = Some(1000);
    assert_eq!(drawn(2.5, &mut run).len(), 3);
}

#[test]
fn cites_the_thread_group_of_a_step() {
    let mut run = fixture::judged(Cause::WorkerPool);
    let pool = Actor::Server.with(ActorResource::ThreadGroup("pool".to_owned()));
    if let Some(verdict) = &mut run.verdict {
        verdict.path = vec![PathStep::new(StepKind::Threads, pool, "counted")];
    }
    let working = |group: &str| {
        Metric::ThreadGroup(Role::Server, group.to_owned(), ThreadGroupFigure::Working)
    };
    assert!(is_cited(&run, &working("pool")));
    assert!(!is_cited(&run, &working("pool-2")));
}
