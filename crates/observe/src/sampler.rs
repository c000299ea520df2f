//! A thread that reads the machine's counters once per interval while a load runs.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use floodmark_record::run::Observation;

use crate::Root;
use crate::samples::Samples;

/// Shortest interval: one tick of the kernel's CPU accounting.
const SHORTEST: Duration = Duration::from_millis(10);

/// What a sampler hands back: the series, and what could not be read.
pub type Sampled = (Vec<Observation>, Vec<String>);

/// Reads counters of network, CPUs and control group beside a load, once per interval.
///
/// Series that stay zero are kept: a zero is evidence. Counters are of the whole network namespace and machine, so whatever else
/// runs there is in them. A sample costs about 0.2 ms of CPU, which is 0.02 % of one CPU at one a second; memory is bounded by
/// 3,600 values a series, beyond which the resolution is halved.
#[derive(Debug)]
pub struct Sampler {
    /// Dropped to stop the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: io::Result<JoinHandle<Sampled>>,
}

impl Sampler {
    /// Starts now. `every` is taken in whole milliseconds, 10 at least.
    #[must_use]
    pub fn start(every: Duration) -> Self {
        Self::start_at(Instant::now(), every)
    }

    /// Starts at a moment, such as the agreed start of the load, so that `start_ms` 0 of the series is that moment.
    #[must_use]
    pub fn start_at(start: Instant, every: Duration) -> Self {
        let every = Duration::from_millis(
            u64::try_from(every.max(SHORTEST).as_millis()).unwrap_or(u64::MAX / 2),
        );
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || run(&Root::host(), start, every, &stopped));
        Self {
            stop: Some(stop),
            thread,
        }
    }

    /// Takes a last reading and stops. The last value may be of a step that was cut short.
    #[must_use]
    pub fn stop(mut self) -> Sampled {
        self.stop = None;
        match self.thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| {
                (
                    Vec::new(),
                    vec!["host counters: the sampler failed".to_owned()],
                )
            }),
            Err(error) => (
                Vec::new(),
                vec![format!("host counters: no thread for the sampler: {error}")],
            ),
        }
    }
}

fn run(root: &Root, start: Instant, every: Duration, stopped: &mpsc::Receiver<()>) -> Sampled {
    let running = |until: Instant| {
        let wait = until.saturating_duration_since(Instant::now());
        stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
    };
    let mut samples = Samples::new(every);
    if !running(start) {
        return samples.finish();
    }
    samples.open(root);
    while running(samples.next()) {
        samples.take(Instant::now());
    }
    samples.take_last(Instant::now());
    samples.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn series<'a>(observations: &'a [Observation], metric: &str) -> &'a Observation {
        observations
            .iter()
            .find(|observation| observation.metric == metric)
            .unwrap_or_else(|| panic!("no {metric}"))
    }

    #[test]
    fn sees_connections_and_work_and_keeps_zeros() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sampler = Sampler::start(Duration::from_millis(100));
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..50 {
            drop(TcpStream::connect(address).unwrap());
            drop(listener.accept().unwrap());
        }
        while begin.elapsed() < Duration::from_millis(350) {
            std::hint::black_box(begin);
        }
        let (observations, missing) = sampler.stop();
        assert!(
            !missing.iter().any(|line| line.contains("netstat")),
            "{missing:?}"
        );

        let opens = series(&observations, "ActiveOpens");
        assert!(opens.values.iter().sum::<f64>() >= 50.0, "{opens:?}");
        assert_eq!(
            (opens.start_ms, opens.step_ms, opens.unit.as_str()),
            (0, 100, "count")
        );
        // Three full steps and the rest; a crowded machine may wake the sampler late, but no step is lost.
        assert!((3..=12).contains(&opens.values.len()), "{opens:?}");
        assert_eq!(
            series(&observations, "TCPTimeWaitOverflow").values.len(),
            opens.values.len()
        );
        assert!(
            series(&observations, "tw")
                .values
                .iter()
                .any(|tw| *tw > 0.0)
        );
        let busy = series(&observations, "busy");
        let stolen: f64 = series(&observations, "steal").values.iter().sum();
        assert!(
            busy.values.iter().sum::<f64>() * 0.1 + stolen > 0.1,
            "{busy:?} {stolen}"
        );
    }

    #[test]
    fn stopped_before_its_start_it_saw_nothing() {
        let sampler = Sampler::start_at(
            Instant::now() + Duration::from_secs(60),
            Duration::from_secs(1),
        );
        assert_eq!(sampler.stop(), (Vec::new(), Vec::new()));
    }
}
