//! The client's side of a case, and the findings that every case makes.

use floodmark_record::Run;

use super::report::Trial;
use crate::log::Log;

/// What floodmark said of one load.
#[derive(Debug)]
pub struct Loaded {
    pub run: Run,
    pub exit: Option<i32>,
}

impl Loaded {
    /// What holds on every record: the outcomes add up, and every request that arrived was sent, once or,
    /// where floodmark says so, twice.
    pub fn agree(&self, log: &Log, trial: &mut Trial) {
        let requests = &self.run.requests;
        let balance = requests.balance();
        let detail = balance.as_ref().err().cloned();
        trial.must(
            "the outcomes add up",
            balance.is_ok(),
            detail.unwrap_or_else(|| "yes".to_owned()),
        );
        trial.exactly(
            "requests at the server",
            requests.sent + requests.reconnects,
            log.totals.requests,
        );
    }

    /// Bytes and connections, where no connection ends with something unread.
    pub fn agree_on_bytes(&self, log: &Log, trial: &mut Trial) {
        let (bytes, totals) = (&self.run.bytes, &log.totals);
        trial.exactly("bytes sent", totals.bytes_in, bytes.sent);
        trial.exactly("bytes received", totals.bytes_out, bytes.received);
        trial.exactly("connections", totals.accepted, self.run.connections.opened);
    }

    /// Every request was sent and answered as it should.
    pub fn all_ok(&self, intended: u64, trial: &mut Trial) {
        trial.exactly("requests.intended", intended, self.run.requests.intended);
        trial.exactly("requests.sent", intended, self.run.requests.sent);
        trial.exactly("requests.ok", intended, self.run.requests.ok);
    }
}
