//! What the suite came to, as a page.

use std::fmt::Write as _;

use super::baseline;
use super::outcome::{Accuracy, Outcome, Share, matrix};
use super::proved::Proof;
use floodmark_record::verdict::Confidence;

/// How another pass compares with this one.
#[derive(Debug, Clone)]
pub struct Agreement {
    /// Cases with the same verdict in both.
    pub same: Share,
    /// How good the other one is.
    pub accuracy: Accuracy,
    /// The same by the rules that were there when it was measured.
    pub then: Accuracy,
    /// What was said in it of those that were judged wrongly and are not set aside.
    pub wrong: Vec<String>,
}

/// What the page is made of.
pub struct Results<'a> {
    /// All cases.
    pub outcomes: &'a [Outcome],
    /// The same cases, by the rules that were there when they were measured.
    pub then: &'a [Outcome],
    /// Files that are no case, with why.
    pub void: &'a [(String, String)],
    /// How another pass compares, where there is one.
    pub agreement: Option<&'a Agreement>,
    /// Verdicts after parts were changed.
    pub proofs: &'a [Proof],
    /// What was said of those that were judged wrongly and are not set aside.
    pub wrong: &'a [String],
}

/// The page.
pub fn text(results: &Results<'_>) -> String {
    let Results {
        outcomes,
        then,
        void,
        agreement,
        proofs,
        wrong,
    } = *results;
    let mut text = "# How often verdicts are right\n\n\
        Written by `cargo xtask confusion --write`; no figure is typed by hand. A case is a server with one fault (or none) under a load; \
        it counts only where the fault moved throughput or p99 in every run beyond what its control did. Intervals are of 95 % (Wilson). \
        One case in five, drawn by the hash of its name, is set aside: which of them were wrong is not shown while rules are worked on.\n"
        .to_owned();
    let aside = |aside: bool| outcomes.iter().filter(move |o| o.set_aside == aside);
    let clean = |clean: bool| outcomes.iter().filter(move |o| o.clean == clean);
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "\n| cases | cause is right | sure and wrong | abstains |\n|---|---:|---:|---:|"
    );
    let mut row = |name: &str, accuracy: Accuracy| {
        let Accuracy {
            right,
            wrong,
            abstains,
        } = accuracy;
        let _ = writeln!(text, "| {name} | {right} | {wrong} | {abstains} |");
    };
    row("all", Accuracy::of(outcomes));
    row(
        "all, by the rules that were there when they were measured",
        Accuracy::of(then),
    );
    row(
        "looked at while rules were made",
        Accuracy::of(aside(false)),
    );
    row("set aside", Accuracy::of(aside(true)));
    row("with a fault", Accuracy::of(clean(false)));
    row("clean", Accuracy::of(clean(true)));
    for (i, name) in baseline::NAMES.iter().enumerate() {
        row(
            &format!("all, by the baseline: {name}"),
            Accuracy::of_baseline(outcomes, i),
        );
    }
    let passes = agreement.map_or_else(
        || "Another pass was not made.".to_owned(),
        |Agreement {
             same,
             accuracy,
             then,
             ..
         }| {
            let said = |of: &Accuracy| {
                format!(
                    "right were {}, sure and wrong {}, and {} abstained",
                    of.right, of.wrong, of.abstains
                )
            };
            format!(
                "In another pass the verdict was the same in {same}; {}. By the rules that were there when that was measured {}.",
                said(accuracy),
                said(then)
            )
        },
    );
    let passes = format!(
        "Rules are mended by what a pass shows of cases that are not set aside; what they say of it from then on says that they fit it, and \
         only the rules that were there when it was measured can be wrong of it. {passes}"
    );
    let _ = writeln!(text, "\n{passes}");
    if !proofs.is_empty() {
        let of = |confidence: Confidence| {
            let these = proofs.iter().filter(|proof| proof.confidence == confidence);
            let these: Vec<bool> = these.map(|proof| proof.right).collect();
            Share {
                those: these.iter().filter(|right| **right).count(),
                of: these.len(),
            }
        };
        let _ = writeln!(
            text,
            "\n## After parts were changed in turn\n\nOf every third case, one process each (`floodmark run --prove`).\n\n\
             | verdict | cause is right |\n|---|---:|\n| proven | {} |\n| likely | {} |\n| unknown | {} |",
            of(Confidence::Proven),
            of(Confidence::Likely),
            of(Confidence::Unknown)
        );
    }
    let _ = writeln!(
        text,
        "\n## Which is taken for which\n\nOf the cases that are not set aside.\n\n| cause | judged to be |\n|---|---|"
    );
    for (cause, judged) in matrix(aside(false)) {
        let judged: Vec<String> = judged
            .iter()
            .map(|(as_what, n)| match *as_what == cause {
                true => format!("{n} right"),
                false => format!("**{n} {as_what}**"),
            })
            .collect();
        let _ = writeln!(text, "| {cause} | {} |", judged.join(", "));
    }
    if !wrong.is_empty() {
        let _ = writeln!(text, "\n## What was judged wrongly\n");
        for line in wrong {
            let _ = writeln!(text, "- {line}");
        }
    }
    if let Some(Agreement { wrong, .. }) = agreement.filter(|agreement| !agreement.wrong.is_empty())
    {
        let _ = writeln!(text, "\n## What was judged wrongly in the other pass\n");
        for line in wrong {
            let _ = writeln!(text, "- {line}");
        }
    }
    if !void.is_empty() {
        let _ = writeln!(text, "\n## No cases\n");
        for (name, why) in void {
            let _ = writeln!(text, "- {name}: {why}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::cause::Cause;

    #[test]
    fn what_is_set_aside_is_counted_and_not_named() {
        let outcome = |expected, judged, set_aside| Outcome {
            name: "x".to_owned(),
            expected: vec![expected],
            judged,
            confidence: Confidence::Likely,
            baselines: vec![Cause::ServerCpu; 3],
            set_aside,
            clean: false,
        };
        let outcomes = [
            outcome(Cause::Gc, Cause::Gc, false),
            outcome(Cause::Gc, Cause::Jit, false),
            outcome(Cause::Serialised, Cause::Concurrency, true),
        ];
        let void = [("y".to_owned(), "it did nothing".to_owned())];
        let proof = |confidence, right| Proof { confidence, right };
        let proofs = [
            proof(Confidence::Proven, true),
            proof(Confidence::Likely, true),
            proof(Confidence::Likely, false),
        ];
        let wrong = ["x: jit in place of gc: it compiles. Not gc: it was idle".to_owned()];
        let again = Agreement {
            same: Share { those: 2, of: 3 },
            accuracy: Accuracy::of(&outcomes),
            then: Accuracy::of(&outcomes[..2]),
            wrong: vec!["z: unknown in place of gc: nothing. Not gc: it was idle".to_owned()],
        };
        let text = text(&Results {
            outcomes: &outcomes,
            then: &outcomes[1..],
            void: &void,
            agreement: Some(&again),
            proofs: &proofs,
            wrong: &wrong,
        });
        assert!(text.contains("- x: jit in place of gc"), "{text}");
        assert!(text.contains("| proven | 1 of 1: 100.0 %"), "{text}");
        assert!(text.contains("| likely | 1 of 2: 50.0 %"), "{text}");
        assert!(text.contains("| gc | 1 right, **1 jit** |"), "{text}");
        assert!(text.contains("| set aside | 0 of 1: 0.0 %"), "{text}");
        assert!(!text.contains("serialised"), "{text}");
        assert!(text.contains("- y: it did nothing"), "{text}");
        assert!(text.contains("the same in 2 of 3: 66.7 %"), "{text}");
        assert!(text.contains("were measured | 0 of 2: 0.0 %"), "{text}");
        assert!(
            text.contains("was measured right were 1 of 2: 50.0 %"),
            "{text}"
        );
        assert!(text.contains("other pass\n\n- z: unknown"), "{text}");
        for name in baseline::NAMES {
            assert!(text.contains(name), "{text}");
        }
    }
}
