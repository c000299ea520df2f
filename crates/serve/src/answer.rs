//! What is answered to which request.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode};

use crate::pace::Pace;
use crate::worker::Worker;
use crate::workload::Workload;

type Answer = Response<Full<Bytes>>;

/// Answers the requests of one connection, one after the other.
pub(crate) struct Answerer {
    worker: Rc<Worker>,
    pace: Rc<Pace>,
}

impl Answerer {
    pub(crate) fn new(worker: Rc<Worker>, pace: Rc<Pace>) -> Self {
        Answerer { worker, pace }
    }
}

impl Service<Request<Incoming>> for Answerer {
    type Response = Answer;
    type Error = hyper::Error;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        self.pace.begin(self.worker.register.now());
        let worker = Rc::clone(&self.worker);
        let pace = Rc::clone(&self.pace);
        if request.body().is_end_stream()
            && let Some(answer) = at_once(&worker, &request)
        {
            return Answering::Now(Some(finished(&worker, &pace, answer)));
        }
        Answering::Later(Box::pin(async move {
            let answer = in_time(&worker, &pace, request).await?;
            Ok(finished(&worker, &pace, answer))
        }))
    }
}

/// An answer; most are there at once and need no memory of their own.
pub(crate) enum Answering {
    Now(Option<Answer>),
    Later(Pin<Box<dyn Future<Output = Result<Answer, hyper::Error>>>>),
}

impl Future for Answering {
    type Output = Result<Answer, hyper::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Answering::Now(answer) => match answer.take() {
                Some(answer) => Poll::Ready(Ok(answer)),
                None => Poll::Pending,
            },
            Answering::Later(future) => future.as_mut().poll(cx),
        }
    }
}

fn finished(worker: &Worker, pace: &Pace, mut answer: Answer) -> Answer {
    pace.answered();
    worker.count_answer();
    if worker.is_closing() {
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// The answer to a request without a body, unless it has to wait for a number.
fn at_once<B>(worker: &Worker, request: &Request<B>) -> Option<Answer> {
    let workload = worker.workload;
    if request.uri().path() != workload.path() {
        return Some(not_found(workload));
    }
    if !allows(workload, request.method()) {
        return Some(not_allowed(workload));
    }
    match workload {
        Workload::Hello => Some(ok("text/plain", Bytes::from_static(b"Hello World"))),
        Workload::Json => Some(ok(
            "application/json",
            Bytes::from_static(br#"{"message":"Hello, World!"}"#),
        )),
        Workload::Dispatcher => worker.numbers.try_take().map(number),
    }
}

/// The answer after the body was read (and dropped: no workload here takes one), or when a number came free.
async fn in_time(
    worker: &Worker,
    pace: &Pace,
    mut request: Request<Incoming>,
) -> Result<Answer, hyper::Error> {
    let most = worker.limits.body_bytes;
    let mut left = most;
    let mut too_long = request.body().size_hint().lower() > most;
    while !too_long && let Some(frame) = request.body_mut().frame().await {
        let bytes = frame?.into_data().map_or(0, |data| data.len() as u64);
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => too_long = true,
        }
    }
    if too_long {
        pace.set_linger();
        return Ok(too_large(most));
    }
    if let Some(answer) = at_once(worker, &request) {
        return Ok(answer);
    }
    Ok(match worker.numbers.take().await {
        Some(taken) => number(taken),
        None => no_number(),
    })
}

/// HEAD is answered where a GET changes nothing; a HEAD of the dispatcher would use up a number that nobody sees.
fn allows(workload: Workload, method: &Method) -> bool {
    match workload {
        Workload::Hello | Workload::Json => method == Method::GET || method == Method::HEAD,
        Workload::Dispatcher => method == Method::GET,
    }
}

fn number(number: u64) -> Answer {
    ok("text/plain", Bytes::from(number.to_string()))
}

fn ok(content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A one-line JSON body; the reasons are ours and hold nothing that would need escaping.
fn refusal(status: StatusCode, reason: &str) -> Answer {
    let mut answer = ok(
        "application/json",
        Bytes::from(format!("{{\"error\": \"{reason}\"}}")),
    );
    *answer.status_mut() = status;
    answer
}

fn not_found(workload: Workload) -> Answer {
    refusal(
        StatusCode::NOT_FOUND,
        &format!("no such path; {workload} answers GET {}", workload.path()),
    )
}

fn not_allowed(workload: Workload) -> Answer {
    let (allow, reason) = match workload {
        Workload::Hello | Workload::Json => ("GET, HEAD", "method not allowed; use GET"),
        Workload::Dispatcher => ("GET", "method not allowed; use GET, which takes a number"),
    };
    let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, reason);
    let headers = answer.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(allow));
    answer
}

fn too_large(most: u64) -> Answer {
    let mut answer = refusal(
        StatusCode::PAYLOAD_TOO_LARGE,
        &format!("body too long; at most {most} bytes"),
    );
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn no_number() -> Answer {
    let mut answer = refusal(
        StatusCode::SERVICE_UNAVAILABLE,
        "no number can be reserved; the state file cannot be written",
    );
    let headers = answer.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}
