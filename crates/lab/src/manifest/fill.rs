//! Splits commands into words and fills placeholders such as `{port}`.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::LazyLock;

use floodmark_plan::did_you_mean;
use regex::{Captures, Regex};
use schemars::JsonSchema;
use serde::Deserialize;

/// Matches a placeholder. Group 1 is its name.
static PLACEHOLDER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{([a-z0-9_-]+)\}").expect("the pattern is valid"));

/// Words of a command, including placeholders.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct CommandWords(Vec<String>);

impl TryFrom<String> for CommandWords {
    type Error = String;

    /// Splits a command with shell quoting, but without shell expansion.
    fn try_from(command: String) -> Result<Self, String> {
        match shlex::split(&command) {
            None => Err(format!("the command {command:?} has an unclosed quote")),
            Some(words) if words.is_empty() => Err("the command is empty".to_owned()),
            Some(words) => Ok(CommandWords(words)),
        }
    }
}

impl Deref for CommandWords {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl CommandWords {
    /// Checks that all placeholders are known.
    ///
    /// # Errors
    /// Returns the first unknown placeholder.
    pub(super) fn check(&self, known: &[&str]) -> Result<(), String> {
        let found = self
            .0
            .iter()
            .flat_map(|word| PLACEHOLDER.captures_iter(word));
        let mut names = found.map(|found| found.extract::<1>().1[0]);
        match names.find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(format!(
                "unknown placeholder {{{name}}}; {}",
                did_you_mean(name, known.iter().copied())
            )),
        }
    }
}

/// Values of placeholders.
#[derive(Debug, Clone, Default)]
pub struct Filler(BTreeMap<String, String>);

impl Filler {
    /// Sets the value of a placeholder.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Replaces the placeholders in a command.
    #[must_use]
    pub fn fill_words(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill(word)).collect()
    }

    /// Replaces known placeholders. Unknown placeholders remain, because files also use braces for
    /// other purposes.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let value = |found: &Captures<'_>| {
            let known = self.0.get(&found[1]).map(String::as_str);
            known.unwrap_or(&found[0]).to_owned()
        };
        PLACEHOLDER.replace_all(text, value).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Result<CommandWords, String> {
        text.to_owned().try_into()
    }

    #[test]
    fn fills_known_placeholders_only() {
        let mut filler = Filler::default();
        filler.set("port", "8080");
        let filled = filler.fill("events { } listen {port}; {PORT} {porta} {{port}} {");
        assert_eq!(filled, "events { } listen 8080; {PORT} {porta} {8080} {");
    }

    #[test]
    fn refuses_unknown_placeholders() {
        let check = |text: &str| words(text).unwrap().check(&["port", "run"]);
        assert_eq!(check("run {port} ${HOME}"), Ok(()));
        assert_eq!(
            check("run {prot}"),
            Err("unknown placeholder {prot}; did you mean \"port\"?".to_owned())
        );
    }

    #[test]
    fn splits_commands() {
        let split = words("sh -c 'a {port}' \"b c\"").unwrap();
        assert_eq!(*split, ["sh", "-c", "a {port}", "b c"]);
        assert!(words("a 'b").unwrap_err().contains("quote"));
        assert!(words(" ").unwrap_err().contains("empty"));
    }

    proptest! {
        #[test]
        fn accepts_any_text(text in "\\PC{0,20}") {
            let _ = words(&text);
            prop_assert_eq!(Filler::default().fill(&text), text);
        }
    }
}
