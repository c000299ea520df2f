//! Sums the per-second CPU time of the server's threads over a measurement.

use std::collections::BTreeMap;

use floodmark_record::watch::{ObservedSecond, OtherThreads, ServerThread};

use super::series::rounded;

/// Maximum number of threads listed by name in a record.
const NAMED: usize = 16;

/// Sums the CPU time of threads over `seconds`, each weighted by its share. `used` is the user and
/// system CPU time of all processes, in seconds. CPU time that no named thread used belongs to the
/// other threads.
pub fn sum<'a>(
    seconds: impl IntoIterator<Item = (&'a ObservedSecond, f64)>,
    used: (f64, f64),
) -> (Vec<ServerThread>, Option<OtherThreads>) {
    let mut threads: BTreeMap<(u32, u32), ServerThread> = BTreeMap::new();
    let (mut max_threads, mut delay_s) = (0, 0.0);
    for (second, share) in seconds {
        let mut seen = second.threads.len() as u64;
        for thread in &second.threads {
            let sum = threads.entry((thread.pid, thread.tid)).or_default();
            sum.pid = thread.pid;
            sum.tid = thread.tid;
            sum.name.clone_from(&thread.name);
            sum.user_s += share * thread.user_s;
            sum.system_s += share * thread.system_s;
            sum.on_cpu_s += share * thread.on_cpu_s;
            sum.run_delay_s += share * thread.run_delay_s;
        }
        if let Some(others) = &second.other_threads {
            seen += others.count;
            delay_s += share * others.run_delay_s;
        }
        max_threads = max_threads.max(seen);
    }
    let all = max_threads.max(threads.len() as u64);
    let mut named: Vec<ServerThread> = threads.into_values().collect();
    named.sort_by(|a, b| b.on_cpu_s.total_cmp(&a.on_cpu_s));
    let rest = named.split_off(named.len().min(NAMED));
    delay_s += rest.iter().map(|thread| thread.run_delay_s).sum::<f64>();
    for thread in &mut named {
        for figure in [
            &mut thread.user_s,
            &mut thread.system_s,
            &mut thread.on_cpu_s,
            &mut thread.run_delay_s,
        ] {
            *figure = rounded(*figure);
        }
    }
    let left = |all: f64, of: fn(&ServerThread) -> f64| {
        rounded((all - named.iter().map(of).sum::<f64>()).max(0.0))
    };
    let others = OtherThreads {
        count: all - named.len() as u64,
        user_s: left(used.0, |thread| thread.user_s),
        system_s: left(used.1, |thread| thread.system_s),
        run_delay_s: rounded(delay_s),
    };
    let any = others.count > 0 || others.user_s + others.system_s > 0.015;
    (named, any.then_some(others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::watch::ClockReading;

    fn thread(tid: u32, on_cpu_s: f64) -> ServerThread {
        ServerThread {
            pid: 1,
            tid,
            name: format!("t{tid}"),
            user_s: on_cpu_s,
            on_cpu_s,
            run_delay_s: 0.1,
            ..ServerThread::default()
        }
    }

    fn second(threads: Vec<ServerThread>, others: u64) -> ObservedSecond {
        ObservedSecond {
            from_ms: 0,
            to_ms: 1_000,
            clocks: ClockReading {
                at_ms: 0.0,
                boot_id: None,
                monotonic_ns: 0,
                unix_ns: 0,
                synchronised: false,
                max_error_us: None,
            },
            groups: Vec::new(),
            threads,
            other_threads: Some(OtherThreads {
                count: others,
                run_delay_s: 0.3,
                ..OtherThreads::default()
            }),
            watcher_cpu_s: 0.0,
            missing: Vec::new(),
        }
    }

    #[test]
    fn names_the_busiest_threads_and_sums_the_others() {
        let first = second((1..=20).map(|tid| thread(tid, 0.01)).collect(), 5);
        let then = second(vec![thread(20, 0.5), thread(99, 0.2)], 5);
        let (named, others) = sum([(&first, 0.5), (&then, 1.0)], (1.0, 0.25));
        let others = others.unwrap();
        assert_eq!(named.len(), NAMED);
        assert_eq!((named[0].tid, named[0].on_cpu_s), (20, 0.505));
        assert_eq!((named[1].tid, named[1].name.as_str()), (99, "t99"));
        // The first second has 25 threads: 20 named and 5 others.
        assert_eq!(others.count, 25 - 16);
        let of_named: f64 = named.iter().map(|thread| thread.user_s).sum();
        assert!((others.user_s + of_named - 1.0).abs() < 1e-5, "{others:?}");
        assert_eq!(others.system_s, 0.25);
        // The sum includes half of the run delay of the five threads that are no longer named. It
        // also includes the run delay of the other threads in both seconds.
        assert!(
            (others.run_delay_s - (5.0 * 0.05 + 0.45)).abs() < 1e-5,
            "{others:?}"
        );
    }

    #[test]
    fn omits_other_threads_if_all_are_named() {
        let mut only = second(vec![thread(1, 0.4)], 0);
        only.other_threads = None;
        let (named, others) = sum([(&only, 1.0)], (0.405, 0.0));
        assert_eq!((named.len(), others), (1, None));
    }
}
