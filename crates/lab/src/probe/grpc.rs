//! Single gRPC calls.

use floodmark_grpc::health::{self, ServingStatus};
use floodmark_load::call::{CallError, CallTarget, call};
use floodmark_plan::grpc::REQUIRED_HEADERS;
use floodmark_record::grpc::GrpcStatus;
use floodmark_record::plan::{Expect, Plan};

use super::{LIMITS, ProbeTarget};

/// Checks that a gRPC server is ready, with a health check. A server without a health service is
/// ready as soon as it answers, unless its answer is UNAVAILABLE.
///
/// # Errors
/// The server does not answer within 2 s, or is not ready.
pub fn check_health(target: ProbeTarget<'_>) -> Result<(), String> {
    let authority = target.address.to_string();
    let headers = REQUIRED_HEADERS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    match send(target, &authority, &headers, health::PATH, &health::REQUEST) {
        Ok(message) => match health::status(&message) {
            ServingStatus::Serving => Ok(()),
            status => Err(format!("the health check returns {}", status.name())),
        },
        Err(CallError::Status(status, _)) if status != GrpcStatus::Unavailable => Ok(()),
        Err(CallError::Http(404)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends a plan's gRPC call once. Checks only the status of the response.
///
/// # Errors
/// The server does not answer within 2 s, or its status is not the expected one.
pub fn check_call(target: ProbeTarget<'_>, plan: &Plan) -> Result<(), String> {
    let expected = plan.expect.iter().filter_map(|expect| match expect {
        Expect::GrpcStatus(status) => Some(*status),
        _ => None,
    });
    let expected: Vec<GrpcStatus> = expected.collect();
    let is_expected = |status: GrpcStatus| match &expected[..] {
        [] => status == GrpcStatus::Ok,
        expected => expected.contains(&status),
    };
    let body = plan.request.body.bytes().unwrap_or_default();
    let headers = &plan.request.headers;
    match send(
        target,
        &plan.target.authority,
        headers,
        &plan.target.path,
        body,
    ) {
        Ok(_) if is_expected(GrpcStatus::Ok) => Ok(()),
        Ok(_) => Err("the gRPC status is OK, which `expect` does not accept".to_owned()),
        Err(CallError::Status(status, _)) if is_expected(status) => Ok(()),
        Err(error @ CallError::Status(status, _)) => Err(format!(
            "{error}; correct `body`, or accept the status with expect = [\"grpc-status={status}\"]"
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Makes a call from the client's host. Returns the message in the response.
fn send(
    target: ProbeTarget<'_>,
    authority: &str,
    headers: &[(String, String)],
    path: &str,
    body: &[u8],
) -> Result<Vec<u8>, CallError> {
    let at = CallTarget {
        addresses: &[target.address.into()],
        tls: None,
        authority,
        headers,
        timeout: LIMITS.timeout,
    };
    target.from.within(|| call(&at, path, body))?
}
