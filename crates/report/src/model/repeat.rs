//! The plan of each load, and the command that repeats the measurement.
//!
//! Pages are meant to be shared, so values of headers that contain credentials are omitted. The
//! record contains these values.

use std::path::Path;

use floodmark_record::Record;
use floodmark_record::plan::RequestPlan;
use floodmark_record::run::Run;
use floodmark_record::units::show_bytes;

use super::document::{TextLine, line};
use super::figures::seconds;
use super::{plan, process_use};

/// Parts of header names that indicate secret values.
const SECRET: [&str; 7] = [
    "authorization",
    "cookie",
    "token",
    "secret",
    "password",
    "key",
    "session",
];

/// Replacement for a secret value.
const REDACTED: &str = "…";

/// Maximum number of characters of a request body to show.
const MAX_BODY: usize = 200;

/// Returns the command line of a record without --out, quoted for a shell, or `None` if the record
/// has no command line.
pub(crate) fn command(record: &Record) -> Option<String> {
    let (program, arguments) = record.tool.command.split_first()?;
    // The program's folder is meaningless on another host.
    let name = Path::new(program)
        .file_name()
        .and_then(|name| name.to_str());
    let mut words = vec![quoted(name.unwrap_or("floodmark"))];
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        // Omit --out, because a repetition needs a new result folder.
        match argument.as_str() {
            "--out" => drop(arguments.next()),
            out if out.starts_with("--out=") => {}
            argument => words.push(quoted(&redact(argument))),
        }
    }
    Some(words.join(" "))
}

/// Quotes a word for a shell. A word with a NUL byte cannot be quoted, but command lines never
/// contain NUL bytes.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |quoted| quoted.into_owned())
}

/// Hides the value of a header that may be a credential, in every form of the flag. Bodies and URLs
/// are not changed, because they contain `{`, `"` or `/` before the first colon.
fn redact(argument: &str) -> String {
    match argument.split_once(':') {
        Some((name, _)) if is_secret(name) && !name.contains(['{', '"', '/']) => {
            format!("{name}: {REDACTED}")
        }
        _ => argument.to_owned(),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

/// Describes the plan of a run, or gives the command line of an external client.
pub(crate) fn plan(run: &Run) -> Vec<TextLine> {
    let plan = &run.plan;
    let mut lines = vec![
        line("URL", &plan.target.url),
        line("address", plan.target.show_addresses()),
        line("load", plan::describe(plan, 1)),
    ];
    match process_use::external(run) {
        Some((name, tool)) => lines.extend([
            line("client", process_use::version(name, tool)),
            line("command", process_use::command(tool)),
            line("log", &tool.log),
        ]),
        None => lines.extend([
            line("timeout", seconds(plan.timeout.as_secs_f64())),
            line("seed", plan.seed.to_string()),
        ]),
    }
    match &plan.mix {
        None if run.client.tool.is_some() => {}
        None => {
            lines.push(line("method", &plan.request.method));
            lines.extend(request(&plan.request));
        }
        Some(mix) => {
            for one in &mix.requests {
                let what = format!(
                    "{} {} (weight {})",
                    one.request.method, one.path, one.weight
                );
                lines.push(line(format!("request {}", one.name), what));
                lines.extend(request(&one.request));
            }
        }
    }
    lines
}

fn request(request: &RequestPlan) -> Vec<TextLine> {
    let headers = request.headers.iter().map(|(name, value)| {
        let value = if is_secret(name) { REDACTED } else { value };
        line("header", format!("{name}: {value}"))
    });
    let mut lines: Vec<TextLine> = headers.collect();
    if !request.body.is_empty() {
        let size = show_bytes(request.body.len());
        let text = request.body.bytes().map(std::str::from_utf8);
        let what = match (request.body.digest(), text) {
            (Some(digest), _) => format!("{size}, SHA-256 {}", digest.sha256),
            (None, Some(Ok(text))) => {
                let begin: String = text.chars().take(MAX_BODY).collect();
                let more = if begin.len() < text.len() { " …" } else { "" };
                format!("{size}: {begin}{more}")
            }
            (None, _) => format!("{size}, not text"),
        };
        lines.push(line("body", what));
    }
    lines
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
    fn quotes_the_command_for_a_shell() {
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
    fn leaves_out_the_result_folder() {
        for out in [&["--out", "old"][..], &["--out=old"]] {
            let arguments = [&["floodmark", "load", "u"], out, &["-q"]].concat();
            assert_eq!(command_of(&arguments), "floodmark load u -q");
        }
    }

    #[test]
    fn leaves_out_credentials() {
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
        let lines = plan(&run);
        let shown = format!("{lines:?}");
        assert!(
            shown.contains("authorization: …") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}
