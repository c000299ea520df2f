//! Short names of results that are shown together.

use std::collections::BTreeSet;
use std::path::Path;

use floodmark_lab::RECORD;

/// Returns a distinct name for each result: the name of its folder or file, or the whole path if
/// names are ambiguous.
pub fn result_names<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let paths: Vec<&Path> = paths.collect();
    let name = |path: &&Path| {
        let is_record = path.file_name().is_some_and(|name| name == RECORD);
        let named = if is_record {
            path.parent()
        } else {
            Some(*path)
        };
        let is_file = !is_record && path.is_file();
        let last = if is_file {
            path.file_stem()
        } else {
            named.and_then(Path::file_name)
        };
        last.map(|name| name.to_string_lossy().into_owned())
    };
    let short: Option<Vec<String>> = paths.iter().map(name).collect();
    let is_distinct = |names: &Vec<String>| BTreeSet::from_iter(names).len() == names.len();
    let whole = || {
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    };
    short.filter(is_distinct).unwrap_or_else(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_unless_ambiguous() {
        let of = |paths: &[&str]| result_names(paths.iter().map(Path::new));
        assert_eq!(of(&["r/a", "r/b/record.json", "s/c/"]), ["a", "b", "c"]);
        assert_eq!(of(&["r/a", "s/a"]), ["r/a", "s/a"]);
        assert_eq!(of(&[".."]), [".."]);
    }
}
