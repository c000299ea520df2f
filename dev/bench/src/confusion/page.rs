//! Generates `docs/accuracy.md`.

use std::collections::{BTreeMap, BTreeSet};

use floodmark_record::cause::Cause;
use floodmark_record::verdict::Confidence;

use super::baseline::{NamedCause, OTHERS};
use super::judging::{JudgedCase, Pass, family};
use super::table::{SUITES, Suite};
use crate::statistics::Proportion;
use crate::table::table;

/// Heading of the last section, which describes confidence.
pub const CONFIDENCE_HEADING: &str = "# Confidence\n";

/// Replaces the section that has the given heading.
pub fn replace(page: &str, heading: &str, section: &str) -> String {
    let mut rest = page;
    let mut sections = Vec::new();
    let headings = SUITES.iter().map(|suite| suite.heading);
    for of in headings.chain([CONFIDENCE_HEADING]).rev() {
        let start = rest.find(of).unwrap_or(rest.len());
        let (before, current) = rest.split_at(start);
        rest = before;
        sections.push(if of == heading { section } else { current }.trim_end());
    }
    sections.retain(|section| !section.is_empty());
    sections.reverse();
    sections.join("\n\n") + "\n"
}

/// Returns the section of a suite as Markdown. `other` is another pass over the same cases.
/// `proofs` contains the verdicts after perturbations.
pub fn markdown(suite: &Suite, pass: &Pass, other: &Pass, proofs: &[JudgedCase]) -> String {
    let cases = &pass.cases;
    let aside = |aside: bool| cases.iter().filter(move |case| case.is_set_aside == aside);
    let clean = |clean: bool| cases.iter().filter(move |case| case.is_clean == clean);
    let mut rows = vec![
        row("all", Accuracy::of(cases)),
        row(
            "all, as judged when measured",
            Accuracy::of(&pass.as_measured),
        ),
        row("visible (not set aside)", Accuracy::of(aside(false))),
        row("set aside", Accuracy::of(aside(true))),
        row("with a fault", Accuracy::of(clean(false))),
        row("clean", Accuracy::of(clean(true))),
    ];
    for (i, (name, _)) in OTHERS.iter().enumerate() {
        rows.push(row(name, Accuracy::by(cases, |case| case.others[i])));
    }
    let mut text = if suite.is_own() {
        include_str!("introduction.md").to_owned()
    } else {
        let introduction = include_str!("third-party.md").replace("{name}", suite.name);
        let families = suite.set_aside.join(", ");
        format!("{}\n{introduction}", suite.heading).replace("{families}", &families)
    };
    text.push_str(&table(
        "cases | right | confident and wrong | no verdict",
        rows,
    ));
    if !suite.is_own() {
        text.push_str(&paths(cases));
    }
    text.push_str(&gains(suite, cases));
    text.push_str(
        "\nRules are improved based on the visible cases of a pass, so later rules are fitted to the pass. Only the verdicts from \
         the time of the measurement are an independent test. ",
    );
    text.push_str(&agreement(cases, other));
    if !proofs.is_empty() {
        let verdicts = [Confidence::Proven, Confidence::Likely, Confidence::Unknown];
        let rows = verdicts.map(|confidence| {
            let proofs = proofs.iter().filter(|case| case.confidence == confidence);
            let right = Proportion::of(proofs.map(JudgedCase::is_right));
            vec![format!("{confidence:?}").to_lowercase(), right.to_string()]
        });
        text.push_str(
            "\n## After perturbations\n\nThese verdicts cover every third case, with one process per trial (`floodmark run --prove`).\n\n",
        );
        text.push_str(&table("verdict | right", rows));
    }
    let rows = matrix(aside(false)).into_iter().map(|(cause, judged)| {
        let judged = judged.iter().map(|(other, n)| {
            if *other == cause {
                format!("{n} right")
            } else {
                format!("**{n} {other}**")
            }
        });
        vec![cause.to_string(), judged.collect::<Vec<_>>().join(", ")]
    });
    text.push_str("\n## Confusion matrix\n\nThe matrix excludes cases that are set aside.\n\n");
    text.push_str(&table("cause | verdict", rows));
    text + &list("Wrong verdicts", &wrong(cases))
        + &list("Wrong verdicts in the other pass", &wrong(&other.cases))
        + &list("Void cases", &pass.void)
}

/// Describes how often the control's throughput lies in the predicted range.
fn gains(suite: &Suite, cases: &[JudgedCase]) -> String {
    let faults = || cases.iter().filter(|case| !case.is_clean);
    let predicted = || faults().filter_map(|case| case.gain);
    let in_range = Proportion::of(predicted().map(|position| (0.0..=1.0).contains(&position)));
    let with = Proportion::of(faults().map(|case| case.gain.is_some()));
    let is_in_range = |case: &JudgedCase| case.gain.is_some_and(|at| (0.0..=1.0).contains(&at));
    let of_settings = Proportion::of(faults().filter(|case| case.is_setting).map(is_in_range));
    let mut text = format!(
        "\nIf a verdict names a limit on requests in service, a CPU quota or a single saturated thread, it also predicts the throughput without that limit.\n\n\
         - cases with a fault and a prediction: {with}\n\
         - controls within the predicted range: {in_range}\n"
    );
    if !suite.is_own() {
        text += &format!(
            "- controls within the predicted range, only cases whose control differs in a server setting (a case without a prediction counts as outside): {of_settings}\n"
        );
    }
    text
}

/// Returns a table with the accuracy of causes and paths for each family of servers. Results of
/// cases that are set aside appear only in totals.
fn paths(cases: &[JudgedCase]) -> String {
    let families: BTreeSet<&str> = cases.iter().map(|case| family(&case.name)).collect();
    let group = |name: &str, is_in: &dyn Fn(&JudgedCase) -> bool| {
        let of = || cases.iter().filter(|case| is_in(case));
        let path = |case: &JudgedCase| case.is_right() && case.is_path_right();
        let cause = Proportion::of(of().map(JudgedCase::is_right));
        vec![
            name.to_owned(),
            cause.to_string(),
            Proportion::of(of().map(path)).to_string(),
        ]
    };
    let mut rows = vec![
        group("all", &|_| true),
        group("visible (not set aside)", &|case| !case.is_set_aside),
        group("set aside", &|case| case.is_set_aside),
    ];
    let families = families.into_iter();
    rows.extend(families.map(|name| group(name, &|case| family(&case.name) == name)));
    format!(
        "\n{}",
        table("cases | cause right | cause and path right", rows)
    )
}

fn row(name: &str, accuracy: Accuracy) -> Vec<String> {
    let proportions = [accuracy.right, accuracy.wrong, accuracy.abstains];
    let cells = proportions.map(|proportion| proportion.to_string());
    [vec![name.to_owned()], cells.to_vec()].concat()
}

/// Compares another pass with this one.
fn agreement(cases: &[JudgedCase], other: &Pass) -> String {
    if other.cases.is_empty() {
        return "No other pass was measured.\n".to_owned();
    }
    let same = other.cases.iter().map(|there| {
        let mut here = cases.iter();
        here.any(|here| here.name == there.name && here.judged == there.judged)
    });
    let shares = |cases: &[JudgedCase]| {
        let a = Accuracy::of(cases);
        format!(
            "right in {}, confident and wrong in {}, and without a verdict in {}",
            a.right, a.wrong, a.abstains
        )
    };
    format!(
        "Another pass gave the same verdict in {}. On that pass, the current rules are {}. The rules that existed when the pass was measured are {}.\n",
        Proportion::of(same),
        shares(&other.cases),
        shares(&other.as_measured)
    )
}

/// Describes the wrong verdicts on cases that are not set aside.
fn wrong(cases: &[JudgedCase]) -> Vec<String> {
    let wrong = cases
        .iter()
        .filter(|case| !case.is_set_aside && !case.is_right());
    let line = |case: &JudgedCase| {
        let why = match (&case.verdict, &case.ruled_out()[..]) {
            (None, _) => String::new(),
            (Some(_), []) => "; no evidence against the expected cause".to_owned(),
            (Some(_), lines) => format!("; ruled out {}", lines.join("; ")),
        };
        let (expected, summary) = (case.expected_ids(), case.summary());
        let JudgedCase { name, judged, .. } = case;
        format!("{name}: {judged} instead of {expected}: {summary}{why}")
    };
    wrong.map(line).collect()
}

/// Returns a section with a list, or nothing if the list is empty.
fn list(title: &str, lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        lines => format!("\n## {title}\n\n- {}\n", lines.join("\n- ")),
    }
}

/// Accuracy of a set of verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Accuracy {
    /// Verdicts that name an expected cause.
    right: Proportion,
    /// Confident verdicts that name a wrong cause.
    wrong: Proportion,
    /// Verdicts that name no cause.
    abstains: Proportion,
}

impl Accuracy {
    /// Computes the accuracy of floodmark's verdicts.
    fn of<'a>(cases: impl IntoIterator<Item = &'a JudgedCase>) -> Self {
        Self::by(cases, |case| (case.judged, case.confidence))
    }

    /// Computes the accuracy of the verdicts that `verdict` returns for the cases.
    fn by<'a>(
        cases: impl IntoIterator<Item = &'a JudgedCase>,
        verdict: impl Fn(&JudgedCase) -> NamedCause,
    ) -> Self {
        let (mut total, mut right, mut wrong, mut abstains) = (0, 0, 0, 0);
        for case in cases {
            total += 1;
            match verdict(case) {
                (cause, _) if case.expected.contains(&cause) => right += 1,
                (Cause::Unknown, _) => abstains += 1,
                (_, confidence) => wrong += usize::from(confidence != Confidence::Unknown),
            }
        }
        let of = |count| Proportion { count, total };
        Accuracy {
            right: of(right),
            wrong: of(wrong),
            abstains: of(abstains),
        }
    }
}

/// Counts how often each cause was named for each expected cause.
fn matrix<'a>(
    cases: impl IntoIterator<Item = &'a JudgedCase>,
) -> BTreeMap<Cause, BTreeMap<Cause, usize>> {
    let mut matrix: BTreeMap<Cause, BTreeMap<Cause, usize>> = BTreeMap::new();
    for case in cases {
        let row = if case.is_right() {
            case.judged
        } else {
            case.expected[0]
        };
        let row = matrix.entry(row).or_default();
        *row.entry(case.judged).or_default() += 1;
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_but_does_not_name_cases_set_aside() {
        let case = |expected, judged| JudgedCase::example("x", expected, judged);
        let aside = JudgedCase {
            gain: None,
            is_setting: true,
            is_set_aside: true,
            ..case(Cause::Serialised, Cause::Concurrency)
        };
        let cases = vec![
            case(Cause::Gc, Cause::Gc),
            case(Cause::Gc, Cause::Jit),
            aside,
        ];
        let proof = |confidence, judged| JudgedCase {
            confidence,
            ..case(Cause::Gc, judged)
        };
        let other = |name, judged| JudgedCase::example(name, Cause::Gc, judged);
        let others = vec![
            other("x", Cause::Gc),
            other("x", Cause::Jit),
            other("z", Cause::Unknown),
        ];
        let other = Pass {
            as_measured: others[..2].to_vec(),
            cases: others,
            ..Pass::default()
        };
        let pass = Pass {
            as_measured: cases[1..].to_vec(),
            cases,
            void: vec!["y: it had no effect".to_owned()],
        };
        let proofs = [
            proof(Confidence::Proven, Cause::Gc),
            proof(Confidence::Likely, Cause::Gc),
            proof(Confidence::Likely, Cause::Jit),
        ];
        let text = markdown(&SUITES[0], &pass, &other, &proofs);
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        let words = words.join(" ");
        for part in [
            "- x: jit instead of gc",
            "| proven | 1 of 1: 100.0 %",
            "| likely | 1 of 2: 50.0 %",
            "| gc | 1 right, **1 jit** |",
            "| set aside | 0 of 1: 0.0 %",
            "- y: it had no effect",
            "the same verdict in 2 of 3: 66.7 %",
            "as judged when measured | 0 of 2: 0.0 %",
            "pass was measured are right in 1 of 2: 50.0 %",
            "other pass\n\n- x: jit instead of gc",
            "- z: unknown instead of gc",
        ] {
            assert!(words.contains(part), "{part} in {text}");
        }
        let page = replace(
            "old",
            SUITES[1].heading,
            &markdown(&SUITES[1], &pass, &other, &[]),
        );
        assert!(
            page.starts_with("old\n\n# Servers from package registries\n"),
            "{page}"
        );
        let page = replace(&page, SUITES[0].heading, "new\n");
        assert!(page.starts_with("new\n\n# Servers"), "{page}");
        assert!(page.contains("cause and path right"), "{page}");
        let more = markdown(&SUITES[2], &pass, &other, &[]);
        let page = replace(&page, SUITES[2].heading, &more);
        let section = "# Servers from package registries\nthird\n";
        let page = replace(&page, SUITES[1].heading, section);
        let start = "new\n\n# Servers from package registries\nthird\n\n# More servers";
        assert!(page.starts_with(start), "{page}");
        let mut names = OTHERS.iter();
        assert!(names.all(|(name, _)| text.contains(name)), "{text}");
        assert!(!text.contains("serialised"), "{text}");
    }

    fn outcome(expected: Cause, judged: Cause, confidence: Confidence) -> JudgedCase {
        JudgedCase {
            confidence,
            ..JudgedCase::example("c", expected, judged)
        }
    }

    #[test]
    fn right_wrong_and_abstaining_add_up() {
        let outcomes = [
            outcome(Cause::Gc, Cause::Gc, Confidence::Likely),
            outcome(Cause::Gc, Cause::ServerCpu, Confidence::Likely),
            outcome(Cause::ServerCpu, Cause::Unknown, Confidence::Unknown),
            outcome(Cause::Unknown, Cause::Unknown, Confidence::Unknown),
        ];
        let accuracy = Accuracy::of(&outcomes);
        let pair = |proportion: Proportion| (proportion.count, proportion.total);
        assert_eq!(pair(accuracy.right), (2, 4));
        assert_eq!(pair(accuracy.wrong), (1, 4));
        assert_eq!(pair(accuracy.abstains), (1, 4));
        let always = Accuracy::by(&outcomes, |_| (Cause::ServerCpu, Confidence::Likely));
        assert_eq!((pair(always.right), pair(always.wrong)), ((1, 4), (3, 4)));
        let matrix = matrix(&outcomes);
        assert_eq!(matrix[&Cause::Gc][&Cause::ServerCpu], 1);
        assert_eq!(matrix[&Cause::Unknown][&Cause::Unknown], 1);
    }
}
