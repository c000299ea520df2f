//! Flags that export metrics of the running load, and the exporter that they start.

use std::net::SocketAddr;

use clap::Args;
use floodmark_export::{ExportError, ExportTargets, Exporter, OtlpUrl};
use floodmark_record::Event;

use crate::exit::Ending;
use crate::out;

/// Flags that export metrics.
#[derive(Debug, Clone, Default, Args)]
pub struct ExportArgs {
    /// Serve metrics for Prometheus at http://ADDR:PORT/metrics during the command, such as
    /// 127.0.0.1:9464 [default: none]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub metrics: Option<SocketAddr>,

    /// Push metrics to the OpenTelemetry collector at this http:// URL every 5s and at the end; the
    /// default path is /v1/metrics [default: none]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<OtlpUrl>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "not an IP address with a port; use for example 127.0.0.1:9464 or [::1]:9464".to_owned()
    })
}

impl ExportArgs {
    /// Starts the exporter, if a flag requests one. Prints the endpoint's URL unless `quiet`.
    ///
    /// # Errors
    /// Fails if the endpoint's address is not available.
    pub fn start(&self, quiet: bool) -> Result<MetricsExport, Ending> {
        if self.metrics.is_none() && self.otlp.is_none() {
            return Ok(MetricsExport { exporter: None });
        }
        let targets = ExportTargets {
            endpoint: self.metrics,
            collector: self.otlp.clone(),
        };
        let exporter = Exporter::start(&targets);
        let exporter = exporter.map_err(|error| match error {
            ExportError::Bind { .. } => Ending::usage(format!("--metrics {error}")),
            ExportError::Thread(_) => Ending::internal(error),
        })?;
        if let Some(url) = exporter.endpoint_url().filter(|_| !quiet) {
            out::note(&format!("metrics: {url}\n"));
        }
        Ok(MetricsExport {
            exporter: Some(exporter),
        })
    }
}

/// Exports the metrics of a command, if requested.
pub struct MetricsExport {
    exporter: Option<Exporter>,
}

impl MetricsExport {
    /// Takes an event of any kind. Returns a warning to print, if any.
    pub fn on(&self, event: &Event) -> Option<String> {
        let warning = self.exporter.as_ref()?.on(event)?;
        Some(format!("--otlp {warning}"))
    }

    /// Ends the export after the final push. Prints a line if pushes failed.
    pub fn finish(self) {
        let failures = self.exporter.and_then(Exporter::finish);
        if let Some(failures) = failures {
            out::complain(&format!("--otlp {failures}"));
        }
    }
}
