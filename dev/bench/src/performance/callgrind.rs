//! Reads instruction counts by source file from callgrind's output. The format is defined in the
//! Valgrind manual, "Callgrind Format Specification".

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::bench::Failure;

/// Instruction counts of one process, by source file.
pub type ByFile = BTreeMap<String, u64>;

/// Command that counts the instructions of a program and its child processes. The output file of
/// each process is `callgrind.PID` in the working folder.
pub const COMMAND: [&str; 4] = [
    "valgrind",
    "--tool=callgrind",
    "--trace-children=yes",
    "--callgrind-out-file=callgrind.%p",
];

/// Reads from `folder` the instruction counts of the process whose command line ends with `words`.
pub fn of_process(folder: &Path, words: &str) -> Result<ByFile, Failure> {
    for file in fs::read_dir(folder)?.flatten() {
        if !file.file_name().to_string_lossy().starts_with("callgrind.") {
            continue;
        }
        let text = fs::read_to_string(file.path())?;
        let mut lines = text.lines();
        if lines.any(|line| line.starts_with("cmd:") && line.trim_end().ends_with(words)) {
            return Ok(by_file(&text));
        }
    }
    Err(format!("no callgrind output for `{words}`").into())
}

/// Returns the total cost of each source file, including inlined code.
///
/// `fl=`, `fi=` and `fe=` name the source file for the lines that follow. The line after `calls=`
/// is skipped, because the callee's cost is counted in the callee's own lines.
fn by_file(text: &str) -> ByFile {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut files, mut current, mut is_call) = (ByFile::new(), "", false);
    for line in text.lines() {
        let line = line.trim();
        if let Some((key, value)) = line.split_once('=') {
            is_call = key == "calls";
            if matches!(key, "fl" | "fi" | "fe" | "cfi" | "cfl") {
                // `(ID) NAME` defines a name; `(ID)` alone refers to a defined name.
                let (id, name) = value.split_once(' ').unwrap_or((value, value));
                let name = names.entry(id).or_insert(name);
                if key.starts_with('f') {
                    current = *name;
                }
            }
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            let cost = line.split_whitespace().nth(1).and_then(|n| n.parse().ok());
            if !std::mem::take(&mut is_call) {
                *files.entry(current.to_owned()).or_default() += cost.unwrap_or(0);
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# callgrind format\nversion: 1\ncmd:  floodmark worker\npositions: line\nevents: Ir\nsummary: 77\n\n\
        ob=(1) /bin/floodmark\nfl=(1) a.rs\nfn=(1) main\n10 5\n+1 7\nfi=(2) b.rs\n20 30\nfe=(1)\n12 1\n\
        cfi=(3) c.rs\ncfn=(2) called\ncalls=2 7\n13 1000\n* 4\n\nfl=(3)\nfn=(2)\n7 30\n";

    #[test]
    fn assigns_costs_to_source_files() {
        let files = by_file(TEXT);
        let of = |name: &str| files.get(name).copied();
        assert_eq!(
            (of("a.rs"), of("b.rs"), of("c.rs")),
            (Some(17), Some(30), Some(30))
        );
        assert_eq!(files.values().sum::<u64>(), 77);
    }

    #[test]
    fn finds_a_process_by_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let other = TEXT.replace("floodmark worker", "floodmark load x");
        fs::write(folder.path().join("callgrind.1"), other).unwrap();
        assert!(of_process(folder.path(), " worker").is_err());
        fs::write(folder.path().join("callgrind.2"), TEXT).unwrap();
        assert_eq!(of_process(folder.path(), " worker").unwrap(), by_file(TEXT));
    }
}
