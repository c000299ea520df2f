//! Responses kept for a check, and the binary file that stores them.
//!
//! The file contains three little-endian 64-bit words (24 bytes) per response. For numbers, the
//! words are `number`, `sent_ns` and `done_ns`. For scores, the words are those of a [`KeptScore`],
//! and for operations, those of a [`KeptOperation`].

use floodmark_record::kept::{KEPT_BYTES, KeptScore};
use floodmark_record::operation::KeptOperation;

/// A number drawn from a counter. Both times come from the same monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawnNumber {
    /// The number.
    pub number: u64,
    /// Time at which the request was passed to the kernel, in ns.
    pub sent_ns: u64,
    /// Time at which the response was complete, in ns; at least `sent_ns`.
    pub done_ns: u64,
}

/// Reason why a response file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResponsesError {
    /// The file ends in the middle of a response.
    #[error(
        "the response file is truncated at response {response}: {bytes} bytes is not a multiple of 24; repeat the run"
    )]
    Truncated {
        /// Number of the incomplete response, from 1.
        response: usize,
        /// Length of the file in bytes.
        bytes: usize,
    },
    /// The file of items ends in the middle of an item.
    #[error("the file of items is truncated: {0} bytes is not a multiple of 8; repeat the run")]
    TruncatedItems(usize),
    /// A response arrived before its request was sent.
    #[error(
        "response {response} in the response file arrived before its request was sent ({done_ns} ns < {sent_ns} ns): the file is damaged; repeat the run"
    )]
    BackInTime {
        /// Number of the response, from 1.
        response: usize,
        /// Time at which the request was sent, in ns.
        sent_ns: u64,
        /// Time at which the response was complete, in ns.
        done_ns: u64,
    },
    /// An operation has no kind.
    #[error(
        "operation {operation} in the response file has an unknown kind: the file is damaged; repeat the run"
    )]
    UnknownKind {
        /// Number of the operation, from 1.
        operation: usize,
    },
}

/// Reads a file of drawn numbers.
///
/// # Errors
/// The file is truncated, or a response arrived before its request was sent.
pub fn decode_numbers(bytes: &[u8]) -> Result<Vec<DrawnNumber>, ResponsesError> {
    let decode = |(i, [number, sent_ns, done_ns]): (usize, [u64; 3])| {
        if done_ns < sent_ns {
            return Err(ResponsesError::BackInTime {
                response: i + 1,
                sent_ns,
                done_ns,
            });
        }
        Ok(DrawnNumber {
            number,
            sent_ns,
            done_ns,
        })
    };
    triples(bytes)?.enumerate().map(decode).collect()
}

/// Reads a file of scores.
///
/// # Errors
/// The file is truncated.
pub fn decode_scores(bytes: &[u8]) -> Result<Vec<KeptScore>, ResponsesError> {
    Ok(triples(bytes)?.map(KeptScore).collect())
}

/// Reads a file of operations. An operation without a kind is an error.
///
/// # Errors
/// The file is truncated.
pub fn decode_operations(
    bytes: &[u8],
) -> Result<impl ExactSizeIterator<Item = Result<KeptOperation, ResponsesError>>, ResponsesError> {
    let decode = |(i, words)| match KeptOperation(words) {
        operation if operation.has_kind() => Ok(operation),
        _ => Err(ResponsesError::UnknownKind { operation: i + 1 }),
    };
    Ok(triples(bytes)?.enumerate().map(decode))
}

/// Reads a file of items: one little-endian 64-bit number each.
///
/// # Errors
/// The file is truncated.
pub fn decode_items(bytes: &[u8]) -> Result<Vec<u64>, ResponsesError> {
    let (items, rest) = bytes.as_chunks::<8>();
    match rest {
        [] => Ok(items.iter().copied().map(u64::from_le_bytes).collect()),
        _ => Err(ResponsesError::TruncatedItems(bytes.len())),
    }
}

fn triples(bytes: &[u8]) -> Result<impl ExactSizeIterator<Item = [u64; 3]>, ResponsesError> {
    let (triples, rest) = bytes.as_chunks::<KEPT_BYTES>();
    if !rest.is_empty() {
        return Err(ResponsesError::Truncated {
            response: triples.len() + 1,
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
    use floodmark_record::operation::OperationKind;
    use proptest::prelude::*;

    fn encode(numbers: &[DrawnNumber]) -> Vec<u8> {
        let words = numbers
            .iter()
            .flat_map(|n| [n.number, n.sent_ns, n.done_ns]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn encodes_a_number_in_24_bytes() {
        assert_eq!(size_of::<DrawnNumber>(), KEPT_BYTES);
    }

    #[test]
    fn reports_the_position_of_damage() {
        let good = DrawnNumber {
            number: 1,
            sent_ns: 5,
            done_ns: 5,
        };
        let bytes = encode(&[good, DrawnNumber { sent_ns: 6, ..good }]);
        let error = decode_numbers(&bytes).unwrap_err();
        assert_eq!(
            error,
            ResponsesError::BackInTime {
                response: 2,
                sent_ns: 6,
                done_ns: 5
            }
        );
        let error = decode_numbers(&bytes[..47]).unwrap_err();
        assert_eq!(
            error,
            ResponsesError::Truncated {
                response: 2,
                bytes: 47
            }
        );
        assert_eq!(decode_numbers(&[]), Ok(Vec::new()));
        assert_eq!(decode_scores(&bytes[..47]), Err(error));
    }

    #[test]
    fn refuses_operations_without_a_kind() {
        let write = KeptOperation::new(OperationKind::Acknowledged, 3, 17, 5, 6);
        let mut bytes: Vec<u8> = write.0.into_iter().flat_map(u64::to_le_bytes).collect();
        let decode = |bytes: &[u8]| decode_operations(bytes)?.collect::<Result<Vec<_>, _>>();
        assert_eq!(decode(&bytes), Ok(vec![write]));
        assert_eq!(decode_items(&bytes).map(|items| items[0]), Ok(17));
        assert_eq!(
            decode_items(&bytes[1..]),
            Err(ResponsesError::TruncatedItems(23))
        );
        bytes.extend([0xff; KEPT_BYTES]);
        let error = ResponsesError::UnknownKind { operation: 2 };
        assert_eq!(decode(&bytes), Err(error));
        let error = ResponsesError::Truncated {
            response: 2,
            bytes: 47,
        };
        assert_eq!(decode(&bytes[..47]), Err(error));
    }

    proptest! {
        #[test]
        fn decodes_what_was_encoded(triples in proptest::collection::vec((any::<u64>(), 0..u64::MAX / 2, 0..u64::MAX / 2), 0..50)) {
            let numbers: Vec<DrawnNumber> = triples
                .into_iter()
                .map(|(number, sent_ns, took)| DrawnNumber { number, sent_ns, done_ns: sent_ns + took })
                .collect();
            let bytes = encode(&numbers);
            prop_assert_eq!(bytes.len(), numbers.len() * KEPT_BYTES);
            prop_assert_eq!(decode_numbers(&bytes), Ok(numbers));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (decode_numbers(&bytes), decode_scores(&bytes), decode_operations(&bytes).map(Iterator::count));
        }
    }
}
