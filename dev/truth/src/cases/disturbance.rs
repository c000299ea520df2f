//! Detects missing CPU time, a disturbance of the host that may explain a failure.

use floodmark_record::metric::HostFigure;
use floodmark_record::{Metric, Run};

use crate::log::Log;

/// A thread that waits for a CPU for less than this fraction of the run is not disturbed.
const RUN_DELAY_SHARE: f64 = 0.02;

/// Stolen time below this fraction of one CPU within a second is not a disturbance.
const STEAL_SHARE: f64 = 0.02;

/// Returns the disturbance that the client's record or the server's log shows, if any.
pub fn found(run: &Run, log: &Log) -> Option<String> {
    client(run).or_else(|| steal(run)).or_else(|| server(log))
}

fn client(run: &Run) -> Option<String> {
    let load = run.client.threads.iter().filter(|t| t.drives_load);
    let measured = load.filter_map(|thread| Some((thread, thread.run_delay_s?)));
    let (thread, waited_s) = measured.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let who = format!("load thread {}", thread.name);
    waited(&who, waited_s, thread.wall_s)
}

fn server(log: &Log) -> Option<String> {
    let wall_s = (log.stopped_ns - log.started_ns) as f64 / 1e9;
    waited("the truth server", log.run_delay_ns as f64 / 1e9, wall_s)
}

fn waited(who: &str, waited_s: f64, wall_s: f64) -> Option<String> {
    (waited_s > RUN_DELAY_SHARE * wall_s)
        .then(|| format!("{who} waited for a CPU for {waited_s:.2} s of {wall_s:.1} s"))
}

fn steal(run: &Run) -> Option<String> {
    let mut series = (run.observations.iter())
        .filter(|of| of.metric == Metric::Host(None, HostFigure::Steal) && !of.is_peak);
    series.find_map(|o| {
        // Aggregate per second, because the kernel counts stolen time in coarse ticks.
        let steps = (1000 / o.step_ms.max(1)).max(1) as usize;
        let length_s = (steps as u64 * o.step_ms) as f64 / 1e3;
        let seconds = o.values.chunks(steps);
        let seconds = seconds.map(|second| second.iter().sum::<f64>());
        let (at, worst) = seconds.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (worst > STEAL_SHARE * length_s).then(|| {
            let at_s = at as f64 * length_s + o.start_ms as f64 / 1e3;
            format!(
                "{worst:.2} s of CPU time was stolen within {length_s} s, starting at {at_s:.0} s"
            )
        })
    })
}
