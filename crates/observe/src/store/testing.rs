//! Stores for tests, as monitored stores.

use floodmark_truth::store::StartedStore;

use crate::targets::{MonitoredStore, StoreKind};

/// Returns a store as the target of monitoring.
pub(super) fn watched(store: &StartedStore, name: &str, kind: StoreKind) -> MonitoredStore {
    MonitoredStore {
        name: name.to_owned(),
        kind: Some(kind),
        address: store.address,
        pid: Some(store.pid()),
    }
}
