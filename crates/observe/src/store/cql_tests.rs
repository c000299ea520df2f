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

/// A result of two rows: text, int, bigint, double, and a boolean, which nobody asks for.
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
fn rows_of_names_and_numbers() {
    let rows = Body(&result()).rows().unwrap();
    let first = [
        Value::Text("ReadStage".to_owned()),
        Value::Number(-3.0),
        Value::Number((1_u64 << 40) as f64),
        Value::Number(0.25),
        Value::Nothing,
    ];
    assert_eq!(rows[0], first);
    assert_eq!(rows[1], [const { Value::Nothing }; 5]);
    assert_eq!((rows[1][0].text(), rows[1][1].number()), ("", 0.0));
    assert_eq!(Value::Number(f64::NAN).number(), 0.0);
    // What is done, and gives no rows.
    assert_eq!(
        Body(&1_i32.to_be_bytes()).rows().unwrap(),
        Vec::<Vec<Value>>::new()
    );
}

#[test]
fn a_result_that_ends_too_early_is_an_error_wherever_it_ends() {
    let whole = result();
    for length in 0..whole.len() {
        assert!(Body(&whole[..length]).rows().is_err(), "{length}");
    }
}

#[test]
fn what_was_not_asked_for_is_refused() {
    let mut collections = result();
    let at = collections
        .windows(4)
        .position(|bytes| *bytes == [b'x', 0, 4, 0])
        .unwrap();
    for kind in [0_u8, 0x20, 0x21, 0x30] {
        collections[at + 2] = kind;
        let error = Body(&collections).rows().unwrap_err();
        assert!(error.to_string().contains("not asked for"), "{error}");
    }
    let head = |bytes: [u8; 9]| answer(&bytes).map_err(|error| error.to_string());
    assert_eq!(head([0x84, 8, 0, 0, 8, 0, 0, 1, 2]), Ok((8, 8, 258)));
    for (bytes, what) in [
        ([0x85, 0, 0, 0, 8, 0, 0, 0, 0], "version 4"),
        (*b"HTTP/1.1 ", "version 4"),
        ([0x84, 1, 0, 0, 8, 0, 0, 0, 0], "compressed"),
        ([0x84, 0, 0, 0, 8, 0xFF, 0, 0, 0], "4 MiB"),
    ] {
        let error = head(bytes).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn an_error_is_one_line_of_cassandras_own() {
    let mut body = 0x2200_i32.to_be_bytes().to_vec();
    body.extend(string("unconfigured table\nsecond line"));
    let error = unexpected(opcode::ERROR, &body).to_string();
    assert_eq!(error, "error 0x2200: unconfigured table");
    assert!(
        unexpected(opcode::ERROR, &body[..3])
            .to_string()
            .contains("too early")
    );
    assert!(unexpected(0x0C, &body).to_string().contains("0x0c"));
}

#[test]
fn what_stands_before_a_body_is_passed_over() {
    let mut body = vec![7; 16];
    body.extend(2_u16.to_be_bytes());
    body.extend(string("read 5 tombstones"));
    body.extend(string(""));
    body.extend(1_u16.to_be_bytes());
    body.extend(string("key"));
    body.extend(value(Some(b"value")));
    body.extend(b"rest");
    let mut all = Body(&body);
    all.skip_what_flags_add(flag::TRACED | flag::WARNINGS | flag::PAYLOAD)
        .unwrap();
    assert_eq!(all.0, b"rest");
    for length in 0..body.len() - 4 {
        let flags = flag::TRACED | flag::WARNINGS | flag::PAYLOAD;
        assert!(Body(&body[..length]).skip_what_flags_add(flags).is_err());
    }
}

/// Somebody who takes a connection and says these bytes, whatever is asked, and then keeps it open for a while.
fn open_on(says: &'static [u8], patience: Duration) -> io::Error {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let there = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(says).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let stream = TcpStream::connect(address).unwrap();
    let error = Connection::open(stream, patience).map(drop).unwrap_err();
    there.join().unwrap();
    error
}

#[test]
fn who_is_no_cassandra_or_asks_for_a_password_or_says_nothing() {
    let patience = Duration::from_secs(5);
    let error = open_on(b"HTTP/1.1 400 Bad Request\r\n\r\n", patience);
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    let error = open_on(b"\x84\0\0\0\x03\0\0\0\x02\0\0", patience);
    assert!(error.to_string().contains("password"), "{error}");
    let begin = Instant::now();
    let error = open_on(b"\x84\0\0", Duration::from_millis(100));
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert!(begin.elapsed() >= Duration::from_millis(100));
}

proptest! {
    /// Bytes that were changed anywhere give rows or an error, and never more rows than there are bytes for.
    #[test]
    fn damaged_results_are_read_within_their_bounds(
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
    fn bytes_of_anything_are_read_within_their_bounds(body in prop::collection::vec(any::<u8>(), 0..300), flags: u8) {
        let _ = Body(&body).rows();
        let _ = Body(&body).skip_what_flags_add(flags);
        prop_assert!(!unexpected(opcode::ERROR, &body).to_string().contains('\n'));
    }
}
