//! gRPC status codes, and statuses of responses.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::named;

named! {
    /// Status code of a gRPC call (`google.rpc.Code`).
    GrpcStatus {
        /// Success.
        Ok = "OK",
        /// The caller cancelled the call.
        Cancelled = "CANCELLED",
        /// An error without a more specific code, or with an unknown code.
        Unknown = "UNKNOWN",
        /// An argument is invalid.
        InvalidArgument = "INVALID_ARGUMENT",
        /// The call did not complete within its deadline.
        DeadlineExceeded = "DEADLINE_EXCEEDED",
        /// An entity does not exist.
        NotFound = "NOT_FOUND",
        /// An entity already exists.
        AlreadyExists = "ALREADY_EXISTS",
        /// The caller lacks a permission.
        PermissionDenied = "PERMISSION_DENIED",
        /// A quota or another resource is used up.
        ResourceExhausted = "RESOURCE_EXHAUSTED",
        /// The system is not in the required state.
        FailedPrecondition = "FAILED_PRECONDITION",
        /// The call was aborted because of a conflict.
        Aborted = "ABORTED",
        /// A value is out of range.
        OutOfRange = "OUT_OF_RANGE",
        /// The server does not implement the method.
        Unimplemented = "UNIMPLEMENTED",
        /// An internal error of the server.
        Internal = "INTERNAL",
        /// The service is currently unavailable.
        Unavailable = "UNAVAILABLE",
        /// Data was lost or is corrupt.
        DataLoss = "DATA_LOSS",
        /// The caller has no valid credentials.
        Unauthenticated = "UNAUTHENTICATED",
    }
}

impl GrpcStatus {
    /// Returns the status for a number in `grpc-status`. As in other clients, unknown numbers map
    /// to [`GrpcStatus::Unknown`].
    #[must_use]
    pub fn from_code(code: u32) -> Self {
        let status = Self::ALL.get(code as usize).copied();
        status.unwrap_or(GrpcStatus::Unknown)
    }
}

/// Status of a response.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct ResponseStatus {
    /// HTTP status code.
    #[serde(rename = "status")]
    pub http: u16,
    /// gRPC status; null if the request is not a gRPC call, or if the HTTP status is not 200.
    #[serde(
        rename = "grpc_status",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub grpc: Option<GrpcStatus>,
}

impl ResponseStatus {
    /// Returns whether the status means success: 2xx or 3xx, and gRPC status OK.
    #[must_use]
    pub fn is_success(self) -> bool {
        (200..400).contains(&self.http) && matches!(self.grpc, None | Some(GrpcStatus::Ok))
    }

    /// Returns whether the server declined the request because of its load: 429, 503,
    /// RESOURCE_EXHAUSTED or UNAVAILABLE.
    #[must_use]
    pub fn is_rejection(self) -> bool {
        let of_grpc = |status: GrpcStatus| {
            matches!(
                status,
                GrpcStatus::ResourceExhausted | GrpcStatus::Unavailable
            )
        };
        matches!(self.http, 429 | 503) || self.grpc.is_some_and(of_grpc)
    }

    /// Returns the condition for a response with this status (`--expect`).
    #[must_use]
    pub fn expectation(self) -> String {
        match self.grpc {
            Some(grpc) => format!("grpc-status={grpc}"),
            None => format!("status={}", self.http),
        }
    }
}

impl From<u16> for ResponseStatus {
    fn from(http: u16) -> Self {
        ResponseStatus { http, grpc: None }
    }
}

impl fmt::Display for ResponseStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.grpc {
            Some(grpc) => f.pad(grpc.name()),
            None => self.http.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_codes_to_names() {
        for (code, name) in [
            (0, "OK"),
            (4, "DEADLINE_EXCEEDED"),
            (8, "RESOURCE_EXHAUSTED"),
            (13, "INTERNAL"),
            (14, "UNAVAILABLE"),
            (16, "UNAUTHENTICATED"),
            (17, "UNKNOWN"),
            (u32::MAX, "UNKNOWN"),
        ] {
            assert_eq!(GrpcStatus::from_code(code).name(), name);
        }
    }

    #[test]
    fn a_status_is_one_or_two_fields() {
        let http = ResponseStatus::from(503);
        assert_eq!(serde_json::to_string(&http).unwrap(), r#"{"status":503}"#);
        let grpc = ResponseStatus {
            http: 200,
            grpc: Some(GrpcStatus::NotFound),
        };
        let json = serde_json::to_string(&grpc).unwrap();
        assert_eq!(json, r#"{"status":200,"grpc_status":"NOT_FOUND"}"#);
        assert_eq!(serde_json::from_str::<ResponseStatus>(&json).unwrap(), grpc);
        assert_eq!(
            (http.to_string(), grpc.to_string()),
            ("503".into(), "NOT_FOUND".into())
        );
    }
}
