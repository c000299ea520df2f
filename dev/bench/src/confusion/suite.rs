//! Suites of cases.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::judging::{family, hash};

/// A suite of cases: our own cases, or a round of third-party cases.
#[derive(Debug, PartialEq, Eq)]
pub struct Suite {
    /// Name, and the directory of the results.
    pub name: &'static str,
    help: &'static str,
    /// Heading of the section in `docs/accuracy.md`; empty for our own cases, which come first.
    pub heading: &'static str,
    /// Families of servers that are set aside: those whose names have the smallest SHA-256 hashes.
    pub set_aside: &'static [&'static str],
}

/// All suites, indexed by the key `round` of the cases.
pub static SUITES: [Suite; 7] = [
    Suite {
        name: "own",
        help: "Servers written for the cases",
        heading: "",
        set_aside: &[],
    },
    Suite {
        name: "third-party",
        help: "Servers from package registries",
        heading: "# Servers from package registries\n",
        set_aside: &["php", "go", "tomcat", "node", "wsgi"],
    },
    Suite {
        name: "third-party-2",
        help: "Second batch of servers from package registries",
        heading: "# More servers from package registries\n",
        set_aside: &["bun", "varnish", "tornado"],
    },
    Suite {
        name: "third-party-3",
        help: "Third batch of servers from package registries",
        heading: "# Third batch of servers from package registries\n",
        set_aside: &["twisted", "squid", "cheroot"],
    },
    Suite {
        name: "third-party-4",
        help: "Fourth batch of servers from package registries",
        heading: "# Fourth batch of servers from package registries\n",
        set_aside: &["granian", "sanic", "poco"],
    },
    Suite {
        name: "third-party-5",
        help: "Fifth batch of servers from package registries",
        heading: "# Fifth batch of servers from package registries\n",
        set_aside: &["reactor", "microhttpd", "aiohttp", "ktor", "crystal"],
    },
    Suite {
        name: "third-party-6",
        help: "Sixth batch of servers from package registries",
        heading: "# Sixth batch of servers from package registries\n",
        set_aside: &["jdkhttp", "helidon", "micronaut", "httplib", "civetweb"],
    },
];

impl Default for &'static Suite {
    fn default() -> Self {
        &SUITES[0]
    }
}

impl Suite {
    /// Returns the parser of the flag `--suite`.
    pub fn parser() -> impl TypedValueParser<Value = &'static Suite> {
        let values = SUITES.each_ref();
        let values = values.map(|suite| PossibleValue::new(suite.name).help(suite.help));
        PossibleValuesParser::new(values).map(|name| {
            let mut suites = SUITES.iter();
            suites.find(|suite| suite.name == name).unwrap_or_default()
        })
    }

    /// Returns whether the suite contains our own cases.
    pub fn is_own(&self) -> bool {
        *self == SUITES[0]
    }

    /// Returns the directory of the suite's results within the directory of all results.
    pub fn within(&self, results: &Path) -> PathBuf {
        if self.is_own() {
            results.to_owned()
        } else {
            results.join(self.name)
        }
    }

    /// Returns whether a case is set aside. A hash of the name selects one of our own cases in five.
    pub fn sets_aside(&self, name: &str) -> bool {
        if self.is_own() {
            hash(name).is_multiple_of(5)
        } else {
            self.set_aside.contains(&family(name))
        }
    }
}
