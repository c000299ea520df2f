//! The native workloads.

use strum::{Display, EnumString, VariantNames};

/// An HTTP API that several systems implement, so that the systems can be compared on the same
/// work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum NativeWorkload {
    /// `GET /` returns `Hello World`.
    Hello,
    /// `GET /json` returns `{"message":"Hello, World!"}`.
    Json,
    /// `GET /dispatcher` returns the next number. Numbers start at 1, and each number occurs once.
    Dispatcher,
    /// `POST /scoring` adds a score, and returns the number, total and average of all scores.
    Scoring,
    /// `GET /bars` lists the bars in a store, and `POST /bars` adds one.
    Bars,
}

impl NativeWorkload {
    /// Names of all workloads, as used on the command line.
    pub const NAMES: &[&str] = Self::VARIANTS;

    /// Returns whether responses depend on earlier responses. If so, only one server may run.
    #[must_use]
    pub const fn has_state(self) -> bool {
        match self {
            NativeWorkload::Hello | NativeWorkload::Json => false,
            NativeWorkload::Dispatcher | NativeWorkload::Scoring | NativeWorkload::Bars => true,
        }
    }

    /// Returns the path of the workload.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            NativeWorkload::Hello => "/",
            NativeWorkload::Json => "/json",
            NativeWorkload::Dispatcher => "/dispatcher",
            NativeWorkload::Scoring => "/scoring",
            NativeWorkload::Bars => "/bars",
        }
    }

    /// Returns the methods that the workload supports, in the form of an `Allow` header.
    #[must_use]
    pub const fn methods(self) -> &'static str {
        match self {
            NativeWorkload::Scoring => "POST",
            NativeWorkload::Bars => "GET, HEAD, POST",
            _ => "GET, HEAD",
        }
    }
}
