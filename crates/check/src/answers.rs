//! Answers kept for a check, and the binary file they are kept in: little-endian triples of 64 bits, nothing before, between or after
//! them. 24 bytes an answer, in memory as on disk. Of numbers they are `number`, `sent_ns`, `done_ns`, of scores the words of a
//! [`KeptScore`].

use floodmark_record::kept::{KEPT_BYTES as ANSWER_BYTES, KeptScore};

/// One answered request of a number dispenser. Both times are of one monotonic clock for the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The number that was handed out.
    pub number: u64,
    /// When the request was handed to the kernel, ns.
    pub sent_ns: u64,
    /// When the whole answer was there, ns; not before `sent_ns`.
    pub done_ns: u64,
}

impl Answer {
    /// Appends the answer as it stands in the file.
    pub fn encode_into(self, bytes: &mut Vec<u8>) {
        for word in [self.number, self.sent_ns, self.done_ns] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Why a file of answers cannot be read; says where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswersError {
    /// Cut off within an answer.
    #[error(
        "the answers file ends within its answer {answer} ({bytes} bytes are no multiple of 24): it was cut off or is \
         none of ours; measure again"
    )]
    CutOff {
        /// Number of the incomplete answer, from 1.
        answer: usize,
        /// Length of the file.
        bytes: usize,
    },
    /// An answer that came before its request was sent.
    #[error(
        "answer {answer} of the answers file came before its request was sent ({done_ns} ns < {sent_ns} ns): the file is \
         damaged or none of ours; measure again"
    )]
    BackInTime {
        /// Number of the answer, from 1.
        answer: usize,
        /// When its request was sent.
        sent_ns: u64,
        /// When it came.
        done_ns: u64,
    },
}

/// Reads a file of numbers that were handed out.
///
/// # Errors
/// A file cut off within an answer, or one with an answer before its request.
pub fn decode_answers(bytes: &[u8]) -> Result<Vec<Answer>, AnswersError> {
    let triples = triples(bytes)?;
    let mut answers = Vec::with_capacity(triples.len());
    for (i, [number, sent_ns, done_ns]) in triples.enumerate() {
        if done_ns < sent_ns {
            return Err(AnswersError::BackInTime {
                answer: i + 1,
                sent_ns,
                done_ns,
            });
        }
        answers.push(Answer {
            number,
            sent_ns,
            done_ns,
        });
    }
    Ok(answers)
}

/// Reads a file of answered scores.
///
/// # Errors
/// A file cut off within an answer.
pub fn decode_scores(bytes: &[u8]) -> Result<Vec<KeptScore>, AnswersError> {
    Ok(triples(bytes)?.map(KeptScore::from_words).collect())
}

fn triples(bytes: &[u8]) -> Result<impl ExactSizeIterator<Item = [u64; 3]>, AnswersError> {
    let (triples, rest) = bytes.as_chunks::<ANSWER_BYTES>();
    if !rest.is_empty() {
        return Err(AnswersError::CutOff {
            answer: triples.len() + 1,
            bytes: bytes.len(),
        });
    }
    Ok(triples.iter().map(|triple| {
        let (words, _) = triple.as_chunks::<8>();
        [words[0], words[1], words[2]].map(u64::from_le_bytes)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_takes_what_the_design_allows() {
        assert_eq!(size_of::<Answer>(), ANSWER_BYTES);
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let mut bytes = Vec::new();
        let good = Answer {
            number: 1,
            sent_ns: 5,
            done_ns: 5,
        };
        good.encode_into(&mut bytes);
        Answer { sent_ns: 6, ..good }.encode_into(&mut bytes);
        let error = decode_answers(&bytes).unwrap_err();
        assert_eq!(
            error,
            AnswersError::BackInTime {
                answer: 2,
                sent_ns: 6,
                done_ns: 5
            }
        );
        let error = decode_answers(&bytes[..47]).unwrap_err();
        assert_eq!(
            error,
            AnswersError::CutOff {
                answer: 2,
                bytes: 47
            }
        );
        assert_eq!(decode_answers(&[]), Ok(Vec::new()));
        assert_eq!(decode_scores(&bytes[..47]), Err(error));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(triples in proptest::collection::vec((any::<u64>(), 0..u64::MAX / 2, 0..u64::MAX / 2), 0..50)) {
            let answers: Vec<Answer> = triples
                .into_iter()
                .map(|(number, sent_ns, took)| Answer { number, sent_ns, done_ns: sent_ns + took })
                .collect();
            let mut bytes = Vec::new();
            answers.iter().for_each(|a| a.encode_into(&mut bytes));
            prop_assert_eq!(bytes.len(), answers.len() * ANSWER_BYTES);
            prop_assert_eq!(decode_answers(&bytes), Ok(answers));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (decode_answers(&bytes), decode_scores(&bytes));
        }
    }
}
