//! The trials of an experiment, and their figures so far.

use floodmark_record::client::ClientRan;

/// Figures of an attempt over the whole sending window. The record may use a shorter window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct AttemptFigures {
    pub(crate) ok_per_s: Option<f64>,
    pub(crate) p99_ns: Option<u64>,
    /// Intended requests without an ok response.
    pub(crate) not_ok: u64,
}

impl From<&ClientRan> for AttemptFigures {
    fn from(ran: &ClientRan) -> Self {
        let printed = &ran.tool.said;
        AttemptFigures {
            ok_per_s: printed.throughput_per_s,
            p99_ns: printed.p99_us.map(|us| (us * 1e3) as u64),
            not_ok: printed.wrong.unwrap_or(0) + printed.errors.unwrap_or(0),
        }
    }
}

/// One trial.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrialProgress {
    pub(crate) name: String,
    /// Number of planned attempts, over all server processes.
    pub(crate) planned: usize,
    /// Completed attempts.
    pub(crate) attempts: Vec<AttemptFigures>,
    pub(crate) is_skipped: bool,
}

impl TrialProgress {
    /// Returns the mean throughput, the largest p99, and the sum of requests that were not ok.
    pub(crate) fn figures(&self) -> AttemptFigures {
        let rates = self.attempts.iter().filter_map(|of| of.ok_per_s);
        let (sum, n) = rates.fold((0.0, 0), |(sum, n), per_s| (sum + per_s, n + 1));
        AttemptFigures {
            ok_per_s: (n > 0).then(|| sum / f64::from(n)),
            p99_ns: self.attempts.iter().filter_map(|of| of.p99_ns).max(),
            not_ok: self.attempts.iter().map(|of| of.not_ok).sum(),
        }
    }
}

/// The trials of an experiment, in the order of their first attempts.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrialList {
    pub(crate) trials: Vec<TrialProgress>,
    pub(crate) current: Option<usize>,
    /// Whether each attempt is a capacity search, which consists of several runs.
    pub(crate) are_searches: bool,
}

impl TrialList {
    /// Creates the list from the trial of each planned attempt.
    pub(crate) fn new(attempts: impl IntoIterator<Item = String>, are_searches: bool) -> Self {
        let mut list = TrialList {
            are_searches,
            ..TrialList::default()
        };
        for name in attempts {
            match list.find(&name) {
                Some(at) => list.trials[at].planned += 1,
                None => list.trials.push(TrialProgress {
                    name,
                    planned: 1,
                    ..TrialProgress::default()
                }),
            }
        }
        list
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.trials.iter().position(|trial| trial.name == name)
    }

    /// Marks a trial as running.
    pub(crate) fn begin(&mut self, name: &str) {
        self.current = self.find(name);
    }

    /// Adds the figures of the attempt that ended.
    pub(crate) fn end_attempt(&mut self, figures: AttemptFigures) {
        if let Some(at) = self.current.take() {
            self.trials[at].attempts.push(figures);
        }
    }

    /// Marks a trial as skipped.
    pub(crate) fn skip(&mut self, name: &str) {
        if let Some(at) = self.find(name) {
            self.trials[at].is_skipped = true;
        }
    }
}
