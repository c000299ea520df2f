//! Tests of `floodmark doctor`.

use serde_json::Value;

use crate::support::{code, run, text};

#[test]
fn findings_have_commands_that_fix_them() {
    let output = run(&["doctor", "--json"]);
    assert_eq!(code(&output), 0);
    let checkup: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = checkup["findings"].as_array().unwrap();
    assert!(findings.len() >= 10, "{checkup:#}");
    for finding in findings {
        let of = |name: &str| finding[name].as_str().unwrap_or("");
        assert!(
            !of("topic").is_empty() && !of("found").is_empty(),
            "{finding}"
        );
        let mends = finding["mend"].as_array().unwrap();
        if ["ok", "unknown"].contains(&of("level")) {
            assert!(mends.is_empty(), "{finding}");
        } else {
            assert!(!of("spoils").is_empty() && !mends.is_empty(), "{finding}");
        }
        for mend in mends {
            let command = mend.as_str().unwrap();
            let first = command.split_whitespace().next().unwrap();
            // Each fix must be a shell command or a comment.
            assert!(
                first == "#"
                    || first.bytes().all(|b| b.is_ascii_lowercase()
                        || b"-_/=".contains(&b)
                        || b.is_ascii_digit()),
                "{command}"
            );
            assert!(
                !command.ends_with('.') && !command.contains('\n'),
                "{command}"
            );
        }
    }
}

#[test]
fn prints_plain_text_without_a_terminal() {
    let output = run(&["doctor"]);
    assert_eq!(code(&output), 0);
    let printed = text(&output.stdout);
    assert!(
        !printed.contains('\u{1b}') && printed.contains("io_uring"),
        "{printed}"
    );
    assert!(output.stderr.is_empty());
}
