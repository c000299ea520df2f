//! What came of it, and the bars.

use std::fmt;

use floodmark_record::Run;
use floodmark_record::run::Status;
use floodmark_record::units::{show_bytes, show_count, show_ns, show_rate};

/// Memory of our own that a connection may take at most, bytes.
const MOST_BYTES: f64 = 2048.0;

/// What stands for a figure that was not measured.
const UNKNOWN: &str = "–";

/// The two runs.
pub struct Figures {
    /// With few connections.
    pub few: Run,
    /// With all of them.
    pub many: Run,
}

/// What the bars are about.
#[derive(Debug, Clone, Copy)]
struct Facts {
    /// Connections asked for, standing when the clock started, and open at the peak.
    asked: u64,
    standing: u64,
    peak: Option<u64>,
    /// Requests that were to be sent, and that were answered ok.
    intended: u64,
    ok: u64,
    /// Peak resident memory of the load process, bytes.
    memory: Option<u64>,
    /// Whether floodmark did what it was asked to.
    status: Status,
}

impl Facts {
    fn of(run: &Run) -> Self {
        Facts {
            asked: run.plan.connections.into(),
            standing: run
                .connections
                .held
                .as_ref()
                .map_or(0, |held| held.standing),
            peak: run.connections.peak,
            intended: run.requests.intended,
            ok: run.requests.ok,
            memory: run.client.peak_rss_bytes,
            status: run.validity.status,
        }
    }

    /// Memory for each connection that we have and `few` has not, bytes; none where it is not known.
    fn bytes_each(&self, few: &Facts) -> Option<f64> {
        let more = self.peak? as f64 - few.peak? as f64;
        Some((self.memory? as f64 - few.memory? as f64) / more.max(1.0))
    }

    /// The bars that were missed, one line each.
    fn missed(&self, few: &Facts) -> Vec<String> {
        let mut missed = Vec::new();
        for run in [few, self] {
            if run.status == Status::Invalid {
                let asked = show_count(run.asked);
                missed.push(format!("missed: the run with {asked} is invalid"));
            }
        }
        let held = self.standing.min(self.peak.unwrap_or(0));
        if held < self.asked {
            let (held, asked) = (show_count(held), show_count(self.asked));
            missed.push(format!("missed: {held} of {asked} connections were held"));
        }
        if self.ok < self.intended {
            let (ok, intended) = (show_count(self.ok), show_count(self.intended));
            missed.push(format!(
                "missed: {ok} of {intended} requests were answered ok"
            ));
        }
        match self.bytes_each(few) {
            Some(each) if each > MOST_BYTES => missed.push(format!(
                "missed: {each:.0} bytes of our own for each connection, at most {MOST_BYTES:.0} are allowed"
            )),
            Some(_) => {}
            None => missed.push("missed: the memory of a connection is not known".to_owned()),
        }
        missed
    }
}

impl Figures {
    /// The bars that were missed, one line each.
    pub fn missed(&self) -> Vec<String> {
        Facts::of(&self.many).missed(&Facts::of(&self.few))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.many;
        let asked = show_count(run.plan.connections.into());
        let count = |n: Option<u64>| n.map_or(UNKNOWN.to_owned(), show_count);
        let peak = count(run.connections.peak);
        write!(f, "connections  {peak} of {asked} open at the peak")?;
        if let Some(held) = &run.connections.held {
            let opening = show_ns(held.opening_ns as f64);
            let (lost, again) = (show_count(held.lost), show_count(held.reopened));
            write!(
                f,
                ", opened in {opening}; {lost} ended, {again} opened again"
            )?;
        }
        let offered = show_rate(run.plan.rate_per_s.unwrap_or(0.0));
        let achieved = show_rate(run.requests.sent as f64 / run.sending_s);
        let (ok, intended) = (
            show_count(run.requests.ok),
            show_count(run.requests.intended),
        );
        writeln!(
            f,
            "\nrate         {achieved}/s sent of {offered}/s offered; {ok} of {intended} ok"
        )?;
        let time = |us: Option<f64>| us.map_or(UNKNOWN.to_owned(), |us| show_ns(us * 1e3));
        let (lateness, response) = (&run.lateness_us, &run.response_time_us);
        writeln!(
            f,
            "times        lateness p50 {}, p99 {}; response p50 {}, p99 {}",
            time(lateness.p50),
            time(lateness.p99),
            time(response.p50),
            time(response.p99)
        )?;
        let each = Facts::of(run).bytes_each(&Facts::of(&self.few));
        let rss = |run: &Run| {
            let peak = run
                .client
                .peak_rss_bytes
                .map_or(UNKNOWN.to_owned(), show_bytes);
            format!("{peak} with {}", count(run.connections.peak))
        };
        writeln!(
            f,
            "memory       {} bytes of our own for each connection: {} less {}",
            each.map_or(UNKNOWN.to_owned(), |each| format!("{each:.0}")),
            rss(run),
            rss(&self.few)
        )?;
        let watching = |run: &Run| {
            let share = run.watcher.map(|watcher| watcher.cpu_s / watcher.wall_s);
            share.map_or(UNKNOWN.to_owned(), |share| {
                format!("{:.1} %", 100.0 * share)
            })
        };
        writeln!(
            f,
            "watching     {} of one CPU with {}, {} with {}",
            watching(run),
            count(run.connections.peak),
            watching(&self.few),
            count(self.few.connections.peak)
        )?;
        let status = format!("{:?}", run.validity.status).to_lowercase();
        let why = run.validity.reasons.first().map(|why| format!(": {why}"));
        writeln!(f, "validity     {status}{}", why.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Facts = Facts {
        asked: 50,
        standing: 50,
        peak: Some(50),
        intended: 1000,
        ok: 1000,
        memory: Some(60_000_000),
        status: Status::Valid,
    };

    const MANY: Facts = Facts {
        asked: 100_050,
        standing: 100_050,
        peak: Some(100_050),
        intended: 100_000,
        ok: 100_000,
        memory: Some(60_000_000 + 100_000 * 2048),
        status: Status::Bound,
    };

    #[test]
    fn exactly_the_bars_are_met() {
        assert_eq!(MANY.bytes_each(&FEW), Some(2048.0));
        assert_eq!(MANY.missed(&FEW), [""; 0]);
    }

    #[test]
    fn each_bar_can_be_missed() {
        let missed = |facts: Facts| facts.missed(&FEW).join("\n");
        let standing = MANY.standing - 1;
        assert!(missed(Facts { standing, ..MANY }).contains("100,049 of 100,050"));
        let peak = Some(100_049);
        assert!(missed(Facts { peak, ..MANY }).contains("were held"));
        let ok = MANY.ok - 1;
        assert!(missed(Facts { ok, ..MANY }).contains("99,999 of 100,000 requests"));
        let memory = MANY.memory.map(|bytes| bytes + 100_000);
        assert!(missed(Facts { memory, ..MANY }).contains("2049 bytes"));
        let status = Status::Invalid;
        assert!(missed(Facts { status, ..MANY }).contains("100,050 is invalid"));
        let few = Facts { status, ..FEW };
        assert!(MANY.missed(&few).join("").contains("with 50 is invalid"));
        let memory = None;
        assert!(missed(Facts { memory, ..MANY }).contains("not known"));
    }
}
