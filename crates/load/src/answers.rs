//! Answers kept for a check (`--check`): 24 bytes each.

use floodmark_record::kept::{KeptScore, Line, SHOWN, Scored, StrangeTotal};

use crate::clock::Ns;
use crate::judge::Figures;
use crate::scoring::ScoreAnswer;

/// Answers in one block, so that growing never copies what is there.
const BLOCK: usize = 64 * 1024;

/// What one thread was answered.
#[derive(Debug, Default)]
pub struct Answers {
    blocks: Vec<Vec<[u64; 3]>>,
    /// How many were not greater than the one before on their connection.
    pub out_of_order: u64,
    /// The first of those, in words.
    pub offenders: Vec<String>,
    /// What totals are held against, from the first one on.
    line: Option<Line>,
    scored: Scored,
}

impl Answers {
    /// Keeps one answer; `last` is the previous number of its connection.
    pub fn add(&mut self, figures: Figures, sent: Ns, done: Ns, last: &mut Option<u64>) {
        let (number, words) = match figures {
            Figures::Number(number) => (number, [number, sent, done]),
            Figures::Score(score, answer) => {
                let number = answer.number_of_trials;
                let distance = self.distance(score, &answer);
                let kept = KeptScore::new(number, distance, sent, done);
                (number, kept.to_words())
            }
        };
        if let Some(last) = *last
            && number <= last
        {
            self.out_of_order += 1;
            show(&mut self.offenders, || {
                format!("{number} after {last} on one connection")
            });
        }
        *last = Some(number);
        match self.blocks.last_mut() {
            Some(block) if block.len() < BLOCK => block.push(words),
            _ => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(words);
                self.blocks.push(block);
            }
        }
    }

    /// How far a total is from where it belongs; the average is looked at, too.
    fn distance(&mut self, score: f64, answer: &ScoreAnswer) -> Option<i32> {
        let ScoreAnswer {
            average_score: average,
            total_score: total,
            number_of_trials: number,
        } = *answer;
        if !answer.averages() {
            self.scored.wrong_averages += 1;
            show(&mut self.scored.first_wrong_averages, || {
                format!("{average} for {total} / {number}")
            });
        }
        let line = self
            .line
            .get_or_insert_with(|| Line::through(score, number, total));
        let distance = line.distance(number, total);
        if distance.is_none() {
            self.scored.strange(StrangeTotal { number, total });
        }
        distance
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// What all threads together say of their totals; none where they were no scores.
    #[must_use]
    pub fn scored<'a>(all: impl Iterator<Item = &'a Answers> + Clone) -> Option<Scored> {
        let mut together = Scored {
            line: Some(Self::line(all.clone())?),
            ..Scored::default()
        };
        for Answers { scored, .. } in all {
            together.join(scored);
        }
        Some(together)
    }

    /// The line that all threads' totals are held against.
    #[must_use]
    pub fn line<'a>(mut all: impl Iterator<Item = &'a Answers>) -> Option<Line> {
        all.find_map(|answers| answers.line)
    }

    /// Writes them as little-endian triples of 64 bits; scores as they are held against `line`.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&self, line: Option<Line>, out: &mut impl std::io::Write) -> std::io::Result<()> {
        // How far this thread's line is ahead: 0 where the server is honest.
        let ahead = line.zip(self.line).map(|(line, mine)| mine.ahead_of(&line));
        for words in self.blocks.iter().flatten() {
            let words = match ahead {
                None | Some(Some(0)) => *words,
                Some(by) => KeptScore::from_words(*words).moved(by, 0).to_words(),
            };
            for word in words {
                out.write_all(&word.to_le_bytes())?;
            }
        }
        Ok(())
    }
}

fn show(shown: &mut Vec<String>, words: impl FnOnce() -> String) {
    if shown.len() < SHOWN {
        shown.push(words());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::kept::KEPT_BYTES;

    fn scores(answers: &[(u64, f64)]) -> Answers {
        let mut kept = Answers::default();
        for (number_of_trials, total_score) in answers {
            let answer = ScoreAnswer {
                average_score: 10.0,
                total_score: *total_score,
                number_of_trials: *number_of_trials,
            };
            kept.add(Figures::Score(10.0, answer), 1, 2, &mut None);
        }
        kept
    }

    fn distances(threads: &[Answers]) -> Vec<Option<i32>> {
        let mut bytes = Vec::new();
        for answers in threads {
            let line = Answers::line(threads.iter());
            answers.write(line, &mut bytes).unwrap();
        }
        let triples = bytes.chunks_exact(KEPT_BYTES).map(|triple| {
            let word = |i: usize| u64::from_le_bytes(triple[8 * i..8 * i + 8].try_into().unwrap());
            KeptScore::from_words([word(0), word(1), word(2)])
        });
        triples.map(|kept| kept.distance()).collect()
    }

    #[test]
    fn totals_of_all_threads_are_held_against_one_line() {
        let threads = [
            scores(&[]),
            scores(&[(5, 55.0), (6, 55.0), (7, 70.1)]),
            scores(&[(9, 75.0), (10, 105.0)]),
            scores(&[(11, 3.0), (12, 13.0)]),
        ];
        assert_eq!(
            distances(&threads),
            [Some(0), Some(-1), None, Some(-2), Some(0), None, None]
        );
        let scored = Answers::scored(threads.iter()).unwrap();
        assert_eq!(scored.line, Some(Line::through(10.0, 5, 55.0)));
        let strange = StrangeTotal {
            number: 7,
            total: 70.1,
        };
        assert_eq!(scored.first_strange_totals, [strange]);
        assert_eq!(scored.wrong_averages, 7);
        assert_eq!(scored.first_wrong_averages.len(), SHOWN);
        assert_eq!(scored.first_wrong_averages[0], "10 for 55 / 5");
        assert_eq!(Answers::scored([Answers::default()].iter()), None);
    }
}
