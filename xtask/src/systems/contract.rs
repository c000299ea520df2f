//! `cargo xtask contract WORKLOAD URL`: asks a server all that the contract of a workload says, refusals included.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::client::{Answer, Connection, Request};
use super::{bars, outage, scoring};

/// The longest body that is taken, bytes.
pub const LONGEST_BODY: usize = 64 * 1024;

/// Numbers that are drawn one after the other.
const NUMBERS: u64 = 200;

/// What to ask of whom.
#[derive(Debug, Args)]
pub struct Options {
    /// The workload whose contract it is.
    #[arg(value_enum)]
    workload: Workload,
    /// The server, such as 127.0.0.1:8080.
    server: SocketAddr,
    /// Kill the server (SIGKILL), start it again, and kill the store behind it: what was answered has to be there, and what is not
    /// written has to be refused.
    #[arg(long)]
    outage: bool,
}

/// HTTP APIs that several systems implement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// `GET /`: Hello World.
    Hello,
    /// `GET /json`: a greeting in JSON.
    Json,
    /// `GET /dispatcher`: the next number.
    Dispatcher,
    /// `POST /scoring`: number, sum and mean of all scores.
    Scoring,
    /// `GET /bars` and `POST /bars`: what a database holds.
    Bars,
}

impl Workload {
    /// Its path.
    pub fn path(self) -> &'static str {
        match self {
            Workload::Hello => "/",
            Workload::Json => "/json",
            Workload::Dispatcher => "/dispatcher",
            Workload::Scoring => "/scoring",
            Workload::Bars => "/bars",
        }
    }

    /// The methods that its path has.
    fn methods(self) -> &'static [&'static str] {
        match self {
            Workload::Hello | Workload::Json | Workload::Dispatcher => &["GET"],
            Workload::Scoring => &["POST"],
            Workload::Bars => &["GET", "POST"],
        }
    }
}

/// A contract being asked for: what was found wrong, and how much was asked.
pub struct Asking {
    /// Where the server is.
    pub server: SocketAddr,
    /// What is wrong, in words.
    pub faults: Vec<String>,
    asked: u64,
}

impl Asking {
    /// Holds something, in words that say what is not so.
    pub fn hold(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        self.asked += 1;
        if !holds {
            self.faults.push(otherwise());
        }
    }

    /// The answer to a request on a connection of its own; none where there was none, which is a fault.
    pub fn once(&mut self, request: Request<'_>) -> Option<Answer> {
        let what = format!("{} {}", request.method, request.path);
        let answer = Connection::to(self.server).and_then(|mut it| it.ask(request));
        self.whole(&what, answer)
    }

    /// The answer, where there was a whole one.
    pub fn whole<T>(&mut self, what: &str, answer: io::Result<T>) -> Option<T> {
        self.asked += 1;
        let error = match answer {
            Ok(answer) => return Some(answer),
            Err(error) => error,
        };
        self.faults.push(format!("{what}: no answer: {error}"));
        None
    }

    /// Holds that a request is refused with a status and a line that says why; returns the answer.
    pub fn refused(&mut self, why: &str, request: Request<'_>, status: u16) -> Option<Answer> {
        let answer = self.once(request)?;
        self.is_refusal(why, &answer, status);
        Some(answer)
    }

    /// Holds that an answer is a refusal.
    fn is_refusal(&mut self, why: &str, answer: &Answer, status: u16) {
        let Answer {
            status: got, body, ..
        } = answer;
        self.hold(*got == status, || {
            format!("{why}: {got} in place of {status}: {body:?}")
        });
        let value: Option<Value> = serde_json::from_str(body).ok();
        let says = value.is_some_and(|value| {
            value.as_object().is_some_and(|object| {
                let text = object.get("error").and_then(Value::as_str);
                object.len() == 1 && text.is_some_and(|text| !text.is_empty())
            })
        });
        self.hold(says && !body.contains('\n'), || {
            format!("{why}: its body is no one-line {{\"error\": \"…\"}}: {body:?}")
        });
        let kind = answer.kind();
        self.hold(kind == "application/json", || {
            format!("{why}: the refusal's Content-Type is {kind:?}, not application/json")
        });
    }
}

/// Asks; whether all is as the contract says.
pub fn run(options: &Options) -> bool {
    let mut asking = Asking {
        server: options.server,
        faults: Vec::new(),
        asked: 0,
    };
    contract(options.workload, &mut asking);
    if options.outage {
        outage::contract(options.workload, &mut asking);
    }
    for fault in &asking.faults {
        println!("fault: {fault}");
    }
    println!(
        "{} things asked, {} faults",
        asking.asked,
        asking.faults.len()
    );
    asking.faults.is_empty()
}

fn contract(workload: Workload, asking: &mut Asking) {
    match workload {
        Workload::Hello => fixed(asking, workload, "text/plain", &|body| {
            body == "Hello World"
        }),
        Workload::Json => fixed(asking, workload, "application/json", &|body| {
            let value: Result<Value, _> = serde_json::from_str(body);
            value.is_ok_and(|value| value == json!({ "message": "Hello, World!" }))
        }),
        Workload::Dispatcher => dispatcher(asking),
        Workload::Scoring => scoring::contract(asking),
        Workload::Bars => bars::contract(asking),
    }
    refusals(asking, workload);
}

/// The same answer each time, on one connection.
fn fixed(asking: &mut Asking, workload: Workload, kind: &str, right: &dyn Fn(&str) -> bool) {
    let path = workload.path();
    let Some(mut connection) = asking.whole("connecting", Connection::to(asking.server)) else {
        return;
    };
    for nth in 1..=3 {
        let what = format!("GET {path}, number {nth} on its connection");
        let Some(answer) = asking.whole(&what, connection.ask(Request::get(path))) else {
            return;
        };
        is_right(asking, &what, &answer, kind, right);
    }
    closes(asking, Request::get(path), &|answer| right(&answer.body));
}

/// Holds an ok answer against what it should be.
pub fn is_right(
    asking: &mut Asking,
    what: &str,
    answer: &Answer,
    kind: &str,
    right: &dyn Fn(&str) -> bool,
) {
    let Answer { status, body, .. } = answer;
    asking.hold(*status == 200 && right(body), || {
        format!("{what}: {status} {body:?}")
    });
    let of = answer.kind();
    asking.hold(of == kind, || {
        format!("{what}: the Content-Type is {of:?}, not {kind}")
    });
}

/// Holds that a server closes a connection that it is asked to close, after the answer.
pub fn closes(asking: &mut Asking, request: Request<'_>, right: &dyn Fn(&Answer) -> bool) {
    let what = format!("{} {} with Connection: close", request.method, request.path);
    let answered = Connection::to(asking.server).and_then(|mut connection| {
        connection.send(&request.text("Connection: close\r\n"));
        let answer = connection.answer()?;
        Ok((answer, connection.is_closed()))
    });
    if let Some((answer, closed)) = asking.whole(&what, answered) {
        asking.hold(right(&answer), || {
            format!("{what}: {} {:?}", answer.status, answer.body)
        });
        asking.hold(closed, || format!("{what}: the connection stays open"));
    }
}

/// Numbers in order, each once.
fn dispatcher(asking: &mut Asking) {
    let begin = Instant::now();
    let path = Workload::Dispatcher.path();
    let Some(mut kept) = asking.whole("connecting", Connection::to(asking.server)) else {
        return;
    };
    let mut numbers: Vec<u64> = Vec::new();
    for nth in 0..NUMBERS {
        let answer = match nth % 10 {
            // Whatever the connection, the numbers are of one counter.
            0 => asking.once(Request::get(path)),
            _ => asking.whole(path, kept.ask(Request::get(path))),
        };
        let Some(answer) = answer else { return };
        let is_number = |body: &str| body.parse::<u64>().is_ok();
        is_right(asking, "GET /dispatcher", &answer, "text/plain", &is_number);
        numbers.extend(answer.body.parse::<u64>().ok());
    }
    closes(asking, Request::get(path), &|answer| {
        answer.body.parse::<u64>().is_ok()
    });
    asking.refused("POST /dispatcher", Request::post(path, "{}"), 405);
    if let Some(answer) = asking.once(Request::get(path)) {
        numbers.extend(answer.body.parse::<u64>().ok());
    }
    let ascending = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    asking.hold(ascending, || {
        format!("its numbers do not ascend: {numbers:?}")
    });
    if let (Some(first), Some(last)) = (numbers.first(), numbers.last()) {
        // One more for the closed connection. Who runs this may read the counter once a second, and at both ends.
        let drawn = numbers.len() as u64 + 1;
        let others = begin.elapsed().as_secs() + 2;
        let between = last - first + 1;
        asking.hold(between <= drawn + others, || {
            format!(
                "{drawn} numbers were drawn, and it counted {between}: some were used up unseen"
            )
        });
    }
}

/// What every workload refuses.
fn refusals(asking: &mut Asking, workload: Workload) {
    let path = workload.path();
    asking.refused("an unknown path", Request::get("/nowhere"), 404);
    for method in ["PUT", "DELETE", "PATCH"] {
        let why = format!("{method} {path}");
        let request = Request {
            method,
            path,
            content: Some(("application/json", "{}")),
        };
        if let Some(answer) = asking.refused(&why, request, 405) {
            let allow = answer.header("allow").unwrap_or_default();
            let allowed: Vec<&str> = allow.split(',').map(str::trim).collect();
            asking.hold(
                workload.methods().iter().all(|m| allowed.contains(m)),
                || {
                    format!(
                        "{why}: Allow is {allow:?}, without {}",
                        workload.methods().join(", ")
                    )
                },
            );
        }
    }
    let long = "x".repeat(LONGEST_BODY + 1);
    let method = workload.methods().last().copied().unwrap_or("GET");
    let request = Request {
        method,
        path,
        content: Some(("application/json", &long)),
    };
    asking.refused("a body of more than 64 KiB", request, 413);
    if method == "POST" {
        let chunked = Connection::to(asking.server).and_then(|mut connection| {
            connection.send(&format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Transfer-Encoding: chunked\r\n\r\n"
            ));
            for _ in 0..17 {
                connection.send(&format!("1000\r\n{}\r\n", " ".repeat(4096)));
            }
            connection.send("0\r\n\r\n");
            connection.answer()
        });
        let why = "a body of more than 64 KiB in chunks";
        if let Some(answer) = asking.whole(why, chunked) {
            asking.is_refusal(why, &answer, 413);
        }
    }
}
