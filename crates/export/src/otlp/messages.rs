//! The messages of OTLP (`opentelemetry.proto`, version 1) that floodmark sends and receives.
//! Fields that floodmark never sets are missing. Tests read these messages with the types of
//! `opentelemetry-proto`, which would add the OpenTelemetry SDK to the command.

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) metrics: Vec<OtlpMetric>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OtlpMetric {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) description: String,
    #[prost(string, tag = "3")]
    pub(crate) unit: String,
    #[prost(oneof = "OtlpData", tags = "5, 7, 10")]
    pub(crate) data: Option<OtlpData>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum OtlpData {
    #[prost(message, tag = "5")]
    Gauge(OtlpGauge),
    #[prost(message, tag = "7")]
    Sum(OtlpSum),
    #[prost(message, tag = "10")]
    ExponentialHistogram(OtlpHistogram),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OtlpGauge {
    #[prost(message, repeated, tag = "1")]
    pub(crate) data_points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OtlpSum {
    #[prost(message, repeated, tag = "1")]
    pub(crate) data_points: Vec<NumberPoint>,
    #[prost(enumeration = "Temporality", tag = "2")]
    pub(crate) aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub(crate) is_monotonic: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OtlpHistogram {
    #[prost(message, repeated, tag = "1")]
    pub(crate) data_points: Vec<HistogramPoint>,
    #[prost(enumeration = "Temporality", tag = "2")]
    pub(crate) aggregation_temporality: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Temporality {
    Unspecified = 0,
    Cumulative = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NumberPoint {
    #[prost(message, repeated, tag = "7")]
    pub(crate) attributes: Vec<Attribute>,
    #[prost(fixed64, tag = "2")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    pub(crate) as_double: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HistogramPoint {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<Attribute>,
    #[prost(fixed64, tag = "2")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub(crate) count: u64,
    #[prost(double, optional, tag = "5")]
    pub(crate) sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    pub(crate) scale: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) zero_count: u64,
    #[prost(message, optional, tag = "8")]
    pub(crate) positive: Option<OtlpBuckets>,
}

/// Counts of consecutive buckets. Bucket `i` contains the values above `base^i` and up to
/// `base^(i + 1)`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct OtlpBuckets {
    #[prost(sint32, tag = "1")]
    pub(crate) offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    pub(crate) bucket_counts: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Attribute {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AttributeValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AttributeValue {
    #[prost(oneof = "AnyValue", tags = "1, 3")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum AnyValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Integer(i64),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_data_points: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}
