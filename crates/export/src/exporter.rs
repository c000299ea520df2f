//! The exporter's thread.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use floodmark_record::Event;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

use crate::otlp::{self, OtlpUrl, Resource, unix_ns};
use crate::prometheus::{METRICS_PATH, SharedMetrics, serve};

/// Time between two pushes to a collector.
pub const PUSH_INTERVAL: Duration = Duration::from_secs(5);

/// Name of the exporter's thread, at most 15 bytes.
const THREAD_NAME: &str = "metrics";

/// Destinations of the metrics.
#[derive(Debug, Clone, Default)]
pub struct ExportTargets {
    /// Address of the endpoint for Prometheus.
    pub endpoint: Option<SocketAddr>,
    /// Collector to which metrics are pushed.
    pub collector: Option<OtlpUrl>,
}

/// Reason why the exporter cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The endpoint's address is not available.
    #[error("{address}: {source}; use a free address and port of this host")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The thread or its event loop cannot be created.
    #[error("cannot start the thread for metrics: {0}")]
    Thread(#[source] io::Error),
}

/// Result of all pushes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PushSummary {
    pushes: u64,
    failures: u64,
    /// Reason of the latest failure.
    reason: String,
}

/// Exports the metrics of a command's runs, on a separate thread.
#[derive(Debug)]
pub struct Exporter {
    shared: Arc<SharedMetrics>,
    endpoint: Option<SocketAddr>,
    collector: Option<OtlpUrl>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<PushSummary>,
}

impl Exporter {
    /// Starts to serve and push metrics.
    ///
    /// # Errors
    /// Fails if the endpoint's address is not available, or if the thread cannot be started.
    pub fn start(targets: &ExportTargets) -> Result<Self, ExportError> {
        let bind = |address: SocketAddr| {
            let listener = TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                let bound = listener.local_addr()?;
                Ok((listener, bound))
            });
            listener.map_err(|source| ExportError::Bind { address, source })
        };
        let bound = targets.endpoint.map(bind).transpose()?;
        let (listener, endpoint) = bound.unzip();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ExportError::Thread)?;
        let shared = Arc::<SharedMetrics>::default();
        let (stop, stopped) = oneshot::channel();
        let pusher = targets.collector.clone().map(|url| Pusher {
            url,
            resource: Resource::starting_now(),
            shared: Arc::clone(&shared),
            summary: PushSummary::default(),
        });
        let served = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || run(runtime, listener, served, pusher, stopped))
            .map_err(ExportError::Thread)?;
        Ok(Exporter {
            shared,
            endpoint,
            collector: targets.collector.clone(),
            stop,
            thread,
        })
    }

    /// Returns the URL of the endpoint for Prometheus.
    #[must_use]
    pub fn endpoint_url(&self) -> Option<String> {
        self.endpoint
            .map(|address| format!("http://{address}{METRICS_PATH}"))
    }

    /// Updates the metrics with an event. Returns a warning once, after a push has failed for the
    /// first time.
    pub fn on(&self, event: &Event) -> Option<String> {
        let reason = self.shared.on(event)?;
        let url = self.collector.as_ref()?;
        Some(format!(
            "{url}: {reason}; the load continues, and floodmark tries again every {} s",
            PUSH_INTERVAL.as_secs()
        ))
    }

    /// Pushes the final metrics and ends the thread. Takes at most twice the time limit of a push.
    /// Returns a message if pushes failed.
    #[must_use]
    pub fn finish(self) -> Option<String> {
        // Sending fails only if the thread has panicked.
        let _ = self.stop.send(());
        let summary = self.thread.join().unwrap_or_default();
        let url = self.collector?;
        let PushSummary {
            pushes,
            failures,
            reason,
        } = summary;
        (failures > 0)
            .then(|| format!("{url}: {failures} of {pushes} pushes failed; last reason: {reason}"))
    }
}

/// Pushes metrics to a collector.
struct Pusher {
    url: OtlpUrl,
    resource: Resource,
    shared: Arc<SharedMetrics>,
    summary: PushSummary,
}

impl Pusher {
    async fn push(&mut self) {
        let encode = |metrics: &_| otlp::encode(metrics, &self.resource, unix_ns());
        let body = self.shared.with(encode);
        self.summary.pushes += 1;
        if let Err(error) = otlp::push(&self.url, body).await {
            self.summary.reason = error.to_string();
            if self.summary.failures == 0 {
                self.shared.warn(self.summary.reason.clone());
            }
            self.summary.failures += 1;
        }
    }
}

/// Serves and pushes metrics until `stopped` completes.
fn run(
    runtime: Runtime,
    listener: Option<TcpListener>,
    shared: Arc<SharedMetrics>,
    pusher: Option<Pusher>,
    mut stopped: oneshot::Receiver<()>,
) -> PushSummary {
    let summary = runtime.block_on(async {
        if let Some(listener) = listener {
            tokio::spawn(serve(listener, shared));
        }
        let Some(mut pusher) = pusher else {
            // An error means that the exporter was dropped.
            let _ = stopped.await;
            return PushSummary::default();
        };
        // The first tick is immediate, so an unreachable collector is reported at the start.
        let mut ticks = interval(PUSH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                _ = ticks.tick() => pusher.push().await,
            }
        }
        pusher.push().await;
        pusher.summary
    });
    // Do not wait for a name lookup that has not finished.
    runtime.shutdown_background();
    summary
}
