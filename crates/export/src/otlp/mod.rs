//! OpenTelemetry's protocol (OTLP) over HTTP with protocol buffers.

mod encode;
mod messages;
mod push;
mod url;

pub(crate) use encode::{Resource, encode, unix_ns};
pub(crate) use push::{PushError, push};
pub use url::{OtlpUrl, OtlpUrlError};
