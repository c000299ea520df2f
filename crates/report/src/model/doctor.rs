//! Findings of `floodmark doctor`. Warnings come first, with their effects and the commands that
//! fix them.

use floodmark_record::host::{HostFinding, Level};

use super::document::{Blocks, Emphasis, TextLine, line, plain};
use super::figures::count_of;

/// Returns all findings, with an empty line after each finding that needs attention.
pub(crate) fn document(findings: &[HostFinding]) -> Blocks {
    let mut blocks = Blocks::default();
    blocks.paragraph([Emphasis::Strong.span(headline(findings))]);
    blocks.gap();
    for level in [Level::Warning, Level::Note, Level::Unknown, Level::Ok] {
        for finding in findings.iter().filter(|finding| finding.level == level) {
            add(&mut blocks, finding);
        }
    }
    blocks
}

fn headline(findings: &[HostFinding]) -> String {
    let count = |level| findings.iter().filter(|f| f.level == level).count() as u64;
    let warnings = count_of(count(Level::Warning), "warning");
    format!("{warnings}, {}", count_of(count(Level::Note), "note"))
}

fn add(blocks: &mut Blocks, finding: &HostFinding) {
    let level = match finding.level {
        Level::Warning => Emphasis::Bad.span("warning:"),
        Level::Note => Emphasis::Warn.span("note:"),
        Level::Unknown => Emphasis::Faint.span("unknown:"),
        Level::Ok => Emphasis::Good.span("ok:"),
    };
    blocks.lines([TextLine::new(
        &finding.topic,
        [level, plain(&finding.found)],
    )]);
    blocks.lines(finding.spoils.iter().map(|effect| line("  effect", effect)));
    for (i, command) in finding.mend.iter().enumerate() {
        let label = if i == 0 { "  fix" } else { "" };
        blocks.command(label, command);
    }
    if finding.level != Level::Ok {
        blocks.gap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Style;
    use crate::terminal;

    fn finding(topic: &str, level: Level, found: &str, spoils: &str, mend: &[&str]) -> HostFinding {
        HostFinding {
            topic: topic.to_owned(),
            level,
            found: found.to_owned(),
            spoils: (!spoils.is_empty()).then(|| spoils.to_owned()),
            mend: mend.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    fn findings() -> Vec<HostFinding> {
        let long =
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
        vec![
            finding("clock", Level::Ok, "tsc, 24.0 ns a reading", "", &[]),
            finding(
                "other load",
                Level::Note,
                "0.15 of 8 CPUs busy: bad\u{1b}[2Jname (pid 7) 0.15",
                "client and server compete for CPUs",
                &["kill -STOP 7"],
            ),
            finding(
                "frequency",
                Level::Warning,
                "governor powersave on 8 CPUs",
                "CPUs stay at their lowest frequency: throughput is lower than at full frequency",
                &[long, "# a remark"],
            ),
        ]
    }

    #[test]
    fn puts_warnings_first_and_never_wraps_commands() {
        let style = Style {
            color: false,
            width: 60,
        };
        insta::assert_snapshot!(terminal::doctor(&findings(), style), @r"
        1 warning, 1 note

        frequency    warning: governor powersave on 8 CPUs
          effect     CPUs stay at their lowest frequency: throughput
                     is lower than at full frequency
          fix        echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor
                     # a remark

        other load   note: 0.15 of 8 CPUs busy: bad\u{1b}[2Jname
                     (pid 7) 0.15
          effect     client and server compete for CPUs
          fix        kill -STOP 7

        clock        ok: tsc, 24.0 ns a reading
        ");
    }

    #[test]
    fn uses_colors_only_on_request() {
        let style = Style {
            color: true,
            width: 80,
        };
        let text = terminal::doctor(&findings(), style);
        assert!(
            text.contains("\u{1b}[31mwarning:\u{1b}[0m governor"),
            "{text}"
        );
        assert!(
            !text.contains("\u{1b}[2J"),
            "a process name controls the terminal"
        );
    }

    #[test]
    fn counts_warnings_and_notes() {
        let head = |warnings: usize, notes: usize| {
            let mut all = vec![finding("a", Level::Warning, "", "", &[]); warnings];
            all.extend(vec![finding("b", Level::Note, "", "", &[]); notes]);
            headline(&all).replace('\u{a0}', " ")
        };
        assert_eq!(head(0, 0), "0 warnings, 0 notes");
        assert_eq!(head(1, 0), "1 warning, 0 notes");
        assert_eq!(head(2, 1), "2 warnings, 1 note");
        assert_eq!(head(0, 3), "0 warnings, 3 notes");
    }
}
