//! Tests of `--check scoring` with a correct server and with faulty servers.

use crate::support::{PythonServer, code, folded, load, run, text};

/// Server with one thread per connection. Arguments: fault, number of earlier scores (each 3),
/// port.
pub const SERVER: &str = r#"
import json, socket, sys, threading, time
fault, number, total = sys.argv[1], int(sys.argv[2]), 3.0 * int(sys.argv[2])
lock = threading.Lock()

def add(score):
    global number, total
    if fault == 'unlocked':
        n = number + 1
        time.sleep(0.0005)
        number = n
        t = total + score
        time.sleep(0.0005)
        total = t
        return n, t, t / n
    with lock:
        number += 1
        total += score
        if number == 20 and fault == 'half':
            total += score / 2
        if number == 20 and fault == 'skips':
            number, total = number + 1, total + score
        return number, total, total / number + (1 if number == 20 and fault == 'mean' else 0)

def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = b''
    while True:
        while b'}' not in data and not (data.startswith(b'GET') and data.endswith(b'\r\n\r\n')):
            more = connection.recv(65536)
            if not more:
                return
            data += more
        if data.startswith(b'GET'):
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
            data = b''
            continue
        n, t, mean = add(json.loads(data.split(b'\r\n\r\n')[1])['score'])
        data = b''
        if n == 20 and fault == 'silent':
            return
        status = '500 No' if n == 20 and fault == 'fails' else '200 OK'
        body = json.dumps({'numberOfTrials': n, 'averageScore': mean, 'totalScore': t})
        if n == 20 and fault == 'text':
            body = 'thanks'
        connection.sendall(f'HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}'.encode())

listener = socket.create_server(('127.0.0.1', int(sys.argv[3])), backlog=200)
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// Starts a scoring server. Returns the server and the URL of its workload.
fn start(fault: &str, before: u32) -> (PythonServer, String) {
    let server = PythonServer::start(SERVER, &[fault, &before.to_string(), "0"]);
    let url = format!("{}/scoring", server.url);
    (server, url)
}

const CHECKED: [&str; 4] = ["--check", "scoring", "-b", r#"{"score": 10}"#];

/// Returns the outcome of the check after 400 requests to a server with the given `fault`.
fn checked(fault: &str, held: bool) -> String {
    let (_server, url) = start(fault, 0);
    let mut arguments = vec!["-n", "400", "-c", "8", "--timeout", "2s"];
    arguments.extend(CHECKED);
    let load = load(&url, &arguments);
    load.ends_with(i32::from(!held));
    let check = &load.run().checks[0];
    assert_eq!(
        (check.name.as_str(), check.held),
        ("scoring", Some(held)),
        "{fault}: {}",
        check.detail
    );
    if !held && load.code() == 1 {
        let printed = load.stderr();
        let line = printed.lines().last().unwrap();
        assert!(line.contains("check scoring failed: "), "{printed}");
    }
    let again = folded(&load.directory.path().join("result"));
    assert_eq!(again.runs[0].checks, load.run().checks);
    check.detail.clone()
}

#[test]
fn a_correct_server_passes() {
    assert_eq!(
        checked("nothing", true),
        "400 numbers from 1 to 400: each once, no gaps, in order; totals are 10 × the number; averages are total / number"
    );
}

#[test]
fn includes_earlier_scores_attempts_and_warm_up() {
    let (_server, url) = start("nothing", 5);
    let mut arguments = vec![
        "-n",
        "100",
        "-c",
        "4",
        "-t",
        "2",
        "--attempts",
        "2",
        "--warmup",
        "200ms",
    ];
    arguments.extend(CHECKED);
    let load = load(&url, &arguments);
    load.ends_with(0);
    let [first, second] = &load.record.runs[..] else {
        panic!("{:?}", load.record.runs);
    };
    for run in [first, second] {
        let check = &run.checks[0];
        assert_eq!(check.held, Some(true), "{}", check.detail);
        // Five earlier scores of 3 sum to 15.
        let rule = "totals are 15 + 10 for each number from 6";
        assert!(
            check.detail.contains("numbers from 6 to ") && check.detail.contains(rule),
            "{}",
            check.detail
        );
    }
    assert_ne!(first.checks, second.checks);
}

#[test]
fn detects_lost_updates() {
    let detail = checked("unlocked", false);
    for words in [
        "lost updates among 400 scores: at least ",
        " in numberOfTrials, ",
        " more than once (first: ",
        " totals are not 10 × the number (first: ",
    ] {
        assert!(detail.contains(words), "{words}: {detail}");
    }
}

#[test]
fn names_each_fault() {
    for (fault, words) in [
        (
            "half",
            "381 totals are not 10 × the number (first: 205 with number 20, 215 with number 21",
        ),
        (
            "skips",
            "1 number is missing (20), but no request has an unknown outcome",
        ),
        (
            "mean",
            "1 average is not the total divided by the number (11 for 200 / 20)",
        ),
        (
            "text",
            "1 response with status 2xx or 3xx lacked averageScore, totalScore or numberOfTrials",
        ),
    ] {
        let detail = checked(fault, false);
        assert!(detail.contains(words), "{fault}: {detail}");
    }
}

#[test]
fn allows_scores_of_requests_without_a_response() {
    for fault in ["silent", "fails"] {
        let detail = checked(fault, true);
        let words = "explained by 1 request with an unknown outcome";
        let retried = "401 numbers";
        assert!(
            detail.contains(words) && !detail.contains(retried),
            "{fault}: {detail}"
        );
    }
}

#[test]
fn refuses_a_body_without_a_score() {
    for (body, words) in [
        (&[][..], "the request has no body"),
        (
            &["-b", "10"],
            "the body is not a JSON object with a numeric \"score\"",
        ),
        (&["-b", r#"{"score": 0}"#], "a score of 0"),
    ] {
        let mut arguments = vec!["load", "http://127.0.0.1:9/scoring", "--check", "scoring"];
        arguments.extend(body);
        let output = run(&arguments);
        assert_eq!(code(&output), 2);
        let printed = text(&output.stderr);
        assert!(
            printed.contains("--check scoring: ") && printed.contains(words),
            "{printed}"
        );
        assert_eq!(printed.lines().count(), 1, "{printed}");
    }
}
