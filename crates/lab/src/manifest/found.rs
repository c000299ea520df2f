//! Systems, stores and clients by their names: the folders that they lie in, and what is said where there is none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::client::{self, Client};
use super::section::Section;
use super::store::{self, Store};
use super::system::{self, System};
use super::trial::Reader;
use crate::source::{FileError, did_you_mean};

/// Folders with one for each name, beside that of the experiments.
#[derive(Clone, Copy)]
struct Folders {
    /// The key that names one of them.
    key: &'static str,
    /// The folder around them.
    folder: &'static str,
    /// The manifest in each.
    file: &'static str,
}

const SYSTEM_FOLDERS: Folders = Folders {
    key: "system",
    folder: "systems",
    file: system::FILE,
};

const STORE_FOLDERS: Folders = Folders {
    key: "store",
    folder: "stores",
    file: store::FILE,
};

const CLIENT_FOLDERS: Folders = Folders {
    key: "client",
    folder: "clients",
    file: client::FILE,
};

impl Reader<'_> {
    /// The system of a name.
    pub(super) fn system(
        &mut self,
        name: &str,
        section: &Section<'_>,
    ) -> Result<Arc<System>, FileError> {
        if let Some(system) = self.systems.get(name) {
            return Ok(Arc::clone(system));
        }
        let found = self.folder(name, SYSTEM_FOLDERS, section)?;
        let system = Arc::new(System::read(&found)?);
        self.systems.insert(name.to_owned(), Arc::clone(&system));
        Ok(system)
    }

    /// The store of a name.
    pub(super) fn store(
        &mut self,
        name: &str,
        section: &Section<'_>,
    ) -> Result<Arc<Store>, FileError> {
        if let Some(store) = self.stores.get(name) {
            return Ok(Arc::clone(store));
        }
        let mut found = self.folder(name, STORE_FOLDERS, section);
        if let Err(error) = &mut found {
            error.place = section.place("name");
        }
        let store = Arc::new(Store::read(&found?)?);
        self.stores.insert(name.to_owned(), Arc::clone(&store));
        Ok(store)
    }

    /// The load generator of a name.
    pub(super) fn client(
        &mut self,
        name: &str,
        section: &Section<'_>,
    ) -> Result<Arc<Client>, FileError> {
        if let Some(client) = self.clients.get(name) {
            return Ok(Arc::clone(client));
        }
        let found = self.folder(name, CLIENT_FOLDERS, section)?;
        let client = Arc::new(Client::read(&found)?);
        self.clients.insert(name.to_owned(), Arc::clone(&client));
        Ok(client)
    }

    /// The folder of a name, from the folder beside the experiment's, beside the experiment, or here.
    fn folder(&self, name: &str, of: Folders, section: &Section<'_>) -> Result<PathBuf, FileError> {
        let Folders { key, folder, file } = of;
        let here = folder_of(self.path);
        let places = [
            here.join("..").join(folder),
            here.join(folder),
            PathBuf::from(folder),
        ];
        let found = places
            .iter()
            .map(|place| place.join(name))
            .find(|folder| folder.join(file).is_file());
        let Some(found) = found else {
            let known: Vec<String> = places
                .iter()
                .flat_map(|place| {
                    names_in(place, |path| {
                        path.join(file)
                            .is_file()
                            .then(|| path.file_name())
                            .flatten()
                    })
                })
                .collect();
            let mend = match known.is_empty() {
                true => {
                    format!("there is no folder {folder}/ with a {file} in a folder of that name")
                }
                false => did_you_mean(name, known.iter().map(String::as_str)),
            };
            return Err(section.error(key, format!("unknown {key} \"{name}\"; {mend}")));
        };
        // Its commands run there, and are told paths from there.
        Ok(found.canonicalize().unwrap_or(found))
    }
}

/// The folder that a file lies in.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The names that `name` makes of what is in a folder, sorted.
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
