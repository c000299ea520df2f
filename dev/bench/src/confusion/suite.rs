//! Suites of cases.

use std::path::{Path, PathBuf};

use super::judging::{family, hash};

/// A suite of cases.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    /// Servers written for the cases
    #[default]
    Own,
    /// Servers from package registries
    ThirdParty,
    /// Second batch of servers from package registries
    #[value(name = "third-party-2")]
    ThirdParty2,
    /// Third batch of servers from package registries
    #[value(name = "third-party-3")]
    ThirdParty3,
    /// Fourth batch of servers from package registries
    #[value(name = "third-party-4")]
    ThirdParty4,
    /// Fifth batch of servers from package registries
    #[value(name = "third-party-5")]
    ThirdParty5,
    /// Sixth batch of servers from package registries
    #[value(name = "third-party-6")]
    ThirdParty6,
}

/// A batch of third-party cases.
pub struct CaseBatch {
    /// Name of the suite, and of its folder of cases.
    pub name: &'static str,
    /// Heading of the section in `docs/accuracy.md`.
    pub heading: &'static str,
    /// Families of servers that are set aside: those whose names have the smallest SHA-256 hashes.
    pub set_aside: &'static [&'static str],
}

impl Suite {
    /// Returns the batch, or `None` for our own cases.
    pub const fn batch(self) -> Option<CaseBatch> {
        Some(match self {
            Suite::Own => return None,
            Suite::ThirdParty => CaseBatch {
                name: "third-party",
                heading: "# Servers from package registries\n",
                set_aside: &["php", "go", "tomcat", "node", "wsgi"],
            },
            Suite::ThirdParty2 => CaseBatch {
                name: "third-party-2",
                heading: "# More servers from package registries\n",
                set_aside: &["bun", "varnish", "tornado"],
            },
            Suite::ThirdParty3 => CaseBatch {
                name: "third-party-3",
                heading: "# Third batch of servers from package registries\n",
                set_aside: &["twisted", "squid", "cheroot"],
            },
            Suite::ThirdParty4 => CaseBatch {
                name: "third-party-4",
                heading: "# Fourth batch of servers from package registries\n",
                set_aside: &["granian", "sanic", "poco"],
            },
            Suite::ThirdParty5 => CaseBatch {
                name: "third-party-5",
                heading: "# Fifth batch of servers from package registries\n",
                set_aside: &["reactor", "microhttpd", "aiohttp", "ktor", "crystal"],
            },
            Suite::ThirdParty6 => CaseBatch {
                name: "third-party-6",
                heading: "# Sixth batch of servers from package registries\n",
                set_aside: &["jdkhttp", "helidon", "micronaut", "httplib", "civetweb"],
            },
        })
    }

    /// Returns the suite's folder within a folder for all suites. Our own cases have no folder of
    /// their own.
    pub fn within(self, folder: &Path) -> PathBuf {
        match self.batch() {
            Some(batch) => folder.join(batch.name),
            None => folder.to_owned(),
        }
    }

    /// Returns whether a case is set aside. A hash of the name selects one of our own cases in five.
    pub fn sets_aside(self, name: &str) -> bool {
        match self.batch() {
            Some(batch) => batch.set_aside.contains(&family(name)),
            None => hash(name).is_multiple_of(5),
        }
    }
}
