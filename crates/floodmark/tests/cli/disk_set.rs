//! Tests of `floodmark disk` with a check file of kind `set`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::traced::{failed, result, run_server, server_command, sync};
use crate::support::{code, finish, floodmark, run, signal, text};

/// The program under test, which is also a server.
const FLOODMARK: &str = env!("CARGO_BIN_EXE_floodmark");

/// Number of items per page.
const PAGE: usize = 25;

const ITEMS: &str = r#"
kind = "set"
write = { path = "/items", body = "{seq}" }
readback = { path = "/items?page={page}", items = "/items" }
"#;

/// Number of passes over all pages. Two passes with the same items end the read-back.
static PASSES: AtomicU32 = AtomicU32::new(0);

/// Entry point of the traced server, which appends items of 8 bytes to a file.
#[test]
#[ignore = "runs as the server of the other tests"]
fn server_of_a_set() {
    run_server(open, serve);
}

fn open(directory: &str) -> (Vec<u64>, File) {
    let path = format!("{directory}/items");
    // A crash can leave zeros instead of items.
    let content = fs::read(&path).unwrap_or_default();
    let items = content.chunks_exact(8).map(|item| item.try_into().unwrap());
    let items = items.map(u64::from_le_bytes).filter(|item| *item > 0);
    let file = File::options().append(true).create(true).open(&path);
    (items.collect(), file.unwrap())
}

fn serve(mut client: TcpStream, state: &Mutex<(Vec<u64>, File)>, method: &str) {
    let mut request = [0; 1024];
    loop {
        let length = client.read(&mut request).unwrap_or(0);
        if length == 0 {
            return;
        }
        let request = text(&request[..length]);
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let is_late = method == "late" && body == "7";
        while is_late && PASSES.load(Ordering::Relaxed) < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        let mut state = state.lock().unwrap();
        let (items, file) = &mut *state;
        let page = head
            .split_once("?page=")
            .map(|(_, rest)| rest.split(' ').next());
        let mut is_last = false;
        let content = page.map(|page| {
            let page: usize = page.unwrap().parse().unwrap();
            let items = items.chunks(PAGE).nth(page - 1).unwrap_or_default();
            is_last = items.len() < PAGE;
            format!(r#"{{"items":{items:?}}}"#)
        });
        let is_silent = method == "silent-close";
        let is_closing =
            is_silent || ["closing", "http-1.0"].contains(&method) || content.is_some();
        let (ok, content) = content.map_or((201, String::new()), |content| (200, content));
        let mut response = match method {
            "http-1.0" => format!("HTTP/1.0 {ok} OK\r\n"),
            _ => format!("HTTP/1.1 {ok} OK\r\nContent-Length: {}\r\n", content.len()),
        };
        if is_closing && !is_silent {
            response += "Connection: close\r\n";
        }
        write!(response, "\r\n{content}").unwrap();
        if ok == 201 {
            if method == "early-response" {
                client.write_all(response.as_bytes()).unwrap();
            }
            let item: u64 = body.parse().unwrap();
            if method != "forgetful" || item != 7 {
                items.push(item);
                file.write_all(&item.to_le_bytes()).unwrap();
            }
            sync(file, method);
        }
        if ok == 200 || method != "early-response" {
            client.write_all(response.as_bytes()).unwrap();
        }
        PASSES.fetch_add(u32::from(is_last), Ordering::Relaxed);
        if is_late {
            // Exit only after SIGTERM has arrived.
            thread::sleep(Duration::from_millis(500));
            std::process::exit(0);
        }
        if is_closing {
            return;
        }
    }
}

fn disk(check: &Path, server: &[&str], flags: &[&str]) -> Output {
    let check = check.to_str().unwrap();
    let fixed = [
        "disk", "--check", check, "--quiet", "-n", "60", "--images", "120",
    ];
    run(&[&fixed, flags, &["--"], server].concat())
}

/// Runs `floodmark disk` on the server in this file.
fn disk_of(method: &str, flags: &[&str]) -> Output {
    let server = server_command("disk_set::server_of_a_set", method);
    let server = Vec::from_iter(server.iter().map(String::as_str));
    let directory = tempfile::tempdir().unwrap();
    let check = directory.path().join("items.toml");
    fs::write(&check, ITEMS).unwrap();
    disk(&check, &server, flags)
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn passes_a_server_that_syncs_each_item() {
    for method in ["durable", "closing"] {
        let output = disk_of(method, &["--json", "--images-per-error", "30"]);
        let result = result(&output);
        assert_eq!(
            (code(&output), failed(&result.rows)),
            (0, vec![]),
            "{result:?}"
        );
        assert_eq!(result.check, "items.toml");
        let row = &result.rows[0];
        // SIGTERM can end the server before its last sends return.
        assert!((56..=60).contains(&row.acknowledged), "{row:?}");
        assert!(row.recovered == 120 && row.distinct > 50, "{row:?}");
        let after = result
            .rows
            .iter()
            .filter_map(|row| row.acknowledged_after_error);
        assert_eq!(after.sum::<u64>(), 0, "{result:?}");
    }
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn continues_if_the_server_closes_a_kept_connection() {
    // Every second request of a client gets no response.
    let output = disk_of("silent-close", &["--json", "--images-per-error", "10"]);
    let result = result(&output);
    let outcome = (code(&output), failed(&result.rows), result.requests);
    assert_eq!(outcome, (0, vec![], 60), "{result:?}");
    let row = &result.rows[0];
    assert!((28..=32).contains(&row.acknowledged), "{row:?}");
    // Faults are also injected into later calls.
    let after = result
        .rows
        .iter()
        .filter(|row| row.acknowledged_after_error.is_some());
    assert!(after.count() > 5, "{result:?}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn passes_a_server_that_responds_after_the_timeout() {
    // The server inserts item 7 after all items have been read back, and ignores the subsequent
    // SIGTERM.
    let server = server_command("disk_set::server_of_a_set", "late");
    let shell = ["sh", "-c", "trap '' TERM; exec \"$@\"", "sh"];
    let server = shell.into_iter().chain(server.iter().map(String::as_str));
    let directory = tempfile::tempdir().unwrap();
    let check = directory.path().join("items.toml");
    fs::write(&check, ITEMS).unwrap();
    let flags = ["--json", "--images-per-error", "0"];
    let output = disk(&check, &Vec::from_iter(server), &flags);
    assert_eq!(code(&output), 0, "{output:?}");
    let row = &result(&output).rows[0];
    assert_eq!((row.acknowledged, row.recovered), (60, 120), "{row:?}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn finds_a_server_that_loses_items() {
    for method in ["early-response", "no-sync"] {
        let output = disk_of(method, &["--images-per-error", "0"]);
        assert_eq!(code(&output), 1, "{method}: {output:?}");
        let printed = text(&output.stdout);
        assert!(printed.contains("acknowledged items lost"), "{printed}");
    }
    let output = disk_of("ignored-error", &["--json", "--images-per-error", "30"]);
    let result = result(&output);
    let failed = failed(&result.rows);
    assert_eq!(code(&output), 1, "{result:?}");
    assert!(!failed.contains(&"power loss"), "{failed:?}");
    assert!(
        failed.iter().any(|name| name.starts_with("EIO from sync")),
        "{failed:?}"
    );
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn the_embedded_database_loses_no_bar() {
    let check = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../systems/native-bars/set.toml"
    );
    let words = "serve bars --threads 1 --listen {address} --store embedded:{run}/bars.redb";
    let server: Vec<&str> = [FLOODMARK].into_iter().chain(words.split(' ')).collect();
    let output = disk(
        Path::new(check),
        &server,
        &["--json", "--images-per-error", "10"],
    );
    let result = result(&output);
    assert_eq!(
        (code(&output), failed(&result.rows)),
        (0, vec![]),
        "{result:?}"
    );
    let row = &result.rows[0];
    assert_eq!((row.acknowledged, row.recovered), (60, 120), "{row:?}");
    let after = result
        .rows
        .iter()
        .filter_map(|row| row.acknowledged_after_error);
    let after = Vec::from_iter(after);
    assert!(after.len() > 5, "{result:?}");
    // One response per connection can follow the error.
    assert!(after.iter().all(|after| *after <= 4), "{result:?}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn explains_a_check_that_fails_without_a_power_loss() {
    let output = disk_of("forgetful", &[]);
    assert_eq!(code(&output), 3, "{output:?}");
    let printed = text(&output.stderr);
    let lost = "without a power loss, the check fails: 1 of 60 acknowledged items lost";
    assert!(printed.contains(lost), "{printed}");
    let output = disk_of("http-1.0", &[]);
    assert_eq!(code(&output), 3, "{output:?}");
    let printed = text(&output.stderr);
    let endless = "acknowledged no POST /items request: the response has no Content-Length";
    assert!(printed.contains(endless), "{printed}");
    let directory = tempfile::tempdir().unwrap();
    let check = directory.path().join("items.toml");
    fs::write(&check, ITEMS).unwrap();
    let words = "serve bars --threads 1 --listen {address} --store embedded:{run}/bars.redb";
    let server: Vec<&str> = [FLOODMARK].into_iter().chain(words.split(' ')).collect();
    let output = disk(&check, &server, &[]);
    assert_eq!(code(&output), 3, "{output:?}");
    let printed = text(&output.stderr);
    let refused = "acknowledged no POST /items request (the first response has status 404)";
    assert!(printed.contains(refused), "{printed}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn rejects_a_wrong_place_of_the_value() {
    let server = server_command("disk_set::server_of_a_set", "durable");
    let server = Vec::from_iter(server.iter().map(String::as_str));
    let directory = tempfile::tempdir().unwrap();
    let check = directory.path().join("items.toml");
    let wrong = ITEMS.replace("items = \"/items\"", "items = \"/items\", value = \"/id\"");
    fs::write(&check, wrong).unwrap();
    let output = disk(&check, &server, &[]);
    let printed = text(&output.stderr);
    assert_eq!(code(&output), 2, "{printed}");
    let expected =
        "items.toml: readback.value \"/id\": no item in the response to GET /items?page={page} has";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn an_interruption_before_the_first_disk_state_is_reported() {
    let server = server_command("disk_set::server_of_a_set", "durable");
    let server = Vec::from_iter(server.iter().map(String::as_str));
    let directory = tempfile::tempdir().unwrap();
    let check = directory.path().join("items.toml");
    fs::write(&check, ITEMS).unwrap();
    let flags = [
        "disk",
        "-q",
        "-n",
        "1M",
        "--check",
        check.to_str().unwrap(),
        "--",
    ];
    let disk = floodmark(&[&flags, &server[..]].concat()).spawn().unwrap();
    thread::sleep(Duration::from_secs(1));
    signal(disk.id(), libc::SIGINT);
    let output = finish(disk);
    assert_eq!(code(&output), 130, "{output:?}");
    let expected = "floodmark: interrupted before the first disk state; no result\n";
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn rejects_other_check_files() {
    let directory = tempfile::tempdir().unwrap();
    let check = directory.path().join("items.toml");
    let server = ["./server", "{address}", "{run}"];
    let register = r#"
kind = "register"
write = { path = "/item", body = "{seq}" }
read = { path = "/item" }
"#;
    let invalid = ITEMS.replace("\"/items\", body", "\"/it ems\", body");
    let readback = ITEMS.replace("/items?page", "/it ems?page");
    for (file, flags, words) in [
        (
            register,
            &[][..],
            "kind \"register\" is not supported; use kind \"set\"",
        ),
        (
            ITEMS,
            &["--path", "/"],
            "which contains the paths; remove --path",
        ),
        (
            &ITEMS.replace("kind", "knd"),
            &[],
            "items.toml:2: unknown key \"knd\"",
        ),
        (&invalid, &[], "items.toml:3: the request \"write\""),
        (&readback, &[], "items.toml:4: the request \"readback\""),
    ] {
        fs::write(&check, file).unwrap();
        let output = disk(&check, &server, flags);
        let printed = text(&output.stderr);
        assert!(printed.contains(words), "{printed}");
        assert_eq!(code(&output), 2, "{printed}");
    }
    let output = run(&[
        "disk",
        "--check",
        "sequenc",
        "--",
        "./server",
        "{address}",
        "{run}",
    ]);
    assert_eq!(code(&output), 2);
    let printed = text(&output.stderr);
    assert!(printed.contains("did you mean \"sequence\"?"), "{printed}");
}
