//! The `set` check: at the end, every acknowledged item is found exactly once, and no unexpected
//! item is found.
//!
//! Each request inserts an item with a unique number. After the attempt, all items are read back.
//! The item of an insert with an unknown outcome may or may not be found. The item of a refused
//! insert must not be found.

use floodmark_record::kept::SHOWN;
use floodmark_record::operation::{KeptOperation, OperationKind};
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::result::{count, fault, history, joined, result};

/// The items that were read back after an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundItems {
    /// The items' numbers, in any order.
    pub numbers: Vec<u64>,
    /// Number of items without an integer.
    pub unreadable: u64,
}

impl FoundItems {
    /// Returns the number of items.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.numbers.len() as u64 + self.unreadable
    }
}

/// Compares all inserts of a process with the items that were found.
///
/// The check sorts both in place, which takes O(n log n) time and O(1) extra memory. It is
/// not evaluated if there are no inserts.
pub fn set(inserts: &mut [KeptOperation], found: &mut FoundItems) -> CheckResult {
    inserts.sort_unstable_by_key(|insert| (insert.value(), insert.0));
    found.numbers.sort_unstable();
    let scan = SetScan::of(inserts, &found.numbers);
    let mut faults = scan.faults();
    if found.unreadable > 0 {
        let [one, many] = ["item that was found has", "items that were found have"];
        faults.push(format!("{} no integer", count(found.unreadable, one, many)));
    }
    let violation = joined(&faults).map(|detail| {
        let first = scan.first.as_slice();
        (detail, history(inserts, first, |_| "insert"))
    });
    let nothing = inserts.is_empty().then_some("no item was inserted");
    result("set", violation, nothing, || scan.success())
}

/// Result of merging inserts and items.
#[derive(Default)]
struct SetScan {
    acknowledged: u64,
    unknown: u64,
    /// Number of inserts with an unknown outcome whose item was found.
    unknown_found: u64,
    /// Acknowledged inserts whose item was not found.
    lost: ItemNumbers,
    /// Items that were found more than once.
    repeated: ItemNumbers,
    /// Items that were found although the server refused the insert.
    refused: ItemNumbers,
    /// Items that were never sent.
    foreign: ItemNumbers,
    /// The insert that was sent first among those that violate the check.
    first: Option<KeptOperation>,
}

/// A count of item numbers, and the first few of them.
#[derive(Default)]
pub(crate) struct ItemNumbers {
    count: u64,
    first: Vec<String>,
}

impl ItemNumbers {
    pub(crate) fn add(&mut self, number: u64) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(show_count(number));
        }
    }

    pub(crate) fn fault(&self, nouns: [&str; 2], rule: &str) -> Option<String> {
        let is_complete = self.count == self.first.len() as u64;
        let mut examples = self.first.clone();
        if let [only] = &mut examples[..] {
            *only = format!("item {only}");
        }
        fault(self.count, nouns, rule, &examples, is_complete)
    }
}

impl SetScan {
    /// Merges inserts and items, both sorted by number. Each number is inserted once.
    fn of(inserts: &[KeptOperation], items: &[u64]) -> Self {
        let mut scan = SetScan::default();
        let mut items = items.chunk_by(|a, b| a == b).peekable();
        for insert in inserts {
            let number = insert.value();
            while let Some(item) = items.next_if(|same| same[0] < number) {
                scan.foreign.add(item[0]);
            }
            let times = items
                .next_if(|same| same[0] == number)
                .map_or(0, <[u64]>::len);
            if scan.take(insert, times)
                && scan
                    .first
                    .is_none_or(|first| insert.sent_ns() < first.sent_ns())
            {
                scan.first = Some(*insert);
            }
        }
        items.for_each(|same| scan.foreign.add(same[0]));
        scan
    }

    /// Counts an insert whose item was found `times` times. Returns whether this is a violation.
    fn take(&mut self, insert: &KeptOperation, times: usize) -> bool {
        let number = insert.value();
        let is_found = times > 0;
        if times > 1 {
            self.repeated.add(number);
        }
        match insert.kind() {
            OperationKind::Refused => {
                if is_found {
                    self.refused.add(number);
                }
                is_found
            }
            OperationKind::Acknowledged => {
                self.acknowledged += 1;
                if !is_found {
                    self.lost.add(number);
                }
                times != 1
            }
            OperationKind::Unknown | OperationKind::Read | OperationKind::ReadNothing => {
                self.unknown += 1;
                self.unknown_found += u64::from(is_found);
                times > 1
            }
        }
    }

    fn faults(&self) -> Vec<String> {
        let of_all = format!(
            "of {}",
            count(self.acknowledged, "acknowledged item", "acknowledged items")
        );
        let faults = [
            self.lost.fault([&of_all, &of_all], "lost"),
            self.repeated
                .fault(["item", "items"], "found more than once"),
            self.refused.fault(
                ["item", "items"],
                "found although the server had refused the insert",
            ),
            self.foreign.fault(
                [
                    "item that this run never sent was",
                    "items that this run never sent were",
                ],
                "found",
            ),
        ];
        faults.into_iter().flatten().collect()
    }

    fn success(&self) -> String {
        let acknowledged = count(self.acknowledged, "acknowledged item", "acknowledged items");
        let unknown = match self.unknown {
            0 => String::new(),
            n => format!(
                "; {} with an unknown outcome, of which {} found",
                count(n, "item", "items"),
                show_count(self.unknown_found)
            ),
        };
        format!("{acknowledged}: each found once, and no other item{unknown}")
    }
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
