//! Commands as words, with placeholders like `{port}` filled in.

use std::collections::BTreeMap;

use crate::source::did_you_mean;

/// Splits a command into words as a shell does; nothing else of a shell is done with it.
///
/// # Errors
/// A quote that is not closed, or nothing at all; in words.
pub fn words(command: &str) -> Result<Vec<String>, String> {
    match shlex::split(command) {
        None => Err(format!(
            "the command {command:?} has a quote that is not closed"
        )),
        Some(words) if words.is_empty() => Err("the command is empty".to_owned()),
        Some(words) => Ok(words),
    }
}

/// What placeholders stand for.
#[derive(Debug, Clone, Default)]
pub struct Filler(BTreeMap<String, String>);

impl Filler {
    /// Says what a placeholder stands for.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Fills in every placeholder that is known; the others stay as they are, for braces are much used in files.
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

/// Holds the placeholders of a command against those that there are.
///
/// # Errors
/// The first that is not known, in words.
pub fn check(text: &str, known: &[&str]) -> Result<(), String> {
    let mut rest = text;
    while let Some((_, name, after)) = placeholder(rest) {
        if !known.contains(&name) {
            return Err(format!(
                "unknown placeholder {{{name}}}; {}",
                did_you_mean(name, known.iter().copied())
            ));
        }
        rest = after;
    }
    Ok(())
}

/// The first placeholder: what stands before it, its name, what stands after it.
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

    #[test]
    fn only_what_is_known_is_filled_in() {
        let mut filler = Filler::default();
        filler.set("port", "8080");
        let filled = filler.fill("events { } listen {port}; {PORT} {porta} {{port}} {");
        assert_eq!(filled, "events { } listen 8080; {PORT} {porta} {8080} {");
    }

    #[test]
    fn slips_are_found() {
        assert_eq!(check("run {port} ${HOME}", &["port", "run"]), Ok(()));
        assert_eq!(
            check("run {prot}", &["port", "run"]),
            Err("unknown placeholder {prot}; did you mean \"port\"?".to_owned())
        );
    }

    #[test]
    fn commands_are_words() {
        let split = words("sh -c 'a {port}' \"b c\"").unwrap();
        assert_eq!(split, ["sh", "-c", "a {port}", "b c"]);
        assert!(words("a 'b").unwrap_err().contains("quote"));
        assert!(words(" ").unwrap_err().contains("empty"));
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "\\PC{0,20}") {
            let _ = words(&text);
            prop_assert_eq!(Filler::default().fill(&text), text);
        }
    }
}
