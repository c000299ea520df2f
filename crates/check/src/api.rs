//! Checks the operations on any API.

use floodmark_record::api_check::{ApiCheck, ApiCheckKind};
use floodmark_record::operation::{KeptOperation, OperationKind};
use floodmark_record::run::CheckResult;

use crate::increments::increments;
use crate::register::register;
use crate::result::{count, nothing_to_check};
use crate::set::{FoundItems, set};

/// Checks the operations on an API. `found` contains the items of a set. `unreadable` is the number
/// of responses with status 2xx or 3xx that lack the value that the check needs. If no response has
/// a value, the location in the check file is probably wrong, and the check is not evaluated. It is
/// also not evaluated if no violation was found, but a lost write would not have been detected.
///
/// Sorts the operations in place.
#[must_use]
pub fn check_api(
    api: &ApiCheck,
    operations: &mut [KeptOperation],
    found: &mut FoundItems,
    unreadable: u64,
) -> CheckResult {
    let mut result = match api.kind {
        ApiCheckKind::Set => set(operations, found),
        ApiCheckKind::Register => register(operations),
        ApiCheckKind::Counter => increments(operations, api.write_value.is_some()),
    };
    if result.held == Some(true)
        && let Some(why) = unproven(api, operations)
    {
        (result.held, result.detail) = (None, nothing_to_check(why));
    }
    if unreadable > 0 {
        let [one, many] = [
            "response with status 2xx or 3xx has",
            "responses with status 2xx or 3xx have",
        ];
        let fault = format!(
            "{}: {} no integer at this JSON pointer",
            api.show_value_places(),
            count(unreadable, one, many)
        );
        let has_value = |operation: &KeptOperation| match operation.kind() {
            OperationKind::Read => true,
            OperationKind::Acknowledged => api.write_value.is_some(),
            _ => false,
        };
        (result.held, result.detail) = match result.held {
            Some(false) => (Some(false), format!("{}; {fault}", result.detail)),
            _ if operations.iter().any(has_value) => (Some(false), fault),
            _ => (None, format!("{fault}; correct the pointer")),
        };
    }
    result
}

/// Returns why the operations could not have detected a lost write. Returns `None` if they could.
/// The operations on registers and counters must be sorted by key.
fn unproven(api: &ApiCheck, operations: &[KeptOperation]) -> Option<&'static str> {
    let acknowledged = |operation: &&KeptOperation| operation.kind() == OperationKind::Acknowledged;
    if !operations.iter().any(|operation| acknowledged(&operation)) {
        return Some("no write was acknowledged");
    }
    let is_read_back = |of_key: &[KeptOperation]| {
        let writes = of_key.iter().filter(acknowledged);
        let reads = of_key.iter().filter(|operation| operation.kind().is_read());
        let first_done = writes.map(KeptOperation::done_ns).min();
        let last_sent = reads.map(KeptOperation::sent_ns).max();
        first_done.is_some_and(|first_done| Some(first_done) < last_sent)
    };
    let needs_reads = api.kind != ApiCheckKind::Set && api.write_value.is_none();
    let mut keys = operations.chunk_by(|a, b| a.key() == b.key());
    (needs_reads && !keys.any(is_read_back))
        .then_some("no key was read after an acknowledged write")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register() -> ApiCheck {
        ApiCheck {
            kind: ApiCheckKind::Register,
            keys: 1,
            write_value: None,
            read_value: None,
            readback: None,
            value_places: vec!["check.toml:3: read.value \"/v\"".to_owned()],
        }
    }

    #[test]
    fn fails_if_a_response_has_no_value() {
        let api = register();
        let write = KeptOperation::new(OperationKind::Acknowledged, 1, 17, 1, 2);
        let read = KeptOperation::new(OperationKind::Read, 1, 17, 3, 4);
        let not_found = KeptOperation::new(OperationKind::ReadNothing, 1, 0, 1, 2);
        let check = |operations: &mut [KeptOperation], unreadable| {
            check_api(&api, operations, &mut FoundItems::default(), unreadable)
        };
        assert_eq!(check(&mut [write, read], 0).held, Some(true));
        let unreadable = check(&mut [write, read], 2);
        assert_eq!(unreadable.held, Some(false));
        assert_eq!(
            unreadable.detail,
            "check.toml:3: read.value \"/v\": 2 responses with status 2xx or 3xx have no integer at this JSON pointer"
        );
        let nothing = check(&mut [not_found], 1);
        assert_eq!(nothing.held, None);
        assert_eq!(
            nothing.detail,
            "check.toml:3: read.value \"/v\": 1 response with status 2xx or 3xx has no integer at this JSON pointer; correct the pointer"
        );
    }

    #[test]
    fn is_not_evaluated_if_no_lost_write_could_be_found() {
        use OperationKind::{Acknowledged, Read, ReadNothing, Refused, Unknown};
        let op =
            |kind, key, value, sent_ns| KeptOperation::new(kind, key, value, sent_ns, sent_ns + 5);
        let unknown = [
            op(Unknown, 1, 1, 10),
            op(Refused, 1, 2, 20),
            op(Read, 1, 1, 30),
        ];
        let before = [
            op(Acknowledged, 1, 1, 10),
            op(Read, 1, 0, 12),
            op(ReadNothing, 2, 0, 30),
        ];
        let after = [op(Acknowledged, 1, 1, 10), op(Read, 1, 1, 30)];
        for (kind, operations, why) in [
            (
                ApiCheckKind::Set,
                &unknown[..2],
                Some("no write was acknowledged"),
            ),
            (
                ApiCheckKind::Register,
                &unknown[..],
                Some("no write was acknowledged"),
            ),
            (
                ApiCheckKind::Counter,
                &unknown[..],
                Some("no write was acknowledged"),
            ),
            (
                ApiCheckKind::Register,
                &before[..],
                Some("no key was read after an acknowledged write"),
            ),
            (
                ApiCheckKind::Counter,
                &before[..],
                Some("no key was read after an acknowledged write"),
            ),
            (ApiCheckKind::Register, &after[..], None),
            (ApiCheckKind::Counter, &after[..], None),
        ] {
            let api = ApiCheck { kind, ..register() };
            // The insert with an unknown outcome was executed.
            let mut found = FoundItems {
                numbers: vec![1],
                unreadable: 0,
            };
            let result = check_api(&api, &mut operations.to_vec(), &mut found, 0);
            assert_eq!(result.held, why.is_none().then_some(true), "{result:?}");
            assert!(
                result.detail.starts_with(why.unwrap_or_default()),
                "{result:?}"
            );
        }
        // A violation is a violation, whatever the acknowledged writes are.
        let api = ApiCheck {
            kind: ApiCheckKind::Set,
            ..register()
        };
        let mut found = FoundItems {
            numbers: vec![2, 3],
            unreadable: 0,
        };
        assert_eq!(
            check_api(&api, &mut unknown[..2].to_vec(), &mut found, 0).held,
            Some(false)
        );
    }
}
