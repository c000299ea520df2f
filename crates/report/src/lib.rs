//! What a record looks like on a terminal and in files: pure functions from a record to text.
//!
//! Invariant: nothing here measures, and nothing here looks at the terminal, the environment or the clock. A
//! figure that was not measured is shown as "–" or left out. Text that a server or a URL chose passes
//! [`plain::line`] before it is shown.

pub mod comparison;
pub mod csv;
pub mod doctor;
pub mod experiment;
pub mod hdr;
pub mod html;
pub mod plain;
pub mod progress;
pub mod ratio_condition;
pub mod sentences;
mod server_line;
pub mod style;
pub mod summary;
pub mod threshold;
pub mod why;

mod attempts;
mod beside;
mod changing;
mod driven;
mod elsewhere;
mod figures;
mod groups;
mod held;
mod ladder;
mod load_line;
mod logged;
mod outcomes;
mod page;
mod place;
mod sweep;
mod times_table;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod summary_tests;

pub use progress::Progress;
pub use ratio_condition::RatioCondition;
pub use style::{Paint, Style};
pub use threshold::Condition;
