//! Checks that samplers and verdicts use the same metrics.

#[test]
fn a_sampler_produces_every_metric_that_verdicts_consume() {
    let produced = floodmark_observe::produced();
    let consumed = floodmark_diagnose::why::consumed();
    let missing: Vec<_> = consumed
        .iter()
        .filter(|of| !produced.contains(of))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
