//! `floodmark-bench slowed`: runs a command and stops its process many times per second, so that
//! the process is stopped for a given fraction of the time.
//!
//! The command is not modified. The measured fraction is printed at the end.

use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use floodmark_host::{Child, Signal, Stop};

use crate::bench::Failure;

/// Time from the start of one stop to the start of the next. The period is short compared with a
/// measurement of 1 s, and long compared with the 0.1 ms error of a sleep.
const PERIOD: Duration = Duration::from_millis(20);
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Options of the command `slowed`.
#[derive(Debug, Args)]
pub struct SlowedOptions {
    /// Fraction of the time for which to stop the command, from 0 to 0.9
    #[arg(long, value_name = "SHARE", value_parser = share)]
    share: f64,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=0.9).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 0.9, such as 0.05".to_owned()),
    }
}

/// Runs the command until it ends or this process receives SIGTERM. Returns whether the command
/// succeeded.
pub fn run(options: &SlowedOptions) -> Result<bool, Failure> {
    let stop = Stop::on_signals()?;
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]);
    let mut child = Child::start(command)?;
    let begin = Instant::now();
    let (stopped, ended) = alternate(&mut child, options.share, &stop)?;
    let elapsed = begin.elapsed();
    let well = match ended {
        Some(status) => status.success(),
        None => child.stop(GRACE).is_ok(),
    };
    let share = stopped.as_secs_f64() / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    println!("stopped for {:.2} % of the time", 100.0 * share);
    Ok(well)
}

/// Stops and continues the child process until it ends or `stop` is set. Returns the total stopped
/// time and the exit status.
fn alternate(
    child: &mut Child,
    share: f64,
    stop: &Stop,
) -> Result<(Duration, Option<ExitStatus>), Failure> {
    let begin = Instant::now();
    let mut stopped = Duration::ZERO;
    while !stop.is_set() {
        if let Some(status) = child.wait(Duration::ZERO)? {
            return Ok((stopped, Some(status)));
        }
        let turn = Instant::now();
        // Use the total fraction, not the fraction per period, to compensate for sleeps that take
        // too long.
        let owed = begin.elapsed().mul_f64(share).saturating_sub(stopped);
        if !owed.is_zero() {
            child.signal(Signal::STOP)?;
            let from = Instant::now();
            thread::sleep(owed);
            child.signal(Signal::CONT)?;
            stopped += from.elapsed();
        }
        thread::sleep(PERIOD.saturating_sub(turn.elapsed()));
    }
    Ok((stopped, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(seconds: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg(seconds);
        Child::start(command).unwrap()
    }

    #[test]
    fn stops_the_command_for_the_given_share() {
        for share in [0.0, 0.3] {
            let mut child = sleep("0.6");
            let begin = Instant::now();
            let (stopped, ended) = alternate(&mut child, share, &Stop::new()).unwrap();
            assert!(ended.unwrap().success());
            let got = stopped.as_secs_f64() / begin.elapsed().as_secs_f64();
            // The bounds are wide because a busy host may delay this thread.
            assert!((got - share).abs() < 0.1, "{got} {share}");
            assert_eq!(stopped.is_zero(), share == 0.0);
        }
    }

    #[test]
    fn ends_when_it_is_stopped() {
        let mut child = sleep("100");
        let stop = Stop::new();
        stop.set();
        assert_eq!(alternate(&mut child, 0.5, &stop).unwrap().1, None);
        assert!(!child.stop(GRACE).unwrap().success());
    }

    #[test]
    fn refuses_impossible_shares() {
        for text in ["", "x", "-0.1", "0.95", "nan", "5%"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!(share("0.05"), Ok(0.05));
    }
}
