//! Measures allocations during load and the memory of an idle connection, using tests of
//! `floodmark-load`.

use super::loads::BACKENDS;
use crate::bench::Bench;

/// Runs the tests on each backend and returns a line per backend.
pub fn lines(bench: &Bench) -> String {
    let lines = BACKENDS.map(|backend| {
        let run = |name: &str| {
            bench.cargo(&format!(
                "test --package floodmark-load --test allocation -- --exact --nocapture {backend}::{name}"
            ))
        };
        let none = run("load_allocates_nothing");
        let idle = run("an_idle_connection_takes_little").unwrap_or_else(|error| error.to_string());
        line(backend, none.as_deref().ok(), &idle)
    });
    lines.concat()
}

/// Returns the page's line for a backend, from the output of both tests. `none` is `None` if the
/// allocation test failed.
fn line(backend: &str, none: Option<&str>, idle: &str) -> String {
    let passed = "\ntest result: ok. 1 passed;";
    let allocations = match none {
        Some(output) if output.contains("skipped:") => {
            "not measured (the kernel does not allow this backend)"
        }
        Some(output) if output.contains(passed) => "0 (test passed)",
        _ => "**test failed**",
    };
    let idle = bytes(idle).map_or("not measured".to_owned(), |bytes| format!("{bytes} bytes"));
    format!(
        "- {backend}: allocations by load threads during load: {allocations}; memory per idle connection: {idle}.\n"
    )
}

/// Parses the number N in `N bytes for each connection` or `N bytes per connection`.
fn bytes(output: &str) -> Option<u64> {
    let ends = [" bytes for each connection", " bytes per connection"];
    output.lines().find_map(|line| {
        let (before, _) = ends.iter().find_map(|end| line.split_once(end))?;
        before.rsplit(' ').next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bytes_per_connection() {
        let output = "   Compiling x\ntest uring::an_idle ... 872 bytes for each connection\nok\n";
        assert_eq!(bytes(output), Some(872));
        assert_eq!(bytes("872 bytes per connection"), Some(872));
        assert_eq!(bytes("skipped: no io_uring"), None);
    }

    #[test]
    fn a_test_that_did_not_run_has_not_passed() {
        let result =
            |n: u8| format!("running {n} tests\n\ntest result: ok. {n} passed; 0 failed;\n");
        assert!(line("epoll", Some(&result(1)), "").contains("0 (test passed)"));
        for output in [Some(&result(0)[..]), Some(""), None] {
            let line = line("epoll", output, "");
            assert!(
                line.contains("test failed") && line.contains("not measured"),
                "{line}"
            );
        }
        assert!(line("uring", Some("skipped: no io_uring"), "").contains("does not allow"));
    }
}
