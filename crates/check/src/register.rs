//! The `register` check: reads and writes of each key must be linearizable.
//!
//! A history is *linearizable* if each operation takes effect at one moment between being sent and
//! being answered (Herlihy & Wing 1990, "Linearizability", ACM TOPLAS 12(3)). Linearizability is
//! local, so each key is checked separately.
//!
//! Every write has a value of its own, so it is known which write a read observed. A write and its
//! reads form a *cluster*. Let `first_done` be the time at which the first operation of a cluster
//! was answered, and `last_sent` the time at which its last operation was sent. A cluster whose
//! `first_done` is before `last_sent` is *forward*: its value must be present all that time. Any
//! other cluster is *backward*: its value can be present for a moment between `last_sent` and
//! `first_done`. A history is linearizable if and only if
//!
//! 1. each value that was read had been written: the read was not answered before the write was
//!    sent;
//! 2. no two forward zones overlap;
//! 3. no backward zone is inside a forward zone.
//!
//! (Gibbons & Korach 1997, "Testing Shared Memories", SIAM J. Comput. 26(4), section 4.) Sorting
//! dominates the cost: O(n log n). Two operations overlap if one is sent in the same nanosecond in
//! which the other is answered.
//!
//! A write with an unknown outcome may take effect at any time after it was sent, or never. If no
//! read returned its value, it proves nothing. A value that was present before the first write of a
//! key belongs to a write before all operations.
//!
//! The check has no false positives and misses no violation.

use floodmark_record::operation::{KeptOperation, OperationKind};
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::result::{count, history, result};

/// Checks the reads and writes of all keys. The operations may be in any order.
///
/// The check sorts the operations in place. In addition, it needs memory for the clusters of one
/// key. The check is not evaluated if no read returned a result.
pub fn register(operations: &mut [KeptOperation]) -> CheckResult {
    // Equal operations are interchangeable, so the unstable sort is deterministic.
    operations.sort_unstable_by_key(|o| (o.key(), content(o), o.0));
    let (mut keys, mut faulty) = (0, 0);
    let mut first: Option<(RegisterFault, &[KeptOperation])> = None;
    let mut clusters = Vec::new();
    for of_key in operations.chunk_by(|a, b| a.key() == b.key()) {
        keys += 1;
        let Some(fault) = fault_of_key(of_key, &mut clusters) else {
            continue;
        };
        faulty += 1;
        if first
            .as_ref()
            .is_none_or(|(first, _)| fault.at_ns < first.at_ns)
        {
            first = Some((fault, of_key));
        }
    }
    let n = |kinds: &[OperationKind]| {
        let of_kind = operations.iter().filter(|o| kinds.contains(&o.kind()));
        of_kind.count() as u64
    };
    let reads = n(&[OperationKind::Read, OperationKind::ReadNothing]);
    let violation = first.map(|(fault, of_key)| {
        let of_keys = count(keys, "key is", "keys are");
        let detail = format!(
            "{} of {of_keys} not linearizable; first violation: key {}: {}",
            show_count(faulty),
            show_count(of_key[0].key()),
            fault.what
        );
        (detail, history(of_key, &fault.marked, |_| "write"))
    });
    let nothing = (reads == 0).then_some("no read returned a value");
    result("register", violation, nothing, || {
        let unknown = n(&[OperationKind::Unknown]);
        let writes = unknown + n(&[OperationKind::Acknowledged]);
        let unknown = match unknown {
            0 => String::new(),
            n => format!(" ({} with an unknown outcome)", show_count(n)),
        };
        format!(
            "{} and {}{unknown} of {}: linearizable",
            count(reads, "read", "reads"),
            count(writes, "write", "writes"),
            count(keys, "key", "keys")
        )
    })
}

/// A violation in the history of one key.
struct RegisterFault {
    what: String,
    /// Time by which the violation is certain, in ns.
    at_ns: u64,
    /// Operations that prove the violation.
    marked: Vec<KeptOperation>,
}

/// Returns the value that was read or written; `None` for no value.
fn content(operation: &KeptOperation) -> Option<u64> {
    (operation.kind() != OperationKind::ReadNothing).then(|| operation.value())
}

fn show(content: Option<u64>) -> String {
    content.map_or_else(|| "no value".to_owned(), show_count)
}

/// A write and its reads.
#[derive(Clone, Copy)]
struct Cluster<'a> {
    operations: &'a [KeptOperation],
    /// The write. `None` if the value was present before the first operation.
    write: Option<&'a KeptOperation>,
    /// `None` for the time before all operations.
    first_done: Option<u64>,
    last_sent: u64,
}

impl<'a> Cluster<'a> {
    /// Returns the cluster of all operations on a key with the same value.
    fn of(operations: &'a [KeptOperation]) -> Self {
        let write = operations.iter().find(|o| !o.kind().is_read());
        // The outcome of a write without a response is known only from its reads.
        let ended = operations
            .iter()
            .filter(|o| o.kind().is_read() || o.kind() == OperationKind::Acknowledged);
        Cluster {
            operations,
            write,
            first_done: ended.map(KeptOperation::done_ns).min().or(Some(u64::MAX)),
            last_sent: operations
                .iter()
                .map(KeptOperation::sent_ns)
                .max()
                .unwrap_or(0),
        }
    }

    /// Returns whether something is known of the cluster. A write with an unknown outcome that no
    /// read returned can be left out.
    fn is_known(&self) -> bool {
        self.first_done < Some(u64::MAX)
    }

    fn content(&self) -> Option<u64> {
        content(&self.operations[0])
    }

    fn reads(&self) -> impl Iterator<Item = &'a KeptOperation> {
        self.operations.iter().filter(|o| o.kind().is_read())
    }

    fn is_forward(&self) -> bool {
        self.first_done < Some(self.last_sent)
    }

    /// Returns the write, the operation that was answered first, and the one that was sent last.
    fn bounds(&self) -> impl Iterator<Item = KeptOperation> {
        let first = self
            .operations
            .iter()
            .find(|o| Some(o.done_ns()) == self.first_done);
        let last = self
            .operations
            .iter()
            .find(|o| o.sent_ns() == self.last_sent);
        self.write.into_iter().chain(first).chain(last).copied()
    }
}

/// Returns the first violation in the history of a key, sorted by value. `clusters` is emptied
/// first, and saves an allocation per key.
fn fault_of_key<'a>(
    operations: &'a [KeptOperation],
    clusters: &mut Vec<Cluster<'a>>,
) -> Option<RegisterFault> {
    clusters.clear();
    let all = operations.chunk_by(|a, b| content(a) == content(b));
    clusters.extend(all.map(Cluster::of).filter(Cluster::is_known));
    let initial = set_initial(clusters);
    let unsound = clusters
        .iter()
        .filter_map(|cluster| unsound(cluster, initial));
    if let Some(fault) = unsound.min_by_key(|fault| fault.at_ns) {
        return Some(fault);
    }
    misordered(clusters)
}

/// Finds the value that was present before the first operation, and sets its first time.
/// Returns the value; the inner `None` is the absence of a value.
fn set_initial(clusters: &mut [Cluster<'_>]) -> Option<Option<u64>> {
    // If a read found no value, the key had no value before.
    let unwritten = clusters
        .iter_mut()
        .filter(|cluster| cluster.write.is_none());
    let initial =
        unwritten.min_by_key(|cluster| (cluster.content().is_some(), cluster.first_done))?;
    initial.first_done = None;
    Some(initial.content())
}

/// Returns a read of a value that was not written before.
fn unsound(cluster: &Cluster<'_>, initial: Option<Option<u64>>) -> Option<RegisterFault> {
    let value = show(cluster.content());
    let first = cluster.reads().min_by_key(|read| read.done_ns())?;
    let (what, write) = match cluster.write {
        None if initial == Some(cluster.content()) => return None,
        None => (
            format!(
                "a read returned {value}, which was neither present at the start nor written to this key"
            ),
            None,
        ),
        Some(write) if write.kind() == OperationKind::Refused => (
            format!("a read returned {value}, but the server had refused to write {value}"),
            Some(write),
        ),
        Some(write) if first.done_ns() < write.sent_ns() => {
            let early = (write.sent_ns() - first.done_ns()) as f64 / 1e6;
            (
                format!(
                    "a read returned {value}, but that value was sent {early:.3} ms later; if the registers contain \
                     values from an earlier run, remove them and repeat the run"
                ),
                Some(write),
            )
        }
        Some(_) => return None,
    };
    Some(RegisterFault {
        what,
        at_ns: first.done_ns(),
        marked: write.into_iter().chain([first]).copied().collect(),
    })
}

/// Returns the first pair of clusters that cannot be ordered, if there is one.
fn misordered(clusters: &mut [Cluster<'_>]) -> Option<RegisterFault> {
    clusters.sort_unstable_by_key(|cluster| (!cluster.is_forward(), cluster.first_done));
    let forward = clusters.partition_point(Cluster::is_forward);
    let (forward, backward) = clusters.split_at(forward);
    let overlapping = forward.windows(2).map(|pair| (&pair[0], &pair[1]));
    let overlapping = overlapping.filter(|(a, b)| b.first_done < Some(a.last_sent));
    // If no forward zones overlap, only the last one that begins before a backward zone can contain
    // it. If some overlap, a violation has been found anyway.
    let enclosed = backward.iter().filter_map(|inner| {
        let place = forward.partition_point(|outer| outer.first_done < Some(inner.last_sent));
        let outer = &forward[place.checked_sub(1)?];
        (inner.first_done < Some(outer.last_sent)).then_some((outer, inner))
    });
    let pairs = overlapping.chain(enclosed).map(|(a, b)| {
        if a.last_sent > b.last_sent {
            (a, b)
        } else {
            (b, a)
        }
    });
    let (stale, newer) = pairs.min_by_key(|(stale, _)| stale.last_sent)?;
    Some(RegisterFault {
        what: format!(
            "a read returned {} after {} had replaced it",
            show(stale.content()),
            show(newer.content())
        ),
        at_ns: stale.last_sent,
        marked: stale.bounds().chain(newer.bounds()).collect(),
    })
}

#[cfg(test)]
#[path = "register_tests.rs"]
mod tests;
