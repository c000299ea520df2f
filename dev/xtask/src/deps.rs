//! `cargo xtask deps`: checks the dependencies between crates and between the modules of a crate
//! against ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::error::{TaskError, none_found};
use crate::modules;
use crate::workspace::{Dependency, Package, Workspace};

/// Path of the page with the rules, relative to the repository's root.
const PAGE: &str = "ARCHITECTURE.md";

/// Rules in ARCHITECTURE.md.
#[derive(Debug, Default, PartialEq, Eq)]
struct Architecture {
    /// Maps each crate to the crates that it may depend on.
    allowed: BTreeMap<String, BTreeSet<String>>,
    /// Maps each crate to the external packages that it must not depend on.
    never: BTreeMap<String, BTreeSet<String>>,
    /// Crates whose modules must not have dependency cycles.
    ordered: BTreeSet<String>,
    /// Names of the crates in the first column of the table.
    described: BTreeSet<String>,
}

/// Name of the test server's crate. The tests of every crate may use it.
const TRUTH: &str = "truth";

/// Checks the dependencies of all crates in the workspace.
pub fn check(workspace: &Workspace) -> Result<(), TaskError> {
    let page = workspace.text(PAGE)?;
    let architecture = parse(&page).map_err(TaskError::found)?;
    let mut found = findings(&architecture, workspace);
    for package in &workspace.packages {
        if architecture.ordered.contains(short(&package.name)) {
            found.extend(cycles(workspace, package).map_err(TaskError::found)?);
        }
    }
    none_found(found)?;
    println!("deps: {} crates follow {PAGE}", workspace.packages.len());
    Ok(())
}

/// Returns one line per dependency cycle between the modules of a package.
fn cycles(workspace: &Workspace, package: &Package) -> Result<Vec<String>, String> {
    let source = package.manifest_path.with_file_name("src");
    let place = workspace.relative(&source).display();
    let read = |file: &str| {
        fs::read_to_string(source.join(file)).map_err(|error| format!("{place}/{file}: {error}"))
    };
    let cycles = modules::cycles("lib.rs", &read)?;
    Ok(cycles
        .iter()
        .map(|cycle| format!("{place}: {cycle}"))
        .collect())
}

/// Returns one line per violation, with the names of both files and a fix.
fn findings(architecture: &Architecture, workspace: &Workspace) -> Vec<String> {
    let ours = workspace.packages.iter();
    let ours: BTreeSet<&str> = ours.map(|package| short(&package.name)).collect();
    let mut found = Vec::new();
    for package in &workspace.packages {
        let name = short(&package.name);
        let manifest = workspace.relative(&package.manifest_path).display();
        if !architecture.described.contains(name) {
            found.push(format!(
                "{manifest}: {PAGE} does not describe `{name}`; add a row to its table of crates"
            ));
        }
        let Some(allowed) = architecture.allowed.get(name) else {
            found.push(format!(
                "{manifest}: {PAGE} has no dependency line for `{name}`; add `{name}: …` to its ```deps block"
            ));
            continue;
        };
        let dependencies = package.dependencies.iter();
        found.extend(dependencies.filter_map(|dependency| {
            let finding = finding(architecture, allowed, &ours, name, dependency)?;
            Some(format!(
                "{manifest}: depends on {}, {finding}",
                dependency.name
            ))
        }));
    }
    for name in architecture
        .allowed
        .keys()
        .chain(architecture.never.keys())
        .chain(&architecture.ordered)
    {
        if !ours.contains(name.as_str()) {
            found.push(format!(
                "{PAGE}: `{name}` is not a crate of this workspace; remove it from the blocks"
            ));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Describes how a dependency of the crate `name` violates the rules. Returns `None` if the
/// dependency is allowed.
fn finding(
    architecture: &Architecture,
    allowed: &BTreeSet<String>,
    ours: &BTreeSet<&str>,
    name: &str,
    dependency: &Dependency,
) -> Option<String> {
    let on = short(&dependency.name);
    let in_tests = dependency.kind.as_deref() == Some("dev");
    if ours.contains(on) {
        let is_allowed = allowed.contains(on) || (in_tests && on == TRUTH) || on == name;
        return (!is_allowed).then(|| {
            let line: Vec<&str> = allowed.iter().map(String::as_str).collect();
            format!(
                "but {PAGE} allows only `{name}: {}`; remove the dependency, or add `{on}` to that line to change the architecture",
                line.join(" ")
            )
        });
    }
    let banned = architecture.never.get(name)?.contains(&dependency.name);
    (banned && !in_tests).then(|| {
        format!(
            "which {PAGE} forbids for `{name}`; remove the dependency, or change the ```never block"
        )
    })
}

/// Returns the name of a crate as used in ARCHITECTURE.md: the name of the crate's directory.
fn short(package: &str) -> &str {
    package.strip_prefix("floodmark-").unwrap_or(package)
}

/// Parses the page.
///
/// # Errors
/// A block is missing or unclosed, a colon is missing, or a name is repeated. The error contains
/// the line number, unless it is about a missing or unclosed block.
fn parse(page: &str) -> Result<Architecture, String> {
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

    const TEXT: &str = "| `record` | |\n| `wire` | |\n| `truth` | |\n```deps\nrecord:\nwire: record\ntruth:\n```\n```never\nwire: tokio\n```\n```modules\nwire\n```\n";

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependencies = dependencies.iter().map(|&(name, kind)| Dependency {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
        });
        Package {
            name: name.to_owned(),
            manifest_path: format!("/x/crates/{}/Cargo.toml", short(name)).into(),
            dependencies: dependencies.collect(),
            targets: Vec::new(),
        }
    }

    fn found(
        page: &str,
        wire: &[(&str, Option<&str>)],
        record: &[(&str, Option<&str>)],
    ) -> Vec<String> {
        let packages = vec![
            package("floodmark-record", record),
            package("floodmark-wire", wire),
            package("floodmark-truth", &[]),
        ];
        let workspace = Workspace {
            packages,
            root: "/x".into(),
            target: "/x/target".into(),
        };
        findings(&parse(page).unwrap(), &workspace)
    }

    #[test]
    fn accepts_allowed_dependencies() {
        let wire = [
            ("floodmark-record", None),
            ("memchr", None),
            ("tokio", Some("dev")),
            ("floodmark-truth", Some("dev")),
        ];
        assert_eq!(found(TEXT, &wire, &[]), Vec::<String>::new());
    }

    #[test]
    fn names_both_files_and_the_fix() {
        let lines = found(TEXT, &[], &[("floodmark-wire", None)]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in [
            "crates/record/Cargo.toml",
            "floodmark-wire",
            "ARCHITECTURE.md",
            "remove the dependency",
        ] {
            assert!(lines[0].contains(part), "{part} in {}", lines[0]);
        }
        assert_eq!(
            found(TEXT, &[], &[("floodmark-wire", Some("dev"))]).len(),
            1
        );
        assert_eq!(found(TEXT, &[("floodmark-truth", None)], &[]).len(), 1);
    }

    #[test]
    fn finds_external_packages_that_break_an_invariant() {
        let lines = found(TEXT, &[("tokio", None)], &[("tokio", None)]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("crates/wire/Cargo.toml: depends on tokio"));
        assert_eq!(found(TEXT, &[("tokio", Some("build"))], &[]).len(), 1);
    }

    #[test]
    fn page_and_workspace_must_name_the_same_crates() {
        let page = TEXT
            .replace("wire: record", "gone: record")
            .replace("\nwire\n", "\n")
            .replace("| `wire`", "| `gone`");
        let lines = found(&page, &[], &[]);
        assert!(
            lines.iter().any(|l| l.contains("`gone` is not a crate")),
            "{lines:?}"
        );
        assert!(
            lines
                .iter()
                .any(|l| l.contains("no dependency line for `wire`")),
            "{lines:?}"
        );
        assert!(
            lines.iter().any(|l| l.contains("does not describe `wire`")),
            "{lines:?}"
        );
    }

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
