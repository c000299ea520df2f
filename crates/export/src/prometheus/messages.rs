//! The messages of Prometheus's data model (`io.prometheus.client`, metrics.proto) that floodmark
//! sends. Fields that floodmark never sets are omitted.
#![allow(missing_docs, reason = "the names are those of the protocol")]

#[derive(Clone, PartialEq, prost::Message)]
pub struct FamilyMessage {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub help: Option<String>,
    #[prost(enumeration = "MetricTypeCode", optional, tag = "3")]
    pub r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub metric: Vec<MetricMessage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum MetricTypeCode {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricMessage {
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<LabelMessage>,
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<NumberMessage>,
    #[prost(message, optional, tag = "3")]
    pub counter: Option<NumberMessage>,
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<HistogramMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LabelMessage {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// `Gauge` or `Counter`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct NumberMessage {
    #[prost(double, optional, tag = "1")]
    pub value: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HistogramMessage {
    #[prost(uint64, optional, tag = "1")]
    pub sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub sample_sum: Option<f64>,
    /// Classic buckets.
    #[prost(message, repeated, tag = "3")]
    pub bucket: Vec<BucketMessage>,
    #[prost(sint32, optional, tag = "5")]
    pub schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub positive_span: Vec<SpanMessage>,
    /// Count of each bucket minus the count of the bucket before it.
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub positive_delta: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct BucketMessage {
    #[prost(uint64, optional, tag = "1")]
    pub cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub upper_bound: Option<f64>,
}

/// Consecutive exponential buckets.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SpanMessage {
    /// First span: index of its first bucket. Later spans: number of empty buckets after the previous
    /// span.
    #[prost(sint32, optional, tag = "1")]
    pub offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub length: Option<u32>,
}
