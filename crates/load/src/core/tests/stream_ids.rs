//! Tests of stream identifier exhaustion on real sockets.
//!
//! A connection has 2^30 identifiers, too many for a test. The tests therefore set the first
//! identifier close to the maximum.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use floodmark_record::WorkerEnd;
use floodmark_record::body::RequestBody;
use floodmark_record::events::{EndReason, Phase};
use floodmark_record::plan::{Arrivals as Spacing, Backend, Http, Http2, Plan};
use floodmark_wire::h2::frame::{FrameHeader, MAX_31_BITS, PREFACE, flag, kind};

use super::http2::{response, settings, unlimited_credit};
use super::lab::Lab;
use crate::backend::IoBackend;
use crate::backend::uring::Uring;
use crate::clock::Clock;
use crate::core::Core;
use crate::outgoing::Outgoing;
use crate::request::PlanRequests;
use crate::schedule::alone;
use crate::testing::{closed_plan, open_plan};
use crate::thread::{LoadThread, PhaseJob, SharedState};
use crate::worker::{BackendWork, StopFlag, with_backends};

/// Number of identifiers per connection.
const IDENTIFIERS: u32 = 50;
const FIRST: u32 = MAX_31_BITS - 2 * (IDENTIFIERS - 1);

/// A request as the server received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arrival {
    /// Number of the connection, from 0.
    connection: usize,
    stream: u32,
}

/// Starts a server. The response to the first request of a connection is delayed.
fn serve(delay: Duration) -> (SocketAddr, Receiver<Arrival>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (log, arrivals) = channel();
    thread::spawn(move || {
        for (connection, stream) in listener.incoming().enumerate() {
            let log = log.clone();
            thread::spawn(move || respond(stream.unwrap(), connection, delay, &log));
        }
    });
    (address, arrivals)
}

/// Responds to each request until the connection ends.
fn respond(
    mut stream: TcpStream,
    connection: usize,
    delay: Duration,
    log: &Sender<Arrival>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.read_exact(&mut [0; PREFACE.len()])?;
    stream.write_all(&[settings(100), unlimited_credit()].concat())?;
    loop {
        let mut header = [0; FrameHeader::BYTES];
        stream.read_exact(&mut header)?;
        let header = FrameHeader::parse(header);
        stream.read_exact(&mut vec![0; header.length as usize])?;
        let id = header.stream;
        if header.kind == kind::HEADERS {
            log.send(Arrival {
                connection,
                stream: id,
            })
            .unwrap();
        }
        let is_request = matches!(header.kind, kind::HEADERS | kind::DATA);
        if !is_request || !header.has(flag::END_STREAM) {
            continue;
        }
        if !delay.is_zero() && id == FIRST {
            let mut stream = stream.try_clone()?;
            thread::spawn(move || {
                thread::sleep(delay);
                stream.write_all(&response(id))
            });
        } else {
            stream.write_all(&response(id))?;
        }
    }
}

/// A load thread with a real backend.
struct SocketRun<'a> {
    core: Core,
    plan: &'a Plan,
    requests: &'a PlanRequests,
    clock: Clock,
}

impl BackendWork<1> for SocketRun<'_> {
    type Done = (Core, Box<WorkerEnd>);

    fn run<B: IoBackend>(self, [backend]: [io::Result<B>; 1]) -> Self::Done {
        let outgoing = Outgoing::new(self.requests.http1(), self.plan.seed);
        let mut thread = LoadThread::new(self.clock, self.core, backend.unwrap(), outgoing);
        let shared = SharedState::new(1, StopFlag::default(), self.clock, 1);
        thread.prepare(&shared, |_| ()).unwrap();
        let job = PhaseJob::new(self.plan, Phase::Measure, alone());
        let end = thread.run(job, self.clock.now(), &shared).unwrap();
        (thread.core, end)
    }
}

/// Runs a load of `requests` requests whose connections have few identifiers. Checks that the
/// server received each of them once.
fn run(plan: Plan, requests: u64, delay: Duration) {
    let (server, arrivals) = serve(delay);
    let plan = Plan {
        target: Plan::of(server.into()).target,
        ..plan
    };
    let clock = Clock::start();
    let prepared = PlanRequests::of(&plan).unwrap();
    let mut lab = Lab::new(&plan);
    lab.core.set_first_stream(FIRST);
    let (core, end, totals) = lab.measure(|core| {
        let run = SocketRun {
            core,
            plan: &plan,
            requests: &prepared,
            clock,
        };
        with_backends([(&plan, &prepared)], None, alone(), clock, run)
    });
    assert_eq!(end.reason, EndReason::Completed);
    let counts = &totals.counts;
    assert_eq!(counts.balance(), Ok(()));
    assert_eq!((counts.sent, counts.ok), (requests, requests), "{counts:?}");
    assert!(core.recorder.errors.is_empty());
    let mut arrivals: Vec<Arrival> = arrivals.try_iter().collect();
    assert_eq!(arrivals.len() as u64, requests);
    // The order of requests on different connections is unknown.
    arrivals.sort_by_key(|arrival| arrival.connection);
    let connections: Vec<&[Arrival]> = arrivals
        .chunk_by(|a, b| a.connection == b.connection)
        .collect();
    let needed = requests.div_ceil(u64::from(IDENTIFIERS)) as usize;
    assert!(connections.len() >= needed, "{}", connections.len());
    let mut used_up = 0;
    for arrivals in connections {
        assert_eq!(arrivals[0].stream, FIRST);
        assert!(
            arrivals.is_sorted_by(|a, b| a.stream < b.stream),
            "{arrivals:?}"
        );
        let last = arrivals[arrivals.len() - 1].stream;
        assert!(last <= MAX_31_BITS && last % 2 == 1, "{last}");
        used_up += usize::from(last == MAX_31_BITS);
    }
    assert!(used_up > 0);
}

fn check(backend: Backend) {
    let http2 = |streams, plan| Plan {
        http: Http::V2(Http2 {
            streams,
            ..Http2::default()
        }),
        backend,
        ..plan
    };
    for (connections, streams, delay) in [(1, 1, 0), (1, 8, 0), (3, 4, 0), (1, 8, 20), (3, 8, 20)] {
        let delay = Duration::from_millis(delay);
        run(
            http2(streams, closed_plan(connections, 2_000)),
            2_000,
            delay,
        );
        let mut plan = http2(
            streams,
            open_plan(Spacing::Poisson, 2_000.0, None, Some(500)),
        );
        plan.connections = connections;
        plan.request.method = "POST".to_owned();
        plan.request.body = RequestBody::unrecorded(vec![b'x'; 40_000]);
        run(plan, 500, delay);
    }
}

#[test]
fn connections_without_identifiers_are_replaced_on_epoll() {
    check(Backend::Epoll);
}

#[test]
fn connections_without_identifiers_are_replaced_on_uring() {
    if Uring::probe(1).is_ok() {
        check(Backend::Uring);
    }
}
