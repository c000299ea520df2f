//! Which backend drives the sockets, and where they live.

use floodmark_load::backend::uring::{self, Uring};
use floodmark_load::budget::Offer;
use floodmark_record::plan::{Backend, Model, Plan};

use super::args::{self, LoadArgs};
use crate::exit::Ending;

/// The backend to use for requests of at most `longest` bytes, with a notice where it is not the best; where its sockets live is noted in
/// `offer`.
pub fn choose(
    args: &LoadArgs,
    plan: &Plan,
    offer: &mut Offer,
    longest: usize,
) -> Result<(Backend, Option<String>), Ending> {
    if args.backend == args::Backend::Epoll {
        return Ok((Backend::Epoll, None));
    }
    let error = match Uring::probe(table(args, plan, offer)) {
        Ok(able) => {
            offer.sockets = able.sockets(plan, longest);
            return Ok((Backend::Uring, None));
        }
        Err(error) => error,
    };
    let why = uring::unavailable(&error);
    if args.backend == args::Backend::Uring {
        return Err(Ending::usage(format!(
            "--backend uring: {why}, or use --backend epoll"
        )));
    }
    Ok((Backend::Epoll, Some(format!("epoll is used: {why}"))))
}

/// How long a table of sockets to try. One that is longer than allowed must be found out here where the run is not refused for it:
/// because it is to be tried anyway, or because the open model has only as many connections as it takes.
fn table(args: &LoadArgs, plan: &Plan, offer: &Offer) -> usize {
    let longest = args.connections.unwrap_or(1).div_ceil(plan.threads.into());
    let refused = !args.anyway && (plan.model == Model::Closed || plan.hold);
    if offer.fds.is_some_and(|fds| longest > fds) && !refused {
        longest as usize
    } else {
        1
    }
}
