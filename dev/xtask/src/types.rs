//! Checks that each type name is unique in the workspace and does not shadow a standard-library
//! name.

use std::collections::BTreeMap;
use std::process::Command;

use crate::command;
use crate::error::{TaskError, none_found};
use crate::workspace::Workspace;

/// Names of types and traits that readers associate with the standard library, including the
/// prelude.
#[rustfmt::skip]
const STANDARD: [&str; 34] = [
    "AsMut", "AsRef", "Box", "Clone", "Copy", "Default", "DoubleEndedIterator", "Drop", "Eq", "Err", "Error", "ExactSizeIterator",
    "Extend", "Fn", "FnMut", "FnOnce", "From", "FromIterator", "Into", "IntoIterator", "Iterator", "None", "Ok", "Option", "Ord",
    "PartialEq", "PartialOrd", "Result", "Send", "Some", "String", "ToOwned", "ToString", "Vec",
];

/// Checks the source files of all crates, except tests.
pub fn check(workspace: &Workspace) -> Result<(), TaskError> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let files = command::capture(git.args(["*/src/*.rs"]).current_dir(&workspace.root))?;
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let is_test = |file: &str| {
        let ends = ["/tests.rs", "_tests.rs"];
        file.contains("/tests/") || ends.iter().any(|end| file.ends_with(end))
    };
    let is_deleted = |file: &str| !workspace.root.join(file).exists();
    let sources = files.lines().filter(|file| !file.starts_with("fuzz/"));
    for file in sources.filter(|file| !is_test(file) && !is_deleted(file)) {
        for name in declared(&workspace.text(file)?) {
            types.entry(name).or_default().push(file.to_owned());
        }
    }
    none_found(findings(&types))?;
    println!("types: {} names, each unique", types.len());
    Ok(())
}

/// Returns the names of structs, enums, traits and type aliases in a source file formatted by
/// rustfmt. Test modules are skipped.
fn declared(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().starts_with("#[cfg(test)]") {
            // Skip the item. An item ends at a semicolon, or at the closing line with the same
            // indent.
            let end = format!("{}}}", &line[..indent]);
            let _ = lines.find(|line| {
                *line == end
                    || line.ends_with(';')
                        && line.len() > indent
                        && !line[indent..].starts_with(' ')
            });
        }
        let mut words = line
            .split_whitespace()
            .skip_while(|word| word.starts_with("pub"));
        let (Some(keyword), Some(name)) = (words.next(), words.next()) else {
            continue;
        };
        // Skip associated types, which are indented.
        let is_declaration = matches!(keyword, "struct" | "enum" | "trait" | "union")
            || keyword == "type" && indent == 0;
        if is_declaration {
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
            let name = &name[..end.unwrap_or(name.len())];
            // Skip `$name` in macros.
            if !name.is_empty() {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Returns one line for each name that is declared more than once or shadows a standard-library
/// name.
fn findings(types: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, files) in types {
        if files.len() > 1 {
            found.push(format!(
                "{}: type `{name}` is declared {} times; rename all but one",
                files.join(", "),
                files.len()
            ));
        } else if STANDARD.contains(&name.as_str()) {
            found.push(format!(
                "{}: type `{name}` shadows the standard library; rename it",
                files[0]
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_declared_types_outside_tests() {
        let source = "pub struct Plan<'a> {\n}\nenum Kind {\n}\npub(crate) trait Judge: Send {\n}\ntype Rows = Vec<u8>;\n\
            impl FromStr for Plan {\n    type Err = ();\n}\nstruct Unit;\nfn f() {\n    struct Local;\n}\n\
            #[cfg(test)]\nmod named_tests;\nstruct Late(u8);\n#[cfg(test)]\nmod tests {\n    struct Hidden;\n}\n";
        assert_eq!(
            declared(source),
            ["Plan", "Kind", "Judge", "Rows", "Unit", "Local", "Late"]
        );
    }

    #[test]
    fn reports_repeated_and_shadowing_names() {
        let file = |name: &str| name.to_owned();
        let types = BTreeMap::from([
            ("From".to_owned(), vec![file("a.rs")]),
            ("Kind".to_owned(), vec![file("a.rs"), file("b.rs")]),
            ("Plan".to_owned(), vec![file("a.rs")]),
        ]);
        let found = findings(&types);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs: type `From` shadows"));
        assert!(found[1].starts_with("a.rs, b.rs: type `Kind` is declared 2 times"));
    }
}
