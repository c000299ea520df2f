use std::fs;

use floodmark_record::api_check::ApiCheck;
use floodmark_record::operation::OperationKind;
use proptest::prelude::*;

use super::*;

const LATEST: u64 = (1 << 48) - 1;

fn api() -> Check {
    let check = r#"{"kind":"set","keys":9}"#;
    Check::Api(serde_json::from_str::<ApiCheck>(check).unwrap().into())
}

/// An agent's responses, its shift, its bound and its line.
type Agent = (Vec<[u64; 3]>, i64, u64, Option<TotalLine>);

fn join(check: &Check, agents: &[Agent]) -> Vec<[u64; 3]> {
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..agents.len())
        .map(|agent| directory.path().join(agent.to_string()))
        .collect();
    let parts: Vec<_> = agents
        .iter()
        .zip(&paths)
        .map(|((words, shift_ns, bound_ns, line), path)| {
            let bytes = words
                .as_flattened()
                .iter()
                .flat_map(|word| word.to_le_bytes());
            fs::write(path, bytes.collect::<Vec<_>>()).unwrap();
            KeptPart {
                path,
                shift_ns: *shift_ns,
                bound_ns: *bound_ns,
                line: *line,
            }
        })
        .collect();
    let to = directory.path().join("joined");
    let count = join_kept(check, &parts, &to).unwrap();
    let joined = fs::read(to).unwrap();
    let (words, rest) = joined.as_chunks::<8>();
    let (responses, more) = words.as_chunks::<3>();
    assert!(rest.is_empty() && more.is_empty());
    assert_eq!(responses.len() as u64, count);
    let responses = responses.iter();
    responses
        .map(|words| words.map(u64::from_le_bytes))
        .collect()
}

#[test]
fn numbers_get_the_coordinators_times() {
    let agents = [
        (vec![[1, 100, 200], [3, 300, 400]], 1000, 7, None),
        (vec![[2, 5_000, 6_000]], -4_990, 20, None),
        (vec![[4, u64::MAX - 5, u64::MAX - 1]], 1, 3, None),
    ];
    let expected = [
        [1, 1093, 1207],
        [3, 1293, 1407],
        [2, 0, 1030],
        [4, u64::MAX - 7, u64::MAX],
    ];
    assert_eq!(join(&Check::Sequence, &agents), expected);
}

#[test]
fn scores_become_relative_to_the_first_line() {
    let check = Check::Scoring { score: 10.0 };
    let line = |before: f64| Some(TotalLine::through(10.0, 0, before));
    let score = |distance| KeptScore::new(5, distance, 100, 200).0;
    let agents = [
        (vec![], 0, 0, None),
        (vec![score(Some(1))], 50, 2, line(20.0)),
        (vec![score(Some(1)), score(None)], -50, 2, line(0.0)),
        (vec![score(Some(1))], 0, 0, line(3.0)),
    ];
    let expected = [
        KeptScore::new(5, Some(1), 148, 252).0,
        KeptScore::new(5, Some(-1), 48, 152).0,
        KeptScore::new(5, None, 48, 152).0,
        KeptScore::new(5, None, 100, 200).0,
    ];
    assert_eq!(join(&check, &agents), expected);
}

#[test]
fn operations_keep_kind_key_and_value() {
    let of = |kind, sent, done| KeptOperation::new(kind, 8, 9, sent, done).0;
    let read = of(OperationKind::ReadNothing, 100, 200);
    let write = of(OperationKind::Refused, LATEST - 10, LATEST + 10);
    let joined = join(&api(), &[(vec![read, write], 20, 5, None)]);
    let expected = [
        of(OperationKind::ReadNothing, 115, 225),
        of(OperationKind::Refused, LATEST + 5, LATEST + 35),
    ];
    assert_eq!(joined, expected);
}

#[test]
fn refuses_a_truncated_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, to) = (
        directory.path().join("cut"),
        directory.path().join("joined"),
    );
    fs::write(&path, [0; 47]).unwrap();
    let part = KeptPart {
        path: &path,
        shift_ns: 0,
        bound_ns: 0,
        line: None,
    };
    let error = join_kept(&Check::Sequence, &[part], &to).unwrap_err();
    let expected = format!(
        "{}: the size, 47 bytes, is not a multiple of 24 bytes",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
}

proptest! {
    #[test]
    fn copies_exactly_without_shift_and_bound(
        words in proptest::collection::vec(any::<[u64; 3]>(), 0..20),
        line in proptest::option::of((0u8..3).prop_map(|n| TotalLine::through(1.0, 4, n.into()))),
    ) {
        for check in [Check::Sequence, Check::Scoring { score: 1.0 }, api()] {
            // A number cannot arrive before it was requested.
            let words: Vec<_> = words
                .iter()
                .map(|&[number, sent, done]| match check {
                    Check::Sequence => [number, sent.min(done), done.max(sent)],
                    _ => [number, sent, done],
                })
                .collect();
            let cut = words.len() / 2;
            let agents = [words[..cut].to_vec(), words[cut..].to_vec()];
            let agents = agents.map(|words| (words, 0, 0, line));
            prop_assert_eq!(join(&check, &agents), words);
        }
    }

    #[test]
    fn the_true_times_are_within_the_joined_times(
        sent in 0u64..1 << 40, took in 0u64..1 << 30, shift in -(1i64 << 30)..1 << 30,
        bound in 0u64..1 << 20, error in -1.0f64..=1.0,
    ) {
        let true_ns = |ns: u64| ns as i64 + shift + (error * bound as f64) as i64;
        prop_assume!(true_ns(sent) >= 0);
        let number = [1, sent, sent + took];
        let joined = join(&Check::Sequence, &[(vec![number], shift, bound, None)]);
        prop_assert!(joined[0][1] as i64 <= true_ns(sent));
        prop_assert!(joined[0][2] as i64 >= true_ns(sent + took));
    }
}
