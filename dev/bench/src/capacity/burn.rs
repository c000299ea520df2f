//! `floodmark-bench burn`: uses a given share of one CPU in bursts of random length, like a program
//! beside the measured server.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use floodmark_host::Stop;
use floodmark_record::units::parse_duration;
use rustix::time::{ClockId, clock_gettime};

use super::servers::Random;
use crate::bench::Failure;

/// Shortest and longest burst, as multiples of the mean.
const BURST: (f64, f64) = (0.1, 5.0);

/// Longest sleep between checks of the interrupt flag.
const POLL: Duration = Duration::from_millis(100);

/// Options of the command `burn`.
#[derive(Debug, Args)]
pub struct BurnOptions {
    /// Share of one CPU to use, from 0.01 to 0.9
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    share: f64,
    /// Mean CPU time per burst, with a unit; a burst takes 0.1 to 5 times as long
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    burst: Duration,
    /// Seed of the lengths
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Parses a share of one CPU.
///
/// # Errors
/// The text is not a number from 0.01 to 0.9.
pub fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.01..=0.9).contains(&share) => Ok(share),
        _ => Err("expected a number from 0.01 to 0.9, such as 0.3".to_owned()),
    }
}

/// Alternates between bursts and sleeps until this process receives SIGTERM.
pub fn run(options: &BurnOptions) -> Result<bool, Failure> {
    burn(options, &Stop::on_signals()?);
    Ok(true)
}

fn burn(options: &BurnOptions, stop: &Stop) {
    let mut random = Random::new(options.seed);
    let begin = Instant::now();
    let begin_cpu = cpu_time();
    let mut due = Duration::ZERO;
    while !stop.is_set() {
        let factor = random.exponential().clamp(BURST.0, BURST.1);
        due += options.burst.mul_f64(factor);
        while cpu_time() - begin_cpu < due && !stop.is_set() {
            spin_loop();
        }
        // The total share is exact even if other programs prolong a burst.
        let next = due.div_f64(options.share);
        while begin.elapsed() < next && !stop.is_set() {
            thread::sleep(next.saturating_sub(begin.elapsed()).min(POLL));
        }
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_the_given_share_of_a_cpu() {
        let options = BurnOptions {
            share: 0.3,
            burst: Duration::from_millis(5),
            seed: 1,
        };
        let stop = Stop::new();
        let (used, elapsed) = thread::scope(|scope| {
            let begin = Instant::now();
            let burner = scope.spawn(|| {
                let begin = cpu_time();
                burn(&options, &stop);
                cpu_time() - begin
            });
            thread::sleep(Duration::from_secs(1));
            stop.set();
            (burner.join().unwrap(), begin.elapsed())
        });
        let share = used.as_secs_f64() / elapsed.as_secs_f64();
        // Other programs may take the CPU, and the last burst may be incomplete.
        assert!((0.2..0.36).contains(&share), "{share}");
    }

    #[test]
    fn rejects_impossible_shares() {
        for text in ["", "0", "-0.1", "0.95", "nan", "30%"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
        assert_eq!(parse_share("0.3"), Ok(0.3));
    }
}
