//! Classifies how the server exited on a disk state: refused, failed or crashed.

use std::process::ExitStatus;

use floodmark_host::output::failure_line;

use super::ImageOutcome;

/// Exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

/// Returns the outcome for a server that exited on its own. Only an exit with an error code and a
/// message on stderr is a refusal.
pub(super) fn outcome(status: ExitStatus, stderr: &str) -> ImageOutcome {
    let message = stderr.trim();
    let line = failure_line(message).map_or(String::new(), |line| format!(": {line}"));
    match status.code() {
        Some(0) => ImageOutcome::Failed(format!("the server exited ({status}){line}")),
        Some(code @ 1..=127) if code != PANICKED && !message.lines().any(is_crash) => {
            if message.is_empty() {
                ImageOutcome::Failed(format!(
                    "the server exited without an error message on stderr ({status})"
                ))
            } else {
                ImageOutcome::Refused(message.to_owned())
            }
        }
        // A signal, or a shell's exit code for a signal.
        _ => ImageOutcome::Crashed(format!("the server crashed on the state ({status}){line}")),
    }
}

/// Returns whether a language runtime writes such a line when a program crashes.
fn is_crash(line: &str) -> bool {
    let starts = |start| line.starts_with(start);
    let is_rust = starts("thread '") && line.contains(" panicked at ");
    let is_go = starts("goroutine ") && line.ends_with("[running]:");
    let is_python = starts("Traceback (most recent call last)");
    let is_java = starts("Exception in thread ");
    // The last line after an exception that a Node.js program did not catch.
    let is_node = starts("Node.js v");
    let is_deno = starts("error: Uncaught");
    let is_crystal_or_dotnet = starts("Unhandled exception");
    let is_php = starts("PHP Fatal error:  Uncaught");
    let is_ruby = (line.contains(":in `") || line.contains(":in '")) && line.ends_with("Error)");
    is_rust
        || is_go
        || is_python
        || is_java
        || is_node
        || is_deno
        || is_crystal_or_dotnet
        || is_php
        || is_ruby
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn only_an_error_code_with_a_message_is_a_refusal() {
        let outcome =
            |code: i32, stderr: &str| match super::outcome(ExitStatus::from_raw(code << 8), stderr)
            {
                ImageOutcome::Refused(_) => "refused",
                ImageOutcome::Crashed(_) => "crashed",
                ImageOutcome::Failed(_) => "failed",
                ImageOutcome::Recovered | ImageOutcome::Lost(_) => "started",
            };
        for (code, stderr, expected) in [
            (1, "error: data is damaged\n", "refused"),
            (
                1,
                "error: Uncaught (in promise) Error: data is damaged\n",
                "crashed",
            ),
            (
                1,
                "a.rb:1:in `<main>': data is damaged (RuntimeError)\n",
                "crashed",
            ),
            (127, "damaged", "refused"),
            (1, " \n", "failed"),
            (0, "bye", "failed"),
            (101, "damaged", "crashed"),
            (128, "damaged", "crashed"),
            (139, "", "crashed"),
            (
                1,
                "starting\nTraceback (most recent call last):\n  File \"s.py\"\nKeyError: 'a'\n",
                "crashed",
            ),
            (
                1,
                "thread 'main' (7) panicked at s.rs:1:1:\nno\n",
                "crashed",
            ),
            (
                2,
                "panic: no\n\ngoroutine 1 [running]:\nmain.main()",
                "crashed",
            ),
            (1, "Exception in thread \"main\" java.lang.Error", "crashed"),
            (
                1,
                "Error: no\n    at open (s.js:1:1)\n\nNode.js v22.1.0",
                "crashed",
            ),
        ] {
            assert_eq!(outcome(code, stderr), expected, "{code}: {stderr}");
        }
        let killed = super::outcome(ExitStatus::from_raw(9), "loading\ndamaged\n");
        let expected = "the server crashed on the state (signal: 9 (SIGKILL)): damaged";
        assert_eq!(killed, ImageOutcome::Crashed(expected.to_owned()));
    }
}
