//! Finds the manifests of systems, stores and clients that an experiment uses, and writes commented
//! templates of systems and experiments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::values::{MAX_NAME, Name, is_name};
use floodmark_plan::{FileError, did_you_mean};

use crate::bundle;

/// Manifests of one kind, each read once.
pub(super) struct ManifestCache<T> {
    /// Experiment key that refers to a manifest by name, such as `system` for
    /// `systems/NAME/system.toml`.
    key: &'static str,
    read: fn(&Path) -> Result<T, FileError>,
    known: BTreeMap<String, Arc<T>>,
}

impl<T> ManifestCache<T> {
    pub(super) fn new(key: &'static str, read: fn(&Path) -> Result<T, FileError>) -> Self {
        ManifestCache {
            key,
            read,
            known: BTreeMap::new(),
        }
    }

    /// Returns the content of the manifest with the given name.
    pub(super) fn get(
        &mut self,
        file: &TomlFile,
        name: &Located<Name>,
    ) -> Result<Arc<T>, FileError> {
        if let Some(known) = self.known.get(&name.0) {
            return Ok(Arc::clone(known));
        }
        let directory = find_directory(file, self.key, name)?;
        let content = Arc::new((self.read)(&directory)?);
        self.known.insert(name.0.clone(), Arc::clone(&content));
        Ok(content)
    }
}

/// Finds a manifest's directory. Searches the parent of the experiment's directory, the
/// experiment's directory, the current directory, and then the files that are embedded in
/// floodmark.
fn find_directory(
    file: &TomlFile,
    key: &str,
    located: &Located<Name>,
) -> Result<PathBuf, FileError> {
    let (directory, manifest) = (format!("{key}s"), format!("{key}.toml"));
    let name = located.0.as_str();
    let here = directory_of(file.path());
    let places = [
        here.join("..").join(&directory),
        here.join(&directory),
        PathBuf::from(&directory),
    ];
    let mut candidates = places.iter().map(|place| place.join(name));
    if let Some(found) = candidates.find(|path| path.join(&manifest).is_file()) {
        // Return an absolute path, because commands run in this directory.
        return Ok(found.canonicalize().unwrap_or(found));
    }
    let invalid = |what: String| file.error(&located.span(), what);
    if let Some(root) = embedded_root(&format!("{directory}/{name}/{manifest}")) {
        return Ok(root.map_err(invalid)?.join(directory).join(name));
    }
    let known = known_names(&places, &format!("{directory}/"), &format!("/{manifest}"));
    let fix = did_you_mean(name, known.iter().map(String::as_str));
    Err(invalid(format!("unknown {key} \"{name}\"; {fix}")))
}

/// Unpacks the embedded files if one of them has this path. Returns their directory.
pub(super) fn embedded_root(path: &str) -> Option<Result<PathBuf, String>> {
    let is_embedded = bundle::paths().iter().any(|embedded| embedded == path);
    is_embedded.then(|| bundle::unpack().map_err(|error| error.to_string()))
}

/// Returns each NAME for which the file NAME + `suffix` exists in one of the directories, or as an
/// embedded file below the directory `embedded`.
pub(super) fn known_names(places: &[PathBuf], embedded: &str, suffix: &str) -> BTreeSet<String> {
    let paths = bundle::paths();
    let names = paths.iter().filter_map(|path| {
        let name = path.strip_prefix(embedded)?.strip_suffix(suffix)?;
        (!name.contains('/')).then(|| name.to_owned())
    });
    let mut names: BTreeSet<String> = names.collect();
    for place in places {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let entry = entry.file_name().to_string_lossy().into_owned();
            let name = entry.strip_suffix(suffix).unwrap_or(&entry);
            if place.join(format!("{name}{suffix}")).is_file() {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// Returns the parent directory of a file.
pub(super) fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(directory) if directory != Path::new("") => directory.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Kind of template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Template {
    /// `systems/NAME/system.toml`.
    System,
    /// `experiments/NAME.toml`.
    Experiment,
    /// `experiments/NAME.toml` with a gate.
    Gate,
}

impl Template {
    /// Returns the path of the file for `name`, inside `root`.
    #[must_use]
    pub fn path(self, root: &Path, name: &str) -> PathBuf {
        match self {
            Template::System => root.join("systems").join(name).join("system.toml"),
            Template::Experiment | Template::Gate => {
                root.join("experiments").join(format!("{name}.toml"))
            }
        }
    }

    fn text(self) -> &'static str {
        match self {
            Template::System => include_str!("templates/system.toml"),
            Template::Experiment => include_str!("templates/experiment.toml"),
            Template::Gate => include_str!("templates/gate.toml"),
        }
    }
}

/// Writes a template to its file inside `root`. Returns the path of the file.
///
/// # Errors
/// The name is invalid, or the file already exists or cannot be written.
pub fn write_template(template: Template, root: &Path, name: &str) -> Result<PathBuf, String> {
    if !is_name(name) {
        return Err(format!(
            "\"{name}\" is not a valid name; use up to {MAX_NAME} letters, digits, \"-\", \"_\" or \".\""
        ));
    }
    let path = template.path(root, name);
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{} already exists; choose another name", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    };
    fs::create_dir_all(path.parent().unwrap_or(root)).map_err(failed)?;
    let mut file = fs::File::create_new(&path).map_err(failed)?;
    let text = template.text().replace("NAME", name);
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(path)
}
