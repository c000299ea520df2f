use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// A peer's reaction to a statement.
enum Reaction {
    /// Sends a response with this opcode and body.
    Respond(u8, Vec<u8>),
    /// Sends these bytes and closes the connection.
    Close(&'static [u8]),
    /// Waits until the client closes the connection.
    Ignore,
}

fn server_error(code: i32) -> Reaction {
    let mut body = code.to_be_bytes().to_vec();
    body.extend(b"\0\x04busyfurther fields");
    Reaction::Respond(0x00, body)
}

/// A result without rows.
fn done() -> Reaction {
    Reaction::Respond(0x08, 1_i32.to_be_bytes().to_vec())
}

/// Starts a peer that handles each statement with the next of `reactions`. After the last one, the
/// peer stops listening.
fn peer(reactions: Vec<Reaction>) -> (JournalSession, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let thread = thread::spawn(move || {
        let mut reactions = reactions.into_iter().peekable();
        while reactions.peek().is_some() {
            let (mut stream, _) = listener.accept().unwrap();
            // The response to the handshake.
            let mut reaction = Reaction::Respond(0x02, Vec::new());
            let mut head = [0; 9];
            while stream.read_exact(&mut head).is_ok() {
                let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                stream.read_exact(&mut vec![0; length as usize]).unwrap();
                match reaction {
                    Reaction::Close(bytes) => {
                        stream.write_all(bytes).unwrap();
                        break;
                    }
                    Reaction::Ignore => {
                        let _ = stream.read(&mut [0]);
                        break;
                    }
                    Reaction::Respond(opcode, body) => {
                        let mut frame = vec![0x84, 0, head[2], head[3], opcode];
                        frame.extend((body.len() as u32).to_be_bytes());
                        frame.extend(body);
                        stream.write_all(&frame).unwrap();
                    }
                }
                match reactions.next() {
                    Some(next) => reaction = next,
                    None => return,
                }
            }
        }
    });
    (JournalSession::connect(&address).unwrap(), thread)
}

/// Executes a statement on a peer. Returns the error message if the statement fails.
fn outcome(reactions: Vec<Reaction>, is_serving: bool) -> Result<(), String> {
    let (mut session, thread) = peer(reactions);
    if is_serving {
        session.serve();
    }
    let result = session.execute("store a batch", "UPDATE", &[]);
    drop(session);
    // After an error, the peer may still wait for a statement.
    if result.is_ok() {
        thread.join().unwrap();
    }
    result.map(drop).map_err(|error| error.to_string())
}

#[test]
fn retries_a_statement_whose_outcome_is_unknown() {
    let closed = || Reaction::Close(b"\x84\0\0");
    for reactions in [
        vec![server_error(0x1100), done()],
        vec![server_error(0x1001), server_error(0x1000), done()],
        vec![closed(), done()],
    ] {
        assert_eq!(outcome(reactions, true), Ok(()));
    }
}

#[test]
fn retries_nothing_while_the_journal_opens() {
    let error = outcome(vec![server_error(0x1100)], false).unwrap_err();
    assert!(
        error.contains("cannot store a batch: error 0x1100: busy; check that enough"),
        "{error}"
    );
}

#[test]
fn reports_a_refusal_at_once() {
    for (reaction, expected) in [
        (
            server_error(0x2100),
            "error 0x2100: busy; use a node with AllowAllAuthorizer",
        ),
        (
            server_error(0x2200),
            "error 0x2200: busy; check Cassandra's log",
        ),
        (
            Reaction::Respond(0x0C, Vec::new()),
            "unexpected response opcode 0x0c; check that",
        ),
        (
            Reaction::Respond(0x03, Vec::new()),
            "unexpected response opcode 0x03; check that",
        ),
        (
            Reaction::Close(b"HTTP/1.1 400 Bad Request\r\n"),
            "native protocol; check that",
        ),
        (
            Reaction::Close(b"\x84\0\0\x02\x08\xFF\xFF\xFF\xFF"),
            "exceeds 8 MiB; check that",
        ),
        (
            Reaction::Close(b"\x84\0\x01\x02\x08\0\0\0\0"),
            "another request; check that",
        ),
        (Reaction::Respond(0x08, vec![0; 3]), "truncated; check that"),
    ] {
        let begin = Instant::now();
        let error = outcome(vec![reaction], true).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(error.starts_with("cassandra:127.0.0.1:"), "{error}");
        assert!(begin.elapsed() < RETRY_TIME, "{error}");
    }
}

#[test]
fn gives_up_on_a_node_that_is_gone() {
    let begin = Instant::now();
    let error = outcome(vec![Reaction::Close(b"")], true).unwrap_err();
    assert!(
        error.contains("start Cassandra, or check the host and port"),
        "{error}"
    );
    assert!(begin.elapsed() >= RETRY_TIME);
}

#[test]
fn retries_have_their_time_after_a_slow_first_attempt() {
    let ignored = || Reaction::Ignore;
    assert_eq!(outcome(vec![ignored(), ignored(), done()], true), Ok(()));
    let begin = Instant::now();
    let error = outcome(vec![ignored(), ignored(), ignored()], true).unwrap_err();
    assert!(error.contains("cannot store a batch: "), "{error}");
    let latest = TIMEOUT + RETRY_TIME + RETRY_PAUSE + MIN_ATTEMPT;
    assert!(begin.elapsed() < latest + Duration::from_secs(1));
}

#[test]
fn reads_host_port_and_keyspace() {
    for (text, shown) in [
        ("127.0.0.1", "127.0.0.1:9042/floodmark"),
        ("localhost:19042", "localhost:19042/floodmark"),
        ("[::1]", "[::1]:9042/floodmark"),
        ("[::1]:1/scores_2", "[::1]:1/scores_2"),
        ("node-1.example/a", "node-1.example:9042/a"),
    ] {
        let address: CassandraAddress = text.parse().unwrap();
        assert_eq!(address.to_string(), format!("cassandra:{shown}"));
    }
}

#[test]
fn refuses_other_text() {
    let long = format!("h/{}", "k".repeat(49));
    for text in [
        "",
        ":9042",
        "/k",
        "h:",
        "h:0",
        "h:65536",
        "h:x",
        "::1",
        "[::1",
        "[h]:1",
        "[::1]9042",
        "h/",
        "h/K",
        "h/1k",
        "h/k;",
        "h/k/l",
        "a b",
        "http://h",
        long.as_str(),
    ] {
        assert!(text.parse::<CassandraAddress>().is_err(), "{text}");
    }
}
