//! `cargo xtask contract WORKLOAD ADDRESS`: checks a server against a workload's contract,
//! including the requests that it must refuse.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use clap::Args;
use floodmark_lab::manifest::Workload;
use serde_json::{Value, json};

use super::client::{ContractConnection, ContractRequest, ContractResponse};
use super::{bars, crash, scoring};

/// Length of the longest body that a server must accept, in bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// Prefix of each output line that reports a violation.
pub const VIOLATION: &str = "violation: ";

/// Text after the number of checks in the last output line.
pub const SUMMARY: &str = " checks, ";

/// Number of requests in the sequence check.
const NUMBERS: u64 = 200;

/// Options of `cargo xtask contract`.
#[derive(Debug, Args)]
pub struct ContractOptions {
    /// Workload to check: hello, json, dispatcher, scoring or bars
    #[arg(value_parser = workload)]
    workload: Workload,
    /// Address of the server, such as 127.0.0.1:8080
    server: SocketAddr,
    /// Also send SIGKILL to the server, restart it, then kill its store: acknowledged data must
    /// survive, and the server must refuse writes without the store
    #[arg(long)]
    outage: bool,
}

fn workload(name: &str) -> Result<Workload, String> {
    let expected = "expected hello, json, dispatcher, scoring or bars";
    name.parse().map_err(|_| expected.to_owned())
}

/// Counts checks and collects violations.
pub struct ContractCheck {
    /// Address of the server.
    pub server: SocketAddr,
    violations: Vec<String>,
    checks: u64,
}

impl ContractCheck {
    /// Counts a check, and records `violation` if the check failed.
    pub fn that(&mut self, holds: bool, violation: String) {
        self.checks += 1;
        if !holds {
            self.violations.push(violation);
        }
    }

    /// Calls `exchange` with a new connection. An error is recorded as a violation.
    fn exchange<T>(
        &mut self,
        what: &str,
        exchange: impl FnOnce(&mut ContractConnection) -> io::Result<T>,
    ) -> Option<T> {
        self.checks += 1;
        let connection = ContractConnection::to(self.server);
        let result = connection.and_then(|mut connection| exchange(&mut connection));
        let violations = &mut self.violations;
        result
            .inspect_err(|error| violations.push(format!("{what}: no response: {error}")))
            .ok()
    }

    /// Sends a request on a fresh connection and returns the response. A missing response is
    /// recorded as a violation.
    pub fn once(&mut self, request: ContractRequest<'_>) -> Option<ContractResponse> {
        let what = format!("{} {}", request.method, request.path);
        self.exchange(&what, |connection| connection.request(request))
    }

    /// Sends a request with `Connection: close` and checks that the server closes the connection
    /// after its response. Returns a description of the request, and the response.
    pub fn closing(&mut self, request: ContractRequest<'_>) -> Option<(String, ContractResponse)> {
        let what = format!("{} {} with Connection: close", request.method, request.path);
        let (response, is_closed) = self.exchange(&what, |connection| {
            connection.send(&request.text("Connection: close\r\n"));
            Ok((connection.response()?, connection.is_closed()))
        })?;
        self.that(is_closed, format!("{what}: the connection stays open"));
        Some((what, response))
    }

    /// Checks the status, media type and body of a successful response. `is_right` is the result of
    /// the body check.
    pub fn ok(&mut self, what: &str, response: &ContractResponse, kind: &str, is_right: bool) {
        self.success(what, response, kind, response.status == 200 && is_right);
    }

    /// Checks the media type of a successful response. `is_right` is the result of the checks of
    /// status and body.
    pub fn success(&mut self, what: &str, response: &ContractResponse, kind: &str, is_right: bool) {
        let (status, body) = (response.status, &response.body);
        self.that(
            is_right,
            format!("{what}: unexpected response: status {status}, body {body:?}"),
        );
        self.media_type(what, response, kind);
    }

    /// Checks that the server refuses a request with this status and a one-line reason. Returns the
    /// response.
    pub fn refused(
        &mut self,
        what: &str,
        request: ContractRequest<'_>,
        status: u16,
    ) -> Option<ContractResponse> {
        let response = self.once(request)?;
        self.is_refusal(what, &response, status);
        Some(response)
    }

    fn is_refusal(&mut self, what: &str, response: &ContractResponse, status: u16) {
        let (got, body) = (response.status, &response.body);
        self.that(
            got == status,
            format!("{what}: status {got}, expected {status}: {body:?}"),
        );
        let value: Value = serde_json::from_str(body).unwrap_or_default();
        let reason = value["error"].as_str().unwrap_or_default();
        let is_alone = value.as_object().is_some_and(|object| object.len() == 1);
        self.that(
            is_alone && !reason.is_empty() && !body.contains('\n'),
            format!("{what}: expected {{\"error\": \"…\"}} on one line, not {body:?}"),
        );
        self.media_type(what, response, "application/json");
    }

    /// Checks the media type of a response, without its parameters.
    fn media_type(&mut self, what: &str, response: &ContractResponse, expected: &str) {
        let kind = response.header("content-type").unwrap_or_default();
        let media_type = kind.split(';').next().unwrap_or_default().trim();
        self.that(
            media_type == expected,
            format!("{what}: Content-Type {media_type:?}, expected {expected}"),
        );
    }
}

/// Runs the checks, prints the result and returns whether the server meets the contract.
pub fn run(options: &ContractOptions) -> bool {
    let mut check = ContractCheck {
        server: options.server,
        violations: Vec::new(),
        checks: 0,
    };
    contract(options.workload, &mut check);
    if options.outage {
        crash::contract(options.workload, &mut check);
    }
    for violation in &check.violations {
        println!("{VIOLATION}{violation}");
    }
    let violations = check.violations.len();
    println!("{}{SUMMARY}{violations} violations", check.checks);
    violations == 0
}

fn contract(workload: Workload, check: &mut ContractCheck) {
    match workload {
        Workload::Hello => fixed(check, workload, "text/plain", |body| body == "Hello World"),
        Workload::Json => fixed(check, workload, "application/json", |body| {
            let value: Value = serde_json::from_str(body).unwrap_or_default();
            value == json!({ "message": "Hello, World!" })
        }),
        Workload::Dispatcher => dispatcher(check),
        Workload::Scoring => scoring::contract(check),
        Workload::Bars => bars::contract(check),
    }
    refusals(check, workload);
}

/// Checks that all requests on a connection get the same response.
fn fixed(check: &mut ContractCheck, workload: Workload, kind: &str, is_right: fn(&str) -> bool) {
    let get = ContractRequest::get(workload.path());
    let what = format!("GET {}", get.path);
    let responses: Option<Vec<_>> = check.exchange(&what, |connection| {
        (0..3).map(|_| connection.request(get)).collect()
    });
    for (i, response) in responses.iter().flatten().enumerate() {
        let what = format!("{what}, request {} on its connection", i + 1);
        check.ok(&what, response, kind, is_right(&response.body));
    }
    if let Some((what, response)) = check.closing(get) {
        check.ok(&what, &response, kind, is_right(&response.body));
    }
}

/// Checks that the numbers ascend without gaps.
fn dispatcher(check: &mut ContractCheck) {
    let begin = Instant::now();
    let get = ContractRequest::get(Workload::Dispatcher.path());
    let server = check.server;
    let responses: Option<Vec<_>> = check.exchange("GET /dispatcher", |kept| {
        let request = |nth| match nth % 10 {
            // All connections share one counter.
            0 => ContractConnection::to(server)?.request(get),
            _ => kept.request(get),
        };
        (0..NUMBERS).map(request).collect()
    });
    let mut responses = responses.unwrap_or_default();
    responses.extend(check.closing(get).map(|(_, response)| response));
    let post = ContractRequest::post(get.path, "{}");
    check.refused("POST /dispatcher", post, 405);
    responses.extend(check.once(get));
    let mut numbers: Vec<u64> = Vec::new();
    for response in &responses {
        let number = response.body.parse::<u64>();
        check.ok("GET /dispatcher", response, "text/plain", number.is_ok());
        numbers.extend(number);
    }
    let ascends = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    check.that(ascends, format!("numbers are not ascending: {numbers:?}"));
    if let (Some(first), Some(last)) = (numbers.first(), numbers.last()) {
        let requested = numbers.len() as u64;
        // `floodmark run` also reads the counter every second, and before and after the load.
        let others = begin.elapsed().as_secs() + 2;
        let counted = last.saturating_sub(*first) + 1;
        check.that(
            counted <= requested + others,
            format!("numbers are missing: the counter rose by {counted} in {requested} requests"),
        );
    }
}

/// Checks that the server refuses the requests that every workload must refuse.
fn refusals(check: &mut ContractCheck, workload: Workload) {
    let path = workload.path();
    let allowed: &[&str] = match workload {
        Workload::Scoring => &["POST"],
        Workload::Bars => &["GET", "POST"],
        _ => &["GET"],
    };
    let json = |method, body| ContractRequest {
        method,
        ..ContractRequest::post(path, body)
    };
    check.refused("an unknown path", ContractRequest::get("/nowhere"), 404);
    for method in ["PUT", "DELETE", "PATCH"] {
        let what = format!("{method} {path}");
        if let Some(response) = check.refused(&what, json(method, "{}"), 405) {
            let allow = response.header("allow").unwrap_or_default();
            let listed: Vec<&str> = allow.split(',').map(str::trim).collect();
            check.that(
                allowed.iter().all(|method| listed.contains(method)),
                format!("{what}: Allow {allow:?}, expected {}", allowed.join(", ")),
            );
        }
    }
    let long = "x".repeat(MAX_BODY + 1);
    let method = allowed.last().copied().unwrap_or("GET");
    check.refused("a body over 64 KiB", json(method, &long), 413);
    if method == "POST" {
        let what = "a chunked body over 64 KiB";
        let chunked = check.exchange(what, |connection| {
            connection.send(&format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Transfer-Encoding: chunked\r\n\r\n"
            ));
            for _ in 0..17 {
                connection.send(&format!("1000\r\n{}\r\n", " ".repeat(4096)));
            }
            connection.send("0\r\n\r\n");
            connection.response()
        });
        if let Some(response) = chunked {
            check.is_refusal(what, &response, 413);
        }
    }
}
