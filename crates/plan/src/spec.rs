//! The settings of a load as the user gave them.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use floodmark_load::replay;
pub use floodmark_record::origin::Origin;
use floodmark_record::plan::{CloseFirst, DEFAULT_DURATION, Expect, Http, Retry, Sources, Spacing};
use floodmark_record::units::Rate;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::grpc::MethodName;
use crate::host_addresses::HostAddresses;
use crate::http::{MAX_STREAMS, MAX_TABLE, MAX_WINDOW, MIN_WINDOW};
use crate::planning::{MAX_CONNECTIONS, MAX_THREADS};
use crate::toml_file::nearest;
use crate::values::{
    self, Count, HttpVersionText, MAX_ATTEMPTS, MAX_COUNT, PositiveDuration, RatePerSecond, Size,
    WarmupText, content,
};

/// Load settings that flags and experiments share. A missing setting has its default value.
///
/// Flags and the `[load]` sections of experiments set these fields. The manifest schema contains
/// the fields' descriptions.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LoadSpec {
    /// Total number of connections; with a rate, the maximum number. Default: 50; with a rate, 2 ×
    /// highest rate × mean service time of a short load before the first measurement, at least 50,
    /// divided by `streams`. If such a load is not possible, the service time is assumed to be
    /// 250 ms, and the default is at most 10,000 before the division. For a burst: the number of
    /// requests, at least 50, divided by `streams`.
    #[serde(deserialize_with = "content::count::<_, 1, MAX_CONNECTIONS>")]
    #[schemars(with = "Count<1, MAX_CONNECTIONS>")]
    pub connections: Option<u64>,
    /// Number of load threads. Default: half the CPUs, at least 1.
    #[serde(deserialize_with = "content::count::<_, 1, MAX_THREADS>")]
    #[schemars(with = "Count<1, MAX_THREADS>")]
    pub threads: Option<u64>,
    /// Length of the sending window. Default: 10s.
    #[serde(deserialize_with = "content::duration")]
    #[schemars(with = "PositiveDuration")]
    pub duration: Option<Duration>,
    /// Total number of requests. With `duration`, whichever is reached first ends the load.
    #[serde(deserialize_with = "content::count::<_, 1, MAX_COUNT>")]
    #[schemars(with = "Count<1, MAX_COUNT>")]
    pub requests: Option<u64>,
    /// Open model: total requests per second, sent on schedule regardless of the server's
    /// responses. Default: closed model.
    #[serde(deserialize_with = "content::rate")]
    #[schemars(with = "RatePerSecond")]
    pub rate: Option<Rate>,
    /// Open model: number of requests, spread evenly over `within`, instead of a duration.
    #[serde(deserialize_with = "content::count::<_, 1, MAX_COUNT>")]
    #[schemars(with = "Count<1, MAX_COUNT>")]
    pub burst: Option<u64>,
    /// Time over which the requests of a burst are spread.
    #[serde(deserialize_with = "content::duration")]
    #[schemars(with = "PositiveDuration")]
    pub within: Option<Duration>,
    /// Spacing between requests that are sent at a rate. Default: `constant`.
    pub arrivals: Option<Spacing>,
    /// HTTP version: "1.1", "2" or "auto" (https:// URLs: the version that the server chooses;
    /// http:// URLs: 1.1). Default: "1.1".
    #[serde(deserialize_with = "content::http")]
    #[schemars(with = "HttpVersionText")]
    pub http: Option<HttpVersion>,
    /// HTTP/2: maximum number of requests in flight on each connection. Default: 1.
    #[serde(deserialize_with = "content::count::<_, 1, MAX_STREAMS>")]
    #[schemars(with = "Count<1, MAX_STREAMS>")]
    pub streams: Option<u64>,
    /// HTTP/2: flow-control window of each stream for responses, such as "64KiB". The window of a
    /// connection is 16 times as large. Default: 1MiB.
    #[serde(deserialize_with = "content::size::<_, MIN_WINDOW, MAX_WINDOW>")]
    #[schemars(with = "Size<MIN_WINDOW, MAX_WINDOW>")]
    pub h2_window: Option<u64>,
    /// HTTP/2: maximum size of the table that the server may use to compress headers. Default:
    /// 4KiB.
    #[serde(deserialize_with = "content::size::<_, 0, MAX_TABLE>")]
    #[schemars(with = "Size<0, MAX_TABLE>")]
    pub h2_table: Option<u64>,
    /// Unary gRPC method to call, such as "helloworld.Greeter/SayHello", instead of a path. Uses
    /// HTTP/2. Default: none.
    #[serde(deserialize_with = "method_name")]
    #[schemars(with = "String")]
    pub grpc: Option<MethodName>,
    /// File that describes the gRPC methods: a .proto file, or a descriptor set of protoc. Default:
    /// ask the server (reflection).
    pub proto: Option<PathBuf>,
    /// Directories of .proto files that `proto` imports. Default: the directory of `proto`.
    pub proto_path: Vec<PathBuf>,
    /// Message of each gRPC call as JSON, such as '{"name": "x"}'. Default: '{}'.
    #[serde(deserialize_with = "body_text")]
    #[schemars(with = "String")]
    pub body: Option<BodySource>,
    /// Conditions for an ok response to a gRPC call, such as ["grpc-status=NOT_FOUND"]. Default:
    /// gRPC status OK.
    #[serde(deserialize_with = "conditions")]
    #[schemars(with = "Vec<String>")]
    pub expect: Vec<Expect>,
    /// Whether to accept any certificate. Default: verify the certificate.
    pub insecure: Option<bool>,
    /// PEM file of the certificate authorities to trust. Default: the system's.
    pub cacert: Option<PathBuf>,
    /// PEM file of the client's certificate, followed by the certificates of its issuers. Default:
    /// none.
    pub cert: Option<PathBuf>,
    /// PEM file of the private key for `cert`; must not be encrypted. Default: the key in the `cert`
    /// file.
    pub key: Option<PathBuf>,
    /// Server name to send in the TLS handshake (SNI) and to verify the certificate for. Default:
    /// the URL's host.
    pub sni: Option<String>,
    /// Whether to do a full TLS handshake for each connection. Default: resume sessions if the
    /// server allows it.
    pub no_resumption: Option<bool>,
    /// Whether each request uses a fresh connection. Default: connections are kept.
    pub fresh: Option<bool>,
    /// Number of requests after which a connection is closed. Default: no limit.
    #[serde(deserialize_with = "content::count::<_, 1, MAX_COUNT>")]
    #[schemars(with = "Count<1, MAX_COUNT>")]
    pub requests_per_connection: Option<u64>,
    /// Peer that closes a used connection first. Default: the server; with HTTP/2, the client.
    pub close_first: Option<CloseFirst>,
    /// Requests to send again if the server closes a kept connection before it responds (once), or
    /// refuses a stream (HTTP/2; at most 3 times): `never` or `idempotent` (GET, HEAD, OPTIONS,
    /// TRACE, PUT, DELETE, and unsent or refused requests). Default: `idempotent`.
    pub retry: Option<Retry>,
    /// Source addresses to spread connections over, such as "127.0.0.2-127.0.0.200". Default:
    /// chosen by the kernel.
    #[serde(deserialize_with = "source_range")]
    #[schemars(with = "String")]
    pub sources: Option<Sources>,
    /// Warm-up load before the measurement: `auto` or a duration. Default: `auto`. With `auto`,
    /// there is no warm-up, and the figures cover the steady part, if there is one.
    #[serde(deserialize_with = "content::warmup")]
    #[schemars(with = "WarmupText")]
    pub warmup: Option<Warmup>,
    /// Number of attempts on the same server process. Default: 1.
    #[serde(deserialize_with = "content::count::<_, 1, MAX_ATTEMPTS>")]
    #[schemars(with = "Count<1, MAX_ATTEMPTS>")]
    pub attempts: Option<u64>,
    /// Maximum time to wait for a connection and for a response. Default: 5s.
    #[serde(deserialize_with = "content::duration")]
    #[schemars(with = "PositiveDuration")]
    pub timeout: Option<Duration>,
    /// Maximum response time with which an ok response counts as goodput. Default: the timeout.
    #[serde(deserialize_with = "content::duration")]
    #[schemars(with = "PositiveDuration")]
    pub deadline: Option<Duration>,
    /// Seed for all random choices. Default: 1.
    #[serde(deserialize_with = "content::count::<_, 0, MAX_COUNT>")]
    #[schemars(with = "Count<0, MAX_COUNT>")]
    pub seed: Option<u64>,
    /// Check that covers all responses: `sequence`, `scoring`, or a check file that ends in .toml.
    /// Default: none.
    #[schemars(schema_with = "CheckKind::schema")]
    pub check: Option<CheckKind>,
}

fn source_range<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Sources>, D::Error> {
    let text = String::deserialize(deserializer)?;
    values::sources(&text).map(Some).map_err(D::Error::custom)
}

fn method_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MethodName>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(D::Error::custom)
}

fn body_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BodySource>, D::Error> {
    String::deserialize(deserializer).map(|text| Some(BodySource::Text(text)))
}

fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Expect>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let conditions = texts.iter().map(|text| text.parse());
    conditions
        .collect::<Result<_, _>>()
        .map_err(D::Error::custom)
}

/// Replaces a setting if the other one is given.
fn replace_given<T: Clone + Default + PartialEq>(own: &mut T, other: &T) {
    if *other != T::default() {
        own.clone_from(other);
    }
}

impl LoadSpec {
    /// Applies the settings given in `other`, and removes earlier settings that conflict with the
    /// new settings.
    pub fn override_with(&mut self, other: &LoadSpec) {
        if other.has_length() {
            (self.duration, self.requests) = (None, None);
            (self.burst, self.within) = (None, None);
        }
        if other.fresh.is_some() || other.requests_per_connection.is_some() {
            (self.fresh, self.requests_per_connection) = (None, None);
        }
        if other.http == Some(HttpVersion::V1) {
            (self.streams, self.h2_window, self.h2_table) = (None, None, None);
        }
        if self.grpc.is_some() && other.grpc.is_some() {
            // Both belong to the method.
            (self.body, self.expect) = (None, Vec::new());
        }
        if other.insecure == Some(true) {
            self.cacert = None;
        }
        if other.cacert.is_some() {
            self.insecure = None;
        }
        if other.cert.is_some() {
            self.key = None;
        }
        macro_rules! replace {
            ($($field:ident)*) => { $(if other.$field.is_some() { self.$field = other.$field; })* };
        }
        replace!(connections threads duration requests rate burst within arrivals fresh requests_per_connection);
        replace!(http streams h2_window h2_table);
        replace!(close_first retry sources warmup attempts timeout deadline seed);
        replace!(insecure no_resumption);
        macro_rules! replace_owned {
            ($($field:ident)*) => { $(replace_given(&mut self.$field, &other.$field);)* };
        }
        replace_owned!(check grpc proto proto_path body expect cacert cert key sni);
    }

    /// Resolves the paths of files relative to `directory`.
    pub fn relative_to(&mut self, directory: &Path) {
        if let Some(CheckKind::File(path)) = &mut self.check {
            *path = directory.join(&*path);
        }
        let files = [
            &mut self.proto,
            &mut self.cacert,
            &mut self.cert,
            &mut self.key,
        ];
        for path in files.into_iter().flatten().chain(&mut self.proto_path) {
            *path = directory.join(&*path);
        }
    }

    /// Returns the HTTP version. The default for a gRPC call is HTTP/2.
    #[must_use]
    pub fn http(&self) -> HttpVersion {
        let default = match &self.grpc {
            Some(_) => HttpVersion::V2,
            None => HttpVersion::default(),
        };
        self.http.unwrap_or(default)
    }

    /// Returns the keys of all given settings.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("connections", self.connections.is_some()),
            ("threads", self.threads.is_some()),
            ("duration", self.duration.is_some()),
            ("requests", self.requests.is_some()),
            ("rate", self.rate.is_some()),
            ("burst", self.burst.is_some()),
            ("within", self.within.is_some()),
            ("arrivals", self.arrivals.is_some()),
            ("http", self.http.unwrap_or_default() != HttpVersion::V1),
            ("streams", self.streams.is_some()),
            ("h2-window", self.h2_window.is_some()),
            ("h2-table", self.h2_table.is_some()),
            ("grpc", self.grpc.is_some()),
            ("proto", self.proto.is_some()),
            ("proto-path", !self.proto_path.is_empty()),
            ("body", self.body.is_some()),
            ("expect", !self.expect.is_empty()),
            ("insecure", self.insecure == Some(true)),
            ("cacert", self.cacert.is_some()),
            ("cert", self.cert.is_some()),
            ("key", self.key.is_some()),
            ("sni", self.sni.is_some()),
            ("no-resumption", self.no_resumption == Some(true)),
            ("fresh", self.fresh == Some(true)),
            (
                "requests-per-connection",
                self.requests_per_connection.is_some(),
            ),
            ("close-first", self.close_first.is_some()),
            ("retry", self.retry.is_some()),
            ("sources", self.sources.is_some()),
            ("warmup", self.warmup.is_some()),
            ("attempts", self.attempts.is_some()),
            ("timeout", self.timeout.is_some()),
            ("deadline", self.deadline.is_some()),
            ("seed", self.seed.is_some()),
            ("check", self.check.is_some()),
        ];
        all.into_iter()
            .filter(|(_, is_given)| *is_given)
            .map(|(key, _)| key)
    }

    /// Returns the number of attempts on each server process.
    #[must_use]
    pub fn attempt_count(&self) -> u32 {
        self.attempts.map_or(1, |n| n as u32)
    }

    /// Returns whether a setting limits the length of the load.
    fn has_length(&self) -> bool {
        self.duration.is_some() || self.requests.is_some() || self.burst.is_some()
    }

    /// Returns the maximum length of one attempt, including warm-up, or `None` if only a number of
    /// requests limits the load.
    #[must_use]
    pub fn length(&self) -> Option<Duration> {
        let measured = match (self.burst, self.requests) {
            (Some(_), _) => self.within?,
            (_, Some(_)) => self.duration?,
            _ => self.duration.unwrap_or(DEFAULT_DURATION),
        };
        Some(measured + self.warmup_length())
    }

    /// Returns the length of the warm-up.
    #[must_use]
    pub fn warmup_length(&self) -> Duration {
        match self.warmup {
            Some(Warmup::Before(length)) => length,
            Some(Warmup::Auto) | None => Duration::ZERO,
        }
    }
}

/// A choice of the version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    V1,
    /// HTTP/2: with prior knowledge for http:// URLs, and negotiated with ALPN for https:// URLs.
    V2,
    /// The version that the server chooses (ALPN) for https:// URLs, and HTTP/1.1 for http:// URLs.
    Auto,
}

impl HttpVersion {
    /// All choices.
    pub const ALL: [Self; 3] = [HttpVersion::V1, HttpVersion::V2, HttpVersion::Auto];

    /// Returns the name of the choice in flags and manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HttpVersion::V1 => "1.1",
            HttpVersion::V2 => "2",
            HttpVersion::Auto => "auto",
        }
    }
}

impl From<Http> for HttpVersion {
    fn from(http: Http) -> Self {
        match http {
            Http::V1 => HttpVersion::V1,
            Http::V2(_) => HttpVersion::V2,
        }
    }
}

/// All settings of a plan except the URL.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanSpec {
    /// Source of the settings.
    pub origin: Origin,
    /// Settings that flags and experiments share.
    pub load: LoadSpec,
    /// First and last rate of a linear ramp, per second.
    pub ramp: Option<(f64, f64)>,
    /// Consecutive rates.
    pub steps: Option<RateSteps>,
    /// A replay of the timestamps in a file.
    pub replay: Option<ReplaySpec>,
    /// Whether to open all connections before the start and keep them open.
    pub hold: bool,
    /// I/O backend for the sockets.
    pub backend: BackendChoice,
    /// Addresses to use instead of resolving the URL's host.
    pub resolve: Vec<HostAddresses>,
    /// Unix socket to connect to.
    pub unix_socket: Option<String>,
    /// Whether to end the run without waiting for requests in flight.
    pub no_drain: bool,
    /// HTTP method.
    pub method: Option<String>,
    /// Headers of each request.
    pub headers: Vec<(String, String)>,
    /// Mix file.
    pub mix: Option<PathBuf>,
    /// Whether to allow load on public addresses.
    pub public: bool,
    /// Whether to allow a plan that exceeds the host's limits.
    pub anyway: bool,
    /// Number of agents that divide the load; `None` if one process on this host sends it.
    pub agents: Option<u32>,
    /// Whether the server is not running yet. The plan then shows only whether the settings are
    /// valid: it assumes the choices of the server, and gRPC messages without a description are
    /// empty.
    pub is_offline: bool,
}

impl PlanSpec {
    /// Returns the name of a setting as a flag or as a manifest key.
    #[must_use]
    pub fn name(&self, key: &str) -> String {
        self.origin.name(key)
    }
}

/// Source of a request body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodySource {
    /// The text itself.
    Text(String),
    /// The content of a file.
    File(PathBuf),
}

/// Choice of the I/O backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// io_uring if the kernel allows it, otherwise epoll.
    #[default]
    Auto,
    /// io_uring only.
    Uring,
    /// epoll only.
    Epoll,
}

/// A check that covers all responses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum CheckKind {
    /// Each response is the next number from a single counter.
    Sequence,
    /// Each response reports the count, sum and mean of all scores so far.
    Scoring,
    /// The requests write to and read from an API that this file describes.
    File(PathBuf),
}

impl CheckKind {
    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": r"^(sequence|scoring|.+\.toml)$" })
    }
}

impl FromStr for CheckKind {
    type Err = String;

    /// Reads the name of a check, or the path of a check file that ends in `.toml`.
    fn from_str(text: &str) -> Result<Self, String> {
        let names = ["sequence", "scoring"];
        match text {
            "sequence" => Ok(CheckKind::Sequence),
            "scoring" => Ok(CheckKind::Scoring),
            _ if Path::new(text).extension().is_some_and(|end| end == "toml") => {
                Ok(CheckKind::File(text.into()))
            }
            _ => Err(match nearest(text, names.into_iter()) {
                Some(name) => format!("unknown check \"{text}\"; did you mean \"{name}\"?"),
                None => format!(
                    "unknown check \"{text}\"; expected sequence, scoring, or a file that ends in .toml"
                ),
            }),
        }
    }
}

impl TryFrom<String> for CheckKind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Warm-up before the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Warmup {
    /// No warm-up. Figures cover the steady part.
    #[default]
    Auto,
    /// Warm-up of this length. Figures cover the whole measurement.
    Before(Duration),
}

/// Consecutive rates.
#[derive(Debug, Clone, PartialEq)]
pub enum RateSteps {
    /// Rates per second, each for an equal share of the duration.
    Equal(Vec<f64>),
    /// Rates per second, each with its own duration.
    Timed(Vec<(f64, Duration)>),
}

/// A replay of the timestamps in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplaySpec {
    /// The file.
    pub path: PathBuf,
    /// Speed of the replay relative to the file; at 2, the replay takes half the time.
    pub speed: f64,
    /// Unit of plain numbers in the file.
    pub unit: replay::TimestampUnit,
}
