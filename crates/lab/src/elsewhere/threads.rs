//! The server's processes and threads over a measurement, from what was told of them each second.

use std::collections::BTreeMap;

use floodmark_record::elsewhere::Second;
use floodmark_record::watch::{OtherThreads, ServerThread};

/// Threads that a record keeps by name.
const NAMED: usize = 16;

/// Sums what the threads used over seconds, of which only a part counts each. `used` is what all processes together used, in
/// user mode and in the kernel, seconds: the others have what the named ones have not.
pub fn sum<'a>(
    seconds: impl IntoIterator<Item = (&'a Second, f64)>,
    used: (f64, f64),
) -> (Vec<ServerThread>, Option<OtherThreads>) {
    let mut threads: BTreeMap<(u32, u32), ServerThread> = BTreeMap::new();
    let (mut most, mut delay_s) = (0, 0.0);
    for (second, part) in seconds {
        let mut seen = second.threads.len() as u64;
        for thread in &second.threads {
            let sum = threads.entry((thread.pid, thread.tid)).or_default();
            sum.pid = thread.pid;
            sum.tid = thread.tid;
            sum.name.clone_from(&thread.name);
            sum.user_s += part * thread.user_s;
            sum.system_s += part * thread.system_s;
            sum.on_cpu_s += part * thread.on_cpu_s;
            sum.run_delay_s += part * thread.run_delay_s;
        }
        if let Some(others) = &second.other_threads {
            seen += others.count;
            delay_s += part * others.run_delay_s;
        }
        most = most.max(seen);
    }
    let all = most.max(threads.len() as u64);
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

/// Six decimals, as in all series.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
