//! A worker's own state, and the state that all workers share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use hyper::server::conn::http1;

use crate::bar_store::BarStore;
use crate::budget::ConnectionBudget;
use crate::commits::Commits;
use crate::error::ServeError;
use crate::handoff::Handoff;
use crate::numbers::Numbers;
use crate::pace::{ClockSteps, Register};
use crate::scores::SharedScores;
use crate::settings::Limits;
use crate::summary::ServeSummary;
use crate::workload::NativeWorkload;

/// State shared by all workers.
pub(crate) struct ServerState {
    pub(crate) workload: NativeWorkload,
    pub(crate) limits: Limits,
    pub(crate) budget: ConnectionBudget,
    /// Handoffs, one per worker.
    pub(crate) handoffs: Vec<Handoff>,
    pub(crate) numbers: Arc<Numbers>,
    /// Scores; only for `scoring`.
    pub(crate) scores: Option<SharedScores>,
    /// Queues of the store; only for `bars`.
    pub(crate) bars: Option<BarStore>,
    /// Called when the journal fails.
    pub(crate) on_failure: fn(&ServeError),
}

/// A thread of the server.
pub(crate) struct Worker {
    pub(crate) shared: Arc<ServerState>,
    pub(crate) register: Rc<Register>,
    pub(crate) http: http1::Builder,
    /// Responses that wait for the journal.
    pub(crate) commits: Commits,
    /// Index of the worker and of its handoff.
    pub(crate) number: usize,
    /// Time at which the shutdown began. Each later response is the last on its connection.
    pub(crate) stopping_since: Cell<Option<ClockSteps>>,
    /// Totals so far.
    pub(crate) totals: RefCell<ServeSummary>,
}

impl Worker {
    /// Returns whether the server is shutting down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping_since.get().is_some()
    }

    /// Stops counting a connection toward the limit.
    pub(crate) fn release(&self) {
        self.shared.budget.release();
        self.handoff().release();
    }

    pub(crate) fn handoff(&self) -> &Handoff {
        &self.shared.handoffs[self.number]
    }
}
