//! Lines of a server's log that its manifest wants counted.

use super::{Lab, python};

/// Says `boom` once for each request, on a line of its own.
const BOOM: &str = "import builtins\n\
                    class Loud(http.server.BaseHTTPRequestHandler):\n\
                    \x20   def handle_one_request(self):\n\
                    \x20       super().handle_one_request()\n\
                    \x20       if self.raw_requestline: sys.stderr.write('java.lang.Boom: late\\n')\n\
                    http.server.BaseHTTPRequestHandler = Loud\n";

#[test]
fn lines_of_the_servers_log_are_counted_in_each_attempt() {
    let lab = Lab::new(
        "question = \"?\"\n[load]\nconnections = 2\nrequests = 30\nattempts = 2\nwarmup = \"0s\"\n\
         [[trial]]\nsystem = \"loud\"\nworkload = \"hello\"\n",
    );
    let folder = lab.system(
        "loud",
        "name = \"loud\"\nworkloads = [\"hello\"]\nruntime = \"python\"\nerrors = [\"java.lang.Boom\", \"never said\"]\n\
         [start]\ncommand = \"python3 -u server.py {port}\"\n",
    );
    python(&folder, BOOM);
    let (code, record, said) = lab.run(&[]);
    assert!(matches!(code, 0 | 4), "{said}");
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
        // The last answers come before their lines: those belong to the next attempt.
        assert!((28..=32).contains(&lines), "{counted:?}");
        all += lines;
    }
    assert!(
        said.contains(&format!(
            "loud: {all} lines of the server's log with java.lang.Boom"
        )),
        "{said}"
    );
    assert!(!said.contains("never said"), "{said}");
}

#[test]
fn a_text_that_no_line_can_have_is_refused() {
    let lab = Lab::new("question = \"?\"\n[[trial]]\nsystem = \"loud\"\nworkload = \"hello\"\n");
    lab.system(
        "loud",
        "name = \"loud\"\nworkloads = [\"hello\"]\nerrors = [\"\"]\n[start]\ncommand = \"true\"\n",
    );
    let output = crate::support::finish(lab.start(&[]));
    assert_eq!(crate::support::code(&output), 2);
    let said = crate::support::text(&output.stderr);
    assert!(
        said.contains("system.toml:3: errors: each is a text within one line"),
        "{said}"
    );
}
