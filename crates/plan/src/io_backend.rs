//! Chooses between the io_uring and epoll backends.

use floodmark_load::backend::uring::{self, Uring};
use floodmark_load::budget::Offer;
use floodmark_record::plan::{Backend, Plan};

use crate::spec::{BackendChoice, PlanSpec};

/// Returns the I/O backend for requests of at most `longest` bytes, and a notice if epoll replaces
/// io_uring. Records in `offer` where the io_uring backend keeps its sockets.
pub fn choose(
    spec: &PlanSpec,
    plan: &Plan,
    offer: &mut Offer,
    longest: usize,
) -> Result<(Backend, Option<String>), String> {
    if spec.backend == BackendChoice::Epoll {
        return Ok((Backend::Epoll, None));
    }
    let error = match Uring::probe(table(spec, plan, offer)) {
        Ok(able) => {
            offer.sockets = able.sockets(plan, longest);
            return Ok((Backend::Uring, None));
        }
        Err(error) => error,
    };
    let why = uring::unavailable(&error);
    if spec.backend == BackendChoice::Uring {
        return Err(format!(
            "{} uring: {why}, or use {} epoll",
            spec.name("backend"),
            spec.name("backend")
        ));
    }
    Ok((Backend::Epoll, Some(format!("using epoll: {why}"))))
}

/// Returns the socket table length to use when probing io_uring.
///
/// The table exceeds the limit on open files only if the plan may exceed this limit: with
/// `--anyway`, or in the open model, which opens only as many connections as needed.
fn table(spec: &PlanSpec, plan: &Plan, offer: &Offer) -> usize {
    let connections = spec.load.connections.unwrap_or(1);
    let longest = connections.div_ceil(plan.threads.into());
    let refused = !spec.anyway && (!plan.is_open() || plan.hold());
    if offer.fds.is_some_and(|fds| longest > fds) && !refused {
        longest as usize
    } else {
        1
    }
}
