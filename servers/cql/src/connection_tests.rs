use super::*;
use crate::CqlParameter;
use proptest::prelude::*;
use std::net::TcpListener;

fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u16).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn value(bytes: Option<&[u8]>) -> Vec<u8> {
    let length = bytes.map_or(-1, |bytes| bytes.len() as i32);
    let mut value = length.to_be_bytes().to_vec();
    value.extend(bytes.unwrap_or_default());
    value
}

/// Returns a result with two rows. The type of the last column is uuid, which floodmark never
/// queries.
fn result() -> Vec<u8> {
    let mut body = Vec::new();
    for n in [2_i32, 1, 5] {
        body.extend(n.to_be_bytes());
    }
    body.extend(string("system_views"));
    body.extend(string("thread_pools"));
    for (name, kind) in [("n", 0x0D_u16), ("i", 9), ("b", 2), ("d", 7), ("x", 0x0C)] {
        body.extend(string(name));
        body.extend(kind.to_be_bytes());
    }
    body.extend(2_i32.to_be_bytes());
    body.extend(value(Some("ReadStage".as_bytes())));
    body.extend(value(Some(&(-3_i32).to_be_bytes())));
    body.extend(value(Some(&(1_i64 << 40).to_be_bytes())));
    body.extend(value(Some(&0.25_f64.to_be_bytes())));
    body.extend(value(Some(&[1; 16])));
    (0..5).for_each(|_| body.extend(value(None)));
    body
}

fn rows(body: &[u8]) -> Result<Vec<Vec<CqlValue>>, CqlError> {
    match ResponseBody(body).result()? {
        CqlResult::Rows(rows) => Ok(rows),
        other => panic!("{other:?}"),
    }
}

#[test]
fn parses_rows_of_text_and_numbers() {
    let rows = rows(&result()).unwrap();
    let first = [
        CqlValue::Text("ReadStage".to_owned()),
        CqlValue::Integer(-3),
        CqlValue::Integer(1 << 40),
        CqlValue::Number(0.25),
        CqlValue::Nothing,
    ];
    assert_eq!(rows[0], first);
    assert_eq!(rows[1], [const { CqlValue::Nothing }; 5]);
    assert_eq!((rows[1][0].text(), rows[1][1].number()), ("", 0.0));
    assert_eq!(CqlValue::Number(f64::NAN).number(), 0.0);
    for (kind, expected) in [(1_i32, CqlResult::Done), (5, CqlResult::SchemaChanged)] {
        let result = ResponseBody(&kind.to_be_bytes()).result();
        assert_eq!(result.unwrap(), expected);
    }
}

#[test]
fn refuses_a_truncated_result() {
    let whole = result();
    for length in 0..whole.len() {
        assert!(rows(&whole[..length]).is_err(), "{length}");
    }
}

#[test]
fn refuses_unrequested_data() {
    let mut collections = result();
    let at = collections
        .windows(4)
        .position(|bytes| *bytes == [b'x', 0, 0x0C, 0])
        .unwrap();
    for kind in [0_u8, 0x20, 0x21, 0x30] {
        collections[at + 2] = kind;
        let error = rows(&collections).unwrap_err();
        assert!(error.to_string().contains("unexpected type"), "{error}");
    }
    let head = |bytes: [u8; 9]| ResponseHead::parse(&bytes).map_err(|error| error.to_string());
    let expected = ResponseHead {
        has_warnings: true,
        stream: 0x0102,
        opcode: 8,
        length: 258,
    };
    assert_eq!(head([0x84, 8, 1, 2, 8, 0, 0, 1, 2]), Ok(expected));
    for (bytes, what) in [
        ([0x85, 0, 0, 0, 8, 0, 0, 0, 0], "version 4"),
        (*b"HTTP/1.1 ", "version 4"),
        ([0x84, 1, 0, 0, 8, 0, 0, 0, 0], "compressed"),
        ([0x84, 2, 0, 0, 8, 0, 0, 0, 0], "extended"),
        ([0x84, 0, 0, 0, 8, 0xFF, 0, 0, 0], "8 MiB"),
    ] {
        let error = head(bytes).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn formats_cassandra_errors_as_one_line() {
    let mut body = 0x2200_i32.to_be_bytes().to_vec();
    body.extend(string("unconfigured table\nsecond line"));
    let error = unexpected(opcode::ERROR, &body).to_string();
    assert_eq!(error, "error 0x2200: unconfigured table");
    assert!(
        unexpected(opcode::ERROR, &body[..3])
            .to_string()
            .contains("truncated")
    );
    assert!(unexpected(0x0C, &body).to_string().contains("0x0c"));
}

#[test]
fn skips_warnings_before_the_body() {
    let mut body = 2_u16.to_be_bytes().to_vec();
    body.extend(string("read 5 tombstones"));
    body.extend(string(""));
    body.extend(b"rest");
    let mut all = ResponseBody(&body);
    all.skip_warnings().unwrap();
    assert_eq!(all.0, b"rest");
    for length in 0..body.len() - 4 {
        assert!(ResponseBody(&body[..length]).skip_warnings().is_err());
    }
}

/// Connects to a peer that sends `bytes` and then waits until the client closes the connection.
/// Returns the handshake error.
fn open_on(bytes: &'static [u8], timeout: Duration) -> CqlError {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let there = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(bytes).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let stream = TcpStream::connect(address).unwrap();
    let error = CqlConnection::open(stream, timeout).map(drop).unwrap_err();
    there.join().unwrap();
    error
}

#[test]
fn rejects_peers_that_are_not_cassandra_need_a_password_or_do_not_respond() {
    let timeout = Duration::from_secs(5);
    let error = open_on(b"HTTP/1.1 400 Bad Request\r\n\r\n", timeout);
    assert!(matches!(error, CqlError::Invalid(_)), "{error}");
    let error = open_on(b"\x84\0\0\x01\x03\0\0\0\x02\0\0", timeout);
    assert!(matches!(error, CqlError::Password), "{error}");
    let error = open_on(b"\x84\0\0\x02\x02\0\0\0\0", timeout);
    assert!(error.to_string().contains("another request"), "{error}");
    let error = open_on(b"\x84\0\0\x01\x08\0\0\0\0", timeout);
    assert!(matches!(error, CqlError::Opcode(0x08)), "{error}");
    let error = open_on(b"\x84\0\0\x01\0\0\0\0\x0a\0\0\x10\x01\0\x04busy", timeout);
    assert_eq!(error.to_string(), "error 0x1001: busy");
    let begin = Instant::now();
    let error = open_on(b"\x84\0\0", Duration::from_millis(100));
    assert!(matches!(error, CqlError::Timeout), "{error}");
    assert!(begin.elapsed() >= Duration::from_millis(100));
}

#[test]
fn encodes_a_query_and_its_values() {
    let query = CqlQuery {
        text: "Q",
        values: &[
            CqlParameter::Integer(-2),
            CqlParameter::Blob(&[1, 2, 3]),
            CqlParameter::Text("t"),
        ],
        consistency: ReadConsistency::Quorum,
    };
    let mut expected = b"\0\0\0\x01Q\0\x04\x01\0\x03".to_vec();
    expected.extend(value(Some(&(-2_i64).to_be_bytes())));
    expected.extend(value(Some(&[1, 2, 3])));
    expected.extend(value(Some(b"t")));
    assert_eq!(query.encode(), expected);
    let plain = CqlQuery {
        values: &[],
        consistency: ReadConsistency::One,
        ..query
    };
    assert_eq!(plain.encode(), b"\0\0\0\x01Q\0\x01\0");
}

#[test]
fn sending_and_waiting_share_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(b"\x84\0\0\x01\x02\0\0\0\0").unwrap();
    let timeout = Duration::from_secs(1);
    let mut connection = CqlConnection::open(stream, timeout).unwrap();
    let blob = vec![0; 64 << 20];
    let peer = std::thread::spawn(move || {
        std::thread::sleep(timeout * 3 / 5);
        let _ = peer.read_exact(&mut vec![0; 64 << 20]);
        std::thread::sleep(timeout * 3 / 5);
        let _ = peer.write_all(b"\x84\0\0\x02\x08\0\0\0\x04\0\0\0\x01");
    });
    let late = connection.execute(&CqlQuery {
        text: "Q",
        values: &[CqlParameter::Blob(&blob)],
        consistency: ReadConsistency::Quorum,
    });
    assert!(matches!(late, Err(CqlError::Timeout)), "{late:?}");
    peer.join().unwrap();
}

#[test]
fn a_peer_that_reads_nothing_does_not_block_a_query() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(b"\x84\0\0\x01\x02\0\0\0\0").unwrap();
    let mut connection = CqlConnection::open(stream, Duration::from_millis(100)).unwrap();
    let blob = vec![0; 64 << 20];
    let begin = Instant::now();
    let written = connection.execute(&CqlQuery {
        text: "Q",
        values: &[CqlParameter::Blob(&blob)],
        consistency: ReadConsistency::Quorum,
    });
    assert!(matches!(written, Err(CqlError::Timeout)), "{written:?}");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

proptest! {
    /// Parsing a damaged result fails, or returns at most as many rows as its bytes can hold.
    #[test]
    fn parses_damaged_results_within_bounds(
        changes in prop::collection::vec((0_usize..200, any::<u8>()), 0..8),
    ) {
        let mut body = result();
        let length = body.len();
        for (at, byte) in changes {
            body[at % length] = byte;
        }
        if let Ok(CqlResult::Rows(rows)) = ResponseBody(&body).result() {
            prop_assert!(rows.len() * 4 <= body.len());
        }
    }

    #[test]
    fn parses_any_bytes_within_bounds(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = ResponseBody(&body).result();
        let _ = ResponseBody(&body).skip_warnings();
        prop_assert!(!unexpected(opcode::ERROR, &body).to_string().contains('\n'));
    }
}
