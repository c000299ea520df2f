//! Values for tests.

use floodmark_record::WorkerEnd;

/// Returns the end of a worker that sent no request.
pub(crate) fn worker_end() -> WorkerEnd {
    WorkerEnd {
        next_number: 1,
        ..WorkerEnd::default()
    }
}
