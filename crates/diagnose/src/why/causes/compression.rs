//! Compressing responses uses up the server's CPU.

use floodmark_record::metric::CodeFigure;

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::ServerCpu),
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::Compression, Place::Server, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let server = facts.server.as_ref()?;
    let share = facts.code_share(CodeFigure::Compression)?;
    let share_text = percent(share);
    let figure = format!("compression: {share_text} of the server's CPU time (perf_event_open)");
    if share < NOTICEABLE || !facts.is_server_saturated(server) {
        return ruled_out(figure);
    }
    if share < MOST {
        return Candidate::cost(share, "compression", figure, StepKind::Compression).found();
    }
    Candidate::consumer(
        StepKind::Compression,
        format!("the server is busy compressing: {share_text} of its CPU time"),
        [figure],
        "lower the compression level, or store compressed responses",
    )
    .found()
}
