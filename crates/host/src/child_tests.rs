use super::*;
use std::io::{BufRead, BufReader, Read, Write};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout().unwrap())
        .read_line(&mut line)
        .unwrap();
    line.trim().to_owned()
}

/// Returns whether a process exists and is not a zombie.
fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|text| {
        text.rsplit_once(')')
            .is_some_and(|(_, rest)| !rest.starts_with(" Z") && !rest.starts_with(" X"))
    })
}

fn ends_soon(pid: u32) -> bool {
    let begin = Instant::now();
    while runs(pid) {
        if begin.elapsed() > Duration::from_secs(5) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn exchanges_data_and_ends() {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Child::start(command).unwrap();
    assert_eq!(child.wait(Duration::from_millis(30)).unwrap(), None);
    child.stdin().unwrap().write_all(b"a plan\n").unwrap();
    let mut text = String::new();
    child.stdout().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "a plan\n");
    let status = child.wait(Duration::from_secs(5)).unwrap().unwrap();
    assert!(status.success());
    assert_eq!(child.stop(Duration::ZERO).unwrap(), status, "repeated");
    child.signal(Signal::KILL).unwrap();
}

#[test]
fn stop_sends_sigterm_first() {
    let mut child = Child::start(shell(
        "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done",
    ))
    .unwrap();
    assert_eq!(first_line(&mut child), "ready");
    let status = child.stop(Duration::from_secs(5)).unwrap();
    assert_eq!(status.code(), Some(7));
}

#[test]
fn stop_kills_the_group_after_the_grace() {
    let mut child = Child::start(shell(
        "trap '' TERM; sleep 30 & echo $!; while :; do sleep 1; done",
    ))
    .unwrap();
    let grandchild: u32 = first_line(&mut child).parse().unwrap();
    assert!(runs(grandchild));
    let begin = Instant::now();
    let status = child.stop(Duration::from_millis(100)).unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    assert!(begin.elapsed() >= Duration::from_millis(100));
    assert!(ends_soon(grandchild), "{grandchild} still runs");
}

#[test]
fn a_stop_request_shortens_the_grace() {
    let mut child = Child::start(shell("trap '' TERM; echo; while :; do sleep 1; done")).unwrap();
    first_line(&mut child);
    let hurry = Stop::new();
    hurry.set();
    let begin = Instant::now();
    let status = child
        .stop_or_hurry(Duration::from_secs(600), &hurry)
        .unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    assert!((HURRIED_TIMEOUT..Duration::from_secs(300)).contains(&begin.elapsed()));
}

#[test]
fn kills_the_group_on_drop_and_after_the_end() {
    let mut child = Child::start(shell("sleep 30 & echo $!; wait")).unwrap();
    let grandchild: u32 = first_line(&mut child).parse().unwrap();
    let pid = child.pid();
    drop(child);
    assert!(ends_soon(pid) && ends_soon(grandchild));

    let mut child = Child::start(shell("sleep 30 & echo $!")).unwrap();
    let grandchild: u32 = first_line(&mut child).parse().unwrap();
    assert!(
        child
            .wait(Duration::from_secs(5))
            .unwrap()
            .unwrap()
            .success()
    );
    assert!(ends_soon(grandchild), "{grandchild} still runs");
}

#[test]
fn dies_with_the_thread_that_started_it() {
    // This kernel behavior is why children must be started from the main thread.
    let mut child = std::thread::spawn(|| Child::start(shell("echo; exec sleep 30")).unwrap())
        .join()
        .unwrap();
    let status = child.wait(Duration::from_secs(5)).unwrap().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
}

#[test]
fn usage_includes_reaped_descendants() {
    let mut child = Child::start(shell(
        "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; exit 3",
    ))
    .unwrap();
    assert_eq!(child.used(), None);
    let status = child.wait(Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!(status.code(), Some(3));
    let used = child.used().unwrap();
    // The outer shell only waits. The inner shell uses CPU time.
    assert!(used.user_s + used.system_s > 0.005, "{used:?}");
    assert!(used.peak_rss_bytes > 100_000, "{used:?}");
}

#[test]
fn logs_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("server.log");
    let mut child = Child::start_logged(shell("echo out; echo err >&2"), &log).unwrap();
    assert!(
        child
            .wait(Duration::from_secs(5))
            .unwrap()
            .unwrap()
            .success()
    );
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "out\nerr\n");
    let error =
        Child::start_logged(shell("true"), &directory.path().join("missing/x.log")).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot write the log "),
        "{error}"
    );
}

#[test]
fn names_a_missing_program() {
    let error = Child::start(Command::new("missing-program")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot start missing-program: No such file or directory (os error 2); install it, or add its directory to PATH"
    );
}
