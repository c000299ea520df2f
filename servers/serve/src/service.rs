//! Computes responses to requests.

use std::convert::Infallible;
use std::future::poll_fn;
use std::mem;
use std::rc::Rc;
use std::task::{Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::service::{Service, service_fn};
use hyper::{Method, Request, StatusCode, Version};
use tokio::time::timeout;

use crate::bars::bars;
use crate::http::{BodyFault, HttpResponse, host_fault, ok, read_body, refusal};
use crate::numbers::Numbers;
use crate::pace::Pace;
use crate::scoring::{is_json, score};
use crate::worker::Worker;
use crate::workload::NativeWorkload;

/// Returns the service that responds to the requests on a connection, one at a time. Most responses
/// are immediate and need no allocation.
pub(crate) fn service(
    worker: Rc<Worker>,
    pace: Rc<Pace>,
) -> impl Service<Request<Incoming>, Response = HttpResponse, Error = Infallible, Future: Unpin> {
    service_fn(move |request: Request<Incoming>| {
        pace.received_head(worker.register.now.get());
        let is_last = asks_to_close(request.headers());
        let worker = Rc::clone(&worker);
        let pace = Rc::clone(&pace);
        let is_complete = request.body().is_end_stream();
        let immediate = is_complete.then(|| immediate(&worker, &request)).flatten();
        // Only a delayed response is boxed, so immediate responses do not carry its state.
        let mut response = immediate
            .ok_or_else(|| Box::pin(delayed(Rc::clone(&worker), Rc::clone(&pace), request)));
        poll_fn(move |cx| {
            let response = match &mut response {
                Ok(response) => mem::take(response),
                Err(delayed) => ready!(delayed.as_mut().poll(cx)),
            };
            // Set only now, so that an interim response is not held back.
            pace.is_last.set(is_last);
            Poll::Ready(Ok(finished(&worker, &pace, response)))
        })
    })
}

/// Returns whether the client asks to close the connection after the response (RFC 9112, section
/// 9.6). Returns `false` if the `Connection` header also has other options.
fn asks_to_close(headers: &HeaderMap) -> bool {
    let connection = headers.get(CONNECTION);
    connection.is_some_and(|options| options.as_bytes().eq_ignore_ascii_case(b"close"))
}

fn finished(worker: &Worker, pace: &Pace, mut response: HttpResponse) -> HttpResponse {
    pace.responded();
    if count_response(worker) {
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Counts a response. Returns whether the server must close the connection afterwards.
pub(crate) fn count_response(worker: &Worker) -> bool {
    worker.totals.borrow_mut().answered += 1;
    worker.is_stopping() || worker.shared.budget.is_exceeded()
}

/// Returns the response to a request.
pub(crate) async fn respond(
    worker: Rc<Worker>,
    pace: Rc<Pace>,
    request: Request<Incoming>,
) -> HttpResponse {
    let is_complete = request.body().is_end_stream();
    match is_complete.then(|| immediate(&worker, &request)).flatten() {
        Some(response) => response,
        None => delayed(worker, pace, request).await,
    }
}

/// Returns the response, or `None` if the response must wait or depends on the body.
fn immediate(worker: &Worker, request: &Request<Incoming>) -> Option<HttpResponse> {
    let workload = worker.shared.workload;
    if let Some(reason) = host_fault(request.version(), request.uri(), request.headers()) {
        return Some(refusal(StatusCode::BAD_REQUEST, reason, None));
    }
    let methods = workload.methods();
    let first = || methods.split(',').next().unwrap_or_default();
    if request.uri().path() != workload.path() {
        let (first, path) = (first(), workload.path());
        let reason = format!("no such path; {workload} serves {first} {path}");
        return Some(refusal(StatusCode::NOT_FOUND, &reason, None));
    }
    let method = request.method().as_str();
    if !methods.split(", ").any(|allowed| allowed == method) {
        let header = Some((ALLOW, methods));
        let reason = format!("method not allowed; use {}", first());
        return Some(refusal(StatusCode::METHOD_NOT_ALLOWED, &reason, header));
    }
    match workload {
        NativeWorkload::Hello => Some(ok("text/plain", Bytes::from_static(b"Hello World"))),
        NativeWorkload::Json => Some(ok(
            "application/json",
            Bytes::from_static(br#"{"message":"Hello, World!"}"#),
        )),
        NativeWorkload::Dispatcher => dispatch(&worker.shared.numbers, request.method()),
        NativeWorkload::Scoring | NativeWorkload::Bars
            if request.method() == Method::POST && !is_json(request.headers()) =>
        {
            Some(refusal(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body is not JSON; send Content-Type: application/json",
                None,
            ))
        }
        NativeWorkload::Scoring | NativeWorkload::Bars => None,
    }
}

/// Returns the next number, or `None` if no number is reserved. A HEAD request takes no number, so
/// the body's length is unknown.
fn dispatch(numbers: &Numbers, method: &Method) -> Option<HttpResponse> {
    match *method {
        Method::HEAD => Some(ok("text/plain", Bytes::new())),
        _ => numbers.try_take().map(number),
    }
}

/// Reads the request body, waits for a number, a journal or a store if necessary, and returns the
/// response.
async fn delayed(
    worker: Rc<Worker>,
    pace: Rc<Pace>,
    mut request: Request<Incoming>,
) -> HttpResponse {
    let limit = worker.shared.limits.body_bytes;
    let is_http2 = request.version() == Version::HTTP_2;
    let body = read_body(&mut request, limit);
    // In HTTP/1.1, the worker's scan limits the time.
    let body = if is_http2 {
        let read = timeout(worker.shared.limits.request, body).await;
        read.unwrap_or(Err(BodyFault::TooSlow))
    } else {
        body.await
    };
    let body = match body {
        Ok(body) => {
            pace.received_body();
            body
        }
        Err(BodyFault::Malformed) => {
            let reason = "malformed or incomplete body; check its chunk sizes or Content-Length";
            return last_refusal(&pace, StatusCode::BAD_REQUEST, reason);
        }
        Err(BodyFault::TooSlow) => {
            let reason = "incomplete body; send the whole body at once";
            return last_refusal(&pace, StatusCode::REQUEST_TIMEOUT, reason);
        }
        Err(BodyFault::TooLong) => {
            let reason = format!("body too long; the limit is {limit} bytes");
            return last_refusal(&pace, StatusCode::PAYLOAD_TOO_LARGE, &reason);
        }
    };
    if let Some(response) = immediate(&worker, &request) {
        return response;
    }
    let method = request.method().clone();
    // Free the request's memory before waiting.
    drop(request);
    if let Some(scores) = &worker.shared.scores {
        return score(&worker, scores, body).await;
    }
    if let Some(store) = &worker.shared.bars {
        return bars(store, &method, body).await;
    }
    match worker.shared.numbers.take().await {
        Some(taken) => number(taken),
        None => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "no reserved number is available; retry later, or restart the server if it cannot write its state file",
            Some((RETRY_AFTER, "1")),
        ),
    }
}

/// Refuses a request whose end is unknown, so the connection cannot be kept.
fn last_refusal(pace: &Pace, status: StatusCode, reason: &str) -> HttpResponse {
    pace.linger.set(true);
    refusal(status, reason, Some((CONNECTION, "close")))
}

fn number(number: u64) -> HttpResponse {
    ok("text/plain", Bytes::from(number.to_string()))
}
