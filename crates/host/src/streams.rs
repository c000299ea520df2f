//! Standard streams: the state of stdin, and the line of a program's output that best explains a
//! failure.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Returns the line that best explains a failure, without colors. This is the last line that starts
/// with "error:" (case-insensitive), even if usage text follows. Without such a line, or if a
/// Python traceback follows it, returns the last line that is not empty. Skips notes, because they
/// follow a Rust panic's message.
#[must_use]
pub fn failure_line(output: &str) -> Option<String> {
    let output = without_colors(output);
    let lines = output.lines().map(str::trim);
    let lines: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with("note: "))
        .collect();
    let is_traceback = |line: &&str| line.starts_with("Traceback (most recent call last)");
    let is_error = |line: &&str| {
        let start = line.get(.."error:".len());
        start.is_some_and(|start| start.eq_ignore_ascii_case("error:"))
    };
    let traceback = lines.iter().rposition(is_traceback);
    let error = lines.iter().rposition(is_error);
    let line = match error {
        Some(error) if traceback < Some(error) => lines.get(error),
        _ => lines.last(),
    };
    line.map(|line| (*line).to_owned())
}

/// Removes ANSI escape sequences (ECMA-48, section 5.4: `ESC [`, parameters, a letter).
#[must_use]
pub fn without_colors(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| ('@'..='~').contains(&c));
        plain.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    plain
}

/// Returns whether the other end of stdin is closed. Reads nothing, so data that was already
/// written remains available.
#[must_use]
pub fn stdin_is_closed() -> bool {
    let stdin = std::io::stdin();
    // The kernel always reports a closed end, in addition to the requested events.
    let mut descriptors = [PollFd::new(&stdin, PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let closed = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut descriptors, Some(&now)).is_ok() && descriptors[0].revents().intersects(closed)
}

/// Waits until stdin has data or its other end is closed. Returns `false` if `timeout` expires or a
/// signal interrupts the wait.
#[must_use]
pub fn stdin_is_readable(timeout: Duration) -> bool {
    let stdin = std::io::stdin();
    let mut descriptors = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).ok();
    matches!(poll(&mut descriptors, timeout.as_ref()), Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_line_that_explains_a_failure() {
        for (output, line) in [
            ("one\ntwo\n\n", "two"),
            ("a\n\u{1b}[31;1mred\u{1b}[0m thing\u{1b}[", "red thing"),
            (
                "\u{1b}[1merror:\u{1b}[0m unexpected argument '--bogus' found\n\nUsage: serve\n\nFor \
                 more information, try '--help'.\n",
                "error: unexpected argument '--bogus' found",
            ),
            (
                "Error: cannot open data\n\nCaused by:\n    no such file\n",
                "Error: cannot open data",
            ),
            (
                "error: earlier\nTraceback (most recent call last):\n  File \"s.py\", line 3, in f\n    \
                 g()\nOSError: disk full\n",
                "OSError: disk full",
            ),
            (
                "thread 'main' panicked at src/main.rs:2:5:\nno disk\nnote: run with \
                 `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
                "no disk",
            ),
        ] {
            assert_eq!(failure_line(output).as_deref(), Some(line), "{output:?}");
        }
        for output in ["", " \n", "\u{1b}[0m\u{1b}[0m\n"] {
            assert_eq!(failure_line(output), None, "{output:?}");
        }
    }
}
