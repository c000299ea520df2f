//! Series of another machine, put together from the lines they were written in, on the clock of the load.

use floodmark_record::elsewhere::Kind;

/// Values as they stand in one line, on the clock of the load.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// Begin of the first step, ms; before the load's own series where negative.
    pub start_ms: i64,
    /// Length of each step, ms.
    pub step_ms: u64,
    /// The values.
    pub values: &'a [f64],
}

impl Piece<'_> {
    fn end_ms(&self) -> i64 {
        let length = self.step_ms.saturating_mul(self.values.len() as u64);
        self.start_ms
            .saturating_add(i64::try_from(length).unwrap_or(i64::MAX))
    }

    /// Each value with begin and end of its step.
    fn steps(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let (start, step) = (self.start_ms as f64, self.step_ms as f64);
        (0..).zip(self.values).map(move |(i, value)| {
            let begin = start + f64::from(i) * step;
            (begin, begin + step, *value)
        })
    }
}

/// A series with one step throughout.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Joined {
    /// Begin of the first step, ms.
    pub start_ms: u64,
    /// Length of each step, ms.
    pub step_ms: u64,
    /// The values.
    pub values: Vec<f64>,
    /// The largest reading behind each value, increases as rates per second; empty where each value is one reading.
    pub largest: Vec<f64>,
}

/// The part of a series that lies between 0 and `end_ms`, in steps that are at least `least_ms` long and no shorter than any in it.
///
/// A step that begins before 0 is left out, but what a counter grew by in it is in the first one: connections are opened as soon as
/// a load begins. So is a level that was read after the end, where others were read before. `pieces` follow each other without gaps. Where steps have to be made longer, a
/// reading that lies in two of them counts in each by its part: increases add up, anything else gives its mean.
pub fn join(kind: Kind, pieces: &[Piece], end_ms: u64, least_ms: u64) -> Option<Joined> {
    let end = i64::try_from(end_ms).unwrap_or(i64::MAX);
    let within = |piece: &&Piece| piece.end_ms() > 0 && piece.start_ms < end;
    let pieces: Vec<&Piece> = pieces.iter().filter(within).collect();
    let own_ms = pieces.iter().map(|piece| piece.step_ms).max()?;
    let step_ms = own_ms.max(least_ms);
    let steps = pieces.iter().flat_map(|piece| piece.steps());
    let mut steps: Vec<_> = steps
        .filter(|(begin, end, _)| *end > 0.0 && *begin < end_ms as f64)
        .collect();
    // A level is read at the end of its step. The load may be too short for any to be read in it.
    let read = |(_, end, _): &(f64, f64, f64)| *end <= end_ms as f64;
    if kind == Kind::Level && steps.iter().any(|step| step.0 >= 0.0 && read(step)) {
        steps.retain(read);
    }
    let before = steps.first()?.0 < 0.0;
    if before {
        let (.., grown) = steps.remove(0);
        if kind == Kind::Increase {
            steps.first_mut()?.2 += grown;
        }
    }
    let start = steps.first()?.0;
    let mut joined = Joined {
        start_ms: start as u64,
        step_ms,
        ..Joined::default()
    };
    if pieces.iter().all(|piece| piece.step_ms == step_ms) {
        joined.values = steps.iter().map(|(.., value)| rounded(*value)).collect();
        return Some(joined);
    }
    let step = step_ms as f64;
    let last = steps.last().map_or(start, |(_, end, _)| *end);
    let bins = ((last - start) / step).ceil() as usize;
    let (mut sums, mut parts) = (vec![0.0; bins], vec![0.0; bins]);
    joined.largest = vec![f64::NEG_INFINITY; bins];
    for (begin, end, value) in steps {
        let reading = match kind {
            Kind::Increase => value / (end - begin) * 1e3,
            Kind::Mean | Kind::Level => value,
        };
        let first = ((begin - start) / step) as usize;
        let bins = first..bins.min(((end - start) / step).ceil() as usize);
        for bin in bins {
            let from = start + bin as f64 * step;
            let part = (end.min(from + step) - begin.max(from)) / (end - begin);
            if part > 0.0 {
                sums[bin] += value * part;
                parts[bin] += part;
                joined.largest[bin] = joined.largest[bin].max(rounded(reading));
            }
        }
    }
    let each = |(sum, part): (f64, f64)| match kind {
        Kind::Increase => rounded(sum),
        Kind::Mean | Kind::Level => rounded(sum / part),
    };
    joined.values = sums.into_iter().zip(parts).map(each).collect();
    Some(joined)
}

/// What a counter grew by between two moments. A step that lies only partly between them counts by that part.
pub fn increase(pieces: &[Piece], from_ms: f64, to_ms: f64) -> f64 {
    let steps = pieces.iter().flat_map(Piece::steps);
    let parts = steps.map(|(begin, end, value)| {
        let part = (to_ms.min(end) - from_ms.max(begin)) / (end - begin);
        value * part.clamp(0.0, 1.0)
    });
    parts.sum()
}

/// Six decimals, as in all series.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start_ms: i64, step_ms: u64, values: &[f64]) -> Piece<'_> {
        Piece {
            start_ms,
            step_ms,
            values,
        }
    }

    #[test]
    fn lines_of_one_step_are_put_together_and_cut() {
        let pieces = [
            piece(-75, 50, &[1.0, 2.0, 3.0]),
            piece(75, 50, &[4.0, 5.0]),
            piece(175, 50, &[6.0]),
        ];
        let joined = join(Kind::Increase, &pieces, 170, 0).unwrap();
        assert_eq!((joined.start_ms, joined.step_ms), (25, 50));
        // The second begins before 0, and goes on after it.
        assert_eq!(joined.values, [5.0, 4.0, 5.0]);
        let level = join(Kind::Level, &pieces, 170, 0).unwrap();
        // The last was read at 175 ms.
        assert_eq!((level.start_ms, level.values), (25, vec![3.0, 4.0]));
        assert!(joined.largest.is_empty());
        // Of a load that was over before the first reading, the next one tells.
        let level = join(Kind::Level, &pieces, 30, 0).unwrap();
        assert_eq!((level.start_ms, level.values), (25, vec![3.0]));
        assert_eq!(join(Kind::Increase, &pieces, 10, 0), None);
        assert_eq!(join(Kind::Increase, &[], 10, 0), None);
    }

    #[test]
    fn where_steps_become_longer_sums_and_means_stay() {
        let pieces = [piece(0, 50, &[1.0, 2.0, 3.0]), piece(150, 100, &[8.0, 2.0])];
        for (kind, values, largest) in [
            // 150 to 250 lies in the second and the third step, by half in each.
            (
                Kind::Increase,
                [3.0, 7.0, 5.0, 1.0],
                [40.0, 80.0, 80.0, 20.0],
            ),
            (
                Kind::Level,
                [1.5, 14.0 / 3.0, 5.0, 2.0],
                [2.0, 8.0, 8.0, 2.0],
            ),
        ] {
            let joined = join(kind, &pieces, 1_000, 0).unwrap();
            assert_eq!((joined.start_ms, joined.step_ms), (0, 100), "{kind:?}");
            let expected: Vec<f64> = values.into_iter().map(rounded).collect();
            assert_eq!(joined.values, expected, "{kind:?}");
            assert_eq!(joined.largest, largest, "{kind:?}");
        }
        assert_eq!(increase(&pieces, 25.0, 175.0), 0.5 + 2.0 + 3.0 + 2.0);
        let longer = join(Kind::Increase, &pieces, 1_000, 200).unwrap();
        assert_eq!((longer.step_ms, longer.values), (200, vec![10.0, 6.0]));
    }
}
