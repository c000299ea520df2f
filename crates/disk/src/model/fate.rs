//! Which pending effects persist: drawn from a seed, or all combinations.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::crash::{Crash, EffectPart};

/// What became of an effect that was not durable.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The effect persists.
    Kept,
    /// The effect is lost. Later effects on the same name, size or sector are lost too.
    Dropped,
    /// Only some sectors of the data persist; one flag per sector of the effect.
    Torn(Vec<bool>),
}

impl Crash<'_> {
    /// Returns the number of combinations of fates, or `None` if there are more than `limit`.
    /// Different combinations can lead to the same image.
    #[must_use]
    pub fn combinations(&self, limit: usize) -> Option<usize> {
        let mut count = 1_usize;
        for effect in &self.effects {
            count = match &effect.part {
                EffectPart::Data { sectors } => {
                    let sectors = u32::try_from(sectors.len()).unwrap_or(u32::MAX);
                    count.checked_mul(2_usize.checked_pow(sectors)?)?
                }
                EffectPart::Entry | EffectPart::Removal | EffectPart::Size => {
                    count.checked_mul(2)?
                }
            };
            if count > limit {
                return None;
            }
        }
        Some(count)
    }

    /// Returns one of the combinations. The digits of `number` in a mixed-radix system select the
    /// fates. 0 keeps everything.
    #[must_use]
    pub fn combination(&self, number: usize) -> Vec<Fate> {
        let mut rest = number;
        let mut digit = |options: usize| {
            let digit = rest % options;
            rest /= options;
            digit
        };
        let fates = self.effects.iter().map(|effect| match &effect.part {
            EffectPart::Data { sectors } if sectors.len() > 1 => {
                let kept: Vec<bool> = sectors.iter().map(|_| digit(2) == 0).collect();
                of_sectors(kept)
            }
            _ if digit(2) == 0 => Fate::Kept,
            _ => Fate::Dropped,
        });
        fates.collect()
    }

    /// Draws fates at random. The method varies, because a uniform choice per effect would rarely
    /// produce the states in which faults show: nothing, everything, a prefix, or all but one.
    pub fn draw(&self, random: &mut Xoshiro256PlusPlus) -> Vec<Fate> {
        let count = self.effects.len();
        let one = below(random, count);
        let all = |fate: Fate| vec![fate; count];
        match below(random, 8) {
            0 => all(Fate::Dropped),
            1 => all(Fate::Kept),
            2 => {
                let mut fates = all(Fate::Dropped);
                fates[..one].fill(Fate::Kept);
                fates
            }
            3 | 4 => {
                let mut fates = all(Fate::Kept);
                if let Some(fate) = fates.get_mut(one) {
                    *fate = self.draw_loss(one, random);
                }
                fates
            }
            5 => {
                let mut fates = all(Fate::Dropped);
                if let Some(fate) = fates.get_mut(one) {
                    *fate = Fate::Kept;
                }
                fates
            }
            _ => (0..count)
                .map(|index| match below(random, 2) {
                    0 => Fate::Kept,
                    _ => self.draw_loss(index, random),
                })
                .collect(),
        }
    }

    /// Drops an effect, or tears it if it has several sectors.
    fn draw_loss(&self, effect: usize, random: &mut Xoshiro256PlusPlus) -> Fate {
        match &self.effects[effect].part {
            EffectPart::Data { sectors } if sectors.len() > 1 && below(random, 2) == 0 => {
                let kept = sectors.iter().map(|_| below(random, 2) == 0);
                match of_sectors(kept.collect()) {
                    Fate::Kept => Fate::Dropped,
                    fate => fate,
                }
            }
            _ => Fate::Dropped,
        }
    }
}

fn of_sectors(kept: Vec<bool>) -> Fate {
    match (kept.iter().any(|kept| *kept), kept.iter().all(|kept| *kept)) {
        (_, true) => Fate::Kept,
        (false, _) => Fate::Dropped,
        _ => Fate::Torn(kept),
    }
}

/// Returns a number below `count`, or 0 if `count` is 0. The bias is negligible for small counts.
pub(crate) fn below(random: &mut Xoshiro256PlusPlus, count: usize) -> usize {
    let product = u128::from(random.next_u64()) * count as u128;
    usize::try_from(product >> 64).unwrap_or(0)
}
