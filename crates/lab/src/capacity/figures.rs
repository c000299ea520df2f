//! The figures of a trial, folded while its load is sent.

use floodmark_record::Event;
use floodmark_record::events::RunId;
use floodmark_record::plan::Plan;
use floodmark_record::profile::RateStep;
use floodmark_record::run::Run;
use floodmark_stats::capacity::TrialRow;

use crate::joined_run::JoinedRun;

/// A trial whose load is being sent.
pub struct OpenTrial {
    run: JoinedRun,
    parts: Vec<TrialRow>,
    judged_from_ns: u64,
    judged_to_ns: u64,
    /// Whether an objective limits failures more strictly than times.
    failures_matter: bool,
    /// CPU time of the server and the time in which it was used, in seconds.
    server: Option<(f64, f64)>,
}

/// The judged part of a trial.
pub struct MeasuredTrial {
    /// The judged part as a run.
    pub run: Run,
    /// Parts of 100 ms. If failures matter, slow requests are those that failed. Otherwise, they are
    /// ok responses beyond the plan's deadline.
    pub parts: Vec<TrialRow>,
    /// CPUs that the server used; `None` if unknown.
    pub server_cpus: Option<f64>,
}

impl OpenTrial {
    /// Returns a trial that has just started. The last step of the plan is judged.
    /// `failures_matter` says whether failed requests or slow responses count as slow.
    pub fn new(id: RunId, plan: &Plan, failures_matter: bool) -> Self {
        let steps = plan.steps().unwrap_or_default();
        let ns = |steps: &[RateStep]| {
            let length_s: f64 = steps.iter().map(|step| step.duration_s).sum();
            (length_s * 1e9).round() as u64
        };
        let before = steps.len().saturating_sub(1);
        OpenTrial {
            run: JoinedRun::new(id, plan.clone()),
            parts: Vec::new(),
            judged_from_ns: ns(&steps[..before]),
            judged_to_ns: ns(steps),
            failures_matter,
            server: None,
        }
    }

    /// Adds an event of the trial.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Part(part) => {
                let (from, to) = (self.judged_from_ns, self.judged_to_ns);
                if part.from_ns >= from && part.to_ns <= to {
                    let counts = &part.sums.counts;
                    let failed = counts.ended() - counts.ok + counts.connect_failed;
                    self.parts.push(match self.failures_matter {
                        true => TrialRow {
                            requests: counts.ok + failed,
                            slow: failed,
                        },
                        false => TrialRow {
                            requests: counts.ok,
                            slow: counts.ok.saturating_sub(part.sums.good),
                        },
                    });
                }
            }
            Event::Second(row) if row.from_ns < self.judged_from_ns => {}
            Event::ServerUsed(used) => {
                let (cpu_s, over_s) = self.server.unwrap_or_default();
                let used_s = used.user_s + used.system_s;
                self.server = Some((cpu_s + used_s, over_s + used.over_s));
            }
            event => self.run.take(event),
        }
    }

    /// Returns the judged part.
    pub fn finish(self) -> MeasuredTrial {
        MeasuredTrial {
            run: self.run.finish_from(self.judged_from_ns),
            parts: self.parts,
            server_cpus: self.server.map(|(cpu_s, over_s)| cpu_s / over_s),
        }
    }
}
