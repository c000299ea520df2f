//! What was sent, and the command that sends it again.
//!
//! A page is made to be handed on, so values of headers that carry credentials are left out of it; the record has them.

use std::path::Path;

use floodmark_record::mix::parse_header;
use floodmark_record::plan::RequestPlan;
use floodmark_record::result::Record;
use floodmark_record::run::Run;
use floodmark_record::units::show_bytes;
use maud::{Markup, html};

use super::text::Shown;
use crate::driven;
use crate::figures::seconds;

/// Words in a header's name that say that its value is nobody else's business.
const SECRET: [&str; 7] = [
    "authorization",
    "cookie",
    "token",
    "secret",
    "password",
    "key",
    "session",
];

/// What stands for such a value.
const LEFT_OUT: &str = "…";

/// Characters of a body that are shown.
const MOST_BODY: usize = 200;

/// The command as it can be pasted into a shell; none where the record has none.
pub(crate) fn command(record: &Record) -> Option<String> {
    let (program, arguments) = record.tool.command.split_first()?;
    // Where the program lay on that machine is of no use on another.
    let name = Path::new(program)
        .file_name()
        .and_then(|name| name.to_str());
    let mut words = vec![quoted(name.unwrap_or("floodmark"))];
    let mut header_follows = false;
    for argument in arguments {
        let (flag, header) = match header_flag(argument) {
            _ if header_follows => ("", Some(argument.as_str())),
            Some((flag, header)) => (flag, Some(header)),
            None => (argument.as_str(), None),
        };
        header_follows = !header_follows && header == Some("");
        let header = header.map(mask).unwrap_or_default();
        words.push(quoted(&format!("{flag}{header}")));
    }
    Some(words.join(" "))
}

/// The flag that gives a header, in each of its spellings, and the header where it stands in the same word.
fn header_flag(argument: &str) -> Option<(&str, &str)> {
    let begin = match argument.strip_prefix("--header") {
        Some("") => argument.len(),
        Some(rest) if rest.starts_with('=') => argument.len() - rest.len() + 1,
        Some(_) => return None,
        // Short flags may stand together; -q is the only other one without a value.
        None => {
            let after = argument.strip_prefix('-')?.trim_start_matches('q');
            argument.len() - after.strip_prefix('H')?.len()
        }
    };
    Some(argument.split_at(begin))
}

/// A word for a shell. What it cannot carry (a zero byte) no command line can either.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |quoted| quoted.into_owned())
}

/// `Name: value` without the value where it may be a credential.
fn mask(header: &str) -> String {
    match parse_header(header) {
        Ok((name, _)) if is_secret(&name) => format!("{name}: {LEFT_OUT}"),
        _ => header.to_owned(),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

/// The plan, word by word. Of another load generator what it was called with.
pub(crate) fn plan(run: &Run) -> Markup {
    let plan = &run.plan;
    let mut rows: Vec<(String, String)> = vec![
        ("URL".to_owned(), plan.target.url.clone()),
        ("address".to_owned(), plan.target.show_addresses()),
        ("load".to_owned(), crate::load_line::describe(plan, 1)),
    ];
    match driven::name(run) {
        Some((name, tool)) => rows.extend([
            ("client".to_owned(), driven::version(name, tool).to_owned()),
            ("command".to_owned(), driven::command(tool)),
            ("log".to_owned(), tool.log.clone()),
        ]),
        None => rows.extend([
            ("timeout".to_owned(), seconds(plan.timeout_s)),
            ("seed".to_owned(), plan.seed.to_string()),
        ]),
    }
    match &plan.mix {
        // What it asks is its own matter.
        None if run.client.tool.is_some() => {}
        None => rows.extend(request(&plan.request, "")),
        Some(mix) => {
            for one in &mix.requests {
                let what = format!(
                    "{} {} (weight {})",
                    one.request.method, one.path, one.weight
                );
                rows.push((format!("request {}", one.name), what));
                rows.extend(request(&one.request, &one.name));
            }
        }
    }
    html! {
        dl { @for (name, value) in &rows { dt { (Shown(name)) } dd { (Shown(value)) } } }
    }
}

fn request(request: &RequestPlan, of: &str) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if of.is_empty() {
        rows.push(("method".to_owned(), request.method.clone()));
    }
    for (name, value) in &request.headers {
        let value = if is_secret(name) { LEFT_OUT } else { value };
        rows.push(("header".to_owned(), format!("{name}: {value}")));
    }
    if !request.body.is_empty() {
        let size = show_bytes(request.body.len() as u64);
        let text = match std::str::from_utf8(&request.body) {
            Ok(text) => {
                let begin: String = text.chars().take(MOST_BODY).collect();
                let more = if begin.len() < text.len() { " …" } else { "" };
                format!("{size}: {begin}{more}")
            }
            Err(_) => format!("{size}, not text"),
        };
        rows.push(("body".to_owned(), text));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn command_of(arguments: &[&str]) -> String {
        let mut record = fixture::record(Vec::new());
        record.tool.command = arguments.iter().map(|word| (*word).to_owned()).collect();
        command(&record).unwrap()
    }

    #[test]
    fn the_command_can_be_pasted() {
        assert_eq!(
            command_of(&[
                "/opt/x/floodmark",
                "load",
                "http://h/?a=1&b=2",
                "-b",
                "it's"
            ]),
            "floodmark load 'http://h/?a=1&b=2' -b \"it's\""
        );
        assert!(command(&fixture::record(Vec::new())).is_none());
    }

    #[test]
    fn credentials_are_left_out() {
        let shown = command_of(&[
            "floodmark",
            "load",
            "u",
            "-H",
            "Authorization: Bearer s3cret",
            "-HCookie: s3cret",
            "-H=Cookie: s3cret",
            "-qH",
            "Cookie: s3cret",
            "--header=X-Api-Key: s3cret",
            "--header",
            "Accept: text/html",
            "-q",
        ]);
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(
            shown.contains("Accept: text/html") && shown.ends_with(" -q"),
            "{shown}"
        );
        let mut run = fixture::closed();
        run.plan.request.headers = vec![("authorization".to_owned(), "s3cret".to_owned())];
        let shown = plan(&run).into_string();
        assert!(
            shown.contains("authorization: …") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}
