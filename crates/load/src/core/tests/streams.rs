//! Tests for HTTP/2 connections that are driven by hand: which connection a request uses, and its
//! times.

use floodmark_record::TimeKind;
use floodmark_record::body::RequestBody;
use floodmark_record::events::Phase;
use floodmark_record::plan::{Arrivals as Spacing, Http, Http2, Model, Plan};

use super::http2::{go_away, requests_in, response, settings, unlimited_credit};
use super::lab::Lab;
use super::{MS, by_hand};
use crate::arrivals::RequestSource;
use crate::backend::{Completion, Slot};
use crate::clock::{Ns, seconds};
use crate::core::{Action, Core};
use crate::mix::Picks;
use crate::recorder::Moments;
use crate::schedule::alone;
use crate::testing::{closed_plan, open_plan};

/// What a core did.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    /// Connections and streams of the requests that were sent.
    sent: Vec<(Slot, u32)>,
    opened: Vec<Slot>,
}

fn sent(requests: &[(Slot, u32)]) -> Done {
    Done {
        sent: requests.to_vec(),
        ..Done::default()
    }
}

fn opened(slots: &[Slot]) -> Done {
    Done {
        opened: slots.to_vec(),
        ..Done::default()
    }
}

/// Sends the output of a connection. Returns the streams of its requests.
fn send_output(core: &mut Core, slot: Slot, at: Ns) -> Vec<u32> {
    let streams = requests_in(core.output(slot)).collect();
    core.handed_over(slot, at);
    core.sent(slot, at);
    streams
}

/// Executes the commands of a core at once.
fn act(core: &mut Core, at: Ns) -> Done {
    let mut done = Done::default();
    while !core.actions.is_empty() {
        for action in std::mem::take(&mut core.actions) {
            match action {
                Action::Send { slot } => {
                    let streams = send_output(core, slot, at);
                    done.sent
                        .extend(streams.iter().map(|stream| (slot, *stream)));
                }
                Action::Open { slot, .. } => done.opened.push(slot),
                Action::Close { slot, .. } => core.drop_session(slot),
            }
        }
    }
    done
}

fn connect(core: &mut Core, slot: Slot, at: Ns) -> Done {
    let sent = false;
    core.on(Completion::Connected { slot, at, sent }, at);
    act(core, at)
}

fn receive(core: &mut Core, slot: Slot, data: &[u8], at: Ns, now: Ns) {
    let received = Completion::Received {
        slot,
        data,
        at: Some(at),
        is_sending: false,
    };
    core.on(received, now);
}

fn turn(core: &mut Core, now: Ns) -> Done {
    core.turn(now);
    act(core, now)
}

fn moments(core: &Core, slot: Slot, stream: u32) -> &Moments {
    let mut exchanges = core.exchanges_of(slot);
    let index = exchanges.find(|index| core.exchanges[*index as usize].stream == stream);
    &core.exchanges[index.unwrap() as usize].moments
}

fn blocked(core: &Core, slot: Slot, stream: u32) -> Ns {
    let moments = moments(core, slot, stream);
    moments.free - moments.intended
}

fn with_streams(streams: u32, connections: u32, plan: Plan) -> Plan {
    let http = Http::V2(Http2 {
        streams,
        ..Http2::default()
    });
    Plan {
        http,
        connections,
        ..plan
    }
}

/// Creates a core in the closed model.
fn closed(plan: &Plan) -> (Lab, Ns) {
    let Model::Closed { length } = plan.model else {
        panic!("{:?}", plan.model);
    };
    let mut lab = Lab::new(plan);
    let now = seconds(1.0);
    lab.core.recorder.begin(Phase::Measure, now, None);
    let source = RequestSource::Closed {
        left: length.requests(),
        until: None,
        picks: Picks::new(plan, alone(), 1),
    };
    lab.core.begin(source, now);
    (lab, now)
}

#[test]
fn a_full_or_slow_connection_holds_no_request() {
    let plan = open_plan(Spacing::Constant, 1000.0, None, Some(5));
    let (mut lab, start) = by_hand(&with_streams(2, 2, plan));
    let core = &mut lab.core;
    assert_eq!(act(core, start), opened(&[0]));
    assert_eq!(connect(core, 0, start), sent(&[(0, 1)]));
    assert_eq!(turn(core, start + MS), sent(&[(0, 3)]));
    // The first connection is full, and the second one is slow to open.
    assert_eq!(turn(core, start + 2 * MS), opened(&[1]));
    assert_eq!(turn(core, start + 3 * MS), Done::default());
    let at = start + 3 * MS + MS / 2;
    let data = [settings(100), response(1)].concat();
    receive(core, 0, &data, at, at);
    assert_eq!(act(core, at), sent(&[(0, 5)]));
    assert_eq!(blocked(core, 0, 5), MS + MS / 2);
    let at = start + 3 * MS + 3 * MS / 4;
    assert_eq!(connect(core, 1, at), sent(&[(1, 1)]));
    assert_eq!(blocked(core, 1, 1), 3 * MS / 4);
    // The first connection is still full, and the second one has room.
    assert_eq!(turn(core, start + 4 * MS), sent(&[(1, 3)]));
    assert_eq!(blocked(core, 1, 3), 0);
}

#[test]
fn returned_requests_use_a_connection_with_room() {
    let (mut lab, start) = closed(&with_streams(2, 2, closed_plan(2, 4)));
    let core = &mut lab.core;
    assert_eq!(act(core, start), opened(&[0, 1]));
    assert_eq!(connect(core, 0, start), sent(&[(0, 1), (0, 3)]));
    assert_eq!(connect(core, 1, start), sent(&[(1, 1), (1, 3)]));
    let at = start + MS;
    let data = [settings(100), response(1), response(3)].concat();
    receive(core, 1, &data, at, at);
    assert_eq!(act(core, at), Done::default());
    let data = [settings(100), go_away(0)].concat();
    receive(core, 0, &data, at, at);
    assert_eq!(act(core, at), sent(&[(1, 5), (1, 7)]));
}

#[test]
fn a_goaway_returns_only_requests_above_a_lower_last_stream() {
    let (mut lab, start) = closed(&with_streams(4, 2, closed_plan(2, 8)));
    let core = &mut lab.core;
    let requests = |slot| [1, 3, 5, 7].map(|stream| (slot, stream));
    assert_eq!(act(core, start), opened(&[0, 1]));
    assert_eq!(connect(core, 0, start), sent(&requests(0)));
    assert_eq!(connect(core, 1, start), sent(&requests(1)));
    let at = start + MS;
    let responses = requests(1).map(|(_, stream)| response(stream)).concat();
    receive(core, 1, &[settings(100), responses].concat(), at, at);
    assert_eq!(act(core, at), Done::default());
    let data = [settings(100), go_away(3), go_away(3)].concat();
    receive(core, 0, &data, at, at);
    assert_eq!(turn(core, at), sent(&[(1, 9), (1, 11)]));
    receive(core, 0, &go_away(3), at, at);
    assert_eq!(turn(core, at), Done::default());
    receive(core, 0, &go_away(1), at, at);
    assert_eq!(turn(core, at), sent(&[(1, 13)]));
    let used = &core.http2.as_ref().unwrap().used;
    assert_eq!((used.go_aways, used.unprocessed), (4, 3));
}

/// A TLS record may contain many responses. The time at which the core handles them has no effect.
#[test]
fn responses_that_arrive_together_have_the_same_time() {
    const STREAMS: u32 = 100;
    let (mut lab, start) = closed(&with_streams(STREAMS, 1, closed_plan(1, STREAMS.into())));
    let core = &mut lab.core;
    act(core, start);
    assert_eq!(connect(core, 0, start).sent.len(), STREAMS as usize);
    let responses = (0..STREAMS).flat_map(|i| response(2 * i + 1));
    let data: Vec<u8> = settings(STREAMS).into_iter().chain(responses).collect();
    let (first, second) = data.split_at(data.len() / 2 + 3);
    receive(core, 0, first, start + MS, start + 6 * MS);
    receive(core, 0, second, start + MS, start + 9 * MS);
    assert!(core.finished());
    lab.gather();
    lab.end(start + 10 * MS, 10 * MS);
    let service = lab.times(TimeKind::Service);
    assert_eq!(service.count(), u64::from(STREAMS));
    let is_exact = |time: Option<Ns>| time.is_some_and(|time| time.abs_diff(MS) < MS / 1000);
    assert!(is_exact(service.min()) && is_exact(service.max()));
}

/// Late requests are passed to the kernel together, but keep their intended times.
#[test]
fn requests_that_leave_together_keep_their_intended_times() {
    const LATE: u32 = 20;
    let plan = open_plan(Spacing::Constant, 10_000.0, None, Some(1 + u64::from(LATE)));
    let (mut lab, start) = by_hand(&with_streams(100, 1, plan));
    let core = &mut lab.core;
    act(core, start);
    connect(core, 0, start);
    let now = start + 2 * MS;
    core.turn(now);
    assert_eq!(core.actions, [Action::Send { slot: 0 }]);
    let handed_over = now + MS;
    assert_eq!(act(core, handed_over).sent.len(), LATE as usize);
    for request in 1..=LATE {
        let moments = moments(core, 0, 2 * request + 1);
        let intended = start + Ns::from(request) * MS / 10;
        assert!(moments.intended.abs_diff(intended) <= 1, "{moments:?}");
        assert_eq!(
            (moments.free, moments.sent),
            (moments.intended, handed_over)
        );
    }
}

/// The head of a request does not wait for the end of another request's body.
#[test]
fn heads_precede_the_rest_of_bodies() {
    let mut plan = closed_plan(1, 3);
    plan.request.method = "POST".to_owned();
    plan.request.body = RequestBody::unrecorded(vec![7; 10_000_000]);
    let (mut lab, start) = closed(&with_streams(2, 1, plan));
    let core = &mut lab.core;
    act(core, start);
    assert_eq!(connect(core, 0, start), sent(&[(0, 1), (0, 3)]));
    receive(core, 0, &unlimited_credit(), start, start);
    for _ in 0..10 {
        assert!(send_output(core, 0, start).is_empty());
        assert!(core.output(0).len() > 60_000, "a part of the bodies");
    }
    receive(core, 0, &response(1), start + MS, start + MS);
    assert!(send_output(core, 0, start + MS).is_empty());
    assert_eq!(send_output(core, 0, start + MS), [5]);
    assert!(core.output(0).len() > 60_000, "a part of the bodies");
}
