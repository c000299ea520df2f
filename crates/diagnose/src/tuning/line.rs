//! Values of one knob, with the other knobs fixed.

use floodmark_record::tuning::TunedKnob;

/// Two values are close enough if their ratio is at most this number. Between closer values, the
/// figures of most servers differ by less than those of two processes.
const CLOSE: f64 = 1.5;

/// Factor between the values of a coarse sweep.
const COARSE: f64 = 4.0;

/// Returns the allowed value nearest to the geometric mean of two values and strictly between
/// them. Returns `None` if there is no such value, or if the values are close.
pub(super) fn between(knob: &TunedKnob, low: u64, high: u64) -> Option<u64> {
    let from = low.max(1) as f64;
    if high as f64 / from <= CLOSE && knob.values.is_empty() && low > 0 {
        return None;
    }
    let middle = (from * high as f64).sqrt();
    let inside = |value: &u64| low < *value && *value < high && *value >= knob.low;
    if knob.values.is_empty() {
        Some(middle.round() as u64)
            .map(|value| value.clamp(low + 1, high.saturating_sub(1).max(low + 1)))
            .filter(inside)
    } else {
        let values = knob.values.iter().copied().filter(inside);
        let distance = |value: &u64| ((*value as f64).ln() - middle.ln()).abs();
        values.min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }
}

/// Returns the smallest allowed value of at least `wanted`, or the largest allowed value.
pub(super) fn at_least(knob: &TunedKnob, wanted: u64) -> u64 {
    if knob.values.is_empty() {
        wanted.clamp(knob.low, knob.high)
    } else {
        let mut values = knob.values.iter().copied();
        values.find(|value| *value >= wanted).unwrap_or(knob.high)
    }
}

/// Returns the next value of a coarse sweep, up to `limit`. Returns `None` at the end.
pub(super) fn coarse_step(knob: &TunedKnob, value: u64, limit: u64) -> Option<u64> {
    let wanted = (value.max(1) as f64 * COARSE).min(limit as f64) as u64;
    let next = at_least(knob, wanted);
    (next > value).then_some(next)
}

#[cfg(test)]
mod tests {
    use floodmark_record::tuning::KnobKind;
    use proptest::prelude::*;

    use super::*;

    fn knob(low: u64, high: u64, values: &[u64]) -> TunedKnob {
        TunedKnob {
            name: "threads".to_owned(),
            sizes: KnobKind::Threads,
            default: low,
            low,
            high,
            values: values.to_vec(),
        }
    }

    #[test]
    fn takes_the_middle_on_a_logarithmic_scale() {
        let all = knob(1, 200, &[]);
        assert_eq!(between(&all, 1, 100), Some(10));
        assert_eq!(between(&all, 0, 2), Some(1));
        assert_eq!(between(&all, 2, 4), Some(3));
        assert_eq!(between(&all, 20, 29), None, "close values");
        let some = knob(1, 64, &[1, 8, 64]);
        assert_eq!(between(&some, 1, 64), Some(8));
        assert_eq!(between(&some, 8, 64), None);
        assert_eq!(at_least(&some, 9), 64);
        assert_eq!(coarse_step(&all, 8, 100), Some(32));
        assert_eq!(coarse_step(&all, 100, 100), None);
    }

    proptest! {
        #[test]
        fn is_strictly_between(low in 0_u64..500, width in 1_u64..500) {
            let all = knob(1, 2_000, &[]);
            let high = low + width;
            match between(&all, low, high) {
                Some(value) => prop_assert!(low < value && value < high),
                None => prop_assert!(width == 1 || high as f64 / low as f64 <= CLOSE),
            }
        }
    }
}
