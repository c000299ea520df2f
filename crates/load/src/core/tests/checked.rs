//! Tests of the operations that are kept for a check of an API, in a simulated world.

use std::collections::BTreeSet;
use std::time::Duration;

use floodmark_record::Counts;
use floodmark_record::events::Phase;
use floodmark_record::kept::KEPT_BYTES;
use floodmark_record::operation::{KeptOperation, OperationKind, key_of};
use floodmark_record::plan::{Arrivals, ConnectionUse, Plan};
use proptest::prelude::*;

use super::lab::Lab;
use super::world::World;
use super::{Core, MS, by_hand, connect, plans, response};
use crate::clock::Ns;
use crate::testing::{checked, open_plan, with_mix};

/// Number of keys.
const KEYS: u64 = 5;

/// Returns the operations that a core kept.
fn kept(core: &Core) -> Vec<KeptOperation> {
    let mut bytes = Vec::new();
    core.responses.write(None, &mut bytes).unwrap();
    let (triples, rest) = bytes.as_chunks::<KEPT_BYTES>();
    assert!(rest.is_empty());
    let words = triples.iter().map(|triple| {
        let (words, _) = triple.as_chunks::<8>();
        [words[0], words[1], words[2]].map(u64::from_le_bytes)
    });
    words.map(KeptOperation).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn keeps_every_write_once(
        plan in plans(),
        seed in any::<u64>(),
        hostile in any::<bool>(),
        dies_after in prop::option::of(0u64..1_000_000_000),
        interrupt in prop::option::of(0u64..500_000_000),
        holds_back in any::<bool>(),
    ) {
        let plan = Plan { warmup: Duration::ZERO, ..checked(with_mix(plan, &[2, 1]), KEYS) };
        let mut world = World::new(seed, hostile);
        world.holds_back = holds_back;
        world.dead_from = dies_after.map_or(Ns::MAX, |after| world.now + after);
        let mut lab = Lab::new(&plan);
        lab.prepare(&mut world);
        lab.phase(&mut world, &plan, Phase::Measure, interrupt);
        let mut of_writes = Counts::default();
        lab.rows.iter().filter_map(|row| row.groups.first()).for_each(|row| of_writes.merge(&row.counts));
        let kept = kept(&lab.core);
        let writes = kept.iter().filter(|o| !matches!(o.kind(), OperationKind::Read | OperationKind::ReadNothing));
        let mut numbers = BTreeSet::new();
        for write in writes.clone() {
            prop_assert!(numbers.insert(write.value()), "write {} is kept twice", write.value());
            prop_assert_eq!(write.key(), key_of(write.value(), KEYS));
        }
        prop_assert_eq!(numbers.len() as u64, of_writes.sent);
        // An HTTP/2 server may say that it did not process a write, which is then sent again.
        let is_http2 = lab.core.is_http2();
        prop_assert!(is_http2 || of_writes.reconnects == 0, "a write is sent once");
        let acknowledged = writes.filter(|o| o.kind() == OperationKind::Acknowledged).count() as u64;
        prop_assert_eq!(acknowledged, of_writes.ok);
        let reads = kept.iter().filter(|o| o.kind() == OperationKind::Read);
        prop_assert!(reads.clone().all(|read| read.value() == 12345), "the world's responses");
    }
}

/// A retransmitted SYN may reach a server that was restarted after the connect started.
#[test]
fn a_fresh_connection_sends_its_request_once_it_is_established() {
    let plan = Plan {
        connection_use: ConnectionUse::Fresh,
        ..open_plan(Arrivals::Constant, 1.0, None, Some(1))
    };
    let (mut lab, start) = by_hand(&checked(with_mix(plan, &[1]), KEYS));
    connect(&mut lab.core, start + 100 * MS);
    response(&mut lab.core, start + 101 * MS);
    let kept = kept(&lab.core);
    let times = kept.iter().map(|one| (one.sent_ns(), one.done_ns()));
    assert!(times.eq([(start + 100 * MS, start + 101 * MS)]), "{kept:?}");
}
