//! Compressing responses uses up the server's CPU.

use floodmark_record::cause::Cause;
use floodmark_record::metric::CodeFigure;
use floodmark_record::path::{Actor, StepKind};

use super::{CauseSpec, Detect, Place, Tuning};
use crate::text::percent;
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::RunFacts;
use crate::why::proof::CauseClass;
use crate::why::thresholds::{MOST, NOTICEABLE};

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::ServerCpu),
    tuning: Tuning::Stop,
    ..CauseSpec::new(
        Cause::Compression,
        Place::Server,
        Detect::Figures(detect),
    )
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let server = facts.server.as_ref()?;
    let share = facts.code_share(CodeFigure::Compression)?;
    let share_text = percent(share);
    let figure = format!("compression: {share_text} of the server's CPU time (perf_event_open)");
    let step = (StepKind::Compression, Actor::Server);
    if share < NOTICEABLE || !facts.is_server_saturated(server) {
        return ruled_out(figure);
    }
    if share < MOST {
        return Candidate::cost(share, "compression", figure, step).found();
    }
    Candidate::new(
        EvidenceRank::Mechanism,
        format!("the server is busy compressing: {share_text} of its CPU time"),
        vec![figure],
        "lower the compression level, or store compressed responses",
    )
    .at([(StepKind::Cpu, Actor::Server), step])
    .found()
}
