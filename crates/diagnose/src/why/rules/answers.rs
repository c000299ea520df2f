//! What the answers themselves say: a limiter, failures counted as successes, an offer that was met.

use floodmark_record::cause::Cause;
use floodmark_record::units::show_count;

use super::{HALF, per_s};
use crate::next::MET_SHARE;
use crate::why::candidate::{Candidate, Findings, Shown};
use crate::why::facts::Facts;

/// From this share of all answers on failures decide what the figure is: below it they move no figure by more than measuring does.
const FAILED_SHARE: f64 = 0.1;

/// Refusals by 429 or 503.
pub(super) fn rate_limiter(facts: &Facts<'_>, findings: &mut Findings) {
    let counts = &facts.run.requests;
    let whole = counts.ok + counts.rejected + counts.wrong + counts.malformed;
    let share = counts.rejected as f64 / whole.max(1) as f64;
    if counts.rejected == 0 {
        return findings.not(Cause::RateLimiter, "no answer was a 429 or 503");
    }
    if share < FAILED_SHARE {
        let few = format!("429 and 503 were {:.1} % of the answers", share * 100.0);
        return findings.not(Cause::RateLimiter, few);
    }
    findings.found(Candidate {
        cause: Cause::RateLimiter,
        shown: Shown::Counted,
        used: 1.0,
        limit_per_s: Some(facts.ok_per_s),
        summary: format!(
            "the server refuses what is more than {} of requests: {:.0} % of its answers were 429 or 503",
            per_s(facts.ok_per_s),
            share * 100.0
        ),
        evidence: vec![format!(
            "requests.rejected {} of {} answers; ok {}, while {} were answered",
            show_count(counts.rejected),
            show_count(whole),
            per_s(facts.ok_per_s),
            per_s(facts.answered_per_s)
        )],
        next: format!(
            "raise the server's limit, or load it below {} to see how it answers what it accepts",
            per_s(facts.ok_per_s)
        ),
        takes: None,
    });
}

/// Wrong and malformed answers.
pub(super) fn errors(facts: &Facts<'_>, findings: &mut Findings) {
    let counts = &facts.run.requests;
    let failed = counts.wrong + counts.malformed;
    let whole = counts.ok + counts.rejected + failed;
    if whole == 0 {
        return none_came(facts, findings);
    }
    let share = failed as f64 / whole as f64;
    if share < FAILED_SHARE {
        return findings.not(
            Cause::Errors,
            format!(
                "{:.1} % of the answers were wrong or malformed",
                share * 100.0
            ),
        );
    }
    let statuses = counts
        .statuses
        .iter()
        .filter(|(status, _)| !(200..400).contains(*status));
    let most = statuses.max_by_key(|(_, n)| **n);
    let named = most.map_or_else(
        || "a body other than was expected".to_owned(),
        |(status, n)| format!("status {status} {} times", show_count(*n)),
    );
    findings.found(Candidate {
        cause: Cause::Errors,
        // Mending them all gives as much again as they are: beside what is limited otherwise that is little, unless they are half.
        shown: if share >= HALF { Shown::Counted } else { Shown::Lesser },
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "{:.0} % of the answers were failures ({named}); they may come faster than right answers, so that the rate of all of them says \
             little of the server",
            share * 100.0
        ),
        evidence: vec![format!(
            "requests.wrong {} and requests.malformed {} of {} answers; ok {} of {} answered",
            show_count(counts.wrong),
            show_count(counts.malformed),
            show_count(whole),
            per_s(facts.ok_per_s),
            per_s(facts.answered_per_s)
        )],
        next: match most {
            Some((404 | 405, _)) => "see whether method and path are those that the server knows, and count right answers only",
            Some((401 | 403, _)) => "give what the server asks for (-H 'Authorization: ...'), and count right answers only",
            _ => "find out in the server's log why it fails, and count right answers only",
        }
        .to_owned(),
        takes: None,
    });
}

/// No request had an answer of any kind: what became of them says why.
fn none_came(facts: &Facts<'_>, findings: &mut Findings) {
    let run = facts.run;
    let counts = &run.requests;
    let became = [
        ("could not connect", counts.connect_failed),
        ("lost their connection", counts.reset),
        ("timed out", counts.timed_out),
        ("failed otherwise", counts.failed),
    ];
    let became: Vec<String> = became
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(what, n)| format!("{} {what}", show_count(*n)))
        .collect();
    if became.is_empty() {
        return findings.not(Cause::Errors, "no answer came, and no request failed");
    }
    let errors: Vec<String> = run
        .errors
        .iter()
        .map(|(what, n)| format!("{what} × {}", show_count(*n)))
        .collect();
    let mut evidence = vec![format!("requests: {}, 0 answered", became.join(", "))];
    if !errors.is_empty() {
        evidence.push(format!("errors: {}", errors.join(", ")));
    }
    findings.found(Candidate {
        cause: Cause::Errors,
        // What keeps the client from asking, or the server from letting anybody in, says more.
        shown: Shown::Lesser,
        used: 1.0,
        limit_per_s: None,
        summary: "nothing was answered, so that there is no figure of the server".to_owned(),
        evidence,
        next: format!(
            "see whether the server runs and listens on {}, and ask it once by hand (curl -i {})",
            run.plan.target.authority, run.plan.target.url
        ),
        takes: None,
    });
}

/// In the open model: was what was offered answered?
pub(super) fn met(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(offered) = facts.offered_per_s else {
        return;
    };
    let share = facts.ok_per_s / offered;
    if share < MET_SHARE {
        return findings.not(
            Cause::None,
            format!(
                "of {} offered {} were answered",
                per_s(offered),
                per_s(facts.ok_per_s)
            ),
        );
    }
    // What another program was told to send, and prints as if it had been found out.
    let told = facts.run.client.name.is_some();
    findings.found(Candidate {
        cause: if told { Cause::OfferedRate } else { Cause::None },
        shown: Shown::Counted,
        used: share,
        limit_per_s: None,
        summary: format!(
            "nothing limited it: {} were offered, and answered; that is what was asked for, not what the server can do",
            per_s(offered)
        ),
        evidence: vec![format!(
            "offered {}, ok {}: {:.1} %",
            per_s(offered),
            per_s(facts.ok_per_s),
            share * 100.0
        )],
        next: format!(
            "to find the limit offer more (--rate {:.0}), or leave the rate away",
            offered * crate::next::STEP_UP
        ),
        takes: None,
    });
}
