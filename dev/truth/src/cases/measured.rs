//! Runs a load against the truth server, and performs the checks that apply to every case.

use floodmark_record::Run;

use super::awake::Awake;
use super::plain_client::Overhead;
use super::reference::Sorted;
use super::{CaseEnvironment, CaseError, CaseRun, attempts};
use crate::log::Log;
use crate::scenario::Scenario;
use crate::server::TruthServer;

/// Record of the client and log of the server for the same load.
#[derive(Debug)]
pub struct CaseMeasurement {
    pub run: Run,
    pub exit: Option<i32>,
    pub log: Log,
    pub findings: CaseRun,
}

impl CaseEnvironment {
    /// Runs a load against a scenario.
    pub fn measure(&self, scenario: Scenario, flags: &str) -> Result<CaseMeasurement, CaseError> {
        let server = TruthServer::start(scenario)?;
        let client = self.start(server.address(), flags, None)?;
        Ok(CaseMeasurement::new(client.finish()?, server.stop()?))
    }

    /// Runs a load like `measure`, but keeps all CPUs awake and measures the overhead of a plain
    /// client before and after the load. `truth` reads the server's times from the log.
    pub fn measure_times(
        &self,
        truth: fn(&Log) -> Sorted,
        scenario: Scenario,
        flags: &str,
    ) -> Result<(CaseMeasurement, Overhead), CaseError> {
        let _awake = Awake::keep();
        let before = Overhead::measure(truth)?;
        let mut measured = self.measure(scenario, flags)?;
        let overhead = before.with(Overhead::measure(truth)?);
        let disturbance = &mut measured.findings.disturbance;
        *disturbance = disturbance.take().or_else(|| overhead.disturbance());
        Ok((measured, overhead))
    }
}

impl CaseMeasurement {
    /// Checks that the outcomes add up, and that the server received each request once. A request
    /// that was resent after a reconnect may have reached the server twice.
    pub fn new((run, exit): (Run, Option<i32>), log: Log) -> Self {
        let mut findings = CaseRun {
            disturbance: attempts::disturbance(&run, &log),
            ..CaseRun::default()
        };
        let requests = &run.requests;
        let balance = requests.balance();
        let detail = balance.as_ref().err().map_or("yes", String::as_str);
        findings.must("outcomes add up", balance.is_ok(), detail);
        let received = log.totals.requests;
        let all_sent = requests.sent..=requests.sent + requests.reconnects;
        findings.must(
            "requests at the server",
            all_sent.contains(&received),
            format!("{received}, expected {all_sent:?}"),
        );
        CaseMeasurement {
            run,
            exit,
            log,
            findings,
        }
    }

    /// Checks the byte and connection counts. The counts agree only if no connection ended with
    /// unread data.
    pub fn check_bytes(&mut self) {
        let (bytes, totals) = (&self.run.bytes, &self.log.totals);
        let (findings, opened) = (&mut self.findings, self.run.connections.opened);
        findings.exactly("bytes sent", totals.bytes_in, bytes.sent);
        findings.exactly("bytes received", totals.bytes_out, bytes.received);
        findings.exactly("connections", totals.accepted, opened);
    }

    /// Checks that every intended request was ok, and the byte and connection counts.
    pub fn check_all_counts(&mut self, intended: u64) {
        self.check_all_ok(intended);
        self.check_bytes();
    }

    /// Checks that every intended request was sent and got an ok response.
    pub fn check_all_ok(&mut self, intended: u64) {
        let (findings, requests) = (&mut self.findings, &self.run.requests);
        findings.exactly("requests.intended", intended, requests.intended);
        findings.exactly("requests.sent", intended, requests.sent);
        findings.exactly("requests.ok", intended, requests.ok);
    }
}
