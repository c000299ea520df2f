//! What the test of `load`'s thrift finds: allocations while load runs, and memory of an idle connection.

use super::run::BACKENDS;
use crate::command;
use crate::error::Error;
use crate::workspace::Workspace;

/// Findings on one backend.
#[derive(Debug)]
pub struct Thrift {
    /// Which.
    backend: &'static str,
    /// Whether the test that load allocates nothing passed; none where the backend cannot be used here.
    allocates_nothing: Option<bool>,
    /// Bytes of an idle connection; none where the test did not say.
    idle_bytes: Option<u64>,
}

/// Runs the test on each backend.
pub fn test(workspace: &Workspace) -> Result<Vec<Thrift>, Error> {
    let mut all = Vec::new();
    for backend in BACKENDS {
        let run = |name: &str| {
            let mut test = command::cargo();
            test.args([
                "test",
                "--package",
                "floodmark-load",
                "--test",
                "allocation",
                "--",
            ]);
            test.args(["--exact", "--nocapture", &format!("{backend}::{name}")]);
            println!("$ {}", command::line(&test));
            command::collect(test.current_dir(&workspace.root))
        };
        let none = run("load_allocates_nothing");
        let idle = run("an_idle_connection_takes_little");
        all.push(Thrift {
            backend,
            allocates_nothing: match &none {
                Ok((_, said)) if said.contains("skipped:") => None,
                other => Some(other.as_ref().is_ok_and(|(said, _)| one_passed(said))),
            },
            idle_bytes: idle.ok().and_then(|(_, said)| bytes(&said)),
        });
    }
    Ok(all)
}

/// Whether the one test that was asked for was there and passed: a name that no test has is a success too.
fn one_passed(said: &str) -> bool {
    let mut lines = said.lines();
    lines.any(|line| line.starts_with("test result: ok. 1 passed;"))
}

/// The figure in `N bytes for each connection`.
fn bytes(said: &str) -> Option<u64> {
    let mut lines = said.lines();
    lines.find_map(|line| {
        let (before, _) = line.split_once(" bytes for each connection")?;
        before.rsplit(' ').next()?.parse().ok()
    })
}

/// A line for each backend.
pub fn lines(all: &[Thrift]) -> String {
    let line = |thrift: &Thrift| {
        let allocations = match thrift.allocates_nothing {
            None => "not tested: this kernel does not allow the backend",
            Some(true) => "0, the test passed",
            Some(false) => "**the test failed**",
        };
        let idle = thrift.idle_bytes;
        let idle = idle.map_or("not measured".to_owned(), |bytes| format!("{bytes} bytes"));
        let backend = thrift.backend;
        format!(
            "- {backend}: allocations of load threads while load runs: {allocations}; an idle connection takes {idle}.\n"
        )
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_test_says() {
        let said = "   Compiling x\ntest uring::an_idle ... 872 bytes for each connection\nok\n";
        assert_eq!(bytes(said), Some(872));
        assert_eq!(bytes("872 bytes for each connection"), Some(872));
        assert_eq!(bytes("skipped: no io_uring"), None);
    }

    #[test]
    fn a_test_that_is_not_there_has_not_passed() {
        let result = |passed: u8| {
            format!("running {passed} tests\n\ntest result: ok. {passed} passed; 0 failed;\n")
        };
        assert!(one_passed(&result(1)));
        assert!(!one_passed(&result(0)));
        assert!(!one_passed(""));
    }

    #[test]
    fn a_failed_test_is_no_figure() {
        let thrift = Thrift {
            backend: "epoll",
            allocates_nothing: Some(false),
            idle_bytes: None,
        };
        let text = lines(&[thrift]);
        assert!(text.contains("the test failed") && text.contains("not measured"));
    }
}
