//! `cargo xtask deps`: the crates' direct dependencies against ARCHITECTURE.md.

use std::collections::BTreeSet;

use crate::architecture::{self, Architecture, PAGE};
use crate::error::{Error, none_found};
use crate::workspace::{Dependency, Package, Workspace};

/// The test server, which any crate may use in its tests.
const TRUTH: &str = "truth";

/// Checks the workspace.
pub fn check(workspace: &Workspace) -> Result<(), Error> {
    let page = workspace.text(PAGE)?;
    let architecture = architecture::parse(&page).map_err(|line| Error::Found(vec![line]))?;
    let manifest = |package: &Package| {
        workspace
            .relative(&package.manifest_path)
            .display()
            .to_string()
    };
    none_found(findings(&architecture, &workspace.packages, manifest))?;
    println!("deps: {} crates follow {PAGE}", workspace.packages.len());
    Ok(())
}

/// One line for each thing that differs, with both files and the mend.
fn findings(
    architecture: &Architecture,
    packages: &[Package],
    manifest: impl Fn(&Package) -> String,
) -> Vec<String> {
    let ours: BTreeSet<&str> = packages
        .iter()
        .map(|package| short(&package.name))
        .collect();
    let mut found = Vec::new();
    for package in packages {
        let (name, manifest) = (short(&package.name), manifest(package));
        if !architecture.described.contains(name) {
            found.push(format!(
                "{manifest}: {PAGE} does not describe `{name}`: give it a row in the table of crates there"
            ));
        }
        let Some(allowed) = architecture.allowed.get(name) else {
            found.push(format!(
                "{manifest}: {PAGE} has no dependency line for `{name}`: add `{name}: …` to its ```deps block"
            ));
            continue;
        };
        for dependency in &package.dependencies {
            found.extend(finding(
                architecture,
                allowed,
                &ours,
                (name, &manifest),
                dependency,
            ));
        }
    }
    for name in architecture.allowed.keys().chain(architecture.never.keys()) {
        if !ours.contains(name.as_str()) {
            found.push(format!(
                "{PAGE}: `{name}` is no crate of this workspace (Cargo.toml): take it out of the blocks"
            ));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// What is wrong with one dependency of the crate `name`.
fn finding(
    architecture: &Architecture,
    allowed: &BTreeSet<String>,
    ours: &BTreeSet<&str>,
    (name, manifest): (&str, &str),
    dependency: &Dependency,
) -> Option<String> {
    let (on, in_tests) = (
        short(&dependency.name),
        dependency.kind.as_deref() == Some("dev"),
    );
    if ours.contains(on) {
        let fine = allowed.contains(on) || (in_tests && on == TRUTH) || on == name;
        return (!fine).then(|| {
            let line: Vec<&str> = allowed.iter().map(String::as_str).collect();
            format!(
                "{manifest} depends on {}, but {PAGE} allows `{name}: {}`: remove it from {manifest}, or add `{on}` to that line of {PAGE} if the architecture is to change",
                dependency.name,
                line.join(" ")
            )
        });
    }
    let banned = architecture.never.get(name)?.contains(&dependency.name);
    (banned && !in_tests).then(|| {
        format!(
            "{manifest} depends on {}, which {PAGE} rules out for `{name}`: remove it from {manifest}, or from the ```never block of {PAGE} if the invariant is to change",
            dependency.name
        )
    })
}

/// The name of a crate in the page: its folder.
fn short(package: &str) -> &str {
    package.strip_prefix("floodmark-").unwrap_or(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "| `record` | |\n| `wire` | |\n| `truth` | |\n```deps\nrecord:\nwire: record\ntruth:\n```\n```never\nwire: tokio\n```\n";

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependencies = dependencies.iter().map(|&(name, kind)| Dependency {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
        });
        Package {
            name: name.to_owned(),
            manifest_path: format!("/x/{name}/Cargo.toml").into(),
            dependencies: dependencies.collect(),
            targets: Vec::new(),
        }
    }

    fn found(
        page: &str,
        wire: &[(&str, Option<&str>)],
        record: &[(&str, Option<&str>)],
    ) -> Vec<String> {
        let packages = [
            package("floodmark-record", record),
            package("floodmark-wire", wire),
            package("floodmark-truth", &[]),
        ];
        let architecture = architecture::parse(page).unwrap();
        findings(&architecture, &packages, |p| {
            format!("crates/{}/Cargo.toml", short(&p.name))
        })
    }

    #[test]
    fn what_the_page_allows_is_fine() {
        let wire = [
            ("floodmark-record", None),
            ("memchr", None),
            ("tokio", Some("dev")),
            ("floodmark-truth", Some("dev")),
        ];
        assert_eq!(found(TEXT, &wire, &[]), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_upwards_names_both_files_and_the_mend() {
        let lines = found(TEXT, &[], &[("floodmark-wire", None)]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in [
            "crates/record/Cargo.toml",
            "floodmark-wire",
            "ARCHITECTURE.md",
            "remove it",
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
    fn a_foreign_package_that_breaks_an_invariant_is_found() {
        let lines = found(TEXT, &[("tokio", None)], &[("tokio", None)]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("crates/wire/Cargo.toml depends on tokio"));
        assert_eq!(found(TEXT, &[("tokio", Some("build"))], &[]).len(), 1);
    }

    #[test]
    fn page_and_workspace_name_the_same_crates() {
        let page = TEXT
            .replace("wire: record", "gone: record")
            .replace("| `wire`", "| `gone`");
        let lines = found(&page, &[], &[]);
        assert!(
            lines.iter().any(|l| l.contains("`gone` is no crate")),
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
}
