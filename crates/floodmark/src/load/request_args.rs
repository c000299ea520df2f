//! Flags for the request.

use std::path::PathBuf;

use clap::Args;
use floodmark_plan::spec::BodySource;
use floodmark_record::mix::parse_header;

/// Flags for the request.
#[derive(Debug, Clone, Args)]
pub struct RequestArgs {
    /// HTTP method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    pub method: Option<String>,

    /// Request header, such as 'Accept: text/html'; repeatable [default: Host, User-Agent and
    /// Accept: */*]
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header, help_heading = "Request")]
    pub headers: Vec<(String, String)>,

    /// Request body as text [default: none]
    #[arg(
        short,
        long,
        value_name = "TEXT",
        conflicts_with = "body_file",
        help_heading = "Request"
    )]
    pub body: Option<String>,

    /// File with the request body, at most 64 MiB [default: none]
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub body_file: Option<PathBuf>,

    /// TOML file with several requests to send in turn; see docs/examples/mix.toml. -H and --expect
    /// set defaults for these requests [default: none]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "body", "body_file"], help_heading = "Request")]
    pub mix: Option<PathBuf>,
}

impl RequestArgs {
    /// Returns where the request body comes from, if there is one.
    pub fn body_source(&self) -> Option<BodySource> {
        match (&self.body, &self.body_file) {
            (Some(text), _) => Some(BodySource::Text(text.clone())),
            (None, Some(path)) => Some(BodySource::File(path.clone())),
            (None, None) => None,
        }
    }
}
