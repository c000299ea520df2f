//! `cargo xtask aa`: does `floodmark run` see a difference where there is none, and find one that is there?
//!
//! First the native server is held against itself, many times over. Then against itself with a twentieth of its time taken away,
//! by [`slowed`]: once with the usual number of processes, and once with as many as floodmark then asks for.

pub mod slowed;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use floodmark_record::Record;
use floodmark_record::comparison::{Comparison, Conclusion, Metric};

use crate::command;
use crate::error::Error;
use crate::measuring::child::{self, Interrupt};
use crate::release;
use crate::workspace::Workspace;

/// The share of its time that the slower server loses.
const LOST: f64 = 0.05;
/// Of the comparisons of a server with itself at most one in so many may find a difference. At 95 % one in 20 is expected; of 20
/// more than 2 happen by chance in 8 % of all goes.
const ONE_IN: usize = 10;
/// How many times as many processes are measured next, at most.
const GROWTH: u32 = 4;
/// Most processes of each that are measured where so many are asked for: with those the chore stays below a quarter of an hour.
const MOST_PROCESSES: u32 = 400;
/// What a process takes beside its load: to start, to be probed, to stop.
const BESIDE: Duration = Duration::from_secs(10);

/// How often, and with what.
#[derive(Debug, Args)]
pub struct Options {
    /// Comparisons of the server with itself.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    /// Two comparisons over 3 processes of each, 300 ms long, to try it out: nothing is judged then.
    #[arg(long, conflicts_with = "times")]
    quick: bool,
    /// Try this floodmark [default: the release build, which is made].
    #[arg(long, value_name = "FILE")]
    floodmark: Option<PathBuf>,
}

/// Measures, says what came out, and whether it is as it must be.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool, Error> {
    let floodmark = match &options.floodmark {
        Some(path) => path.canonicalize().map_err(|source| Error::Read {
            path: path.clone(),
            source,
        })?,
        None => release::floodmark(workspace)?,
    };
    let found = |e: std::io::Error| Error::Found(vec![e.to_string()]);
    let folder = tempfile::tempdir().map_err(found)?;
    let lab = Lab {
        root: &workspace.root,
        floodmark: &floodmark,
        folder: folder.path(),
        interrupt: Interrupt::catch().map_err(found)?,
    };
    let (times, processes, length) = match options.quick {
        true => (2, 3, Duration::from_millis(300)),
        false => (options.times, 5, Duration::from_secs(1)),
    };
    let alike = lab.alike(times, processes, length)?;
    let slower = lab.slower(processes, length)?;
    if options.quick {
        println!("nothing is judged: so few and short measurements only show that it works");
        return Ok(true);
    }
    Ok(alike && slower)
}

/// What measuring needs.
struct Lab<'a> {
    root: &'a Path,
    floodmark: &'a Path,
    folder: &'a Path,
    interrupt: Interrupt,
}

impl Lab<'_> {
    /// Holds the server against itself; whether that seldom enough finds a difference.
    fn alike(&self, times: u32, processes: u32, length: Duration) -> Result<bool, Error> {
        println!(
            "The native server against itself: throughput, {processes} fresh processes of each in turn, {length:?} each"
        );
        let trial = |name| {
            format!("[[trial]]\nname = \"{name}\"\nsystem = \"native\"\nworkload = \"hello\"\n")
        };
        let trials = trial("one") + &trial("other");
        let mut different = 0;
        for time in 1..=times {
            let measured = self.measure(&format!("alike-{time}"), &trials, processes, length)?;
            println!("  {time:>2}  {}", shown(&measured.compared));
            different += usize::from(measured.compared.conclusion == Conclusion::Different);
        }
        let allowed = times as usize / ONE_IN;
        let held = different <= allowed;
        println!(
            "different {different} of {times} times; at most {allowed} of {times} are to be: {}\n",
            word(held)
        );
        Ok(held)
    }

    /// Holds the server against itself with some of its time taken away; whether that is found.
    fn slower(&self, processes: u32, length: Duration) -> Result<bool, Error> {
        println!(
            "The native server, stopped for {:.0} % of the time, against itself: throughput",
            LOST * 100.0
        );
        let xtask = std::env::current_exe().map_err(|e| Error::Found(vec![e.to_string()]))?;
        let trials = server("whole", &xtask, 0.0) + &server("slower", &xtask, LOST);
        let mut now = processes;
        let mut asked = None;
        loop {
            let name = format!("slower-{now}");
            let measured = self.measure(&name, &trials, now, length)?;
            println!("  {now:>3} processes of each: {measured}");
            let needed = measured.compared.repetitions_needed;
            let Some(more) = needed.filter(|_| asked != Some(now)) else {
                let held = finds(&measured.compared);
                let beside = match asked {
                    None => "at once".to_owned(),
                    Some(asked) => format!("with {now} where {asked} were asked for"),
                };
                println!("found {beside}: {}", word(held));
                return Ok(held);
            };
            // Few processes do not tell well how many it takes: on the way there it is asked again.
            now = more.min(now * GROWTH);
            asked = Some(more);
            if now > MOST_PROCESSES {
                println!(
                    "{more} are asked for, and at most {MOST_PROCESSES} are measured here: {}",
                    word(false)
                );
                return Ok(false);
            }
        }
    }

    /// Runs an experiment of two trials.
    fn measure(
        &self,
        name: &str,
        trials: &str,
        processes: u32,
        length: Duration,
    ) -> Result<Measured, Error> {
        let file = self.folder.join(format!("{name}.toml"));
        let text = format!(
            "question = \"Does the second differ from the first?\"\n[load]\nconnections = 50\nduration = \"{}ms\"\n[place]\nprocesses = {processes}\n{trials}",
            length.as_millis()
        );
        std::fs::write(&file, text).map_err(|source| Error::Write {
            path: file.clone(),
            source,
        })?;
        let out = self.folder.join(name);
        let mut command = Command::new(self.floodmark);
        // The systems that come with floodmark are found from the root.
        command.current_dir(self.root).arg("run").arg(&file);
        command.args(["--quiet", "--out"]).arg(&out);
        let output = |why: String| Error::Output {
            command: command::line(&Command::new(self.floodmark)),
            why,
        };
        let limit = (length + BESIDE) * processes * 2;
        let ran = child::run(&mut command, self.folder, limit, &self.interrupt)
            .map_err(|error| output(error.to_string()))?;
        // What is invalid (4) is left out of the comparison, which says so.
        if !matches!(ran.status.code(), Some(0 | 4)) {
            return Err(output(format!("{}: {}", ran.status, ran.stderr.trim())));
        }
        let record = floodmark_lab::read(&out).map_err(|error| output(error.to_string()))?;
        let compared = record
            .comparisons
            .iter()
            .find(|of| of.metric == Metric::Throughput)
            .ok_or_else(|| output("the record has no comparison of throughput".to_owned()))?;
        Ok(Measured {
            compared: compared.clone(),
            lost: lost(&out, &record),
        })
    }
}

/// What one experiment came to.
struct Measured {
    compared: Comparison,
    /// Mean share of its time that each process of the second trial lost, as it said itself.
    lost: Option<f64>,
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(&self.compared))?;
        match self.lost {
            Some(lost) => write!(f, "; it was stopped for {:.2} % of the time", lost * 100.0),
            None => Ok(()),
        }
    }
}

/// A trial of the native server under [`slowed`].
fn server(name: &str, xtask: &Path, share: f64) -> String {
    let quoted = xtask.display().to_string().replace('\'', "'\\''");
    let command = format!(
        "'{quoted}' slowed --share {share} -- {{floodmark}} serve hello --listen 127.0.0.1:{{port}} --threads {{threads}}"
    );
    // What JSON writes as a text is one in TOML too.
    let command = serde_json::Value::from(command);
    format!("[[trial]]\nname = \"{name}\"\ncommand = {command}\nworkload = \"hello\"\n")
}

/// What the processes of the last trial lost, from their logs.
fn lost(out: &Path, record: &Record) -> Option<f64> {
    let trial = record.experiment.as_ref()?.trials.last()?.clone();
    let of = record
        .runs
        .iter()
        .filter(|run| run.trial.as_ref() == Some(&trial));
    let shares: Option<Vec<f64>> = of
        .map(|run| {
            let log = out.join(format!("{trial}-{}.log", run.process));
            slowed::share_in(&std::fs::read_to_string(log).ok()?)
        })
        .collect();
    let shares = shares.filter(|shares| !shares.is_empty())?;
    Some(shares.iter().sum::<f64>() / shares.len() as f64)
}

/// Whether the second trial was found to be the slower one.
fn finds(compared: &Comparison) -> bool {
    compared.conclusion == Conclusion::Different && compared.ratio.is_some_and(|ratio| ratio < 1.0)
}

fn word(held: bool) -> &'static str {
    if held { "as it must be" } else { "MISSED" }
}

/// Ratio, interval and conclusion, and what is to be known of them.
fn shown(compared: &Comparison) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |v| format!("{v:.3}"));
    let conclusion = match compared.conclusion {
        Conclusion::Different => "different",
        Conclusion::Equivalent => "equivalent",
        Conclusion::Undecided => "undecided",
    };
    let mut text = format!(
        "{} ({} – {}) {conclusion}",
        number(compared.ratio),
        number(compared.low),
        number(compared.high)
    );
    if let Some(n) = compared.repetitions_needed {
        text += &format!(", {n} processes of each asked for");
    }
    for note in &compared.notes {
        text += &format!("\n        {note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use floodmark_record::comparison::Compared;

    use super::*;

    fn compared(ratio: f64, conclusion: Conclusion) -> Comparison {
        let figures = Compared {
            figure: Some(1.0),
            processes: 5,
            attempts: 5,
        };
        Comparison {
            a: "slower".to_owned(),
            b: "whole".to_owned(),
            metric: Metric::Throughput,
            ratio: Some(ratio),
            low: Some(ratio - 0.01),
            high: Some(ratio + 0.01),
            confidence: 0.95,
            conclusion,
            repetitions_needed: None,
            method: String::new(),
            figures_a: figures.clone(),
            figures_b: figures,
            notes: vec!["slower: 1 attempt left out as invalid".to_owned()],
        }
    }

    #[test]
    fn only_a_slower_one_is_the_slow_down_that_was_injected() {
        assert!(finds(&compared(0.95, Conclusion::Different)));
        assert!(!finds(&compared(1.05, Conclusion::Different)));
        assert!(!finds(&compared(0.95, Conclusion::Undecided)));
        assert!(!finds(&compared(0.99, Conclusion::Equivalent)));
    }

    #[test]
    fn what_came_out_is_one_line_and_its_notes() {
        assert_eq!(
            shown(&compared(0.95, Conclusion::Different)),
            "0.950 (0.940 – 0.960) different\n        slower: 1 attempt left out as invalid"
        );
    }

    #[test]
    fn a_path_with_quotes_stays_one_word() {
        let trial = server("whole", Path::new("/a 'b' \"c\"/xtask"), 0.05);
        assert!(
            trial.contains(r#"command = "'/a '\\''b'\\'' \"c\"/xtask' slowed --share 0.05 -- "#),
            "{trial}"
        );
    }
}
