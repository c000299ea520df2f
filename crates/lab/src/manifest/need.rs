//! Programs that a system needs, and whether they are here.

use std::fmt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use floodmark_host::Child;

use super::section::Section;
use crate::source::FileError;

/// How long a program may take to say its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// How programs are asked for their version; the first that brings one holds.
const VERSION_FLAGS: [&str; 3] = ["--version", "-version", "-v"];

/// Debian's packages of programs that are not called as their package is.
const PACKAGES: [(&str, &str); 7] = [
    ("ab", "apache2-utils"),
    ("h2load", "nghttp2-client"),
    ("java", "default-jdk-headless"),
    ("javac", "default-jdk-headless"),
    ("mvn", "maven"),
    ("node", "nodejs"),
    ("postgres", "postgresql"),
];

/// Programs whose package has their name.
const OWN_PACKAGE: [&str; 8] = [
    "cargo", "curl", "hey", "nginx", "php", "python3", "weighttp", "wrk",
];

/// A program, and its lowest version where one is asked for: `java >= 17`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    program: String,
    least: Option<Vec<u64>>,
}

impl Need {
    /// Reads `java >= 17`, `mvn`.
    ///
    /// # Errors
    /// What was expected, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("\"{text}\" is no need; write a program, like \"mvn\" or \"java >= 17\"");
        let (program, least) = match text.split_once(">=") {
            Some((program, least)) => (program, Some(version(least.trim()).ok_or_else(wrong)?)),
            None => (text, None),
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

    /// Reads `needs` of a manifest.
    pub(super) fn list(file: &Section<'_>) -> Result<Vec<Self>, FileError> {
        let needs = file.list("needs");
        let read = |text: &String| {
            Need::parse(text).map_err(|what| file.error("needs", format!("needs: {what}")))
        };
        needs.iter().map(read).collect()
    }

    /// What is missing on this machine, in words; none where nothing is.
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
                "{} is too old: {} is needed, {} is installed",
                self.program,
                show(least),
                show(&found)
            )),
            None => Some(format!(
                "{} does not say its version, and {} or later is needed",
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

/// How a program ends and what it says when it is asked for its version; none where it does not start or end.
pub fn ask(command: Command) -> Option<(ExitStatus, String)> {
    let folder = tempfile::tempdir().ok()?;
    let log = folder.path().join("version");
    let mut child = Child::start_logged(command, &log).ok()?;
    let status = child.wait(PATIENCE).ok()??;
    let said = std::fs::read(&log).ok()?;
    Some((status, String::from_utf8_lossy(&said).into_owned()))
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.least {
            Some(least) => write!(f, "{} >= {}", self.program, show(least)),
            None => f.write_str(&self.program),
        }
    }
}

/// The Debian package that brings a program, where that is known.
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

/// The first number in a text that stands by itself, with its parts: `openjdk 21.0.4 2024` has 21.0.4. Java up to 8 calls itself 1.8.
///
/// Colours are left out, as `mvn` has them even in a file, and what a virtual machine says of options from the environment.
fn first_version(said: &str) -> Option<Vec<u64>> {
    let plain = without_colours(said);
    let lines = plain.lines().filter(|line| !line.contains("Picked up "));
    let text = lines.collect::<Vec<_>>().join("\n");
    let begin = text
        .char_indices()
        .find(|(at, c)| {
            let before = text[..*at].chars().next_back();
            c.is_ascii_digit() && before.is_none_or(|b| !b.is_ascii_alphanumeric() || b == 'v')
        })?
        .0;
    let rest = &text[begin..];
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let found = version(rest[..end].trim_end_matches('.'))?;
    match found.as_slice() {
        [1, java, ..] if text[..begin].ends_with("version \"") => Some(vec![*java]),
        _ => Some(found),
    }
}

/// A text without ANSI's escape sequences (ECMA-48, 5.4: `ESC [`, parameters, a letter).
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| ('@'..='~').contains(&c));
        plain.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    plain
}

fn show(version: &[u64]) -> String {
    let parts: Vec<String> = version.iter().map(u64::to_string).collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_and_shown() {
        for text in ["java >= 17", "mvn", "g++ >= 13.2"] {
            assert_eq!(Need::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", ">= 17", "java >= new", "rm -rf", "java >="] {
            assert!(Need::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn versions_as_programs_say_them() {
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
    fn what_is_missing_is_named() {
        let missing = |text: &str| Need::parse(text).unwrap().missing();
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
    fn debians_packages_are_named() {
        assert_eq!(package("mvn"), Some("maven"));
        assert_eq!(package("nginx"), Some("nginx"));
        assert_eq!(package("a-server-of-mine"), None);
    }

    /// Where they are installed: what they say is theirs.
    #[test]
    fn java_and_maven_as_they_are_here() {
        for (need, too_much) in [("java >= 8", "java >= 1000"), ("mvn >= 3", "mvn >= 1000")] {
            let missing = |text: &str| Need::parse(text).unwrap().missing();
            match missing(need) {
                None => assert!(missing(too_much).unwrap().contains("too old")),
                Some(what) => assert!(what.contains("on Debian: apt-get install "), "{what}"),
            }
        }
    }
}
