//! What servers said in their logs, in words.

use floodmark_record::logged::LogErrors;
use floodmark_record::run::Run;

use crate::figures::count_of;

/// "12 lines of the server's log with AskTimeoutException".
#[must_use]
pub fn sentence(errors: &LogErrors) -> String {
    let lines = count_of(errors.lines, "line");
    format!("{lines} of the server's log with {}", errors.text)
}

/// The same of all runs of a trial, text by text; texts that no log has are left out.
#[must_use]
pub fn sentences(runs: &[&Run]) -> Vec<String> {
    let mut sums: Vec<LogErrors> = Vec::new();
    for errors in runs.iter().flat_map(|run| &run.log_errors) {
        match sums.iter_mut().find(|sum| sum.text == errors.text) {
            Some(sum) => sum.lines += errors.lines,
            None => sums.push(errors.clone()),
        }
    }
    let said = sums.iter().filter(|sum| sum.lines > 0);
    said.map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn lines_of_a_trials_runs_are_added_up() {
        let said = |text: &str, lines| LogErrors {
            text: text.to_owned(),
            lines,
        };
        let of = |errors: Vec<LogErrors>| Run {
            log_errors: errors,
            ..fixture::closed()
        };
        let first = of(vec![
            said("AskTimeoutException", 1000),
            said("OutOfMemory", 0),
        ]);
        let second = of(vec![
            said("AskTimeoutException", 234),
            said("OutOfMemory", 0),
        ]);
        assert_eq!(
            sentences(&[&first, &second]),
            ["1,234\u{a0}lines of the server's log with AskTimeoutException"]
        );
        assert_eq!(
            sentence(&said("rejected", 1)),
            "1\u{a0}line of the server's log with rejected"
        );
    }
}
