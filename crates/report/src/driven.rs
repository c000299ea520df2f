//! Another load generator than floodmark: what drove a run, and what it and the server counted.

use floodmark_record::client::Tool;
use floodmark_record::run::Run;
use floodmark_record::units::show_count;

use crate::figures::rate;
use crate::page::{Page, faint, plain};

/// What drove a run, where floodmark did not.
pub(crate) fn name(run: &Run) -> Option<(&str, &Tool)> {
    run.client.name.as_deref().zip(run.client.tool.as_ref())
}

/// Its command, as it can be pasted into a shell.
pub(crate) fn command(tool: &Tool) -> String {
    let words = tool.command.iter().map(String::as_str);
    shlex::try_join(words).unwrap_or_else(|_| tool.command.join(" "))
}

/// What it says it is: its version where it has a way to say, else its name.
pub(crate) fn version<'a>(name: &'a str, tool: &'a Tool) -> &'a str {
    tool.version.as_deref().unwrap_or(name)
}

/// What it counted and what the server counted, where the server does.
pub(crate) fn counted(name: &str, tool: &Tool) -> Option<String> {
    let counter = tool.counter.as_ref()?;
    let by_itself = match tool.said.answers {
        Some(answers) => format!("{} answers by {name}", show_count(answers)),
        None => format!("none by {name}"),
    };
    let answers = counter.answers();
    let per_s = match tool.wall_s > 0.0 {
        true => format!(" ({})", rate(answers as f64 / tool.wall_s)),
        false => String::new(),
    };
    Some(format!(
        "{by_itself}, {} by the server's own counter{per_s}",
        show_count(answers)
    ))
}

/// Draws the lines of one run; `which` names its trial, where there are several.
pub(crate) fn draw(page: &mut Page, run: &Run, which: &str) {
    let Some((name, tool)) = name(run) else {
        return;
    };
    page.entry(
        "client",
        &[
            plain(which),
            plain(version(name, tool)),
            faint(format!("– {}", command(tool))),
        ],
    );
    if let Some(counted) = counted(name, tool) {
        page.entry("counted", &[plain(which), plain(counted)]);
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::client::{Counter, Said};

    use super::*;
    use crate::fixture;
    use crate::style::Style;

    #[test]
    fn what_drove_and_what_was_counted() {
        let mut run = fixture::closed();
        run.client.name = Some("curl-loop".to_owned());
        run.client.tool = Some(Tool {
            version: None,
            command: vec!["sh".to_owned(), "a b.sh".to_owned()],
            wall_s: 10.0,
            said: Said {
                answers: Some(5_230),
                ..Said::default()
            },
            counter: Some(Counter {
                before: 4,
                after: 5_246,
                readings: 9,
            }),
            ..Tool::default()
        });
        let mut page = Page::new(Style {
            colour: false,
            width: 100,
        });
        draw(&mut page, &run, "native:");
        assert_eq!(
            page.finish(),
            "client       native: curl-loop – sh 'a b.sh'\n\
             counted      native: 5,230 answers by curl-loop, 5,232 by the server's own counter (523/s)\n"
        );
    }
}
