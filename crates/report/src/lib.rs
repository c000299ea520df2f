//! Presents results: a record as terminal text, HTML, Markdown, JUnit XML, tables or HDR text.
//!
//! `model` turns a record into documents, for which it chooses words, units and precision;
//! `terminal`, `html` and `markdown` draw the documents. This crate does not measure anything and
//! does not read the terminal, the environment or the clock. [`plain::line`] escapes text from
//! servers and URLs.
//!
//! A module depends only on modules in its own line of this list or in earlier lines:
//!
//! - `plain`, and `figures` in `model`, which formats figures
//! - `chart` (axes and curves) and `document`: the parts of a document
//! - the parts of a load's result, such as `run` and `verdict`, and their document, `summary`
//! - the parts of other results, such as `capacity` and `comparison`; `names`; and the charts of
//!   runs (`chart::distribution` and `chart::over_time`)
//! - the other whole documents: `experiment`, `tuning`, `page` and `trend`
//! - the renderers and writers

pub mod csv;
pub mod hdr;
pub mod html;
pub mod junit;
pub mod markdown;
pub mod plain;
pub mod tables;
pub mod terminal;

mod model;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod summary_tests;

pub use model::capacity::{capacity_progress_line, capacity_trial_line};
pub use model::cases::unexpected_crash_outcome;
pub use model::comparison::{measured, published};
pub use model::document::Emphasis;
pub use model::figures::{count_of, rate, seconds, share};
pub use model::gate::{gate_pair, ratio as gate_ratio};
pub use model::outcomes::OTHER_OUTCOMES;
pub use model::plan::describe as describe_plan;
pub use model::tuning::{tuning_action, tuning_scope, tuning_step};
pub use terminal::Style;
