//! What of a failed command's long output is told again at the end, so that the end of a log says what failed.

use std::collections::VecDeque;

/// Lines that are told again of the output of a test.
const OF_A_TEST: usize = 20;
/// Lines that are told again of a command that is no failed test.
const OF_A_COMMAND: usize = 60;
/// What stands above a backtrace.
const BACKTRACE: &str = "stack backtrace:";

/// The names of failed tests with the last lines of each, and how to run them again; of any other output its end.
pub fn of(said: &VecDeque<String>) -> Vec<String> {
    let failed = said.iter().filter_map(|line| failed_test(line));
    let failed: Vec<&str> = failed.collect();
    if failed.is_empty() {
        let from = said.len().saturating_sub(OF_A_COMMAND);
        return said.iter().skip(from).cloned().collect();
    }
    let mut told: Vec<String> = failed.iter().map(|name| format!("FAILED {name}")).collect();
    let mut lines = said.iter();
    let mut line = lines.next();
    while let Some(text) = line {
        let Some(name) = heading(text) else {
            if text.starts_with("error: ") {
                told.push(text.clone());
            }
            line = lines.next();
            continue;
        };
        let mut block = Vec::new();
        line = lines.next();
        while let Some(text) = line.filter(|text| !ends_block(text)) {
            block.push(text);
            line = lines.next();
        }
        told.push(format!("---- {name}"));
        // Where it was says less than what was wrong, and would push that out.
        let block = block.into_iter().take_while(|text| *text != BACKTRACE);
        let block = block.filter(|text| !text.trim().is_empty());
        let block: Vec<&String> = block.collect();
        let from = block.len().saturating_sub(OF_A_TEST);
        told.extend(block[from..].iter().map(|text| format!("  {text}")));
    }
    told
}

/// The name in `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// The name in `---- NAME stdout ----`, with which libtest begins what a failed test wrote.
fn heading(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

fn ends_block(line: &str) -> bool {
    heading(line).is_some() || line == "failures:" || line.starts_with("test result: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        of(&text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn failed_tests_are_named_with_their_last_lines() {
        let long: String = (0..30).map(|n| format!("line {n}\n")).collect();
        let output = format!(
            "running 3 tests\ntest a::fine ... ok\ntest a::bad ... FAILED\ntest b ... FAILED\n\nfailures:\n\n\
             ---- a::bad stdout ----\n{long}\nthread 'a::bad' panicked at x.rs:1:1:\nnot so\nstack backtrace:\n{long}\n\
             ---- b stdout ----\nb was wrong\n\nfailures:\n    a::bad\n    b\n\n\
             test result: FAILED. 1 passed; 2 failed\n\nerror: test failed, to rerun pass `-p x --test y`\n"
        );
        let told = told(&output);
        assert_eq!(told[..3], ["FAILED a::bad", "FAILED b", "---- a::bad"]);
        assert_eq!(told[3], "  line 12");
        assert!(told.contains(&"  not so".to_owned()), "{told:?}");
        assert!(!told.iter().any(|line| line.contains("fine")));
        let end = [
            "---- b",
            "  b was wrong",
            "error: test failed, to rerun pass `-p x --test y`",
        ];
        assert_eq!(told[told.len() - 3..], end);
    }

    #[test]
    fn of_other_output_the_end_is_told() {
        let output: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let told = told(&output);
        assert_eq!((told.len(), told[0].as_str()), (OF_A_COMMAND, "line 40"));
        assert!(of(&VecDeque::new()).is_empty());
    }
}
