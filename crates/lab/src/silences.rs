//! Periods in which requests were in flight but no response arrived.

use floodmark_record::events::{PartRow, Phase};
use floodmark_record::run::Silence;

/// Minimum length of a silence in ns: two parts.
const MIN_NS: u64 = 200_000_000;

/// Consecutive parts in which no bytes were received.
#[derive(Debug)]
struct SilentParts {
    from_ns: u64,
    to_ns: u64,
    /// Number of requests in flight at the end.
    in_flight: u64,
}

/// Collects the silences of a measurement from its parts.
#[derive(Debug, Default)]
pub struct Silences {
    /// Number of requests in flight at the end of the previous part.
    in_flight: u64,
    has_responded: bool,
    /// The silence that the previous part belongs to.
    current: Option<SilentParts>,
    ended: Vec<SilentParts>,
}

impl Silences {
    /// Adds the next part of the run.
    pub fn add(&mut self, part: &PartRow) {
        let is_silent = part.sums.bytes_received == 0;
        self.has_responded |= !is_silent;
        if part.phase != Phase::Measure {
            return;
        }
        let counts = &part.sums.counts;
        let is_waiting = self.in_flight > 0;
        let ended = counts.ended() + counts.in_flight_at_end;
        self.in_flight = (self.in_flight + counts.sent).saturating_sub(ended);
        if !(is_silent && is_waiting && self.has_responded) {
            let ended = self.current.take();
            self.ended
                .extend(ended.filter(|of| of.to_ns - of.from_ns >= MIN_NS));
            return;
        }
        let from_ns = self.current.as_ref().map_or(part.from_ns, |of| of.from_ns);
        self.current = Some(SilentParts {
            from_ns,
            to_ns: part.to_ns,
            in_flight: self.in_flight.max(counts.in_flight_at_end),
        });
    }

    /// Summarizes the silences of a sending window that ends at `end_ns`. Excludes a silence that no
    /// response follows, because the server may have stopped responding.
    pub fn until(&self, end_ns: u64) -> Option<Silence> {
        let within: Vec<(&SilentParts, u64)> = self
            .ended
            .iter()
            .map(|of| (of, of.to_ns.min(end_ns).saturating_sub(of.from_ns)))
            .filter(|(_, ns)| *ns >= MIN_NS)
            .collect();
        let (longest, length_ns) = within.iter().max_by_key(|(_, ns)| *ns)?;
        let total_ns: u64 = within.iter().map(|(_, ns)| ns).sum();
        Some(Silence {
            from_s: longest.from_ns as f64 / 1e9,
            to_s: (longest.from_ns + length_ns) as f64 / 1e9,
            in_flight: longest.in_flight,
            total_s: total_ns as f64 / 1e9,
        })
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::Counts;
    use floodmark_record::events::GroupRow;

    use super::*;

    const PART_NS: u64 = 100_000_000;

    /// Returns `(from_s, to_s, in_flight, total_s)` for a window of `end` parts. Each element of
    /// `parts` is the number of requests sent and the number of ok responses.
    fn silence(phase: Phase, parts: &[(u64, u64)], end: u64) -> Option<(f64, f64, u64, f64)> {
        let mut silences = Silences::default();
        for (i, (sent, ok)) in (0..).zip(parts) {
            silences.add(&PartRow {
                phase,
                from_ns: i * PART_NS,
                to_ns: (i + 1) * PART_NS,
                sums: GroupRow {
                    counts: Counts {
                        sent: *sent,
                        ok: *ok,
                        ..Counts::default()
                    },
                    bytes_received: 100 * ok,
                    ..GroupRow::default()
                },
                groups: Vec::new(),
            });
        }
        let found = silences.until(end * PART_NS)?;
        Some((found.from_s, found.to_s, found.in_flight, found.total_s))
    }

    #[test]
    fn measures_periods_without_a_response_while_requests_wait() {
        let measured = |parts: &[(u64, u64)], end| silence(Phase::Measure, parts, end);
        let busy = (50, 50);
        let stall = [(58, 50), busy, (0, 0), (0, 0), (0, 0), busy, busy];
        assert_eq!(measured(&stall, 7), Some((0.2, 0.5, 8, 0.3)));
        assert_eq!(silence(Phase::Warmup, &stall, 7), None);
        // The window ends during the silence.
        assert_eq!(measured(&stall, 4), Some((0.2, 0.4, 8, 0.2)));
        assert_eq!(measured(&stall, 3), None);
        let twice = [&stall[..], &[(0, 0), (1, 0), (0, 8), (0, 0), (0, 0)]].concat();
        assert_eq!(
            measured(&twice, 12),
            Some((0.2, 0.5, 8, 0.5)),
            "the last silence does not end"
        );
        assert_eq!(
            measured(&[(8, 0), (0, 0), (0, 0), busy], 4),
            None,
            "no response yet"
        );
        let idle = [busy, (0, 0), (0, 0), busy];
        assert_eq!(measured(&idle, 4), None, "no request waits");
        let short = [(58, 50), (0, 0), busy, (0, 0), busy];
        assert_eq!(measured(&short, 5), None);
    }
}
