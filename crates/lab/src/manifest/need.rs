//! Checks that required programs are installed.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use floodmark_host::{Child, without_colors};
use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

/// Timeout of a program's version command.
const PATIENCE: Duration = Duration::from_secs(20);

/// Flags that make a program print its version, tried in order.
const VERSION_FLAGS: [&str; 3] = ["--version", "-version", "-v"];

/// Debian packages whose names differ from the program's name.
const PACKAGES: [(&str, &str); 7] = [
    ("ab", "apache2-utils"),
    ("h2load", "nghttp2-client"),
    ("java", "default-jdk-headless"),
    ("javac", "default-jdk-headless"),
    ("mvn", "maven"),
    ("node", "nodejs"),
    ("postgres", "postgresql"),
];

/// Programs whose Debian package has the same name.
const OWN_PACKAGE: [&str; 8] = [
    "cargo", "curl", "hey", "nginx", "php", "python3", "weighttp", "wrk",
];

/// A required program with an optional minimum version: `java >= 17`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Need {
    program: String,
    least: Option<Vec<u64>>,
}

impl TryFrom<String> for Need {
    type Error = String;

    /// Parses a requirement such as `java >= 17` or `mvn`.
    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not a valid requirement; use a form such as \"mvn\" or \"java >= 17\""
            )
        };
        let (program, least) = match text.split_once(">=") {
            Some((program, least)) => (program, Some(version(least.trim()).ok_or_else(wrong)?)),
            None => (&*text, None),
        };
        let program = program.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
        if program.is_empty() || !program.chars().all(plain) {
            return Err(wrong());
        }
        Ok(Need {
            program: program.to_owned(),
            least,
        })
    }
}

impl Need {
    /// Returns what is missing on this host, or `None` if the requirement is met.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        if !on_path(&self.program) {
            let package = package(&self.program).map_or_else(String::new, |package| {
                format!("; on Debian: apt-get install {package}")
            });
            return Some(format!(
                "{} is not installed (not on the PATH{package})",
                self.program
            ));
        }
        let least = self.least.as_ref()?;
        match VERSION_FLAGS.iter().find_map(|flag| self.ask(flag)) {
            Some(found) if found >= *least => None,
            Some(found) => Some(format!(
                "{} is too old: requires {} or later, found {}",
                self.program,
                show(least),
                show(&found)
            )),
            None => Some(format!(
                "{} does not print its version; version {} or later is required",
                self.program,
                show(least)
            )),
        }
    }

    fn ask(&self, flag: &str) -> Option<Vec<u64>> {
        let mut command = Command::new(&self.program);
        command.arg(flag);
        let (status, said) = ask(command)?;
        status.success().then(|| first_version(&said)).flatten()
    }
}

/// Runs a program and returns its exit status and output. Returns `None` if the program does not
/// start or times out.
pub fn ask(command: Command) -> Option<(ExitStatus, String)> {
    let folder = tempfile::tempdir().ok()?;
    let log = folder.path().join("version");
    let mut child = Child::start_logged(command, &log).ok()?;
    let status = child.wait(PATIENCE).ok()??;
    let said = std::fs::read(&log).ok()?;
    Some((status, String::from_utf8_lossy(&said).into_owned()))
}

/// Returns the Debian package that contains a program, if known.
fn package(program: &str) -> Option<&str> {
    let other = PACKAGES.iter().find(|(name, _)| *name == program);
    let own = OWN_PACKAGE.contains(&program).then_some(program);
    other.map(|(_, package)| *package).or(own)
}

fn on_path(program: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let runs = |path: &Path| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return runs(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| runs(&folder.join(program)))
}

fn version(text: &str) -> Option<Vec<u64>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}

/// Returns the parts of the first version number in a program's output, such as 21.0.4 in `openjdk
/// 21.0.4 2024`. Up to version 8, Java prints a leading 1, such as 1.8 for Java 8.
///
/// Ignores color sequences, because `mvn` prints them even to a file. Also ignores the lines that
/// the JVM prints about options from the environment.
fn first_version(said: &str) -> Option<Vec<u64>> {
    let plain = without_colors(said);
    let lines = plain.lines().filter(|line| !line.contains("Picked up "));
    let text = lines.collect::<Vec<_>>().join("\n");
    let number = Regex::new("(?:^|[^0-9A-Za-z]|v)([0-9][0-9.]*)").ok()?;
    let number = number.captures(&text)?.get(1)?;
    let found = version(number.as_str().trim_end_matches('.'))?;
    match found[..] {
        [1, java, ..] if text[..number.start()].ends_with("version \"") => Some(vec![java]),
        _ => Some(found),
    }
}

fn show(version: &[u64]) -> String {
    let parts: Vec<String> = version.iter().map(u64::to_string).collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(text: &str) -> Result<Need, String> {
        text.to_owned().try_into()
    }

    #[test]
    fn parses_requirements() {
        for (text, program, least) in [
            ("java >= 17", "java", Some(vec![17])),
            ("mvn", "mvn", None),
            ("g++ >= 13.2", "g++", Some(vec![13, 2])),
        ] {
            let need = need(text).unwrap();
            assert_eq!((need.program.as_str(), need.least), (program, least));
        }
        for bad in ["", ">= 17", "java >= new", "rm -rf", "java >="] {
            assert!(need(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn finds_versions_in_output() {
        for (said, version) in [
            ("openjdk version \"21.0.4\" 2024-07-16", vec![21, 0, 4]),
            ("java version \"1.8.0_292\"", vec![8]),
            ("nginx version: nginx/1.22.1", vec![1, 22, 1]),
            ("v20.1.0\n", vec![20, 1, 0]),
            ("Python 3.12.1", vec![3, 12, 1]),
            ("openjdk version \"1.8.0_292\"\n", vec![8]),
            (
                "openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)\n",
                vec![17, 0, 15],
            ),
            (
                "Picked up JAVA_TOOL_OPTIONS: -Dthreads=4\nopenjdk 17.0.15 2025-04-15\n",
                vec![17, 0, 15],
            ),
            (
                "\x1b[1mApache Maven 3.8.7\x1b[m\nMaven home: /usr/share/maven\nJava version: 17.0.15, vendor: Debian\n",
                vec![3, 8, 7],
            ),
        ] {
            assert_eq!(first_version(said), Some(version), "{said}");
        }
        for none in ["no number", "", "\x1b[1m", "\x1b[12"] {
            assert_eq!(first_version(none), None, "{none:?}");
        }
    }

    #[test]
    fn names_missing_programs() {
        let missing = |text: &str| need(text).unwrap().missing();
        assert_eq!(missing("sh"), None);
        let text = missing("no-such-program-here").unwrap();
        assert!(
            text.contains("no-such-program-here is not installed"),
            "{text}"
        );
        assert!(!text.contains("Debian"), "{text}");
        let text = missing("cargo >= 9999").unwrap();
        assert!(text.contains("too old"), "{text}");
        assert_eq!(missing("cargo >= 1"), None);
    }

    #[test]
    fn names_debian_packages() {
        assert_eq!(package("mvn"), Some("maven"));
        assert_eq!(package("nginx"), Some("nginx"));
        assert_eq!(package("a-server-of-mine"), None);
    }

    /// Uses the host's Java and Maven, if they are installed.
    #[test]
    fn checks_installed_java_and_maven() {
        for (enough, too_much) in [("java >= 8", "java >= 1000"), ("mvn >= 3", "mvn >= 1000")] {
            let missing = |text: &str| need(text).unwrap().missing();
            match missing(enough) {
                None => assert!(missing(too_much).unwrap().contains("too old")),
                Some(what) => assert!(what.contains("on Debian: apt-get install "), "{what}"),
            }
        }
    }
}
