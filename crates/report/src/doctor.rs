//! What `floodmark doctor` found, for a terminal: warnings first, each with what it spoils and the command that mends it; what is
//! fine in one line each.

use floodmark_record::host::{Finding, Level};

use crate::page::Page;
use crate::style::{Paint, Style};

/// Draws findings, a blank line after each that asks for something. Commands are never wrapped, so that they can be pasted.
#[must_use]
pub fn render(findings: &[Finding], style: Style) -> String {
    let mut page = Page::new(style);
    page.headline(&[(Paint::Strong, headline(findings))]);
    page.blank();
    for level in [Level::Warning, Level::Note, Level::Ok] {
        for finding in findings.iter().filter(|finding| finding.level == level) {
            draw(&mut page, finding);
        }
    }
    page.finish()
}

fn headline(findings: &[Finding]) -> String {
    let count = |level| findings.iter().filter(|f| f.level == level).count();
    let (warnings, notes) = (count(Level::Warning), count(Level::Note));
    let spoils = match warnings {
        0 => "nothing here spoils a measurement".to_owned(),
        1 => "one thing here spoils measurements".to_owned(),
        n => format!("{n} things here spoil measurements"),
    };
    match notes {
        0 => spoils,
        1 => format!("{spoils}; one matters for some"),
        n => format!("{spoils}; {n} matter for some"),
    }
}

fn draw(page: &mut Page, finding: &Finding) {
    let (paint, word) = match finding.level {
        Level::Warning => (Paint::Bad, "warning:"),
        Level::Note => (Paint::Warn, "note:"),
        Level::Ok => (Paint::Good, "ok:"),
    };
    page.entry(
        &finding.topic,
        &[
            (paint, word.to_owned()),
            (Paint::Plain, finding.found.clone()),
        ],
    );
    if let Some(spoils) = &finding.spoils {
        page.entry("  spoils", &[(Paint::Plain, spoils.clone())]);
    }
    for (index, command) in finding.mend.iter().enumerate() {
        let label = if index == 0 { "  mend" } else { "" };
        page.row(&format!("{label:<13}{command}"), &[]);
    }
    if finding.level != Level::Ok {
        page.blank();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(topic: &str, level: Level, found: &str, spoils: &str, mend: &[&str]) -> Finding {
        Finding {
            topic: topic.to_owned(),
            level,
            found: found.to_owned(),
            spoils: (!spoils.is_empty()).then(|| spoils.to_owned()),
            mend: mend.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    fn findings() -> Vec<Finding> {
        let long =
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
        vec![
            finding("clock", Level::Ok, "tsc, 24.0 ns a reading", "", &[]),
            finding(
                "other load",
                Level::Note,
                "0.15 of 8 CPUs busy: bad\u{1b}[2Jname (pid 7) 0.15",
                "client and server wait for CPUs that others use",
                &["kill -STOP 7"],
            ),
            finding(
                "frequency",
                Level::Warning,
                "governor powersave on 8 CPUs",
                "CPUs stay at their lowest frequency: all figures are those of a slower machine",
                &[long, "# a remark"],
            ),
        ]
    }

    #[test]
    fn warnings_first_and_commands_whole() {
        let style = Style {
            colour: false,
            width: 60,
        };
        insta::assert_snapshot!(render(&findings(), style), @r"
        one thing here spoils measurements; one matters for some

        frequency    warning: governor powersave on 8 CPUs
          spoils     CPUs stay at their lowest frequency: all
                     figures are those of a slower machine
          mend       echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor
                     # a remark

        other load   note: 0.15 of 8 CPUs busy: bad\u{1b}[2Jname
                     (pid 7) 0.15
          spoils     client and server wait for CPUs that others use
          mend       kill -STOP 7

        clock        ok: tsc, 24.0 ns a reading
        ");
    }

    #[test]
    fn colours_only_where_asked_for() {
        let style = Style {
            colour: true,
            width: 80,
        };
        let text = render(&findings(), style);
        assert!(
            text.contains("\u{1b}[31mwarning:\u{1b}[0m governor"),
            "{text}"
        );
        assert!(
            !text.contains("\u{1b}[2J"),
            "a process's name acts on the terminal"
        );
    }

    #[test]
    fn the_headline_counts() {
        let head = |warnings: usize, notes: usize| {
            let mut all = vec![finding("a", Level::Warning, "", "", &[]); warnings];
            all.extend(vec![finding("b", Level::Note, "", "", &[]); notes]);
            headline(&all)
        };
        assert_eq!(head(0, 0), "nothing here spoils a measurement");
        assert_eq!(head(1, 0), "one thing here spoils measurements");
        assert_eq!(
            head(2, 1),
            "2 things here spoil measurements; one matters for some"
        );
        assert_eq!(
            head(0, 3),
            "nothing here spoils a measurement; 3 matter for some"
        );
    }
}
