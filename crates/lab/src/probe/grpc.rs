//! Single gRPC calls.

use floodmark_grpc::health::{self, ServingStatus};
use floodmark_load::call::{CallError, CallTarget, call};
use floodmark_plan::grpc::REQUIRED_HEADERS;
use floodmark_record::grpc::GrpcStatus;
use floodmark_record::plan::{Expect, Plan};

use super::{LIMITS, ProbeTarget, with_fix};

/// Checks whether a gRPC server is ready by sending a health check. A server without a health
/// service is ready as soon as it answers with HTTP status 404, or with a gRPC status other than
/// UNAVAILABLE.
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
        Err(error @ (CallError::Status(..) | CallError::Http(_) | CallError::Grpc(_))) => {
            Err(format!(
                "the health check fails: {error}; if another request shows that the server is ready, \
                 set ready = \"GET /path\""
            ))
        }
        Err(error) => Err(describe(&error, target)),
    }
}

/// Describes an error, and adds the fix for a failed TLS handshake.
fn describe(error: &CallError, target: ProbeTarget<'_>) -> String {
    match error {
        CallError::Io(error) => with_fix(error, target.origin),
        error => error.to_string(),
    }
}

/// Sends a plan's gRPC call once. Checks only the status of the response.
///
/// # Errors
/// The server does not answer within 2 s, or its status is not the expected one.
pub fn check_call(target: ProbeTarget<'_>, plan: &Plan) -> Result<(), String> {
    let expected = Expect::grpc_statuses(&plan.expect);
    let is_expected = |status: GrpcStatus| expected.contains(&status);
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
        Err(error) => Err(describe(&error, target)),
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
        tls: target.tls,
        authority,
        headers,
        timeout: LIMITS.timeout,
    };
    target.from.within(|| call(&at, path, body))?
}
