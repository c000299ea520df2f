//! Commented templates of manifests.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use floodmark_plan::values::{MAX_NAME, is_name};

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
