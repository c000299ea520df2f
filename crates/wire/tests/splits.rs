//! The reader's result does not depend on how the input is split.

mod common;

use common::check::{Random, check, read};
use common::responses::{Sample, sample};
use floodmark_wire::{ReadError, Response};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Several valid responses on one connection are read correctly at random splits and byte by
    /// byte.
    #[test]
    fn reads_valid_responses_at_any_split(
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
            let response = Response {
                status: made.status,
                keep_alive: made.keep_alive,
                body_bytes: made.body.len() as u64,
            };
            prop_assert_eq!(&transcript.responses[i], &(response, made.body.clone()));
            prop_assert_eq!(transcript.ends[i], end);
        }
        prop_assert_eq!(transcript.responses.len(), samples.len());
        check(&input);
    }

    /// Bytes after the last response are rejected with the matching reason.
    #[test]
    fn refuses_bytes_after_the_last_response(made in sample(false), extra in vec(any::<u8>(), 1..20)) {
        prop_assume!(!matches!(extra[0], b'H' | 0 | 21));
        let input = [made.wire.clone(), extra].concat();
        let transcript = read(&input, false, || usize::MAX);
        prop_assert_eq!(transcript.ends, vec![made.wire.len()]);
        let expected = if made.keep_alive { ReadError::NotHttp } else { ReadError::DataAfterClose };
        prop_assert_eq!(transcript.end, Err(expected));
        check(&input);
    }

    /// A truncated response is an error, unless the end of the connection marks the end of the
    /// response.
    #[test]
    fn refuses_a_truncated_response(made in sample(false), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(made.wire.len());
        let transcript = read(&made.wire[..cut], false, || usize::MAX);
        prop_assert!(transcript.responses.is_empty());
        prop_assert_eq!(transcript.end.is_ok(), cut == 0);
    }

    /// Arbitrary bytes, alone or after the start of a response, never cause a panic.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        check(&bytes);
        for start in ["HTTP/1.1 ", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
            check(&[start.as_bytes(), &bytes].concat());
        }
    }
}
