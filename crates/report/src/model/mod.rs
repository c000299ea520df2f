//! The presentation model: the content of a result in reading order, with words, units, precision
//! and emphasis already chosen.
//!
//! Each part is built once from a record. The renderers (`terminal`, `html`) draw the parts without
//! computing figures or choosing words.

pub(crate) mod capacity;
pub(crate) mod cases;
pub(crate) mod chart;
pub(crate) mod comparison;
pub(crate) mod crash;
pub(crate) mod disk;
pub(crate) mod doctor;
pub(crate) mod document;
pub(crate) mod environment;
pub(crate) mod experiment;
pub(crate) mod figures;
pub(crate) mod gate;
pub(crate) mod names;
pub(crate) mod outcomes;
pub(crate) mod page;
pub(crate) mod plan;
pub(crate) mod process_use;
pub(crate) mod run;
pub(crate) mod summary;
pub(crate) mod sweep;
pub(crate) mod trend;
pub(crate) mod tuning;
pub(crate) mod verdict;

use floodmark_record::Record;

use self::document::{Blocks, Extent, line};

/// Returns the result of any command as a document. `next` is the recommended next step.
pub(crate) fn document(record: &Record, next: Option<&str>) -> Blocks {
    let mut blocks = match &record.experiment {
        Some(_) if record.tuning.is_some() => tuning::document(record),
        Some(_) => experiment::document(record),
        None if record.capacity.is_some() => capacity::document(record),
        None => summary::document(record, next, Extent::Full),
    };
    let labels = &record.tool.labels;
    blocks.lines((!labels.is_empty()).then(|| line("labels", labels.to_string())));
    blocks
}
