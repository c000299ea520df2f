//! Commented starting points for manifests.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a starting point is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Template {
    /// `systems/NAME/system.toml`.
    System,
    /// `experiments/NAME.toml`.
    Experiment,
}

impl Template {
    /// Where the file goes.
    #[must_use]
    pub fn path(self, root: &Path, name: &str) -> PathBuf {
        match self {
            Template::System => root.join("systems").join(name).join(super::system::FILE),
            Template::Experiment => root.join("experiments").join(format!("{name}.toml")),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Template::System => include_str!("templates/system.toml"),
            Template::Experiment => include_str!("templates/experiment.toml"),
        }
    }
}

/// Writes a starting point under `root`, never over a file that is there; its path.
///
/// # Errors
/// Why not, in words.
pub fn write_template(template: Template, root: &Path, name: &str) -> Result<PathBuf, String> {
    if !super::fields::Kind::Name.holds(&toml::de::DeValue::String(name.into())) {
        return Err(format!(
            "\"{name}\" is no name; expected {}",
            super::fields::Kind::Name.expected("name")
        ));
    }
    let path = template.path(root, name);
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{} is there already; give another name", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    };
    fs::create_dir_all(path.parent().unwrap_or(root)).map_err(failed)?;
    let mut file = fs::File::create_new(&path).map_err(failed)?;
    let text = template.text().replace("NAME", name);
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(path)
}
