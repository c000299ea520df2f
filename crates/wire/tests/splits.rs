//! However the input is split, the reader comes to the same.

mod common;

use common::answers::{Sample, sample};
use common::check::{Random, check, read};
use floodmark_wire::{Answer, ReadError};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Several valid answers on one connection are read as they were made, under random splits and byte by byte.
    #[test]
    fn valid_answers_are_read_as_made(
        kept in vec(sample(false), 0..4),
        last in sample(true),
        seed in any::<u64>(),
        longest in prop_oneof![Just(1usize), 2usize..20, 20usize..2000],
    ) {
        let mut samples: Vec<Sample> = kept.into_iter().filter(|s| s.keep_alive).collect();
        samples.push(last);
        let input: Vec<u8> = samples.iter().flat_map(|s| s.wire.clone()).collect();
        let mut random = Random(seed);
        let transcript = read(&input, false, || 1 + random.below(longest));
        prop_assert_eq!(transcript.end, Ok(()));
        prop_assert!(transcript.rest.is_empty());
        let mut end = 0;
        for (i, made) in samples.iter().enumerate() {
            end += made.wire.len();
            let answer = Answer {
                status: made.status,
                keep_alive: made.keep_alive,
                body_bytes: made.body.len() as u64,
            };
            prop_assert_eq!(&transcript.answers[i], &(answer, made.body.clone()));
            prop_assert_eq!(transcript.ends[i], end);
        }
        prop_assert_eq!(transcript.answers.len(), samples.len());
        check(&input);
    }

    /// What follows the last answer is refused, by the name that fits.
    #[test]
    fn leftovers_are_not_swallowed(made in sample(false), extra in vec(any::<u8>(), 1..20)) {
        prop_assume!(extra[0] != b'H');
        let input = [made.wire.clone(), extra].concat();
        let transcript = read(&input, false, || usize::MAX);
        prop_assert_eq!(transcript.ends, vec![made.wire.len()]);
        let expected = if made.keep_alive { ReadError::NotHttp } else { ReadError::DataAfterClose };
        prop_assert_eq!(transcript.end, Err(expected));
        check(&input);
    }

    /// An answer cut short is an error, unless the close marks its end.
    #[test]
    fn a_cut_answer_is_an_error(made in sample(false), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(made.wire.len());
        let transcript = read(&made.wire[..cut], false, || usize::MAX);
        prop_assert!(transcript.answers.is_empty());
        prop_assert_eq!(transcript.end.is_ok(), cut == 0);
    }

    /// Arbitrary bytes, plain and after the start of an answer.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        check(&bytes);
        for start in ["HTTP/1.1 ", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
            check(&[start.as_bytes(), &bytes].concat());
        }
    }
}
