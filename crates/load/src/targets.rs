//! The addresses of a target. Connections use them in turn, each with the next source address.
//!
//! ```text
//! untried ──► on trial ──► reached        used in turn; a failure there is a failed connect
//!       ▲        │  └────► left out       never used again, unless it is the last address
//!       └────────┘                        inconclusive: this process lacked a resource, or the attempt was abandoned
//! ```
//!
//! Once another address has been reached, an address on trial gets no second connection. If an
//! address has no server, which is common for `localhost`, only the trial connection fails. That
//! connection is retried at the next address.
//!
//! RFC 8305 (section 5) would start a parallel attempt after 250 ms. floodmark waits for its own
//! timeout or the operating system's, because two handshakes per connection would distort the
//! server's connection count.

use floodmark_record::events::AddressUse;
use floodmark_record::plan::{Address, Plan};

use crate::backend::Route;
use crate::failure::ConnectFailure;
use crate::sources::SourceCycle;

/// One thread's view of a target's addresses.
#[derive(Debug)]
pub struct Targets {
    places: Vec<TargetState>,
    next: usize,
    /// Number of reached addresses.
    reached: usize,
}

/// The state of one address.
#[derive(Debug)]
struct TargetState {
    standing: Standing,
    /// The cycle of source addresses. Each target address cycles through all sources, because every
    /// pair of a source and a target has its own ports.
    sources: Option<SourceCycle>,
    opened: u64,
    moved: u64,
    why: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Untried,
    OnTrial,
    Reached,
    LeftOut,
}

impl Targets {
    /// Creates the state of a plan's addresses. Each thread starts with a different address.
    #[must_use]
    pub fn new(plan: &Plan, thread: u32, threads: u32) -> Self {
        let sources = |address: &Address| {
            let sources = plan.sources?;
            let same_family = address.ip()?.is_ipv4() == sources.first.is_ipv4();
            same_family.then(|| SourceCycle::new(sources, thread, threads))
        };
        let places: Vec<TargetState> = plan
            .target
            .addresses()
            .map(|address| TargetState {
                standing: Standing::Untried,
                sources: sources(&address),
                opened: 0,
                moved: 0,
                why: None,
            })
            .collect();
        Targets {
            next: thread as usize % places.len(),
            places,
            reached: 0,
        }
    }

    /// Returns the route for the next connection.
    pub fn take(&mut self) -> Route {
        let (n, reached) = (self.places.len(), self.reached > 0);
        let usable = |place: &TargetState| match place.standing {
            Standing::Untried | Standing::Reached => true,
            Standing::OnTrial => !reached,
            Standing::LeftOut => false,
        };
        // The last address is never left out, so the search always finds one.
        let target = (self.next..self.next + n)
            .map(|at| at % n)
            .find(|at| usable(&self.places[*at]))
            .unwrap_or(self.next);
        self.next = (target + 1) % n;
        let place = &mut self.places[target];
        if place.standing == Standing::Untried {
            place.standing = Standing::OnTrial;
        }
        Route {
            target: target as u32,
            source: place.sources.as_mut().map(SourceCycle::take),
        }
    }

    /// Records that a connection to a target succeeded.
    pub fn reached(&mut self, target: u32) {
        let place = &mut self.places[target as usize];
        place.opened += 1;
        if place.standing != Standing::Reached {
            place.standing = Standing::Reached;
            self.reached += 1;
        }
    }

    /// Records that a connection to a target failed.
    /// Returns whether the connection should be retried at another address, because no connection to
    /// this address has ever succeeded and the failure is one of the address.
    pub fn failed(&mut self, target: u32, failure: ConnectFailure) -> bool {
        let at = target as usize;
        let left = self
            .places
            .iter()
            .filter(|place| place.standing != Standing::LeftOut)
            .count();
        match self.places[at].standing {
            Standing::Reached => return false,
            Standing::LeftOut if !failure.of_address => return false,
            Standing::LeftOut => {}
            _ if left == 1 || !failure.of_address => {
                self.given_up(target);
                return false;
            }
            _ => {}
        }
        let place = &mut self.places[at];
        place.standing = Standing::LeftOut;
        place.moved += 1;
        place.why.get_or_insert(failure.name);
        true
    }

    /// Records that a connection attempt ended without showing whether the address works.
    /// If the address was on trial, the next connection to it becomes the trial.
    pub fn given_up(&mut self, target: u32) {
        let place = &mut self.places[target as usize];
        if place.standing == Standing::OnTrial {
            place.standing = Standing::Untried;
        }
    }
}

/// Combines the results of all threads for each address.
/// An address that any thread reached does not count as left out.
pub fn uses<'a>(plan: &Plan, threads: impl Iterator<Item = &'a Targets>) -> Vec<AddressUse> {
    let unused = |address| AddressUse {
        address,
        opened: 0,
        moved: 0,
        left_out: None,
    };
    let mut uses: Vec<AddressUse> = plan.target.addresses().map(unused).collect();
    for targets in threads {
        for (all, place) in uses.iter_mut().zip(&targets.places) {
            all.opened += place.opened;
            all.moved += place.moved;
            if let Some(why) = place.why {
                all.left_out.get_or_insert(why.to_owned());
            }
        }
    }
    for reached in uses.iter_mut().filter(|one| one.opened > 0) {
        reached.left_out = None;
    }
    uses
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{IpAddr, SocketAddr};

    use floodmark_record::plan::{Sources, Target};
    use proptest::prelude::*;

    use super::*;
    use crate::failure;
    use crate::testing::closed_plan;

    fn plan(addresses: u8) -> Plan {
        let address = |i| SocketAddr::from(([127, 0, 1, i], 80));
        Plan {
            target: Target {
                further_addresses: (1..addresses).map(address).collect(),
                ..address(0).into()
            },
            ..closed_plan(1, 1)
        }
    }

    fn refused() -> ConnectFailure {
        failure::connect(&std::io::Error::from_raw_os_error(libc::ECONNREFUSED))
    }

    fn turns(targets: &mut Targets, n: usize) -> Vec<u32> {
        (0..n).map(|_| targets.take().target).collect()
    }

    #[test]
    fn uses_addresses_in_turn_from_a_different_start_per_thread() {
        let mut targets = Targets::new(&plan(3), 1, 4);
        assert_eq!(turns(&mut targets, 4), [1, 2, 0, 1]);
        (0..3).for_each(|target| targets.reached(target));
        assert_eq!(turns(&mut targets, 4), [2, 0, 1, 2]);
        assert!(
            !targets.failed(0, refused()),
            "a reached address stays in use"
        );
        assert_eq!(turns(&mut targets, 3), [0, 1, 2]);
    }

    #[test]
    fn an_unserved_address_costs_one_connection() {
        let mut targets = Targets::new(&plan(2), 0, 1);
        assert_eq!(turns(&mut targets, 2), [0, 1]);
        targets.reached(1);
        assert_eq!(turns(&mut targets, 3), [1, 1, 1], "0 is on trial");
        assert!(targets.failed(0, refused()));
        assert_eq!(turns(&mut targets, 3), [1, 1, 1]);
        let uses = uses(&plan(2), [&targets].into_iter());
        assert_eq!((uses[0].opened, uses[0].moved), (0, 1));
        assert_eq!(uses[0].left_out.as_deref(), Some("connect_refused"));
        assert_eq!((uses[1].opened, uses[1].moved), (1, 0));
        assert_eq!(uses[1].left_out, None);
    }

    #[test]
    fn never_excludes_the_last_address() {
        let mut targets = Targets::new(&plan(1), 0, 1);
        assert_eq!(turns(&mut targets, 2), [0, 0]);
        assert!(!targets.failed(0, refused()));
        let mut targets = Targets::new(&plan(2), 0, 1);
        assert!(targets.failed(1, refused()));
        assert!(!targets.failed(0, refused()));
        assert!(targets.failed(1, refused()), "another address is left");
        assert_eq!(turns(&mut targets, 3), [0, 0, 0]);
    }

    #[test]
    fn local_shortages_do_not_exclude_an_address() {
        let mut targets = Targets::new(&plan(2), 0, 1);
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            let failure = failure::connect(&std::io::Error::from_raw_os_error(errno));
            assert!(!targets.failed(0, failure), "{}", failure.name);
        }
        // Hosts without IPv6 report these errors for ::1.
        for errno in [libc::EADDRNOTAVAIL, libc::EAFNOSUPPORT, libc::ENETUNREACH] {
            let mut targets = Targets::new(&plan(2), 0, 1);
            let failure = failure::connect(&std::io::Error::from_raw_os_error(errno));
            assert!(targets.failed(0, failure), "{}", failure.name);
        }
    }

    #[test]
    fn repeats_an_inconclusive_trial() {
        let lacking = failure::connect(&std::io::Error::from_raw_os_error(libc::EMFILE));
        let ends: [fn(&mut Targets, ConnectFailure); 2] = [
            |targets, lacking| assert!(!targets.failed(0, lacking)),
            |targets, _| targets.given_up(0),
        ];
        for end in ends {
            let mut targets = Targets::new(&plan(2), 0, 1);
            assert_eq!(turns(&mut targets, 2), [0, 1]);
            targets.reached(1);
            end(&mut targets, lacking);
            assert_eq!(turns(&mut targets, 3), [0, 1, 1], "one more trial");
            targets.reached(0);
            end(&mut targets, lacking);
            assert_eq!(turns(&mut targets, 2), [0, 1], "a reached address stays");
        }
    }

    #[test]
    fn keeps_an_address_that_one_thread_reached() {
        let mut threads = [Targets::new(&plan(2), 0, 2), Targets::new(&plan(2), 1, 2)];
        threads[0].failed(0, refused());
        threads[0].reached(1);
        threads[1].reached(0);
        let uses = uses(&plan(2), threads.iter());
        assert_eq!((uses[0].opened, uses[0].moved), (1, 1));
        assert_eq!(uses[0].left_out, None);
    }

    proptest! {
        #[test]
        fn pairs_each_target_with_each_source(targets in 1u8..6, sources in 1u8..6, threads in 1u32..5) {
            let plan = Plan {
                sources: Some(Sources {
                    first: IpAddr::from([127, 0, 0, 1]),
                    last: IpAddr::from([127, 0, 0, sources]),
                }),
                ..plan(targets)
            };
            let pairs: BTreeSet<(u32, Option<IpAddr>)> = (0..threads)
                .flat_map(|thread| {
                    let mut turn = Targets::new(&plan, thread, threads);
                    let n = usize::from(targets) * usize::from(sources);
                    (0..n).map(|_| turn.take()).map(|r| (r.target, r.source)).collect::<Vec<_>>()
                })
                .collect();
            prop_assert_eq!(pairs.len(), usize::from(targets) * usize::from(sources));
        }

        #[test]
        fn never_returns_an_excluded_target(
            n in 1u8..5,
            happenings in proptest::collection::vec((0u32..5, proptest::bool::ANY), 0..40),
        ) {
            let plan = plan(n);
            let mut targets = Targets::new(&plan, 0, 1);
            for (target, good) in happenings {
                let target = target % u32::from(n);
                if good {
                    targets.reached(target);
                } else {
                    targets.failed(target, refused());
                }
                let given = targets.take().target as usize;
                prop_assert!(targets.places[given].standing != Standing::LeftOut);
            }
        }
    }
}
