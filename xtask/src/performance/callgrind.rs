//! Instructions by source file, from the files that callgrind writes (valgrind's manual, "Callgrind Format Specification").

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Instructions of one process, by source file.
pub type ByFile = BTreeMap<String, u64>;

/// Of the process in `folder` whose command line ends with `words`.
pub fn of_process(folder: &Path, words: &str) -> Result<ByFile, String> {
    let files = fs::read_dir(folder).map_err(|e| e.to_string())?;
    for file in files.flatten() {
        let is_ours = file.file_name().to_string_lossy().starts_with("callgrind.");
        let text = match is_ours.then(|| fs::read_to_string(file.path())) {
            Some(Ok(text)) => text,
            _ => continue,
        };
        let mut lines = text.lines();
        if lines.any(|line| line.starts_with("cmd:") && line.trim_end().ends_with(words)) {
            return Ok(by_file(&text));
        }
    }
    Err(format!("callgrind wrote nothing of `{words}`"))
}

/// The flags that have a process and its children write into `folder`.
pub fn wrapper(folder: &Path) -> Vec<String> {
    let out = folder.join("callgrind.%p").display().to_string();
    vec![
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        "--trace-children=yes".to_owned(),
        format!("--callgrind-out-file={out}"),
    ]
}

/// Sums the cost of each line by the file it was written in, inlined code included: `fl=`, `fi=` and `fe=` say where what
/// follows comes from. The line after `calls=` holds what was called, which is counted where it happened.
fn by_file(text: &str) -> ByFile {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut costs, mut current, mut called) = (BTreeMap::<&str, u64>::new(), "", false);
    for line in text.lines() {
        let line = line.trim();
        if let Some((key, value)) = line.split_once('=') {
            let is_place = matches!(key, "fl" | "fi" | "fe");
            if is_place || matches!(key, "cfi" | "cfl") {
                // `(ID) NAME` names it, `(ID)` repeats it.
                let (id, name) = value.split_once(' ').unwrap_or((value, ""));
                if !name.is_empty() {
                    names.insert(id, name);
                }
                if is_place {
                    current = id;
                }
            }
            called = key == "calls";
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            let cost = line.split_whitespace().nth(1).and_then(|n| n.parse().ok());
            if !std::mem::take(&mut called) {
                *costs.entry(current).or_default() += cost.unwrap_or(0);
            }
        }
    }
    let mut files = ByFile::new();
    for (id, cost) in costs {
        let name = names.get(id).copied().unwrap_or(id);
        *files.entry(name.to_owned()).or_default() += cost;
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
    fn costs_stay_with_the_file_that_they_were_written_in() {
        let files = by_file(TEXT);
        let of = |name: &str| files.get(name).copied();
        assert_eq!(
            (of("a.rs"), of("b.rs"), of("c.rs")),
            (Some(17), Some(30), Some(30))
        );
        assert_eq!(files.values().sum::<u64>(), 77);
    }

    #[test]
    fn the_process_is_found_by_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let other = TEXT.replace("floodmark worker", "floodmark load x");
        fs::write(folder.path().join("callgrind.1"), other).unwrap();
        assert!(of_process(folder.path(), " worker").is_err());
        fs::write(folder.path().join("callgrind.2"), TEXT).unwrap();
        assert_eq!(of_process(folder.path(), " worker"), Ok(by_file(TEXT)));
    }
}
