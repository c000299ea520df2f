//! Prints how long each API check takes for 10 million operations, and how much memory the check
//! needs in addition to the operations.
//!
//! ```sh
//! cargo run --release -p floodmark-check --example ten_million
//! ```

use std::error::Error;
use std::time::Instant;

use floodmark_check::{FoundItems, check_api};
use floodmark_record::api_check::{ApiCheck, ApiCheckKind};
use floodmark_record::operation::{KeptOperation, OperationKind, key_of};

const OPERATIONS: u64 = 10_000_000;

/// Number of operations in flight.
const IN_FLIGHT: u64 = 100;

/// Time between two operations, in ns.
const GAP_NS: u64 = 10_000;

/// Returns the history of a correct server in the order of the responses. Every `reads`-th
/// operation is a write; the others are reads.
fn history(keys: u64, reads: u64, is_counter: bool) -> Vec<KeptOperation> {
    let mut values = vec![0; keys as usize + 1];
    let operation = |number| {
        let key = key_of(number, keys);
        let value = &mut values[key as usize];
        let is_write = number % reads == 0;
        if is_write {
            *value = if is_counter { *value + 1 } else { number };
        }
        let kind = match (is_write, *value) {
            (true, _) => OperationKind::Acknowledged,
            (false, 0) => OperationKind::ReadNothing,
            (false, _) => OperationKind::Read,
        };
        // An operation takes effect between being sent and being answered.
        let now = (number + IN_FLIGHT) * GAP_NS;
        let before = key_of(number, IN_FLIGHT * GAP_NS);
        KeptOperation::new(
            kind,
            key,
            *value,
            now - before,
            now + IN_FLIGHT * GAP_NS - before,
        )
    };
    (1..=OPERATIONS).map(operation).collect()
}

/// Returns the peak memory use of this process, in MB.
fn peak_mb() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.ok_or("no VmHWM")?.trim().trim_end_matches(" kB");
    Ok(kib.parse::<f64>()? * 1024.0 / 1e6)
}

fn measure(
    name: &str,
    kind: ApiCheckKind,
    mut operations: Vec<KeptOperation>,
) -> Result<(), Box<dyn Error>> {
    let api = ApiCheck {
        kind,
        keys: 1,
        write_value: (kind == ApiCheckKind::Counter).then(Default::default),
        read_value: None,
        readback: None,
        value_places: Vec::new(),
    };
    // Each load thread writes its operations as one block, and a server may return items in any
    // order, so shuffle both.
    for i in (1..operations.len()).rev() {
        operations.swap(i, key_of(i as u64, i as u64 + 1) as usize - 1);
    }
    let mut found = FoundItems {
        numbers: operations.iter().rev().map(KeptOperation::value).collect(),
        unreadable: 0,
    };
    // Writing 5 resets the peak to the current value (proc(5)).
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = peak_mb()?;
    let begin = Instant::now();
    let result = check_api(&api, &mut operations, &mut found, 0);
    let seconds = begin.elapsed().as_secs_f64();
    let memory = peak_mb()? - before;
    println!(
        "{name:<29} {seconds:.2} s  {memory:3.0} MB  {}",
        result.detail
    );
    assert_eq!(result.held, Some(true));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    measure("set", ApiCheckKind::Set, history(1, 1, false))?;
    for (name, keys) in [
        ("1 key", 1),
        ("1,000 keys", 1_000),
        ("1,000,000 keys", 1_000_000),
    ] {
        let register = history(keys, 5, false);
        measure(
            &format!("register, {name}"),
            ApiCheckKind::Register,
            register,
        )?;
        let counter = history(keys, 2, true);
        measure(&format!("counter, {name}"), ApiCheckKind::Counter, counter)?;
    }
    measure("register, 1 key, only writes", ApiCheckKind::Register, {
        let mut writes = history(1, 1, false);
        let last = writes[writes.len() - 1];
        let sent = last.done_ns() + 1;
        writes.push(KeptOperation::new(
            OperationKind::Read,
            1,
            last.value(),
            sent,
            sent + 1,
        ));
        writes
    })
}
