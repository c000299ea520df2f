//! Compares the session with the server of the crate `h2`: both must see the same requests and
//! responses.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::check::Random;
use floodmark_wire::h2::frame::DEFAULT_WINDOW_BYTES;
use floodmark_wire::h2::{
    Config, Event, EventSink, FieldValue, RequestField, RequestHeads, Session,
};
use h2::server::{Builder, SendResponse};
use hyper::body::Bytes;
use hyper::http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

type Fields = Vec<(String, String)>;

/// A request or a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Message {
    /// Method and path, or the status.
    start: String,
    /// Sorted by name. Values with the same name keep their order.
    fields: Fields,
    body: Vec<u8>,
    trailers: Fields,
}

#[derive(Debug, Clone)]
struct Exchange {
    request: Message,
    response: Message,
    /// Number of 103 responses before the response.
    hints: usize,
}

/// Limits of both sides.
#[derive(Debug, Clone)]
struct Limits {
    client: Config,
    server_table: u32,
    /// If this window is smaller than the default, the client waits for the server's SETTINGS. h2
    /// returns no credit for data that arrived before the smaller window was acknowledged.
    server_window: u32,
    server_streams: u32,
}

/// Sends all requests over one connection. Returns the requests as the server received them, and
/// the responses as the client received them.
async fn exchange(
    exchanges: &[Exchange],
    limits: &Limits,
    seed: u64,
) -> (Vec<Message>, Vec<Message>) {
    // The buffers are large enough that neither side waits for the other to read.
    let (client, server) = tokio::io::duplex(64 << 20);
    let served = tokio::spawn(serve(server, exchanges.to_vec(), limits.clone()));
    let responses = run(client, exchanges, limits, seed).await;
    (served.await.expect("the server does not panic"), responses)
}

async fn serve(io: DuplexStream, exchanges: Vec<Exchange>, limits: Limits) -> Vec<Message> {
    let mut builder = Builder::new();
    builder
        .header_table_size(limits.server_table)
        .max_header_list_size(1 << 20)
        .initial_window_size(limits.server_window)
        .max_concurrent_streams(limits.server_streams);
    let handshake = builder.handshake::<_, Bytes>(io).await;
    let mut connection = handshake.expect("h2 accepts the preface");
    let mut answers = Vec::new();
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted.expect("h2 accepts the request");
        let path = request.uri().path();
        let index: usize = path[1..].parse().expect("the path is a number");
        answers.push((
            index,
            tokio::spawn(answer(request, respond, exchanges[index].clone())),
        ));
    }
    answers.sort_by_key(|(index, _)| *index);
    let mut requests = Vec::new();
    for (_, answer) in answers {
        requests.push(answer.await.expect("the handler does not panic"));
    }
    requests
}

/// Reads a request and sends its response.
async fn answer(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    exchange: Exchange,
) -> Message {
    let (head, mut body) = request.into_parts();
    assert_eq!(
        head.uri.authority().map(|authority| authority.as_str()),
        Some("test")
    );
    let mut received = Message {
        start: format!("{} {}", head.method, head.uri.path()),
        fields: listed(&head.headers),
        ..Message::default()
    };
    while let Some(part) = body.data().await {
        let part = part.expect("h2 accepts the body");
        received.body.extend_from_slice(&part);
        let released = body.flow_control().release_capacity(part.len());
        released.expect("the capacity was used");
    }
    for _ in 0..exchange.hints {
        let hints = Response::builder()
            .status(103)
            .header("link", "</s.css>")
            .body(());
        let sent = respond.send_informational(hints.expect("a legal response"));
        sent.expect("the stream is open");
    }
    let Message {
        start,
        fields,
        body,
        trailers,
    } = exchange.response;
    let mut response = Response::builder()
        .status(&*start)
        .body(())
        .expect("a legal response");
    *response.headers_mut() = map(&fields);
    let end = body.is_empty() && trailers.is_empty();
    let sent = respond.send_response(response, end);
    let mut stream = sent.expect("the stream is open");
    if !body.is_empty() {
        let sent = stream.send_data(body.into(), trailers.is_empty());
        sent.expect("the stream is open");
    }
    if !trailers.is_empty() {
        stream
            .send_trailers(map(&trailers))
            .expect("the stream is open");
    }
    received
}

fn map(fields: &Fields) -> HeaderMap {
    let field = |(name, value): &(String, String)| {
        let name: HeaderName = name.parse().expect("a legal name");
        (name, HeaderValue::from_str(value).expect("a legal value"))
    };
    fields.iter().map(field).collect()
}

fn listed(map: &HeaderMap) -> Fields {
    let text = |value: &HeaderValue| value.to_str().expect("text").to_owned();
    let fields = map
        .iter()
        .map(|(name, value)| (name.to_string(), text(value)));
    sorted(fields.collect())
}

fn sorted(mut fields: Fields) -> Fields {
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    fields
}

/// Collects responses.
struct Responses {
    /// The stream of each exchange.
    streams: Vec<u32>,
    messages: Vec<Message>,
    fields: Fields,
    complete: usize,
    has_settings: bool,
    /// Exchanges whose request must be sent, in reverse order.
    waiting: Vec<usize>,
}

impl Responses {
    fn exchange(&self, stream: u32) -> usize {
        let exchange = self.streams.iter().position(|&other| other == stream);
        exchange.expect("an open stream")
    }

    fn of(&mut self, stream: u32) -> &mut Message {
        let exchange = self.exchange(stream);
        &mut self.messages[exchange]
    }
}

impl EventSink for Responses {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Head {
                stream,
                status,
                end,
                ..
            } => {
                let fields = sorted(std::mem::take(&mut self.fields));
                let message = self.of(stream);
                message.start = status.to_string();
                message.fields = fields;
                self.complete += usize::from(end);
            }
            Event::Data { stream, bytes, end } => {
                self.of(stream).body.extend_from_slice(bytes);
                self.complete += usize::from(end);
            }
            Event::Trailers { stream } => {
                let fields = sorted(std::mem::take(&mut self.fields));
                self.of(stream).trailers = fields;
                self.complete += 1;
            }
            // The server's limit arrived after the request was sent.
            Event::Refused { stream } => self.waiting.push(self.exchange(stream)),
            Event::Settings => self.has_settings = true,
            Event::WindowUpdate { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn reads_fields(&self) -> bool {
        true
    }

    fn field(&mut self, _stream: u32, name: &[u8], value: &[u8]) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        self.fields.push((text(name), text(value)));
    }
}

async fn run(
    mut io: DuplexStream,
    exchanges: &[Exchange],
    limits: &Limits,
    seed: u64,
) -> Vec<Message> {
    let requests: Vec<_> = exchanges
        .iter()
        .map(|exchange| request_fields(&exchange.request))
        .collect();
    let requests = Arc::new(RequestHeads::new(&requests));
    let mut session = Session::new(&limits.client, requests);
    let mut responses = Responses {
        streams: vec![0; exchanges.len()],
        messages: vec![Message::default(); exchanges.len()],
        fields: Fields::new(),
        complete: 0,
        has_settings: false,
        waiting: (0..exchanges.len()).rev().collect(),
    };
    // The parts of bodies that were not sent.
    let mut bodies: Vec<&[u8]> = vec![&[]; exchanges.len()];
    let mut random = Random(seed);
    let mut buffer = vec![0; 1 << 16];
    while responses.complete < exchanges.len() {
        let is_early = limits.server_window < DEFAULT_WINDOW_BYTES && !responses.has_settings;
        while let Some(&next) = responses.waiting.last().filter(|_| !is_early) {
            bodies[next] = &exchanges[next].request.body;
            // The path varies.
            let path = |_, out: &mut Vec<u8>| out.extend_from_slice(format!("/{next}").as_bytes());
            let Ok(stream) = session.request(next, !bodies[next].is_empty(), path) else {
                break;
            };
            responses.streams[next] = stream;
            responses.waiting.pop();
        }
        for (stream, body) in responses.streams.iter().zip(&mut bodies) {
            if *stream > 0 && !body.is_empty() {
                let sent = session.send_body(*stream, body, true);
                *body = &body[sent.unwrap_or(0)..];
            }
        }
        io.write_all(session.output())
            .await
            .expect("the buffer is large");
        let sent = session.output().len();
        session.sent(sent);
        let length = io.read(&mut buffer).await.expect("the server is connected");
        assert!(length > 0, "the server closed the connection");
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((1 + random.below(5000)).min(rest.len()));
            session
                .feed(piece, &mut responses)
                .expect("h2 follows the protocol");
            rest = after;
        }
    }
    assert_eq!(session.open_streams(), 0);
    session.go_away();
    io.write_all(session.output())
        .await
        .expect("the buffer is large");
    responses.messages
}

/// Returns the fields of a request whose path varies.
fn request_fields(request: &Message) -> Vec<RequestField> {
    let method = request.start.split(' ').next().expect("a method");
    let pseudo = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "test"),
    ];
    let field = |name: &str, value| RequestField {
        name: name.to_owned(),
        value,
    };
    let constant =
        |(name, value): (&str, &str)| field(name, FieldValue::Constant(value.to_owned()));
    let headers = request
        .fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let mut fields: Vec<_> = pseudo.into_iter().chain(headers).map(constant).collect();
    fields.insert(3, field(":path", FieldValue::Varying));
    fields
}

fn fields(count: std::ops::Range<usize>) -> impl Strategy<Value = Fields> {
    let name = prop_oneof![
        "x-[a-z]{1,3}",
        Just("server".to_owned()),
        Just("date".to_owned()),
        Just("etag".to_owned()),
        Just("set-cookie".to_owned()),
        Just("x-long".to_owned()),
    ];
    let value = prop_oneof![
        4 => "([!-~]([ -~]{0,30}[!-~])?)?",
        1 => "[a-z]{100,3000}",
        4 => Just("Sat, 01 Jan 2000 00:00:00 GMT".to_owned()),
    ];
    vec((name, value), count).prop_map(sorted)
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![4 => Just(0usize), 4 => 1usize..3000, 1 => 0usize..200_000];
    length.prop_map(|length| (0..length).map(|i| (i / 3) as u8).collect())
}

fn any_exchange() -> impl Strategy<Value = Exchange> {
    let method = prop_oneof![Just("GET"), Just("POST"), Just("HEAD"), Just("OPTIONS")];
    let status = prop_oneof![4 => Just(200u16), 1 => Just(204), 1 => Just(304), 4 => 200u16..600];
    let request = (method, fields(0..10), body());
    let response = (status, fields(0..12), body(), fields(0..3));
    (request, response, 0usize..3).prop_map(|(request, response, hints)| {
        let (method, request_fields, request_body) = request;
        let (status, response_fields, mut body, trailers) = response;
        if method == "HEAD" || matches!(status, 204 | 205 | 304) {
            body.clear();
        }
        Exchange {
            request: Message {
                start: method.to_owned(),
                fields: request_fields,
                body: request_body,
                trailers: Fields::new(),
            },
            response: Message {
                start: status.to_string(),
                fields: response_fields,
                body,
                trailers,
            },
            hints,
        }
    })
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let client = (
        1u32..20,
        prop_oneof![Just(2000u32), Just(1 << 20)],
        prop_oneof![Just(65_535u32), Just(16 << 20)],
        prop_oneof![Just(0u32), Just(200), Just(4096), Just(65_536)],
    )
        .prop_map(
            |(max_streams, stream_window, connection_window, header_table)| Config {
                max_streams,
                stream_window,
                connection_window,
                header_table,
                ..Config::default()
            },
        );
    let table = prop_oneof![Just(0u32), Just(150), Just(4096), Just(65_536)];
    let window = prop_oneof![Just(1000u32), Just(65_535)];
    (client, table, window, 1u32..20).prop_map(
        |(client, server_table, server_window, server_streams)| Limits {
            client,
            server_table,
            server_window,
            server_streams,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_sides_see_the_same(
        exchanges in vec(any_exchange(), 1..12),
        limits in any_limits(),
        seed in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let both = exchange(&exchanges, &limits, seed);
        let both = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), both).await });
        let (requests, responses) = both.expect("all exchanges end");
        for (i, exchange) in exchanges.iter().enumerate() {
            let mut sent = exchange.request.clone();
            sent.start = format!("{} /{i}", sent.start);
            prop_assert_eq!(&requests[i], &sent);
            prop_assert_eq!(&responses[i], &exchange.response);
        }
    }
}
