//! Connections: how many are opened, broken, and waiting to be accepted.

use floodmark_record::Metric;
use floodmark_record::metric::{ListenerFigure, NetworkFigure, ProcessFigure, Role};

use super::RunFacts;
use crate::why::thresholds::{LONG_WAIT_S, NOTICEABLE, RARE, REOPENED, SATURATED};

/// Established connections that the server has not accepted.
#[derive(Debug)]
pub struct AcceptQueue {
    /// Mean number of waiting connections.
    pub waiting: f64,
    /// Whether many connections wait, and for longer than ordinary scheduling delays explain.
    pub is_long: bool,
    /// Whether the server is at its limit on open files.
    pub is_out_of_files: bool,
    /// Description of the queue.
    pub figure: String,
    /// Description of the server's open files, if known.
    pub files: Option<String>,
}

impl RunFacts<'_> {
    /// Returns the connections that wait to be accepted, or `None` if they were not sampled.
    #[must_use]
    pub fn accept_queue(&self) -> Option<AcceptQueue> {
        let waiting = self.samples.listener(ListenerFigure::AcceptQueue)?;
        let files = |figure| self.samples.level(Metric::Process(Role::Server, figure));
        let files = files(ProcessFigure::OpenFiles).zip(files(ProcessFigure::OpenFilesLimit));
        let run = self.run;
        // If connections are short-lived, some connections are always in the queue.
        let short_lived = self.opened() >= REOPENED * run.requests.sent as f64;
        let many = waiting >= NOTICEABLE * f64::from(run.plan.connections) && waiting >= 1.0;
        Some(AcceptQueue {
            waiting,
            is_long: many && !(short_lived && self.accept_wait_s(waiting) < LONG_WAIT_S),
            is_out_of_files: files.is_some_and(|(open, limit)| open >= SATURATED * limit),
            figure: format!(
                "{waiting:.1} connections waited to be accepted on average (sock_diag)"
            ),
            files: files.map(|(open, limit)| {
                format!(
                    "server: {open:.0} of {limit:.0} files open (/proc/PID/fd, /proc/PID/limits)"
                )
            }),
        })
    }

    /// Returns the mean time that a connection waits to be accepted, in seconds, from the mean number
    /// of waiting connections (Little's law).
    #[must_use]
    pub fn accept_wait_s(&self, waiting: f64) -> f64 {
        waiting * self.run.sending_s / self.opened().max(1.0)
    }

    /// Returns the number of connections that the client opened, except those that ended with a failed
    /// request.
    fn opened(&self) -> f64 {
        let broken = 2 * self.broken_connections();
        self.run.connections.opened.saturating_sub(broken) as f64
    }

    /// Returns the number of connections that ended with a failed request.
    #[must_use]
    pub fn broken_connections(&self) -> u64 {
        let counts = &self.run.requests;
        counts.reset + counts.timed_out + counts.malformed
    }

    /// Returns the rate of connections opened by processes other than the client, per second. If all
    /// roles share a network namespace, the client's connections are subtracted.
    #[must_use]
    pub fn opened_by_others(&self) -> Option<f64> {
        let opens = |role| {
            let metric = Metric::Network(role, NetworkFigure::ActiveOpens);
            self.samples.mean(metric)
        };
        let run = self.run;
        let own = run.connections.opened as f64 / run.sending_s.max(f64::MIN_POSITIVE);
        opens(Some(Role::Server)).or_else(|| Some((opens(None)? - own).max(0.0)))
    }

    /// Returns the count of one of the run's errors.
    #[must_use]
    pub fn client_errors(&self, name: &str) -> u64 {
        self.run.errors.get(name).copied().unwrap_or(0)
    }

    /// Returns whether failed connections are frequent enough to limit throughput.
    #[must_use]
    pub fn affects(&self, failed: u64) -> bool {
        failed > 0 && failed as f64 >= RARE * self.run.requests.intended as f64
    }
}
