//! Reads the machine-readable parts of ARCHITECTURE.md: the fenced blocks `deps` and `never`, and the names
//! in the first column of the crates' table.

use std::collections::{BTreeMap, BTreeSet};

/// The page's name, from the root.
pub const PAGE: &str = "ARCHITECTURE.md";

/// What the page says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Architecture {
    /// Crate → crates it may depend on.
    pub allowed: BTreeMap<String, BTreeSet<String>>,
    /// Crate → foreign packages it must not depend on.
    pub never: BTreeMap<String, BTreeSet<String>>,
    /// Crates that the table describes.
    pub described: BTreeSet<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Prose,
    Deps,
    Never,
    OtherBlock,
}

/// Reads the page.
///
/// # Errors
/// One line with the place: a block that is missing or not closed, a line without its colon, a name given twice.
pub fn parse(page: &str) -> Result<Architecture, String> {
    let mut read = Architecture::default();
    let mut place = Place::Prose;
    let (mut deps_seen, mut never_seen) = (false, false);
    for (index, line) in page.lines().enumerate() {
        let wrong = |what: &str| Err(format!("{PAGE}:{}: {what}", index + 1));
        if let Some(info) = line.strip_prefix("```") {
            place = match (place, info.trim()) {
                (Place::Prose, "deps") => Place::Deps,
                (Place::Prose, "never") => Place::Never,
                (Place::Prose, _) => Place::OtherBlock,
                _ => Place::Prose,
            };
            deps_seen |= place == Place::Deps;
            never_seen |= place == Place::Never;
            continue;
        }
        match place {
            Place::Prose => read.described.extend(table_name(line)),
            Place::OtherBlock => {}
            Place::Deps => {
                let Some((name, uses)) = line.split_once(':') else {
                    return wrong("expected `crate: crate crate …`");
                };
                let uses = words(uses);
                if read.allowed.insert(name.trim().to_owned(), uses).is_some() {
                    return wrong("this crate has a line already; merge the two");
                }
            }
            Place::Never => {
                let Some((names, banned)) = line.split_once(':') else {
                    return wrong("expected `crate crate …: package package …`");
                };
                for name in words(names) {
                    read.never.entry(name).or_default().extend(words(banned));
                }
            }
        }
    }
    match (place, deps_seen, never_seen) {
        (Place::Prose, true, true) => Ok(read),
        (Place::Prose, false, _) => Err(format!("{PAGE}: no block that begins with ```deps")),
        (Place::Prose, _, false) => Err(format!("{PAGE}: no block that begins with ```never")),
        _ => Err(format!(
            "{PAGE}: the last block is not closed; end it with ```"
        )),
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The crate named in the first cell of a table's row: `` | `name` | … ``.
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

    const NEVER: &str = "```never\na b: tokio libc\na: clap\n```\n";

    #[test]
    fn reads_both_blocks_and_the_table() {
        let page = format!(
            "# Page\n| `a` | holds |\n| `cargo xtask deps` | does |\n```\nx: y\n```\n```deps\na:\nb: a\n```\n{NEVER}"
        );
        let read = parse(&page).unwrap();
        assert_eq!(read.allowed["a"], set(&[]));
        assert_eq!(read.allowed["b"], set(&["a"]));
        assert_eq!(read.allowed.len(), 2);
        assert_eq!(read.never["a"], set(&["clap", "libc", "tokio"]));
        assert_eq!(read.never["b"], set(&["libc", "tokio"]));
        assert_eq!(read.described, set(&["a"]));
    }

    #[test]
    fn says_where_a_line_is_wrong() {
        let error = parse("```deps\na\n```\n").unwrap_err();
        assert_eq!(error, "ARCHITECTURE.md:2: expected `crate: crate crate …`");
        let error = parse("```deps\na:\na: b\n```\n").unwrap_err();
        assert!(error.starts_with("ARCHITECTURE.md:3:"), "{error}");
        let error = parse("```deps\na:\n```\n```never\na\n```\n").unwrap_err();
        assert!(error.starts_with("ARCHITECTURE.md:5:"), "{error}");
    }

    #[test]
    fn a_missing_or_open_block_is_an_error() {
        assert!(parse(NEVER).unwrap_err().contains("```deps"));
        assert!(
            parse("```deps\na:\n```\n")
                .unwrap_err()
                .contains("```never")
        );
        let open = format!("{NEVER}```deps\na:\n");
        assert!(parse(&open).unwrap_err().contains("not closed"));
    }
}
