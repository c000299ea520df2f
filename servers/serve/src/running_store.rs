//! The store that the settings select for `bars`.

use crate::bar_store::BarRequests;
use crate::embedded_bars::EmbeddedBars;
use crate::error::ServeError;
#[cfg(feature = "postgresql")]
use crate::postgresql::PostgresqlBars;
use crate::settings::StoreSetting;

/// A store's threads.
pub(crate) enum RunningStore {
    Embedded(EmbeddedBars),
    #[cfg(feature = "postgresql")]
    Postgresql(PostgresqlBars),
}

impl RunningStore {
    /// Opens the store and starts its threads.
    pub(crate) fn start(
        setting: &StoreSetting,
        requests: BarRequests,
        on_failure: fn(&ServeError),
    ) -> Result<Self, ServeError> {
        match setting {
            StoreSetting::Embedded(path) => {
                EmbeddedBars::start(path, requests, on_failure).map(RunningStore::Embedded)
            }
            #[cfg(feature = "postgresql")]
            StoreSetting::Postgresql(setting) => {
                PostgresqlBars::start(setting, requests).map(RunningStore::Postgresql)
            }
        }
    }

    /// Waits until the threads have ended. Must be called after the queues have been closed.
    ///
    /// # Errors
    /// The store has failed.
    pub(crate) fn finish(self) -> Result<(), ServeError> {
        match self {
            RunningStore::Embedded(store) => store.finish(),
            #[cfg(feature = "postgresql")]
            RunningStore::Postgresql(store) => store.finish(),
        }
    }
}
