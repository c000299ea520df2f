//! Splits commands into words and fills placeholders such as `{port}`.

use std::collections::BTreeMap;
use std::ops::Deref;

use floodmark_plan::did_you_mean;
use schemars::JsonSchema;
use serde::Deserialize;

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
        for word in &self.0 {
            let mut rest = word.as_str();
            while let Some((_, name, after)) = placeholder(rest) {
                if !known.contains(&name) {
                    return Err(format!(
                        "unknown placeholder {{{name}}}; {}",
                        did_you_mean(name, known.iter().copied())
                    ));
                }
                rest = after;
            }
        }
        Ok(())
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
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, name, after)) = placeholder(rest) {
            filled.push_str(before);
            match self.0.get(name) {
                Some(value) => filled.push_str(value),
                None => filled.push_str(&rest[before.len()..rest.len() - after.len()]),
            }
            rest = after;
        }
        filled.push_str(rest);
        filled
    }
}

/// Finds the first placeholder. Returns the text before it, its name, and the text after it.
fn placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let open = from + text[from..].find('{')?;
        let inner = &text[open + 1..];
        let end = inner
            .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c)))?;
        if end > 0 && inner[end..].starts_with('}') {
            return Some((&text[..open], &inner[..end], &inner[end + 1..]));
        }
        from = open + 1;
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
