//! Suspicions about a load that is still running.
//!
//! A suspicion uses the thresholds of verdict and validity, but fewer figures. The verdict on the
//! record replaces it.

use floodmark_record::cause::Cause;

use crate::text::show_s;
use crate::validity::{LATENESS_SHARE, LATENESS_US};
use crate::why::causes::{ALL, CauseSpec, spec};
use crate::why::thresholds::SATURATED;

/// What a load looks like, such as `client-bound`, and the figures that suggest it.
pub(crate) type Suspicion = (&'static str, String);

/// Figures of the last seconds of a load. A figure is `None` if it is not measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecentFigures {
    /// Share of the intended requests that ended without an ok response, from 0 to 1.
    pub failed_share: f64,
    /// 99th percentile of the lateness in microseconds.
    pub lateness_p99_us: Option<f64>,
    /// 99th percentile of the response time in microseconds.
    pub response_p99_us: Option<f64>,
    /// Number of load threads across all agents.
    pub client_threads: u32,
    /// CPUs used by the client.
    pub client_cpus: f64,
    /// CPUs used by the server.
    pub server_cpus: Option<f64>,
    /// CPUs used by the store.
    pub store_cpus: Option<f64>,
    /// CPUs of the client's host.
    pub host_cpus: Option<f64>,
    /// CPUs in use on the client's host, including those above.
    pub busy_cpus: Option<f64>,
}

impl RecentFigures {
    /// Returns the CPUs that programs other than the client, the server and the store use.
    /// Interrupts count as programs.
    #[must_use]
    pub fn other_cpus(&self) -> Option<f64> {
        let used = [Some(self.client_cpus), self.server_cpus, self.store_cpus];
        let used: f64 = used.into_iter().flatten().sum();
        Some((self.busy_cpus? - used).max(0.0))
    }

    /// Returns the CPUs that other programs use, or `None` if the server's CPU use is unknown,
    /// because it then cannot be distinguished from the CPU use of other programs.
    pub(crate) fn programs_cpus(&self) -> Option<f64> {
        self.server_cpus.and(self.other_cpus())
    }

    /// Returns the number of CPUs of the client's host if hardly any CPU is idle. Returns `None` if
    /// the server's CPU use is unknown, because it then cannot be distinguished from the CPU use of
    /// other programs.
    pub(crate) fn full_host(&self) -> Option<f64> {
        let (cpus, busy) = (self.host_cpus?, self.busy_cpus?);
        (self.server_cpus.is_some() && busy >= SATURATED * cpus).then_some(cpus)
    }

    /// Returns the most likely limit in one line, such as `looks client-bound (client-cpu): …`.
    /// Returns `None` if the figures support no suspicion.
    #[must_use]
    pub fn suspicion(&self) -> Option<String> {
        let of = |spec: &CauseSpec| {
            let (what, figures) = spec.live?(self)?;
            Some(format!("looks {what} ({}): {figures}", spec.cause))
        };
        of(spec(Cause::Errors))
            .or_else(|| self.late())
            .or_else(|| ALL.iter().copied().find_map(of))
    }

    fn late(&self) -> Option<String> {
        let late_us = self.lateness_p99_us?;
        let response_us = self.response_p99_us?;
        (late_us > LATENESS_US && late_us > LATENESS_SHARE * response_us).then(|| {
            let late = show_s(late_us / 1e6);
            format!("looks invalid: the client sends requests late (lateness p99 {late})")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns figures on 4 CPUs that support no suspicion.
    fn idle() -> RecentFigures {
        RecentFigures {
            response_p99_us: Some(500.0),
            lateness_p99_us: Some(20.0),
            client_threads: 1,
            client_cpus: 0.5,
            server_cpus: Some(1.0),
            host_cpus: Some(4.0),
            busy_cpus: Some(1.6),
            ..RecentFigures::default()
        }
    }

    fn suspicion(change: impl FnOnce(&mut RecentFigures)) -> String {
        let mut figures = idle();
        change(&mut figures);
        figures.suspicion().unwrap_or_default()
    }

    #[test]
    fn suspects_nothing_without_evidence() {
        assert_eq!(idle().suspicion(), None);
        assert_eq!(suspicion(|of| of.client_cpus = 0.94), "");
        assert_eq!(suspicion(|of| of.failed_share = 0.019), "");
        let unmeasured = RecentFigures {
            server_cpus: None,
            ..idle()
        };
        assert_eq!(unmeasured.suspicion(), None);
    }

    #[test]
    fn names_the_cause_and_the_figure() {
        assert_eq!(
            suspicion(|of| of.client_cpus = 0.97),
            "looks client-bound (client-cpu): the load generator uses 0.97 CPUs with 1 thread"
        );
        assert_eq!(
            suspicion(|of| of.failed_share = 0.12),
            "looks limited by errors (errors): 12 % of the requests fail"
        );
        assert_eq!(
            suspicion(|of| of.lateness_p99_us = Some(3_200.0)),
            "looks invalid: the client sends requests late (lateness p99 3.20 ms)"
        );
    }

    #[test]
    fn suspects_the_largest_consumer_of_a_full_host() {
        let full = |of: &mut RecentFigures, server, store| {
            (of.server_cpus, of.store_cpus) = (Some(server), store);
            of.busy_cpus = Some(3.9);
        };
        let server = suspicion(|of| full(of, 3.2, None));
        assert!(
            server.contains("(server-cpu): the server uses 3.20 of 4 CPUs"),
            "{server}"
        );
        let other = suspicion(|of| full(of, 1.0, None));
        assert!(
            other.contains("(other-processes): other programs use 2.40"),
            "{other}"
        );
        // Other programs that use half of the CPUs disturb the load even if the host is not
        // saturated.
        let half = suspicion(|of| of.busy_cpus = Some(3.5));
        assert!(
            half.contains("(other-processes): other programs use 2.00 of 4 CPUs"),
            "{half}"
        );
        assert_eq!(suspicion(|of| of.busy_cpus = Some(3.4)), "");
        let store = suspicion(|of| full(of, 0.9, Some(2.3)));
        assert!(
            store.contains("(store-cpu): the store uses 2.30 of 4"),
            "{store}"
        );
        let shared = suspicion(|of| {
            full(of, 2.0, None);
            (of.client_cpus, of.client_threads) = (1.7, 2);
        });
        assert!(
            shared.contains("(shared-cpu): client (1.70) and server (2.00)"),
            "{shared}"
        );
    }
}
