//! What `floodmark observe` reads on the server's machine, put beside a load on this one.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use floodmark_record::elsewhere::{self, Aligned, Clocks, Kind, Method};
use floodmark_record::run::Observation;
use floodmark_record::watch::Observed;
use floodmark_stats::alignment::{self, NotFound, Work};

use file::ObserverFile;
pub use file::Unusable;
use series::join;
use there::{Attempt, SLACK_MS, There, in_pieces, written_length};

mod clocks;
mod file;
mod series;
mod there;
mod threads;

/// How long a line is awaited that was to come each second.
const PATIENCE: Duration = Duration::from_secs(3);

/// What tells of the work of a side: its time on CPUs, which is known to the nanosecond.
const WORK: &str = "on_cpu";

/// How far around what the wall clocks say the load is looked for, ms.
const SEARCHED_MS: f64 = 600_000.0;

/// Characters that the values of one run may take in the record: 4 MiB for all of its observations, less their heads.
const MOST_WRITTEN: usize = 3_700_000;

/// Where another machine's observations come in.
#[derive(Debug)]
pub struct Elsewhere(RefCell<ObserverFile>);

impl Elsewhere {
    /// Opens the file of an observation that goes on, of a server on a port.
    ///
    /// # Errors
    /// It is not there, is no such file, is of another port, or does not grow.
    pub fn open(path: &Path, port: u16) -> Result<Self, Unusable> {
        let mut file = ObserverFile::open(path)?;
        let says = |line, what: String| Unusable::Says {
            path: path.to_owned(),
            line,
            what,
        };
        let observed = file.opened.port;
        if observed != port {
            return Err(says(
                1,
                format!(
                    "observes the server on port {observed}, the load is on port {port}; observe with --port {port} there"
                ),
            ));
        }
        let had = file.lines;
        let grows = file.wait_for(PATIENCE, |file| file.lines > had)?;
        let lines = file.lines;
        if let Some(why) = &file.ended {
            return Err(says(
                lines,
                format!("the observation has ended ({why}); start floodmark observe anew"),
            ));
        }
        if !grows {
            return Err(says(
                lines,
                format!(
                    "has not grown for {} s: floodmark observe has ended, or what it writes does not come here",
                    PATIENCE.as_secs()
                ),
            ));
        }
        Ok(Self(RefCell::new(file)))
    }

    /// Puts what was observed there beside what was read here in an attempt that has just ended; what could not be.
    pub fn take(&self, observed: &mut Observed) -> Vec<String> {
        let mut file = self.0.borrow_mut();
        let taken = put_beside(&mut file, observed);
        file.forget();
        taken.unwrap_or_else(|why| vec![format!("server: {}: {why}", file.path().display())])
    }
}

fn put_beside(file: &mut ObserverFile, observed: &mut Observed) -> Result<Vec<String>, String> {
    let here = observed.clocks.clone();
    let here = here.ok_or("the load's own series have no clock to put it beside")?;
    let attempt = Attempt {
        measured_from_ms: observed.measured_from_ms,
        end_ms: observed.watcher.map_or(0.0, |watcher| watcher.wall_s * 1e3),
    };
    let mut missing: Vec<String> = Vec::new();
    if let Err(error) = await_end(file, &here, &attempt) {
        missing.push(format!("server: {error}"));
    }
    let aligned = align(file, &here, observed)?;
    let there = There::new(file, &aligned, &attempt)?;
    let written = |o: &Observation| o.values.iter().map(written_length).sum::<usize>();
    let room = observed.observations.iter().map(written).sum::<usize>();
    let room = MOST_WRITTEN.saturating_sub(room);
    observed.observations.extend(there.observations(room));
    observed.server = there.server();
    if there.to_ms + SLACK_MS < attempt.end_ms {
        missing.push(format!(
            "server: {}: observed until {:.1} s of {:.1} s of the attempt only",
            file.path().display(),
            there.to_ms / 1e3,
            attempt.end_ms / 1e3
        ));
    }
    let said = file.missing.iter();
    missing.extend(said.map(|line| format!("server's machine: {line}")));
    observed.elsewhere = Some(elsewhere::Elsewhere {
        environment: file.opened.environment.clone(),
        from_ms: there.from_ms as u64,
        to_ms: there.to_ms as u64,
        watcher_cpu_s: there.watcher_cpu_s(),
        aligned,
    });
    Ok(missing)
}

/// Waits until the file holds all of an attempt, and where the clocks are not one also what came after it.
fn await_end(file: &mut ObserverFile, here: &Clocks, attempt: &Attempt) -> Result<bool, Unusable> {
    file.read_on()?;
    let had = file.seconds.len();
    file.wait_for(PATIENCE, |file| {
        let Some(last) = file.seconds.back() else {
            return false;
        };
        let word = clocks::by_word(here, &last.clocks);
        let ends = |word: &Aligned| last.to_ms as f64 + word.offset_ms >= attempt.end_ms;
        let same = |word: &Aligned| word.method == Method::SameClock;
        // The second of two whole seconds has begun after the end.
        let after = file.seconds.len() >= had + 2;
        word.as_ref().is_none_or(ends) && (after || word.as_ref().is_some_and(same))
    })
}

/// Puts the two clocks together.
fn align(file: &ObserverFile, here: &Clocks, observed: &Observed) -> Result<Aligned, String> {
    let last = file.seconds.back();
    let there = last.map_or(&file.opened.clocks, |second| &second.clocks);
    let word = clocks::by_word(here, there);
    if let Some(word) = word
        .as_ref()
        .filter(|word| word.method == Method::SameClock)
    {
        return Ok(word.clone());
    }
    let found = match (work_here(observed), work_there(file)) {
        (Some(ours), Some(theirs)) => {
            let expected_ms = clocks::by_wall_ms(here, there);
            alignment::find(&ours, &theirs, expected_ms, SEARCHED_MS)
        }
        _ => Err(NotFound::TooShort),
    };
    clocks::choose(word, found)
}

/// What the load process did in each step.
fn work_here(observed: &Observed) -> Option<Work> {
    let mut all = observed.observations.iter();
    let series = all.find(|o| o.subject == "client" && o.metric == WORK)?;
    Some(Work {
        start_ms: series.start_ms as f64,
        step_ms: series.step_ms as f64,
        values: series.values.clone(),
    })
}

/// What the server did in each step, as far back as is kept.
fn work_there(file: &ObserverFile) -> Option<Work> {
    let mut all = in_pieces(file, file.seconds.iter(), 0).into_iter();
    let of = all.find(|of| of.series.subject == "server" && of.series.metric == WORK)?;
    let joined = join(Kind::Increase, &of.pieces, file.seconds.back()?.to_ms, 0)?;
    Some(Work {
        start_ms: joined.start_ms as f64,
        step_ms: joined.step_ms as f64,
        values: joined.values,
    })
}
