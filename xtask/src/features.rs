//! Whether xtask and the tests have the same features of what both are made of, so that none of it is built twice.

use std::collections::BTreeSet;

use crate::command;
use crate::error::{Error, none_found};
use crate::workspace::Workspace;

/// Where the features are asked for.
const MANIFEST: &str = "xtask/Cargo.toml";

/// Checks the features of xtask's dependencies, direct or not, against those that a build of the whole workspace's tests gives them.
pub fn check(workspace: &Workspace) -> Result<(), Error> {
    let tree = |selection: &[&str]| {
        let mut tree = command::cargo();
        tree.arg("tree").args(selection);
        // Name, version and features, one crate a line.
        tree.args(["--prefix", "none", "--format", "{p} [{f}]", "--no-dedupe"]);
        command::capture(tree.current_dir(&workspace.root))
    };
    let xtask = tree(&["--package", "xtask", "--edges", "normal,build"])?;
    let tests = tree(&["--workspace", "--edges", "normal,build,dev"])?;
    none_found(findings(&xtask, &tests))
}

/// One line for each crate that has other features here than there.
fn findings(xtask: &str, tests: &str) -> Vec<String> {
    let tests = crates(tests);
    let differing = crates(xtask)
        .into_iter()
        .filter(|line| !tests.contains(line));
    differing
        .map(|line| {
            let name = line.split_once(" [").map_or(line, |(name, _)| name);
            let there = tests.iter().filter(|of| of.starts_with(&format!("{name} [")));
            let there: Vec<&str> = there.copied().collect();
            format!(
                "{MANIFEST}: {line} is built twice, since the tests have {}: ask for the same features here",
                there.join(" and ")
            )
        })
        .collect()
}

/// The lines of a tree, each once.
fn crates(tree: &str) -> BTreeSet<&str> {
    tree.lines().filter(|line| line.contains(" [")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_with_other_features_is_named_with_both() {
        let tests = "xtask v0.1.0 (/x) []\nserde v1.0.2 [default,std]\nsyn v2.0.1 [full,visit]\nmore v1.0.0 []\n";
        assert!(findings("serde v1.0.2 [default,std]\n", tests).is_empty());
        assert_eq!(
            findings("syn v2.0.1 [full]\nserde v1.0.2 [default,std]\n", tests),
            [
                "xtask/Cargo.toml: syn v2.0.1 [full] is built twice, since the tests have syn v2.0.1 [full,visit]: \
                 ask for the same features here"
            ]
        );
    }
}
