//! What of the machine may explain a miss: CPU that was not to be had.

use floodmark_record::Run;

use crate::log::Log;

/// A wait for a CPU above this share of the run may explain a miss.
const RUN_DELAY_SHARE: f64 = 0.02;

/// CPU time taken by the hypervisor above this share of one CPU, in any step, may explain a miss.
const STEAL_SHARE: f64 = 0.02;

/// What the record of the client and the log of the server say, in words; none when the machine was quiet.
pub fn found(run: &Run, log: &Log) -> Option<String> {
    client(run).or_else(|| steal(run)).or_else(|| server(log))
}

fn client(run: &Run) -> Option<String> {
    let load = run.client.threads.iter().filter(|t| t.drives_load);
    let told = load.filter_map(|thread| Some((thread, thread.run_delay_s?)));
    let (thread, waited_s) = told.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (waited_s > RUN_DELAY_SHARE * thread.wall_s).then(|| {
        format!(
            "load thread {} waited {waited_s:.2} s of {:.1} s for a CPU",
            thread.name, thread.wall_s
        )
    })
}

fn server(log: &Log) -> Option<String> {
    let (waited, wall) = (
        log.run_delay_ns as f64,
        (log.stopped_ns - log.started_ns) as f64,
    );
    (waited > RUN_DELAY_SHARE * wall).then(|| {
        format!(
            "the truth server waited {:.2} s of {:.1} s for a CPU",
            waited / 1e9,
            wall / 1e9
        )
    })
}

fn steal(run: &Run) -> Option<String> {
    let mut series = run.observations.iter().filter(|o| o.metric == "steal");
    series.find_map(|o| {
        // By the second: the kernel tells stolen time in ticks, of which a shorter step holds only a few.
        let steps = (1000 / o.step_ms.max(1)).max(1) as usize;
        let length_s = (steps as u64 * o.step_ms) as f64 / 1e3;
        let (at, worst) = o
            .values
            .chunks(steps)
            .map(|second| second.iter().sum::<f64>())
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(&b.1))?;
        (worst > STEAL_SHARE * length_s).then(|| {
            let at_s = at as f64 * length_s + o.start_ms as f64 / 1e3;
            format!("{worst:.2} s of CPU were stolen in the {length_s} s from {at_s:.0} s on")
        })
    })
}
