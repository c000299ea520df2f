use floodmark_record::Record;
use floodmark_record::comparison::{Agreement, ClaimResult, ComparedMetric, Holds};
use floodmark_record::experiment::{ExperimentDescription, PublishedClaim};

use super::super::tests::{FAST, SLOW, experiment, record, throughput};

fn published(figure: f64, agreement: Option<Agreement>) -> PublishedClaim {
    PublishedClaim {
        text: "as fast as".to_owned(),
        source: Some("a blog".to_owned()),
        metric: Some(ComparedMetric::Throughput),
        ratio: vec!["a".to_owned(), "b".to_owned()],
        trial: None,
        published: Some(figure),
        agreement,
    }
}

fn judged(record: Record, claims: Vec<PublishedClaim>) -> Vec<ClaimResult> {
    let mut record = experiment(record);
    record.experiment = Some(ExperimentDescription {
        claims,
        ..ExperimentDescription::default()
    });
    super::claims(&record)
}

#[test]
fn claim_holds_if_the_whole_interval_agrees() {
    let record = record(&FAST, &SLOW);
    let comparison = throughput(&record);
    let (low, high) = (comparison.low.unwrap(), comparison.high.unwrap());
    assert!(1.08 < low && high < 1.12, "{comparison:?}");
    for (figure, agreement, wanted) in [
        (1.1, None, Holds::Yes),
        (1.03, Some(Agreement::Within(0.1)), Holds::Yes),
        (1.0, Some(Agreement::Within(0.02)), Holds::No),
        (1.3, None, Holds::No),
        (1.0, None, Holds::Undecided),
        (1.05, Some(Agreement::AtLeast), Holds::Yes),
        (1.15, Some(Agreement::AtLeast), Holds::No),
        (1.1, Some(Agreement::AtLeast), Holds::Undecided),
        (1.15, Some(Agreement::AtMost), Holds::Yes),
        (1.05, Some(Agreement::AtMost), Holds::No),
        (1.1, Some(Agreement::AtMost), Holds::Undecided),
    ] {
        let got = judged(record.clone(), vec![published(figure, agreement)]).remove(0);
        assert_eq!(got.holds, wanted, "{figure} {agreement:?}");
        assert_eq!((got.measured, got.low), (comparison.ratio, comparison.low));
        assert_eq!(got.of, ["a", "b"]);
    }
}

#[test]
fn figure_without_criterion_is_not_judged() {
    let record = record(&FAST, &SLOW);
    let alone = |figure, agreement| PublishedClaim {
        ratio: Vec::new(),
        trial: Some("a".to_owned()),
        ..published(figure, agreement)
    };
    let got = judged(
        record,
        vec![
            alone(110.0, None),
            alone(110.0, Some(Agreement::Within(0.1))),
            alone(200.0, Some(Agreement::AtLeast)),
        ],
    );
    for claim in &got {
        assert!((claim.measured.unwrap() - 110.0).abs() < 0.1, "{claim:?}");
        // The expected figures were computed in Python with t = 2.776445 for four degrees of
        // freedom.
        assert!((claim.low.unwrap() - 109.020_466).abs() < 1e-4, "{claim:?}");
        assert!(
            (claim.high.unwrap() - 110.983_748).abs() < 1e-4,
            "{claim:?}"
        );
    }
    let holds: Vec<Holds> = got.iter().map(|claim| claim.holds).collect();
    assert_eq!(holds, [Holds::Undecided, Holds::Yes, Holds::No]);
    assert!(got[0].notes[0].contains("another host"), "{got:?}");
}

#[test]
fn claim_without_interval_has_a_reason() {
    let record = record(&[&[110.0]], &[&[100.0]]);
    let mut other = published(1.1, None);
    other.ratio[1] = "c".to_owned();
    let mut words = published(1.1, None);
    (words.metric, words.published) = (None, None);
    words.ratio.clear();
    let mut alone = published(110.0, Some(Agreement::AtMost));
    (alone.trial, alone.ratio) = (Some("a".to_owned()), Vec::new());
    let got = judged(record, vec![published(1.1, None), other, words, alone]);
    assert!(got.iter().all(|claim| claim.holds == Holds::Undecided));
    let measured: Vec<bool> = got.iter().map(|claim| claim.measured.is_some()).collect();
    assert_eq!(measured, [true, false, false, true]);
    for (claim, note) in got.iter().zip([
        "one server process for a and for b",
        "no trial or system \"c\"",
        "names no metric",
        "one server process for a:",
    ]) {
        assert!(claim.notes[0].contains(note), "{claim:?}");
    }
}
