use super::*;
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

/// Returns a result with two rows. The type of the last column is boolean, which floodmark never
/// queries.
fn result() -> Vec<u8> {
    let mut body = Vec::new();
    for n in [2_i32, 1, 5] {
        body.extend(n.to_be_bytes());
    }
    body.extend(string("system_views"));
    body.extend(string("thread_pools"));
    for (name, kind) in [("n", 0x0D_u16), ("i", 9), ("b", 2), ("d", 7), ("x", 4)] {
        body.extend(string(name));
        body.extend(kind.to_be_bytes());
    }
    body.extend(2_i32.to_be_bytes());
    body.extend(value(Some("ReadStage".as_bytes())));
    body.extend(value(Some(&(-3_i32).to_be_bytes())));
    body.extend(value(Some(&(1_i64 << 40).to_be_bytes())));
    body.extend(value(Some(&0.25_f64.to_be_bytes())));
    body.extend(value(Some(&[1])));
    (0..5).for_each(|_| body.extend(value(None)));
    body
}

#[test]
fn parses_rows_of_text_and_numbers() {
    let rows = Body(&result()).rows().unwrap();
    let first = [
        CqlValue::Text("ReadStage".to_owned()),
        CqlValue::Number(-3.0),
        CqlValue::Number((1_u64 << 40) as f64),
        CqlValue::Number(0.25),
        CqlValue::Nothing,
    ];
    assert_eq!(rows[0], first);
    assert_eq!(rows[1], [const { CqlValue::Nothing }; 5]);
    assert_eq!((rows[1][0].text(), rows[1][1].number()), ("", 0.0));
    assert_eq!(CqlValue::Number(f64::NAN).number(), 0.0);
    // A result of kind "void" has no rows.
    assert_eq!(
        Body(&1_i32.to_be_bytes()).rows().unwrap(),
        Vec::<Vec<CqlValue>>::new()
    );
}

#[test]
fn refuses_a_truncated_result() {
    let whole = result();
    for length in 0..whole.len() {
        assert!(Body(&whole[..length]).rows().is_err(), "{length}");
    }
}

#[test]
fn refuses_unrequested_data() {
    let mut collections = result();
    let at = collections
        .windows(4)
        .position(|bytes| *bytes == [b'x', 0, 4, 0])
        .unwrap();
    for kind in [0_u8, 0x20, 0x21, 0x30] {
        collections[at + 2] = kind;
        let error = Body(&collections).rows().unwrap_err();
        assert!(error.to_string().contains("unexpected type"), "{error}");
    }
    let head = |bytes: [u8; 9]| parse_head(&bytes).map_err(|error| error.to_string());
    assert_eq!(head([0x84, 8, 0, 0, 8, 0, 0, 1, 2]), Ok((8, 8, 258)));
    for (bytes, what) in [
        ([0x85, 0, 0, 0, 8, 0, 0, 0, 0], "version 4"),
        (*b"HTTP/1.1 ", "version 4"),
        ([0x84, 1, 0, 0, 8, 0, 0, 0, 0], "compressed"),
        ([0x84, 2, 0, 0, 8, 0, 0, 0, 0], "extended"),
        ([0x84, 0, 0, 0, 8, 0xFF, 0, 0, 0], "4 MiB"),
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
    let mut all = Body(&body);
    all.skip_warnings().unwrap();
    assert_eq!(all.0, b"rest");
    for length in 0..body.len() - 4 {
        assert!(Body(&body[..length]).skip_warnings().is_err());
    }
}

/// Connects to a peer that sends `bytes` and then waits for the client to close the connection.
/// Returns the error.
fn open_on(bytes: &'static [u8], timeout: Duration) -> io::Error {
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
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    let error = open_on(b"\x84\0\0\0\x03\0\0\0\x02\0\0", timeout);
    assert!(error.to_string().contains("password"), "{error}");
    let begin = Instant::now();
    let error = open_on(b"\x84\0\0", Duration::from_millis(100));
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert!(begin.elapsed() >= Duration::from_millis(100));
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
        if let Ok(rows) = Body(&body).rows() {
            prop_assert!(rows.len() * 4 <= body.len());
        }
    }

    #[test]
    fn parses_any_bytes_within_bounds(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Body(&body).rows();
        let _ = Body(&body).skip_warnings();
        prop_assert!(!unexpected(opcode::ERROR, &body).to_string().contains('\n'));
    }
}
