//! Names of settings in messages.

/// Source of the settings, which determines their names in error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// Flags: `--duration`.
    #[default]
    CommandLine,
    /// Keys of a manifest, in backquotes.
    File,
}

impl Origin {
    /// Returns the name of a setting as a flag or as a manifest key.
    #[must_use]
    pub fn name(self, key: &str) -> String {
        match self {
            Origin::CommandLine => format!("--{key}"),
            Origin::File => format!("`{key}`"),
        }
    }

    /// Returns a setting with a value, as a flag or as a line of a manifest.
    #[must_use]
    pub fn example(self, key: &str, value: &str) -> String {
        match self {
            Origin::CommandLine => format!("--{key} {value}"),
            Origin::File => format!("{key} = \"{value}\""),
        }
    }

    /// Returns a setting that is true, as a flag or as a line of a manifest.
    #[must_use]
    pub fn enable(self, key: &str) -> String {
        match self {
            Origin::CommandLine => format!("--{key}"),
            Origin::File => format!("{key} = true"),
        }
    }
}
