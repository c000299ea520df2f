//! Checks the operations on any API.

use floodmark_record::api_check::{ApiCheck, ApiCheckKind};
use floodmark_record::operation::KeptOperation;
use floodmark_record::run::CheckResult;

use crate::counter::count;
use crate::increments::increments;
use crate::register::register;
use crate::set::{FoundItems, set};

/// Checks the operations on an API. `found` contains the items of a set. `unreadable` is the number
/// of ok responses without the value that the check needs.
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
        let [one, many] = ["ok response has", "ok responses have"];
        let fault = format!("{} no whole number as value", count(unreadable, one, many));
        result.detail = match result.held {
            Some(true) => fault,
            _ => format!("{}; {fault}", result.detail),
        };
        result.held = Some(false);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::operation::OperationKind;

    #[test]
    fn fails_if_a_response_has_no_value() {
        let api = ApiCheck {
            kind: ApiCheckKind::Register,
            keys: 1,
            write_value: None,
            read_value: None,
            readback: None,
        };
        let read = KeptOperation::new(OperationKind::ReadNothing, 1, 0, 1, 2);
        let check = |operations: &mut [KeptOperation], unreadable| {
            check_api(&api, operations, &mut FoundItems::default(), unreadable)
        };
        assert_eq!(check(&mut [read], 0).held, Some(true));
        let unreadable = check(&mut [read], 2);
        assert_eq!(unreadable.held, Some(false));
        assert_eq!(
            unreadable.detail,
            "2 ok responses have no whole number as value"
        );
        let nothing = check(&mut [], 1);
        assert!(
            nothing
                .detail
                .ends_with("; 1 ok response has no whole number as value")
        );
    }
}
