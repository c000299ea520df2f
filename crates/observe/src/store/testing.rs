//! Monitored stores for tests.

use floodmark_truth::store::StartedStore;

use crate::sampler::{MonitoredStore, StoreKind};

/// Returns a started store as a monitored store.
pub(super) fn watched(store: &StartedStore, name: &str, kind: StoreKind) -> MonitoredStore {
    MonitoredStore {
        name: name.to_owned(),
        kind: Some(kind),
        address: store.address,
        pid: Some(store.pid()),
    }
}
