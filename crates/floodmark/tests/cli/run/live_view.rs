//! Tests of the live view of experiments and tuning runs on a pseudo-terminal.

use super::tuning::pools;
use super::{ExperimentDirectory, NATIVE};
use crate::live_view::split;
use crate::support::floodmark;
use crate::support::pty::{OnTerminal, TerminalSetup};

impl ExperimentDirectory {
    fn on_terminal(&self, command: &str) -> OnTerminal {
        let mut command = floodmark(&[command, "e.toml", "--out", "result"]);
        command
            .current_dir(self.0.path())
            .env("TMPDIR", self.0.path().join("tmp"));
        OnTerminal::spawn(command, &TerminalSetup::default())
    }
}

/// Ends the command with `q`. Returns the text printed after the view.
fn quit(mut command: OnTerminal) -> String {
    command.keys("q");
    let (code, shown) = command.end();
    assert_eq!(code, 130, "{shown}");
    let (view, after) = split(&shown);
    assert!(!view.contains("interrupted"), "{view:?}");
    after.to_owned()
}

#[test]
fn shows_completed_trials_with_their_figures() {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"Which one?\"\n[load]\nconnections = 2\nduration = \"1s\"\n{NATIVE}name = \"first\"\n\
         {NATIVE}name = \"second\"\nload = {{ duration = \"60s\" }}\n"
    ));
    let run = lab.on_terminal("run");
    for words in ["trials: 1/2 first", "✓ first", "▶ second"] {
        run.wait_for(words);
    }
    let after = quit(run);
    for words in ["Which one?", "first", "interrupted"] {
        assert!(after.contains(words), "no {words:?} in {after}");
    }
}

#[test]
fn shows_the_steps_of_a_tuning() {
    let options = "--threads {threads} --connections 16";
    let lab = pools(8, "1s", options, "knobs.threads = { low = 1, high = 50 }\n");
    let tune = lab.on_terminal("tune");
    for word in ["start:", "raise"] {
        tune.wait_for(word);
    }
    let after = quit(tune);
    for words in ["threads", "interrupted"] {
        assert!(after.contains(words), "no {words:?} in {after}");
    }
}
