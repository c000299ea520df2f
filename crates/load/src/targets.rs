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

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use floodmark_record::events::AddressUse;
use floodmark_record::plan::{Address, Plan, Sources};

use crate::backend::Route;
use crate::failure::ConnectFailure;

/// One thread's view of a target's addresses.
#[derive(Debug)]
pub(crate) struct Targets {
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
    usage: AddressUse,
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
                usage: AddressUse {
                    address,
                    opened: 0,
                    moved: 0,
                    left_out: None,
                },
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

    /// Returns the use of each address.
    pub fn uses(&self) -> Vec<AddressUse> {
        self.places
            .iter()
            .map(|place| place.usage.clone())
            .collect()
    }

    /// Records that a connection to a target succeeded.
    pub fn reached(&mut self, target: u32) {
        let place = &mut self.places[target as usize];
        place.usage.opened += 1;
        if place.standing != Standing::Reached {
            place.standing = Standing::Reached;
            place.usage.left_out = None;
            self.reached += 1;
        }
    }

    /// Records that a connection to a target failed.
    /// Returns whether to retry the connection at another address. This is the case if no
    /// connection to this address has ever succeeded and another address may work.
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
        place.usage.moved += 1;
        let reason = || failure.name.to_owned();
        place.usage.left_out.get_or_insert_with(reason);
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

/// Cycles through a range of addresses.
#[derive(Debug, Clone)]
struct SourceCycle {
    first: IpAddr,
    count: u128,
    next: u128,
    stride: u128,
}

impl SourceCycle {
    /// Creates the cycle for thread `thread` of `threads`.
    /// If there are fewer addresses than threads, threads share addresses.
    pub fn new(sources: Sources, thread: u32, threads: u32) -> Self {
        SourceCycle {
            first: sources.first,
            count: sources.count(),
            next: u128::from(thread),
            stride: u128::from(threads.max(1)),
        }
    }

    /// Returns the next address.
    pub fn take(&mut self) -> IpAddr {
        let at = self.next % self.count;
        self.next = self.next.wrapping_add(self.stride);
        nth(self.first, at)
    }
}

/// Returns the address `n` places after `first`.
fn nth(first: IpAddr, n: u128) -> IpAddr {
    match first {
        IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() + n as u32)),
        IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() + n)),
    }
}

/// Returns the first address in `sources` from which this host cannot send.
/// The error explains why no socket can be bound to that address.
#[must_use]
pub fn unusable(sources: Sources) -> Option<(IpAddr, io::Error)> {
    (0..sources.count())
        .map(|n| nth(sources.first, n))
        .find_map(|address| Some((address, UdpSocket::bind((address, 0)).err()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure;
    use crate::testing::closed_plan;
    use floodmark_record::plan::{Sources, Target};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::net::{IpAddr, SocketAddr};

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
        let uses = targets.uses();
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
        let mut uses = threads[0].uses();
        let others = threads[1].uses();
        uses.iter_mut()
            .zip(&others)
            .for_each(|(all, one)| all.merge(one));
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

    fn range(first: &str, last: &str) -> Sources {
        Sources {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
        }
    }

    #[test]
    fn threads_together_use_every_address() {
        let sources = range("127.0.0.2", "127.0.0.6");
        assert_eq!(sources.count(), 5);
        let mut seen: Vec<IpAddr> = (0..2)
            .flat_map(|t| {
                let mut cycle = SourceCycle::new(sources, t, 2);
                (0..5).map(move |_| cycle.take()).collect::<Vec<_>>()
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 5);
    }

    #[test]
    fn finds_unusable_source_addresses() {
        assert!(unusable(range("127.0.0.2", "127.0.0.6")).is_none());
        // 192.0.2.0/24 is reserved for documentation (RFC 5737).
        let (address, error) = unusable(range("192.0.2.7", "192.0.2.9")).unwrap();
        assert_eq!(address.to_string(), "192.0.2.7");
        assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
    }

    #[test]
    fn reversed_and_mixed_ranges_are_empty() {
        assert_eq!(range("127.0.0.9", "127.0.0.2").count(), 0);
        assert_eq!(range("127.0.0.9", "::1").count(), 0);
        assert_eq!(range("::1", "::3").count(), 3);
    }
}
