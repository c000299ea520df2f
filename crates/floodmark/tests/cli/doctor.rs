//! `floodmark doctor`.

use serde_json::Value;

use crate::support::{code, run, text};

#[test]
fn findings_say_what_was_found_and_mends_are_commands() {
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
        if of("level") == "ok" {
            assert!(mends.is_empty(), "{finding}");
        } else {
            assert!(!of("spoils").is_empty() && !mends.is_empty(), "{finding}");
        }
        for mend in mends {
            let command = mend.as_str().unwrap();
            let first = command.split_whitespace().next().unwrap();
            // A word that a shell can run, or a comment about the next one.
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
fn text_without_a_terminal_is_plain() {
    let output = run(&["doctor"]);
    assert_eq!(code(&output), 0);
    let said = text(&output.stdout);
    assert!(
        !said.contains('\u{1b}') && said.contains("io_uring"),
        "{said}"
    );
    assert!(output.stderr.is_empty());
}
