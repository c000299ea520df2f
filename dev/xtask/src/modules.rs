//! Dependencies between the modules of a crate, found in the text of its source files.
//!
//! Each file counts as one module. A file depends on the files that define the items named in its
//! code: in `use` items, in paths, in macros, and in paths that attributes contain as text. Test
//! code does not count, and neither does the declaration or the re-export of a child module.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Maximum number of imports between a path and the definition of the item.
const MAX_IMPORTS: usize = 16;

/// Keywords that precede the name of an item.
const DEFINING: [&str; 10] = [
    "fn",
    "struct",
    "enum",
    "trait",
    "type",
    "const",
    "static",
    "union",
    "mut",
    "macro_rules",
];

/// Maps each pair of files, the using file and the used file, to the paths in the using file's
/// code.
type Uses = BTreeMap<(String, String), BTreeSet<String>>;

/// Returns a line for each dependency cycle between files: the files, and the paths that close the
/// cycle. `read` returns the text of a file, given its path relative to the crate's root file.
///
/// # Errors
/// A file is missing or is not valid Rust.
pub fn cycles(
    root: &str,
    read: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Vec<String>, String> {
    let mut source = Source {
        read,
        modules: Vec::new(),
    };
    source.add_file(root.to_owned(), String::new(), None)?;
    let mut uses = source.uses();
    let mut found = Vec::new();
    while let Some(mut cycle) = shortest_cycle(&uses) {
        let users = cycle.iter().cloned();
        let edges = users.zip(cycle.iter().cycle().skip(1).cloned());
        let Some(closing) = edges.min_by_key(|edge| (uses[edge].len(), edge.clone())) else {
            break;
        };
        let start = cycle.iter().position(|file| *file == closing.1);
        cycle.rotate_left(start.unwrap_or_default());
        cycle.push(closing.1.clone());
        let paths = uses.remove(&closing).unwrap_or_default();
        let paths: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
        found.push(format!(
            "{}: {} closes this cycle with {}; move {}, or merge the files",
            cycle.join(" → "),
            closing.0,
            paths.join(", "),
            if paths.len() == 1 {
                "the item"
            } else {
                "these items"
            },
        ));
    }
    Ok(found)
}

/// Returns the files of the shortest cycle, if any.
fn shortest_cycle(uses: &Uses) -> Option<Vec<String>> {
    let mut used: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in uses.keys() {
        used.entry(from).or_default().push(to);
    }
    let cycle = |start: &str| {
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut next = VecDeque::from([start]);
        while let Some(file) = next.pop_front() {
            for &to in used.get(file).into_iter().flatten() {
                if to == start {
                    let path = iter::successors(Some(file), |at| before.get(at).copied());
                    let mut files: Vec<String> = path.map(str::to_owned).collect();
                    files.reverse();
                    return Some(files);
                }
                if let Entry::Vacant(unseen) = before.entry(to) {
                    unseen.insert(file);
                    next.push_back(to);
                }
            }
        }
        None
    };
    used.keys()
        .filter_map(|start| cycle(start))
        .min_by_key(Vec::len)
}

/// The module tree of a crate.
struct Source<'a> {
    read: &'a dyn Fn(&str) -> Result<String, String>,
    modules: Vec<Module>,
}

/// A module: a file, or a `mod` block in a file.
struct Module {
    file: String,
    /// Directory that contains the files of child modules.
    directory: String,
    parent: Option<usize>,
    names: BTreeMap<String, Name>,
    /// Modules from which all names are imported (`use module::*`).
    globs: Vec<Vec<String>>,
    /// Imported paths. The flag is set for re-exports.
    imports: Vec<(Vec<String>, bool)>,
    /// Paths in the code outside `use` items.
    paths: BTreeSet<Vec<String>>,
}

enum Name {
    Item,
    Module(usize),
    Import(Vec<String>),
}

/// What a path names.
enum Target {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

impl Source<'_> {
    /// Adds the module in a file and the module's children. Returns the module's index.
    fn add_file(
        &mut self,
        file: String,
        directory: String,
        parent: Option<usize>,
    ) -> Result<usize, String> {
        let text = (self.read)(&file)?;
        let tokens: TokenStream = text.parse().map_err(|error| format!("{file}: {error}"))?;
        let module = self.add(file, directory, parent);
        self.scan(module, tokens, true)?;
        Ok(module)
    }

    fn add(&mut self, file: String, directory: String, parent: Option<usize>) -> usize {
        self.modules.push(Module {
            file,
            directory,
            parent,
            names: BTreeMap::new(),
            globs: Vec::new(),
            imports: Vec::new(),
            paths: BTreeSet::new(),
        });
        self.modules.len() - 1
    }

    /// Reads the tokens of a module or of a part of it. `items` is set if items in this part are
    /// visible to other modules.
    fn scan(&mut self, module: usize, tokens: TokenStream, items: bool) -> Result<(), String> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = match word(&tokens, at).as_deref() {
                Some("use") if !is_punct(&tokens, at + 1, '<') => {
                    self.scan_import(module, &tokens, at)
                }
                Some("mod") => self.scan_child(module, &tokens, at)?,
                Some("macro_rules") if items => {
                    if let Some(name) = word(&tokens, at + 2) {
                        self.define(module, name, Name::Item);
                    }
                    at + 3
                }
                Some(keyword) if items && DEFINING.contains(&keyword) => {
                    if let Some(name) = word(&tokens, at + 1)
                        && !DEFINING.contains(&name.as_str())
                    {
                        self.define(module, name, Name::Item);
                    }
                    at + 1
                }
                Some(_) => self.scan_path(module, &tokens, at),
                None if is_test_attribute(&tokens, at) => end_of_item(&tokens, at + 2),
                None => {
                    let follows = |punct| at > 0 && is_punct(&tokens, at - 1, punct);
                    match &tokens[at] {
                        TokenTree::Group(group) if follows('#') => {
                            self.scan_attribute(module, group.stream());
                        }
                        TokenTree::Group(group) => {
                            self.scan(module, group.stream(), items && follows('!'))?;
                        }
                        _ => {}
                    }
                    at + 1
                }
            };
        }
        Ok(())
    }

    /// Reads `mod name;` or `mod name { … }`. Returns the index of the next token.
    fn scan_child(
        &mut self,
        module: usize,
        tokens: &[TokenTree],
        at: usize,
    ) -> Result<usize, String> {
        let Some(name) = word(tokens, at + 1) else {
            return Ok(at + 1);
        };
        let parent = &self.modules[module];
        let directory = format!("{}{name}/", parent.directory);
        let child = if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
            let child = self.add(parent.file.clone(), directory, Some(module));
            self.scan(child, body.stream(), true)?;
            child
        } else {
            let flat = format!("{}{name}.rs", parent.directory);
            let nested = format!("{directory}mod.rs");
            let file = if (self.read)(&nested).is_ok() {
                nested
            } else {
                flat
            };
            self.add_file(file, directory, Some(module))?
        };
        self.modules[module].names.insert(name, Name::Module(child));
        Ok(at + 3)
    }

    /// Reads a `use` item. Returns the index of its last token.
    fn scan_import(&mut self, module: usize, tokens: &[TokenTree], at: usize) -> usize {
        let is_public = match &tokens[..at] {
            [.., TokenTree::Ident(word)] => word == "pub",
            [.., TokenTree::Ident(word), TokenTree::Group(group)] => {
                word == "pub" && group.delimiter() == Delimiter::Parenthesis
            }
            _ => false,
        };
        let end = (at..tokens.len()).find(|&index| is_punct(tokens, index, ';'));
        let end = end.unwrap_or(tokens.len());
        self.import(module, &tokens[at + 1..end], Vec::new(), is_public);
        end
    }

    /// Adds the imports of a tree such as `a::{b, c as d}` below `prefix`.
    fn import(
        &mut self,
        module: usize,
        tokens: &[TokenTree],
        prefix: Vec<String>,
        is_public: bool,
    ) {
        for tree in
            tokens.split(|token| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ','))
        {
            let mut path = prefix.clone();
            let mut at = 0;
            while let Some(name) = word(tree, at) {
                path.push(name);
                if !is_punct(tree, at + 1, ':') {
                    at += 1;
                    break;
                }
                at += 3;
            }
            if let Some(TokenTree::Group(group)) = tree.get(at) {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                self.import(module, &inner, path, is_public);
                continue;
            }
            if is_punct(tree, at, '*') {
                self.modules[module].globs.push(path);
                continue;
            }
            if path.len() > 1 {
                path.pop_if(|last| last == "self");
            }
            let renamed = word(tree, at).filter(|word| word == "as");
            let name = match renamed {
                Some(_) => word(tree, at + 1),
                None => path.last().cloned(),
            };
            if let Some(name) = name {
                self.define(module, name, Name::Import(path.clone()));
                self.modules[module].imports.push((path, is_public));
            }
        }
    }

    /// Adds a name to a module. An item takes precedence over an import.
    fn define(&mut self, module: usize, name: String, value: Name) {
        let names = &mut self.modules[module].names;
        if matches!(value, Name::Item) && !matches!(names.get(&name), Some(Name::Module(_))) {
            names.insert(name, value);
        } else {
            names.entry(name).or_insert(value);
        }
    }

    /// Reads a path in the code. Returns the index of the next token.
    fn scan_path(&mut self, module: usize, tokens: &[TokenTree], start: usize) -> usize {
        let mut path = Vec::new();
        let mut at = start;
        while let Some(name) = word(tokens, at) {
            path.push(name);
            at += 1;
            let is_separator = is_punct(tokens, at, ':') && is_punct(tokens, at + 1, ':');
            if !is_separator || word(tokens, at + 2).is_none() {
                break;
            }
            at += 2;
        }
        let before =
            |distance, punct| start >= distance && is_punct(tokens, start - distance, punct);
        let is_member = before(1, '\'')
            || before(1, '.') && !before(2, '.')
            || before(1, ':') && before(2, ':');
        if !is_member {
            self.modules[module].paths.insert(path);
        }
        at
    }

    /// Reads the paths that an attribute contains as tokens or as text. Ignores documentation.
    fn scan_attribute(&mut self, module: usize, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        if word(&tokens, 0).as_deref() == Some("doc") {
            return;
        }
        for token in &tokens {
            match token {
                TokenTree::Group(group) => self.scan_attribute(module, group.stream()),
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let path = text.trim_matches('"').split("::").map(str::to_owned);
                    self.modules[module].paths.insert(path.collect());
                }
                _ => {}
            }
        }
        for at in 0..tokens.len() {
            if word(&tokens, at).is_some() {
                self.scan_path(module, &tokens, at);
            }
        }
    }

    /// Returns the dependencies between all files.
    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for user in 0..self.modules.len() {
            let module = &self.modules[user];
            let imports = module.imports.iter().map(|(path, public)| (path, *public));
            let paths = module.paths.iter().map(|path| (path, false));
            for (path, is_export) in imports.chain(paths) {
                let mut used = Vec::new();
                if let Some(Target::Item(item)) = self.resolve(user, path, &mut used) {
                    if is_export && self.is_inside(item, user) {
                        continue;
                    }
                    used.retain(|&through| !self.is_inside(item, through));
                    used.push(item);
                }
                for module in used {
                    let files = (
                        self.modules[user].file.clone(),
                        self.modules[module].file.clone(),
                    );
                    if files.0 != files.1 {
                        uses.entry(files).or_default().insert(path.join("::"));
                    }
                }
            }
        }
        // Omit paths that start with an imported name, because the list already contains the
        // import.
        for paths in uses.values_mut() {
            let imported = |path: &str| {
                let head = path.split("::").next();
                paths
                    .iter()
                    .any(|import| import != path && import.rsplit("::").next() == head)
            };
            let direct = paths.iter().filter(|path| !imported(path));
            *paths = direct.cloned().collect();
        }
        uses
    }

    /// Returns `true` if a module is `outer` or one of its descendants.
    fn is_inside(&self, module: usize, outer: usize) -> bool {
        let mut ancestors = iter::successors(Some(module), |&at| self.modules[at].parent);
        ancestors.any(|at| at == outer)
    }

    /// Finds the item or module to which a path in the module `from` refers. Adds the modules that
    /// import the item to `through`. Returns `None` if the path starts with another crate or a
    /// local name.
    fn resolve(&self, from: usize, path: &[String], through: &mut Vec<usize>) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            name => self.lookup(from, name, through)?,
        };
        rest.iter().try_fold(start, |target, name| match target {
            Target::Item(_) => Some(target),
            Target::Module(at) if name == "super" => self.modules[at].parent.map(Target::Module),
            Target::Module(at) => {
                let found = self.lookup(at, name, through);
                Some(found.unwrap_or(Target::Item(at)))
            }
        })
    }

    fn lookup(&self, module: usize, name: &str, through: &mut Vec<usize>) -> Option<Target> {
        if through.len() > MAX_IMPORTS {
            return None;
        }
        match self.modules[module].names.get(name) {
            Some(Name::Item) => Some(Target::Item(module)),
            Some(Name::Module(child)) => Some(Target::Module(*child)),
            Some(Name::Import(path)) => {
                through.push(module);
                self.resolve(module, path, through)
            }
            None => self.modules[module].globs.iter().find_map(|glob| {
                through.push(module);
                let found = match self.resolve(module, glob, through)? {
                    Target::Module(all) if all != module => self.lookup(all, name, through),
                    _ => None,
                };
                if found.is_none() {
                    through.pop();
                }
                found
            }),
        }
    }
}

fn word(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at)? {
        TokenTree::Ident(ident) => Some(ident.to_string()),
        _ => None,
    }
}

fn is_punct(tokens: &[TokenTree], at: usize, expected: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == expected)
}

/// Returns `true` at the start of `#[cfg(test)]`.
fn is_test_attribute(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens, at, '#')
        && matches!(tokens.get(at + 1), Some(TokenTree::Group(group)) if group.stream().to_string().replace(' ', "") == "cfg(test)")
}

/// Returns the index of the first token after the item that starts at `at`.
fn end_of_item(tokens: &[TokenTree], mut at: usize) -> usize {
    let mut ends_with_block = true;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) => match word.to_string().as_str() {
                "use" | "static" | "type" | "const" => ends_with_block = false,
                "fn" => ends_with_block = true,
                _ => {}
            },
            TokenTree::Punct(end) if end.as_char() == ';' => return at + 1,
            TokenTree::Group(group) if ends_with_block && group.delimiter() == Delimiter::Brace => {
                return at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: BTreeMap<&str, &str> = files.iter().copied().collect();
        let read = |file: &str| {
            let text = files.get(file).copied().map(str::to_owned);
            text.ok_or_else(|| format!("{file}: not found"))
        };
        cycles("lib.rs", &read).unwrap()
    }

    #[test]
    fn names_the_files_and_the_closing_path() {
        let found = found(&[
            ("lib.rs", "pub mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::{B, Other}; pub struct A(B, Other);"),
            (
                "b.rs",
                "use super::c::{C, D}; pub struct B(C, D); pub struct Other;",
            ),
            (
                "c.rs",
                "pub struct C; pub struct D; fn f(a: &crate::a::A) {}",
            ),
        ]);
        let expected = "a.rs → b.rs → c.rs → a.rs: c.rs closes this cycle with \
                        `crate::a::A`; move the item, or merge the files";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_parent_may_declare_and_reexport_what_its_children_use() {
        let tree = |parent: &str| {
            let lib = format!("mod a; mod b; pub use a::{{A, make}}; pub struct P; {parent}");
            found(&[
                ("lib.rs", &lib),
                (
                    "a.rs",
                    "use crate::P; pub struct A(P); pub fn make() -> A {}",
                ),
                ("b.rs", "use super::A; pub struct B(A);"),
            ])
        };
        assert_eq!(tree(""), Vec::<String>::new());
        assert_eq!(tree("fn f() { a::make(); }").len(), 1);
        assert_eq!(tree("struct Q(Vec<A>);").len(), 1);
    }

    #[test]
    fn follows_reexports_to_the_definition() {
        let found = found(&[
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "use super::A; pub struct B(Box<A>);"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("with `crate::b::B`"), "{found:?}");
    }

    #[test]
    fn finds_uses_in_macros_attributes_and_nested_modules() {
        let uses = [
            "html! { (b::draw()) }",
            "fn f() { use super::b; b::draw(); }",
            "struct S { #[serde(with = \"crate::b\")] t: T, #[serde(default = \"crate::b::draw\")] u: U }",
            "macro_rules! m { () => { $crate::b::draw() } }",
            "mod inner { fn f() { super::super::b::draw(); } }",
            "fn f(n: u32) -> Range<u32> { 0..b::MAX }",
        ];
        for text in uses {
            let text = format!("use super::b; pub fn a() {{}} {text}");
            let b = "pub fn draw() { crate::a::a(); } pub const MAX: u32 = 1;";
            let found = found(&[("lib.rs", "mod a; mod b;"), ("a.rs", &text), ("b.rs", b)]);
            assert_eq!(found.len(), 1, "{text}");
        }
    }

    #[test]
    fn ignores_tests_documentation_and_members() {
        let a = "use super::b; pub fn a() {}\n\
                 /// See [`b::draw`](crate::b::draw).\n\
                 fn f(x: X) { x.b; x.b::<u32>(); }\n\
                 #[cfg(test)] const B: u32 = { b::MAX };\n\
                 #[cfg(test)] mod tests { use crate::b::draw; }";
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod fixture;"),
            ("a.rs", a),
            ("b.rs", "use crate::a::a; pub fn draw() { a(); }"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }

    #[test]
    fn finds_a_file_in_a_directory_and_reports_a_missing_one() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; pub struct A; fn f() { b::b(); }"),
            ("a/b.rs", "use super::A; pub fn b() -> A {}"),
        ];
        let found = found(&files);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a/"), "{found:?}");
        let missing = cycles("lib.rs", &|file: &str| match file {
            "lib.rs" => Ok("mod a;".to_owned()),
            _ => Err(format!("{file}: not found")),
        });
        assert_eq!(missing, Err("a.rs: not found".to_owned()));
    }
}
