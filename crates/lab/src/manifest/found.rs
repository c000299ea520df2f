//! Finds and reads the systems, stores and clients that an experiment uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::values::Name;
use floodmark_plan::{FileError, did_you_mean};

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
        let folder = find_folder(file, self.key, name)?;
        let content = Arc::new((self.read)(&folder)?);
        self.known.insert(name.0.clone(), Arc::clone(&content));
        Ok(content)
    }
}

/// Finds a manifest's folder. Searches the parent of the experiment's folder, the experiment's
/// folder, the current folder, and then the files that are embedded in floodmark.
fn find_folder(file: &TomlFile, key: &str, located: &Located<Name>) -> Result<PathBuf, FileError> {
    let (folder, manifest) = (format!("{key}s"), format!("{key}.toml"));
    let name = located.0.as_str();
    let here = folder_of(file.path());
    let places = [
        here.join("..").join(&folder),
        here.join(&folder),
        PathBuf::from(&folder),
    ];
    let is_one = |path: &Path| path.join(&manifest).is_file();
    let mut candidates = places.iter().map(|place| place.join(name));
    if let Some(found) = candidates.find(|path| is_one(path)) {
        // Return an absolute path, because commands run in this folder.
        return Ok(found.canonicalize().unwrap_or(found));
    }
    let invalid = |what: String| file.error(&located.span(), what);
    let embedded = embedded_names(&format!("{folder}/"), &format!("/{manifest}"));
    if embedded.iter().any(|known| known == name) {
        let root = crate::bundle::unpack().map_err(|error| invalid(error.to_string()))?;
        return Ok(root.join(folder).join(name));
    }
    let known: BTreeSet<String> = places
        .iter()
        .flat_map(|place| names_in(place, |path| path.file_name().filter(|_| is_one(path))))
        .chain(embedded)
        .collect();
    let fix = did_you_mean(name, known.iter().map(String::as_str));
    Err(invalid(format!("unknown {key} \"{name}\"; {fix}")))
}

/// Returns the names of embedded files that have the given prefix and suffix.
pub(super) fn embedded_names(prefix: &str, suffix: &str) -> Vec<String> {
    let paths = crate::bundle::paths();
    let names = paths.iter().filter_map(|path| {
        let name = path.strip_prefix(prefix)?.strip_suffix(suffix)?;
        (!name.contains('/')).then(|| name.to_owned())
    });
    names.collect()
}

/// Returns the parent folder of a file.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Returns the sorted results of calling `name` on each entry in a folder.
pub(super) fn names_in(
    folder: &Path,
    name: impl Fn(&Path) -> Option<&std::ffi::OsStr>,
) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some(name(&path)?.to_string_lossy().into_owned())
        })
        .collect();
    names.sort_unstable();
    names
}
