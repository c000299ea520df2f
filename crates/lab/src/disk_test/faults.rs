//! The disk errors to inject, derived from a trace without errors.

use floodmark_disk::{DiskFault, FaultKind, FaultyCall, Trace};

/// Returns the faults with their names. Early calls fail during the start, later ones under load.
pub(super) fn faults(trace: &Trace) -> Vec<(String, DiskFault)> {
    let (syncs, writes) = (trace.syncs(), trace.writes());
    let (sync, write) = (FaultyCall::Sync, FaultyCall::Write);
    let (error, space) = (FaultKind::InputOutput, FaultKind::NoSpace);
    let mut faults = Vec::new();
    let mut add = |call, first: u64, total: u64, is_lasting, kind| {
        let fault = DiskFault {
            call,
            first,
            is_lasting,
            kind,
        };
        if (1..=total).contains(&first) && faults.iter().all(|(_, other)| *other != fault) {
            faults.push((name(&fault), fault));
        }
    };
    add(sync, 1, syncs, false, error);
    add(sync, syncs / 4, syncs, false, error);
    add(sync, syncs / 2, syncs, false, error);
    add(sync, syncs / 2 + 1, syncs, false, error);
    add(sync, syncs / 2, syncs, true, error);
    add(sync, syncs / 2, syncs, true, space);
    add(write, writes / 2, writes, false, error);
    add(write, writes / 2, writes, true, space);
    add(write, writes / 2, writes, false, FaultKind::Short);
    faults
}

fn name(fault: &DiskFault) -> String {
    let call = match fault.call {
        FaultyCall::Sync => "sync",
        FaultyCall::Write => "write",
    };
    let kind = match fault.kind {
        FaultKind::InputOutput => "EIO",
        FaultKind::NoSpace => "ENOSPC",
        FaultKind::Short => "short",
    };
    let from = if fault.is_lasting { "from " } else { "" };
    format!("{kind} {from}{call} {}", fault.first)
}

#[cfg(test)]
mod tests {
    use floodmark_disk::{FileId, Operation, TracedCall};

    use super::*;

    fn names(syncs: usize) -> Vec<String> {
        let operation = Operation::Sync {
            file: FileId::ROOT,
            succeeded: true,
        };
        let call = TracedCall {
            began: 1,
            ended: 2,
            operation,
        };
        let trace = Trace {
            calls: vec![call; syncs],
            ..Trace::default()
        };
        faults(&trace).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn every_fault_hits_a_call_and_differs() {
        assert_eq!(names(0), [""; 0]);
        assert_eq!(names(1), ["EIO sync 1"]);
        let of_many = [
            "EIO sync 1",
            "EIO sync 10",
            "EIO sync 20",
            "EIO sync 21",
            "EIO from sync 20",
            "ENOSPC from sync 20",
        ];
        assert_eq!(names(40), of_many);
    }
}
