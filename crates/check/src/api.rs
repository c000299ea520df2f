//! Checks the operations on any API.

use floodmark_record::api_check::{ApiCheck, ApiCheckKind};
use floodmark_record::operation::{KeptOperation, OperationKind};
use floodmark_record::run::CheckResult;

use crate::counter::count;
use crate::increments::increments;
use crate::register::register;
use crate::set::{FoundItems, set};

/// Checks the operations on an API. `found` contains the items of a set. `unreadable` is the number
/// of responses with status 2xx or 3xx that lack the value that the check needs. If no response has
/// a value, the location in the check file is probably wrong, and the check is not evaluated.
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
    if unreadable > 0 {
        let [one, many] = [
            "response with status 2xx or 3xx has",
            "responses with status 2xx or 3xx have",
        ];
        let fault = format!(
            "{}: {} no whole number there",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fails_if_a_response_has_no_value() {
        let api = ApiCheck {
            kind: ApiCheckKind::Register,
            keys: 1,
            write_value: None,
            read_value: None,
            readback: None,
            value_places: vec!["check.toml:3: read.value \"/v\"".to_owned()],
        };
        let read = KeptOperation::new(OperationKind::Read, 1, 17, 1, 2);
        let not_found = KeptOperation::new(OperationKind::ReadNothing, 1, 0, 1, 2);
        let check = |operations: &mut [KeptOperation], unreadable| {
            check_api(&api, operations, &mut FoundItems::default(), unreadable)
        };
        assert_eq!(check(&mut [read], 0).held, Some(true));
        let unreadable = check(&mut [read], 2);
        assert_eq!(unreadable.held, Some(false));
        assert_eq!(
            unreadable.detail,
            "check.toml:3: read.value \"/v\": 2 responses with status 2xx or 3xx have no whole number there"
        );
        let nothing = check(&mut [not_found], 1);
        assert_eq!(nothing.held, None);
        assert_eq!(
            nothing.detail,
            "check.toml:3: read.value \"/v\": 1 response with status 2xx or 3xx has no whole number there; correct the pointer"
        );
    }
}
