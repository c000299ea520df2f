//! The terminal after the view has closed, and after a panic.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use floodmark_live::LiveView;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

const CHILD: &str = "FLOODMARK_TEST_VIEW_CHILD";

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// Code that the tests below run in a child process.
#[test]
fn child_body() {
    let Ok(mode) = std::env::var(CHILD) else {
        return;
    };
    let view = LiveView::open(Arc::new(AtomicBool::new(false)), None, false).unwrap();
    eprintln!("a message");
    std::thread::sleep(Duration::from_millis(400));
    if mode == "panic" {
        panic!("a test panic");
    }
    drop(view);
    eprintln!("after the view");
}

/// Returns what a child shows on a new terminal. Checks that it restores the terminal's modes.
fn run_child(mode: &str) -> String {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let path = ptsname(&ours, Vec::new()).unwrap();
    let path = path.to_str().unwrap();
    let theirs = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size).unwrap();
    let modes = |file: &File| {
        let modes = tcgetattr(file).unwrap();
        (
            modes.local_modes,
            modes.input_modes,
            format!("{:?}", modes.special_codes),
        )
    };
    let before = modes(&theirs);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child_body", "--nocapture"])
        .env(CHILD, mode)
        .stdin(theirs.try_clone().unwrap())
        .stdout(Stdio::null())
        .stderr(theirs.try_clone().unwrap());
    let status = command.status().unwrap();
    assert_eq!(status.success(), mode != "panic");
    assert_eq!(modes(&theirs), before);
    drop((command, theirs));
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    let mut ours = File::from(ours);
    // Reading fails with EIO after the other end is closed.
    while let Ok(n @ 1..) = ours.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..n]);
    }
    String::from_utf8(shown).unwrap()
}

#[test]
fn prints_the_messages_after_the_view() {
    let shown = run_child("orderly");
    let (view, after) = shown.split_once(LEAVE).unwrap();
    assert!(
        view.contains(ENTER) && view.contains("starting"),
        "{shown:?}"
    );
    // The view also shows the message, but does not write the spaces in it.
    assert!(view.contains("message"), "{shown:?}");
    assert_eq!(after, "a message\r\nafter the view\r\n");
}

#[test]
fn a_panic_restores_the_terminal_before_its_message() {
    let shown = run_child("panic");
    let (view, after) = shown.split_once(LEAVE).unwrap();
    assert!(!view.contains("panic"), "{shown:?}");
    assert!(
        after.contains("a message") && after.contains("a test panic"),
        "{shown:?}"
    );
    assert_eq!(shown.matches(LEAVE).count(), 1);
}
