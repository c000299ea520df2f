//! Tests of memory usage: load threads allocate no memory under load, and idle connections take
//! little memory.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use common::http2::{http2, respond_on_all_streams, respond_to_calls};
use common::plans::{checked, closed_plan, feed, with_mix};
use common::server::{fast, respond_to_all, serve_on};
use common::tls::{Authority, SUITES, server};
use common::{input, pass_alone, raise_open_files, run};
use floodmark_load::judge::Judge;
use floodmark_load::worker::{self, RateControl, StopFlag};
use floodmark_record::feed::RowChoice;
use floodmark_record::plan::{Backend, Check, Model, Plan};
use floodmark_record::tls::{TlsPlan, Trust};
use floodmark_record::worker_input::{RequestLogInput, WorkerInput};
use floodmark_record::{Event, Outcome};
use rustls::{ServerConnection, StreamOwned};

on_both_backends! {
    load_allocates_nothing
    filling_in_templates_allocates_nothing
    logging_requests_allocates_nothing
    load_over_http2_allocates_nothing
    grpc_calls_allocate_nothing
    load_over_https_allocates_a_few_times_per_request
    http2_over_tls_allocates_a_few_times_per_request
    an_idle_connection_takes_little
    an_idle_tls_connection_stays_below_its_limit
}

/// Counts the allocations in load threads while counting is enabled.
struct Counting;

static WATCH: AtomicBool = AtomicBool::new(false);
static COUNTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether the calling thread is known to be a load thread.
    static LOADS: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if !WATCH.load(Ordering::Relaxed) {
        return;
    }
    let loads = LOADS.try_with(|known| {
        if !known.get() {
            let mut name = [0u8; 16];
            // SAFETY: the kernel writes at most 16 bytes.
            unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
            known.set(name.starts_with(b"load-"));
        }
        known.get()
    });
    if loads == Ok(true) {
        COUNTED.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system allocator. Counting does not allocate memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantee is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantee is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A server in a separate process, so that the measurement excludes its files and memory.
struct Server(Child, SocketAddr);

impl Server {
    /// Starts a server. `how` is its protocol: `plain`, `tls`, `http2`, `tls-http2` or `grpc`.
    fn start(how: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_server", "--nocapture"])
            .env("FLOODMARK_TEST_SERVER", how)
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("listening on ")?.1.parse().ok())
            .expect("the server's address");
        Server(child, address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs in the process of [`Server`].
#[test]
fn child_server() {
    let Some(how) = std::env::var_os("FLOODMARK_TEST_SERVER") else {
        return;
    };
    // Exit when the parent process exits for any reason.
    thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    raise_open_files();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: no pointers are passed. This call makes the accept queue longer, because many
    // connections arrive at once.
    unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 4096) };
    println!("\nlistening on {}", listener.local_addr().unwrap());
    if how == "plain" {
        return fast(listener);
    }
    if how == "http2" {
        serve_on(listener, |mut stream, _| {
            respond_on_all_streams(&mut stream);
        });
    } else if how == "grpc" {
        serve_on(listener, |mut stream, _| respond_to_calls(&mut stream));
    } else {
        let mut config = server(&Authority::new().itself(), &SUITES, true);
        let is_http2 = how == "tls-http2";
        if is_http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        let config = Arc::new(config);
        serve_on(listener, move |stream, _| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            if is_http2 {
                respond_on_all_streams(&mut stream);
            } else {
                respond_to_all(&mut stream, &AtomicU64::new(0));
            }
        });
    }
    loop {
        thread::park();
    }
}

/// Returns the plan with TLS, but without certificate verification.
fn secured(plan: Plan) -> Plan {
    Plan {
        tls: Some(TlsPlan {
            server_name: "localhost".to_owned(),
            trust: Trust::Nothing,
            resumption: true,
            client_certificate_sha256: None,
        }),
        ..plan
    }
}

/// Number of requests to observe: one allocation per 1,000 requests would occur ten times.
const ENOUGH: u64 = 10_000;

/// Maximum duration in seconds, which is far longer than any host needs.
const DEADLINE_S: f64 = 300.0;

fn plan(backend: Backend, server: &Server, connections: u32, seconds: f64) -> Plan {
    let mut plan = closed_plan(connections, 0);
    plan.backend = backend;
    plan.target.address = server.1.into();
    plan.model = Model::closed(seconds);
    plan
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Returns true if this process runs only the test `name` on `backend`.
/// Otherwise runs the test in a separate process, and returns false.
fn alone(name: &str, backend: Backend) -> bool {
    if std::env::var_os("FLOODMARK_TEST_ALONE").is_some() {
        return true;
    }
    pass_alone(name, backend, &[("FLOODMARK_TEST_ALONE", "1")]);
    false
}

fn load_allocates_nothing(backend: Backend) {
    if alone("load_allocates_nothing", backend) {
        let server = Server::start("plain");
        allocates_at_most(0, |n, s| input(plan(backend, &server, n, s)));
    }
}

fn load_over_http2_allocates_nothing(backend: Backend) {
    if alone("load_over_http2_allocates_nothing", backend) {
        let server = Server::start("http2");
        for streams in [1, 32] {
            allocates_at_most(0, |n, s| {
                let plan = plan(backend, &server, n, s);
                input(http2(plan, streams, server.1, backend))
            });
        }
    }
}

fn grpc_calls_allocate_nothing(backend: Backend) {
    if alone("grpc_calls_allocate_nothing", backend) {
        let server = Server::start("grpc");
        allocates_at_most(0, |n, s| {
            let mut plan = plan(backend, &server, n, s);
            plan.request.method = "POST".to_owned();
            plan.request.body = b"\0\0\0\0\0".to_vec().into();
            plan.request.is_grpc = true;
            input(http2(plan, 32, server.1, backend))
        });
    }
}

/// rustls allocates for each record.
fn load_over_https_allocates_a_few_times_per_request(backend: Backend) {
    if alone("load_over_https_allocates_a_few_times_per_request", backend) {
        let server = Server::start("tls");
        allocates_at_most(10, |n, s| input(secured(plan(backend, &server, n, s))));
    }
}

fn http2_over_tls_allocates_a_few_times_per_request(backend: Backend) {
    if alone("http2_over_tls_allocates_a_few_times_per_request", backend) {
        let server = Server::start("tls-http2");
        // Many requests share a record.
        for (streams, per_request) in [(1, 10), (32, 4)] {
            allocates_at_most(per_request, |n, s| {
                let plan = plan(backend, &server, n, s);
                input(secured(http2(plan, streams, server.1, backend)))
            });
        }
    }
}

fn filling_in_templates_allocates_nothing(backend: Backend) {
    if alone("filling_in_templates_allocates_nothing", backend) {
        let server = Server::start("plain");
        allocates_at_most(0, |n, s| input(varying(plan(backend, &server, n, s))));
    }
}

fn logging_requests_allocates_nothing(backend: Backend) {
    if alone("logging_requests_allocates_nothing", backend) {
        let server = Server::start("plain");
        allocates_at_most(0, |n, s| WorkerInput {
            request_log: Some(RequestLogInput {
                file: "/dev/null".into(),
                share: 1.0,
                attempt: 1,
            }),
            ..input(plan(backend, &server, n, s))
        });
    }
}

/// Held by a test that counts allocations in this process.
static JUDGING: Mutex<()> = Mutex::new(());

/// Returns the plan with templates.
fn varying(plan: Plan) -> Plan {
    let mut plan = with_mix(plan, &[3, 2, 1]);
    let requests = &mut plan.mix.as_mut().unwrap().requests;
    requests[0].path = "/{seq}/{rand:0-18446744073709551615}".to_owned();
    requests[1].path = "/{uuid}".to_owned();
    requests[1].request.headers = vec![("X-Id".to_owned(), "{uuid} {seq}".to_owned())];
    requests[2].path = "/{raw:a}/{raw:b}".to_owned();
    let rows = [["1", ""], ["22", "x"], ["", "333"]];
    plan.mix.as_mut().unwrap().feeds = vec![feed(RowChoice::Random, ["a", "b"], &rows)];
    plan
}

/// Parsing responses for `--check scoring` allocates no memory, regardless of the order and
/// notation of fields.
#[test]
fn reading_scores_allocates_nothing() {
    let plan = Plan {
        check: Some(Check::Scoring { score: 10.0 }),
        ..closed_plan(1, 1)
    };
    let bodies: [&[u8]; 3] = [
        br#"{"averageScore":10.0,"totalScore":1.0E7,"numberOfTrials":1000000}"#,
        br#"{"numberOfTrials":3,"averageScore":10.000000000000000001,"totalScore":30}"#,
        b" { \"totalScore\" : 20 ,\n\"numberOfTrials\" : 2.0 , \"averageScore\" : 1e1 } ",
    ];
    judging_allocates_nothing(Judge::of_plan(&plan).remove(0), bodies);
}

/// Finding a value in a response for `--check FILE` allocates no memory.
#[test]
fn finding_values_allocates_nothing() {
    let mut plan = checked(with_mix(closed_plan(1, 1), &[1, 1]), 5);
    let Some(Check::Api(api)) = &mut plan.check else {
        panic!("{:?}", plan.check);
    };
    api.read_value = Some("/data/1/value".to_owned().try_into().unwrap());
    let bodies: [&[u8]; 3] = [
        br#"{"meta":{"value":1},"data":[{"value":2},{"value":"3"}]}"#,
        br#"{"data":[[1,2],{"name":"\\","value":null}],"x":[1.5]}"#,
        b" { \"data\" : [ 0 , { \"value\" : 18446744073709551615 } ] } ",
    ];
    judging_allocates_nothing(Judge::of_plan(&plan).remove(1), bodies);
}

/// Checking parts of bodies allocates no memory. A regular expression allocates only until it has
/// seen the kinds of bodies that the server sends.
#[test]
fn checking_parts_of_bodies_allocates_nothing() {
    let expect = ["json:$.a[1].b=paid", "contains:paid", r#"regex:"c":\s*\d+"#];
    let plan = Plan {
        expect: expect.map(|text| text.parse().unwrap()).into(),
        ..closed_plan(1, 1)
    };
    let bodies: [&[u8]; 3] = [
        br#"{"a":[1,{"b":"paid"}],"c":1}"#,
        br#"{"c":  200000,"a":[null,{"b":"paid","d":2.5}]}"#,
        br#"{"x":"y","c":3,"a":["paid",{"b":"paid"},7]}"#,
    ];
    judging_allocates_nothing(Judge::of_plan(&plan).remove(0), bodies);
}

/// Checks that a judge accepts the bodies and allocates no memory once it has judged each.
fn judging_allocates_nothing(judge: Judge, bodies: [&'static [u8]; 3]) {
    let _alone = JUDGING.lock().unwrap();
    let before = COUNTED.load(Ordering::Relaxed);
    let counted = thread::Builder::new()
        .name("load-scores".to_owned())
        .spawn(move || {
            let is_ok = |body: &&[u8]| judge.outcome(200u16, body).0 == Outcome::Ok;
            assert!(bodies.iter().all(is_ok));
            WATCH.store(true, Ordering::Relaxed);
            assert!(bodies.iter().cycle().take(300).all(is_ok));
            let counted = COUNTED.load(Ordering::Relaxed);
            drop(std::hint::black_box(Box::new(1)));
            WATCH.store(false, Ordering::Relaxed);
            (counted - before, COUNTED.load(Ordering::Relaxed) - before)
        });
    let counted = counted.unwrap().join().unwrap();
    assert_eq!(counted, (0, 1), "only the deliberate allocation");
}

/// Checks that a plan allocates memory at most `per_request` times per request.
/// `input` takes a number of connections and a duration in seconds.
fn allocates_at_most(per_request: u64, input: impl Fn(u32, f64) -> WorkerInput) {
    WATCH.store(true, Ordering::Relaxed);
    run(input(5, 0.1).plan);
    WATCH.store(false, Ordering::Relaxed);
    let setting_up = COUNTED.swap(0, Ordering::Relaxed);
    assert!(setting_up > 5, "the setup allocates memory");

    // The start and the end of a run allocate memory, so count only in between.
    let stop = StopFlag::default();
    let (mut before, mut watched, mut allocations, mut end) = (0, 0, None, None);
    worker::run(
        input(20, DEADLINE_S),
        None,
        &stop,
        &RateControl::default(),
        None,
        |event| match event {
            Event::Second(row) if allocations.is_none() => match row.index {
                0 => before += row.counts.ok,
                1 => {
                    before += row.counts.ok;
                    WATCH.store(true, Ordering::Relaxed);
                }
                // Counting may have started late in this second.
                2 => {}
                _ => {
                    watched += row.counts.ok;
                    if watched >= ENOUGH {
                        allocations = Some(COUNTED.load(Ordering::Relaxed));
                        WATCH.store(false, Ordering::Relaxed);
                        stop.stop();
                    }
                }
            },
            Event::End(last) => end = Some(last),
            _ => {}
        },
    )
    .unwrap();
    let counts = end.expect("a worker's last event").counts;
    assert_eq!(counts.balance(), Ok(()));
    // With HTTP/2, requests may wait in the output when the load stops.
    let ended = counts.ok + counts.in_flight_at_end + counts.unsent;
    assert_eq!(ended, counts.intended);
    // On a busy machine, allocations are also counted for many requests before and after the
    // seconds that `watched` covers.
    let limit = per_request * (counts.ok - before);
    assert!(
        allocations.is_some_and(|n| n <= limit),
        "{allocations:?} allocations for {watched} requests within {DEADLINE_S} s"
    );
}

fn an_idle_connection_takes_little(backend: Backend) {
    if alone("an_idle_connection_takes_little", backend) {
        let server = Server::start("plain");
        let more = 10_000.min(raise_open_files() - 200);
        takes_at_most(2048, more, |n| plan(backend, &server, n, 120.0));
    }
}

/// rustls stores the keys for both directions, the secrets for later keys and the server's
/// certificates. The backend keeps the encrypted request. According to the documentation, a
/// connection takes about 5 KiB.
fn an_idle_tls_connection_stays_below_its_limit(backend: Backend) {
    if alone("an_idle_tls_connection_stays_below_its_limit", backend) {
        let server = Server::start("tls");
        let more = 1000.min(raise_open_files() - 200);
        takes_at_most(6 * 1024, more, |n| {
            secured(plan(backend, &server, n, 120.0))
        });
    }
}

/// Checks that each of `more` additional connections takes at most `limit` bytes of a worker's
/// memory. The memory is read at the end of the first second in which all connections are open.
fn takes_at_most(limit: u64, more: u64, plan: impl Fn(u32) -> Plan) {
    let held = |connections| {
        let stop = StopFlag::default();
        let input = input(plan(connections));
        let mut taken = None;
        let rates = RateControl::default();
        worker::run(input, None, &stop, &rates, None, |event| {
            if let Event::Second(row) = event
                && row.open_connections == u64::from(connections)
            {
                taken.get_or_insert_with(resident);
                stop.stop();
            }
        })
        .unwrap();
        taken.expect("a second with all connections open")
    };
    let (few, many) = (held(10), held(10 + more as u32));
    let each = many.saturating_sub(few) / more;
    eprintln!("{each} bytes per connection");
    assert!(each <= limit, "{each} bytes per connection");
}
