//! Judges runs as if floodmark had fewer privileges, by removing the figures that require the
//! missing privileges.

use floodmark_diagnose::why;
use floodmark_record::metric::{ProcessFigure, Role};
use floodmark_record::{Metric, Record};

/// Source of figures that require a privilege.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenSource {
    /// `/proc/PID/task/TID/syscall`, which requires permission to trace the server.
    SystemCalls,
    /// `perf_event_open`, which requires root, `CAP_PERFMON`, or `kernel.perf_event_paranoid` set to
    /// 0 or less.
    Code,
    /// Everything that requires permission to trace the server, and `perf_event_open`.
    OtherUser,
}

/// Rows of the page: a description and the hidden sources.
pub const HIDDEN: [(&str, &[HiddenSource]); 4] = [
    (
        "all, system calls of threads not visible",
        &[HiddenSource::SystemCalls],
    ),
    ("all, CPU samples not visible", &[HiddenSource::Code]),
    (
        "all, neither visible",
        &[HiddenSource::SystemCalls, HiddenSource::Code],
    ),
    (
        "all, server runs as another user",
        &[HiddenSource::OtherUser],
    ),
];

impl HiddenSource {
    /// Returns whether the metric comes from this source.
    fn contains(self, metric: &Metric) -> bool {
        let is_code = matches!(metric, Metric::Code(..));
        match self {
            Self::SystemCalls => matches!(metric, Metric::ThreadsBlocked { .. }),
            Self::Code => is_code,
            Self::OtherUser => {
                use ProcessFigure::{OpenFiles, OpenFilesLimit, ReadBytes, WriteBytes};
                let is_private = matches!(
                    metric,
                    Metric::Process(
                        Role::Server,
                        OpenFiles | OpenFilesLimit | ReadBytes | WriteBytes
                    )
                );
                let is_traced = matches!(
                    metric,
                    Metric::ThreadsBlocked { .. }
                        | Metric::ThreadsWaitingIn { .. }
                        | Metric::Upstream(..)
                        | Metric::Jvm(..)
                );
                is_code || is_private || is_traced
            }
        }
    }
}

/// Removes figures from all runs of a record, and judges the runs again.
pub fn hide(record: &mut Record, hidden: &[HiddenSource]) {
    let environment = &record.environment;
    for run in &mut record.runs {
        run.observations
            .retain(|of| !hidden.iter().any(|source| source.contains(&of.metric)));
        run.verdict = None;
        run.verdict = why::verdict(run, environment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_do_not_overlap() {
        let metric = |name: &str| {
            let subject = "server threads".to_owned();
            Metric::parse(subject, name.to_owned(), "threads".to_owned())
        };
        let blocked = metric("worker on timer");
        assert!(HiddenSource::SystemCalls.contains(&blocked));
        assert!(HiddenSource::OtherUser.contains(&blocked));
        assert!(!HiddenSource::Code.contains(&blocked));
        let threads = metric("worker threads");
        for (_, hidden) in HIDDEN {
            assert!(!hidden.iter().any(|source| source.contains(&threads)));
        }
    }
}
