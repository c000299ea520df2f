//! Tests of the error counts from a server's log.

use super::{ExperimentDirectory, python};

/// Python code that logs a line with `java.lang.Boom` for each request.
const BOOM: &str = "import builtins\n\
                    class Loud(http.server.BaseHTTPRequestHandler):\n\
                    \x20   def handle_one_request(self):\n\
                    \x20       super().handle_one_request()\n\
                    \x20       if self.raw_requestline: sys.stderr.write('java.lang.Boom: late\\n')\n\
                    http.server.BaseHTTPRequestHandler = Loud\n";

#[test]
fn counts_log_lines_in_each_attempt() {
    let lab = ExperimentDirectory::new(
        "question = \"?\"\n[load]\nconnections = 2\nrequests = 30\nattempts = 2\nwarmup = \"0s\"\n\
         [[trial]]\nsystem = \"loud\"\nworkload = \"hello\"\n",
    );
    let directory = lab.system(
        "loud",
        "name = \"loud\"\nworkloads = [\"hello\"]\nruntime = \"python\"\nerrors = [\"java.lang.Boom\", \"never said\"]\n\
         [start]\ncommand = \"python3 -u server.py {port}\"\n",
    );
    python(&directory, BOOM);
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    assert_eq!(record.runs.len(), 2);
    let mut all = 0;
    for run in &record.runs {
        assert_eq!(run.runtime.as_deref(), Some("python"));
        let counted: Vec<_> = run
            .log_errors
            .iter()
            .map(|of| (of.text.as_str(), of.lines))
            .collect();
        let lines = counted[0].1;
        assert_eq!(counted, [("java.lang.Boom", lines), ("never said", 0)]);
        // The last lines of an attempt may be counted in the next attempt.
        assert!((28..=32).contains(&lines), "{counted:?}");
        all += lines;
    }
    assert!(
        printed.contains(&format!(
            "loud: {all} lines with java.lang.Boom in the server log"
        )),
        "{printed}"
    );
    assert!(!printed.contains("never said"), "{printed}");
}

#[test]
fn refuses_an_empty_log_pattern() {
    let lab = ExperimentDirectory::new(
        "question = \"?\"\n[[trial]]\nsystem = \"loud\"\nworkload = \"hello\"\n",
    );
    lab.system(
        "loud",
        "name = \"loud\"\nworkloads = [\"hello\"]\nerrors = [\"\"]\n[start]\ncommand = \"true\"\n",
    );
    let output = crate::support::finish(lab.start(&[]));
    assert_eq!(crate::support::code(&output), 2);
    let printed = crate::support::text(&output.stderr);
    assert!(
        printed.contains("system.toml:3: errors: expected single-line strings"),
        "{printed}"
    );
}
