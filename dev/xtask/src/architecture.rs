//! Reads the rules in ARCHITECTURE.md: the blocks `deps`, `never` and `modules`, and the table of crates.

use std::collections::{BTreeMap, BTreeSet};

/// Path of the page, relative to the repository's root.
pub const PAGE: &str = "ARCHITECTURE.md";

/// Rules in ARCHITECTURE.md.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Architecture {
    /// Maps each crate to the crates that it may depend on.
    pub allowed: BTreeMap<String, BTreeSet<String>>,
    /// Maps each crate to the external packages that it must not depend on.
    pub never: BTreeMap<String, BTreeSet<String>>,
    /// Crates whose modules have no dependency cycle.
    pub ordered: BTreeSet<String>,
    /// Names of the crates in the first column of the table.
    pub described: BTreeSet<String>,
}

/// Parses the page.
///
/// # Errors
/// A block is missing or unclosed, a colon is missing, or a name is repeated. The error contains
/// the line number.
pub fn parse(page: &str) -> Result<Architecture, String> {
    let mut read = Architecture::default();
    let mut block = None;
    let mut blocks = BTreeSet::new();
    for (index, line) in page.lines().enumerate() {
        let invalid = |what: &str| Err(format!("{PAGE}:{}: {what}", index + 1));
        if let Some(info) = line.strip_prefix("```") {
            blocks.insert(info.trim());
            block = block.is_none().then(|| info.trim());
            continue;
        }
        match block {
            None => read.described.extend(table_name(line)),
            Some("deps") => {
                let Some((name, uses)) = line.split_once(':') else {
                    return invalid("expected `crate: crate crate …`");
                };
                let uses = words(uses);
                if read.allowed.insert(name.trim().to_owned(), uses).is_some() {
                    return invalid("this crate already has a line; merge the two lines");
                }
            }
            Some("never") => {
                let Some((names, banned)) = line.split_once(':') else {
                    return invalid("expected `crate crate …: package package …`");
                };
                for name in words(names) {
                    read.never.entry(name).or_default().extend(words(banned));
                }
            }
            Some("modules") => read.ordered.extend(words(line)),
            Some(_) => {}
        }
    }
    if block.is_some() {
        return Err(format!("{PAGE}: unclosed block; end it with ```"));
    }
    let mut required = ["deps", "never", "modules"].into_iter();
    match required.find(|name| !blocks.contains(name)) {
        Some(missing) => Err(format!("{PAGE}: missing block ```{missing}")),
        None => Ok(read),
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Returns the crate name in the first cell of a row: `` | `name` | … ``.
fn table_name(line: &str) -> Option<String> {
    let (name, _) = line.strip_prefix("| `")?.split_once("` |")?;
    (!name.contains(' ')).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    const NEVER: &str = "```never\na b: tokio libc\na: clap\n```\n```modules\na b\nc\n```\n";

    #[test]
    fn reads_the_blocks_and_the_table() {
        let page = format!(
            "# Page\n| `a` | holds |\n| `cargo xtask deps` | does |\n```\nx: y\n```\n```deps\na:\nb: a\n```\n{NEVER}"
        );
        let read = parse(&page).unwrap();
        assert_eq!(read.allowed["a"], set(&[]));
        assert_eq!(read.allowed["b"], set(&["a"]));
        assert_eq!(read.allowed.len(), 2);
        assert_eq!(read.never["a"], set(&["clap", "libc", "tokio"]));
        assert_eq!(read.ordered, set(&["a", "b", "c"]));
        assert_eq!(read.never["b"], set(&["libc", "tokio"]));
        assert_eq!(read.described, set(&["a"]));
    }

    #[test]
    fn names_the_line_of_an_error() {
        let error = parse("```deps\na\n```\n").unwrap_err();
        assert_eq!(error, "ARCHITECTURE.md:2: expected `crate: crate crate …`");
        let error = parse("```deps\na:\na: b\n```\n").unwrap_err();
        assert!(error.starts_with("ARCHITECTURE.md:3:"), "{error}");
        let error = parse("```deps\na:\n```\n```never\na\n```\n").unwrap_err();
        assert!(error.starts_with("ARCHITECTURE.md:5:"), "{error}");
    }

    #[test]
    fn refuses_missing_and_unclosed_blocks() {
        assert!(parse(NEVER).unwrap_err().contains("```deps"));
        assert!(
            parse("```deps\na:\n```\n")
                .unwrap_err()
                .contains("```never")
        );
        let open = format!("{NEVER}```deps\na:\n");
        assert!(parse(&open).unwrap_err().contains("unclosed"));
    }
}
