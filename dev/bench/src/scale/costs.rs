//! The costs of connections, and the limits on these costs.

use std::fmt;

use floodmark_record::Run;
use floodmark_record::run::Status;
use floodmark_record::units::{show_bytes, show_count};

use crate::table::cell;

/// Maximum memory of the load process per connection, in bytes.
const MAX_BYTES: f64 = 2048.0;

/// Two runs with different numbers of connections.
pub struct ConnectionCosts {
    /// The run with few connections.
    pub few: Run,
    /// The run with all connections.
    pub many: Run,
}

impl ConnectionCosts {
    /// Returns the load process's memory per additional connection, in bytes.
    fn bytes_each(&self) -> Option<f64> {
        let ConnectionCosts { few, many } = self;
        let memory = |run: &Run| run.client.peak_rss_bytes.map(|bytes| bytes as f64);
        let open = |run: &Run| run.connections.peak.map(|n| n as f64);
        let more = open(many)? - open(few)?;
        Some((memory(many)? - memory(few)?) / more.max(1.0))
    }

    /// Returns a line for each exceeded limit.
    pub fn exceeded(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for run in [&self.few, &self.many] {
            if run.validity.status == Status::Invalid {
                let asked = show_count(run.plan.connections.into());
                lines.push(format!(
                    "failed: the run with {asked} connections is invalid"
                ));
            }
        }
        let (plan, connections) = (&self.many.plan, &self.many.connections);
        let requests = &self.many.requests;
        let standing = connections.held.as_ref().map_or(0, |held| held.standing);
        let held = standing.min(connections.peak.unwrap_or(0));
        for (got, expected, what) in [
            (held, plan.connections.into(), "connections were held"),
            (requests.ok, requests.intended, "requests were ok"),
        ] {
            if got < expected {
                let (got, expected) = (show_count(got), show_count(expected));
                lines.push(format!("failed: only {got} of {expected} {what}"));
            }
        }
        match self.bytes_each() {
            Some(each) if each > MAX_BYTES => lines.push(format!(
                "failed: {each:.0} bytes of client memory per connection, maximum {MAX_BYTES:.0}"
            )),
            Some(_) => {}
            None => lines.push("failed: memory per connection not measured".to_owned()),
        }
        lines
    }
}

impl fmt::Display for ConnectionCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = |run: &Run| cell(run.connections.peak, show_count);
        let memory = |run: &Run| cell(run.client.peak_rss_bytes, show_bytes);
        let monitoring = |run: &Run| {
            let share = run.watcher.map(|watcher| watcher.cpu_s / watcher.wall_s);
            cell(share, |share| format!("{:.1} %", 100.0 * share))
        };
        let each = cell(self.bytes_each(), |each| format!("{each:.0}"));
        let ConnectionCosts { few, many } = self;
        let [few_open, many_open] = [few, many].map(open);
        writeln!(
            f,
            "memory       {each} bytes of client memory per connection: {} with {many_open} connections, {} with {few_open}",
            memory(many),
            memory(few)
        )?;
        writeln!(
            f,
            "monitoring   {} of one CPU with {many_open} connections, {} with {few_open}",
            monitoring(many),
            monitoring(few)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use floodmark_record::Record;
    use floodmark_record::events::HeldConnections;

    const RECORD: &str = include_str!("../../../../crates/floodmark/tests/records/load-ramp.json");

    /// Returns a run that held all connections and got all responses.
    fn run(connections: u32, memory: u64) -> Run {
        let record: Record = serde_json::from_str(RECORD).unwrap();
        let mut run = record.runs[0].clone();
        run.plan.connections = connections;
        run.connections.peak = Some(connections.into());
        run.connections.held = Some(HeldConnections {
            standing: connections.into(),
            failed: 0,
            reasons: BTreeMap::new(),
            lost: 0,
            reopened: 0,
            opening_ns: 0,
        });
        (run.requests.intended, run.requests.ok) = (100_000, 100_000);
        run.client.peak_rss_bytes = Some(memory);
        run.validity.status = Status::Bound;
        run
    }

    fn costs() -> ConnectionCosts {
        ConnectionCosts {
            few: run(50, 60_000_000),
            many: run(100_050, 60_000_000 + 100_000 * 2048),
        }
    }

    #[test]
    fn accepts_exact_limits() {
        assert_eq!(costs().bytes_each(), Some(2048.0));
        assert_eq!(costs().exceeded(), [""; 0]);
    }

    #[test]
    fn each_limit_can_be_exceeded() {
        let exceeded = |change: fn(&mut ConnectionCosts)| {
            let mut costs = costs();
            change(&mut costs);
            costs.exceeded().join("\n")
        };
        let held = exceeded(|costs| costs.many.connections.held.as_mut().unwrap().standing -= 1);
        assert!(held.contains("100,049 of 100,050"), "{held}");
        let peak = exceeded(|costs| costs.many.connections.peak = Some(100_049));
        assert!(peak.contains("were held"), "{peak}");
        let ok = exceeded(|costs| costs.many.requests.ok -= 1);
        assert!(ok.contains("99,999 of 100,000 requests"), "{ok}");
        let memory = exceeded(|costs| costs.few.client.peak_rss_bytes = Some(60_000_000 - 100_000));
        assert!(memory.contains("2049 bytes"), "{memory}");
        let many = exceeded(|costs| costs.many.validity.status = Status::Invalid);
        assert!(many.contains("100,050 connections is invalid"), "{many}");
        let few = exceeded(|costs| costs.few.validity.status = Status::Invalid);
        assert!(few.contains("with 50 connections is invalid"), "{few}");
        let none = exceeded(|costs| costs.many.client.peak_rss_bytes = None);
        assert!(none.contains("not measured"), "{none}");
    }
}
