//! `cargo xtask slowed`: runs a command that is stopped for a share of the time, many times a second.
//!
//! A server of which this is done has lost that share, whatever it does with the rest: no setting of it, no share of work that is
//! only estimated, and nothing in it that is there for this. What it really lost is measured and said at the end.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::command;
use crate::error::Error;

/// From one stop to the next: short beside a measurement of a second, long beside the 0.1 ms by which sleeps are off.
const PERIOD: Duration = Duration::from_millis(20);
/// How long the command may take to end after SIGTERM before it is killed.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What to run, and for which share of the time it is stopped.
#[derive(Debug, Args)]
pub struct Options {
    /// Share of the time in which it is stopped, from 0 (not at all) to 0.9.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    share: f64,
    /// The command and its arguments, behind --.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=0.9).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 0.9, such as 0.05".to_owned()),
    }
}

/// Runs it until it ends or we are told to.
pub fn run(options: &Options) -> Result<bool, Error> {
    let told = Arc::new(AtomicBool::new(false));
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]);
    let line = command::line(&command);
    let mut begun = || -> io::Result<Child> {
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&told))?;
        }
        spawn(&mut command)
    };
    let mut child = begun().map_err(|source| Error::Start {
        command: line.clone(),
        source,
    })?;
    let begin = Instant::now();
    let ended = take_turns(&mut child, options.share, &told);
    let lived = begin.elapsed();
    let end = |source| Error::Output {
        command: line.clone(),
        why: format!("it cannot be waited for: {source}"),
    };
    let (stopped, ended) = ended.map_err(end)?;
    let status = match ended {
        Some(status) => status,
        None => finish(&mut child).map_err(end)?,
    };
    println!("{}", told_at_the_end(stopped, lived));
    // Ended by the signal that was meant to end it.
    Ok(status.success() || status.signal() == Some(SIGTERM))
}

/// A child that is killed with us, for one that is stopped heeds nothing else.
fn spawn(command: &mut Command) -> io::Result<Child> {
    // SAFETY: between fork and exec only prctl(2) is called, which takes plain numbers here and does not allocate.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
    command.spawn()
}

/// Stops and continues the child until it ends or we are told to; how long it was stopped, and how it ended.
fn take_turns(
    child: &mut Child,
    share: f64,
    told: &AtomicBool,
) -> io::Result<(Duration, Option<ExitStatus>)> {
    let begin = Instant::now();
    let mut stopped = Duration::ZERO;
    while !told.load(Ordering::Relaxed) {
        if let Some(status) = child.try_wait()? {
            return Ok((stopped, Some(status)));
        }
        let turn = Instant::now();
        // What is still owed of the whole, so that sleeps that last too long are made up for.
        let owed = begin.elapsed().mul_f64(share).saturating_sub(stopped);
        if !owed.is_zero() {
            signal(child, libc::SIGSTOP);
            let from = Instant::now();
            thread::sleep(owed);
            signal(child, libc::SIGCONT);
            stopped += from.elapsed();
        }
        thread::sleep(PERIOD.saturating_sub(turn.elapsed()));
    }
    Ok((stopped, None))
}

/// Ends the child, which may have been told by whoever told us.
fn finish(child: &mut Child) -> io::Result<ExitStatus> {
    signal(child, libc::SIGTERM);
    let until = Instant::now() + LAST_WORDS;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(PERIOD);
    }
    child.kill()?;
    child.wait()
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: kill(2) takes plain numbers; the process is our child and not reaped yet, so the id is still its own.
    unsafe { libc::kill(child.id().cast_signed(), signal) };
}

/// Before and after the figure in the line that is said at the end.
const SAID: (&str, &str) = ("stopped for ", " % of the time");

fn told_at_the_end(stopped: Duration, lived: Duration) -> String {
    let percent = 100.0 * stopped.as_secs_f64() / lived.as_secs_f64().max(f64::MIN_POSITIVE);
    format!("{}{percent:.2}{}", SAID.0, SAID.1)
}

/// The share that was said in a log.
pub fn share_in(log: &str) -> Option<f64> {
    let mut lines = log.lines().rev();
    let percent = lines.find_map(|line| line.strip_prefix(SAID.0)?.strip_suffix(SAID.1));
    Some(percent?.parse::<f64>().ok()? / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asleep(seconds: &str) -> Child {
        spawn(Command::new("sleep").arg(seconds)).unwrap()
    }

    #[test]
    fn it_is_stopped_for_the_share_that_was_asked_for() {
        for share in [0.0, 0.3] {
            let mut child = asleep("0.6");
            let begin = Instant::now();
            let (stopped, ended) = take_turns(&mut child, share, &AtomicBool::new(false)).unwrap();
            assert!(ended.unwrap().success());
            let got = stopped.as_secs_f64() / begin.elapsed().as_secs_f64();
            // A busy machine may wake us late once.
            assert!((got - share).abs() < 0.1, "{got} {share}");
            assert_eq!(stopped.is_zero(), share == 0.0);
        }
    }

    #[test]
    fn told_to_end_it_ends_the_command() {
        let mut child = asleep("100");
        let told = AtomicBool::new(true);
        assert_eq!(take_turns(&mut child, 0.5, &told).unwrap().1, None);
        assert_eq!(finish(&mut child).unwrap().signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn what_is_said_is_read() {
        let said = told_at_the_end(Duration::from_millis(51), Duration::from_secs(1));
        assert_eq!(said, "stopped for 5.10 % of the time");
        let log = format!("listening on http://127.0.0.1:1\n{said}\n");
        assert!((share_in(&log).unwrap() - 0.051).abs() < 1e-9);
        assert_eq!(share_in("listening\n"), None);
    }

    #[test]
    fn shares_that_are_none_are_refused() {
        for text in ["", "x", "-0.1", "0.95", "nan", "5%"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!(share("0.05"), Ok(0.05));
    }
}
