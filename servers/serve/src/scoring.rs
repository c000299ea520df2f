//! The `scoring` workload: `POST /scoring` adds a score. All threads share the count and the total
//! of the scores. A journal, if there is one, stores each score.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use floodmark_journal::{AppendError, Journal, JournalError, JournalOptions, JournalState};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::http::{HttpResponse, ok, refusal};
use crate::settings::JournalSetting;
use crate::worker::Worker;

/// Body of a request. Other fields are ignored.
#[derive(Deserialize)]
struct ScoreRequest<'a> {
    // The number as text, because serde_json can round it to a neighbor of the closest double.
    #[serde(borrow)]
    score: &'a RawValue,
}

/// Returns whether the content type of a request is JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    let media_type = value.and_then(|value| value.split(|byte| *byte == b';').next());
    media_type.is_some_and(|it| it.trim_ascii().eq_ignore_ascii_case(b"application/json"))
}

/// Adds the score in a request body and returns the response. With a journal, first waits until the
/// score is durable.
pub(crate) async fn score(worker: &Worker, scores: &SharedScores, body: Bytes) -> HttpResponse {
    let score = match parse(&body) {
        Ok(score) => score,
        Err(reason) => return refusal(StatusCode::BAD_REQUEST, reason, None),
    };
    drop(body);
    let added = match scores.journal() {
        None => scores.add(score),
        Some(journal) => durable(worker, scores, journal, score).await,
    };
    match added {
        Ok(totals) => answer(&totals),
        Err(fault) => refused(scores, fault),
    }
}

async fn durable(
    worker: &Worker,
    scores: &SharedScores,
    journal: &Journal,
    score: f64,
) -> Result<ScoreTotals, ScoreFault> {
    let commits = &worker.commits;
    let now = worker.register.now.get();
    commits.begin(journal, now)?;
    let totals = scores.add(score)?;
    commits.wait(journal, totals.number, now).await?;
    Ok(totals)
}

fn parse(body: &[u8]) -> Result<f64, &'static str> {
    // serde would also accept an array of the field values.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(r#"the body is not a JSON object; send a body such as {"score": 10}"#);
    }
    let request: ScoreRequest<'_> = serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            r#""score" is missing or repeated; send a body such as {"score": 10}"#
        } else {
            r#"the body is not JSON; send a body such as {"score": 10}"#
        }
    })?;
    // JSON cannot express infinity or NaN, but "1e999" exceeds the largest double.
    let score = request.score.get().parse();
    let finite = score.ok().filter(|score: &f64| score.is_finite());
    finite.ok_or(r#""score" is not a number, or is too large; send a body such as {"score": 10}"#)
}

fn answer(totals: &ScoreTotals) -> HttpResponse {
    // The figures are finite, so they can be written as JSON.
    let body = serde_json::to_vec(&totals.answer()).unwrap_or_default();
    ok("application/json", Bytes::from(body))
}

fn refused(scores: &SharedScores, fault: ScoreFault) -> HttpResponse {
    let failure = scores.journal().and_then(|of| of.progress().failure);
    let cause;
    let reason = match (fault, failure) {
        (ScoreFault::Overflow, _) => {
            let reason = "the total would exceed the largest double; send a smaller score";
            return refusal(StatusCode::BAD_REQUEST, reason, None);
        }
        (ScoreFault::Full, _) => "the journal's queue is full; retry later",
        (ScoreFault::Overloaded, _) => "the journal is overloaded; retry later",
        (ScoreFault::Failed, Some(failure)) => {
            cause = format!("the journal has failed: {failure}; then restart the server");
            &cause
        }
        (ScoreFault::Failed | ScoreFault::Slow, _) => "the journal does not respond; retry later",
    };
    let header = Some((RETRY_AFTER, "1"));
    refusal(StatusCode::SERVICE_UNAVAILABLE, reason, header)
}

/// A reason why a score is not recorded, or why the response cannot confirm that the score
/// is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScoreFault {
    /// The total would be too large for a double.
    Overflow,
    /// The journal's queue is full.
    Full,
    /// The journal has failed.
    Failed,
    /// The journal takes too long.
    Slow,
    /// The oldest pending response has waited too long, so the score was not recorded.
    Overloaded,
}

impl From<AppendError> for ScoreFault {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Failed => ScoreFault::Failed,
            AppendError::Full => ScoreFault::Full,
        }
    }
}

/// Number and total of the scores.
///
/// The total is a compensated sum (Neumaier, 1974), so rounding errors do not grow with the number
/// of scores.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ScoreTotals {
    number: u64,
    sum: f64,
    compensation: f64,
}

/// Body of a response.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScoreAnswer {
    average_score: f64,
    total_score: f64,
    number_of_trials: u64,
}

impl ScoreTotals {
    /// Returns the totals after adding a score, or `None` if the total is too large for a double.
    fn plus(mut self, score: f64) -> Option<Self> {
        let sum = self.sum + score;
        self.compensation += if self.sum.abs() >= score.abs() {
            (self.sum - sum) + score
        } else {
            (score - sum) + self.sum
        };
        self.sum = sum;
        self.number += 1;
        self.total().is_finite().then_some(self)
    }

    fn total(&self) -> f64 {
        self.sum + self.compensation
    }

    /// Returns the body of the response to the last score. There must be at least one score.
    fn answer(&self) -> ScoreAnswer {
        ScoreAnswer {
            average_score: self.total() / self.number as f64,
            total_score: self.total(),
            number_of_trials: self.number,
        }
    }
}

impl JournalState for ScoreTotals {
    const RECORD_BYTES: usize = 8;

    fn apply(&mut self, records: &[u8]) {
        for record in records.as_chunks().0 {
            // A score is recorded only if the total stays finite.
            *self = self.plus(f64::from_le_bytes(*record)).unwrap_or(*self);
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        let fields = [self.number, self.sum.to_bits(), self.compensation.to_bits()];
        fields.map(u64::to_le_bytes).concat()
    }

    fn restore(bytes: &[u8]) -> Option<Self> {
        let (fields, []) = bytes.as_chunks() else {
            return None;
        };
        let [number, sum, compensation] = fields else {
            return None;
        };
        Some(ScoreTotals {
            number: u64::from_le_bytes(*number),
            sum: f64::from_le_bytes(*sum),
            compensation: f64::from_le_bytes(*compensation),
        })
    }
}

/// The scores of all threads.
pub(crate) struct SharedScores {
    totals: Mutex<ScoreTotals>,
    journal: Option<Journal>,
}

impl SharedScores {
    /// Opens the journal and restores the totals from it.
    pub(crate) fn open(setting: &JournalSetting) -> Result<Self, JournalError> {
        let options = JournalOptions::default();
        let empty = ScoreTotals::default();
        let (journal, totals) = match setting {
            JournalSetting::None => (None, empty),
            JournalSetting::Memory => (Some(Journal::in_memory(&options)?), empty),
            JournalSetting::File(directory) => {
                let (journal, totals) = Journal::open(directory, &options, empty)?;
                (Some(journal), totals)
            }
            JournalSetting::Cassandra(address) => {
                let (journal, totals) = Journal::open_cassandra(address, &options, empty)?;
                (Some(journal), totals)
            }
        };
        let totals = Mutex::new(totals);
        Ok(SharedScores { totals, journal })
    }

    /// Adds a score and returns the totals after it. With a journal, the score is durable once the
    /// journal has reached the score's number.
    fn add(&self, score: f64) -> Result<ScoreTotals, ScoreFault> {
        // Append under the lock, so that the journal contains the scores in the order in which they
        // were added to the totals.
        let totals = self.totals.lock();
        let mut totals = totals.unwrap_or_else(PoisonError::into_inner);
        let after = totals.plus(score).ok_or(ScoreFault::Overflow)?;
        if let Some(journal) = &self.journal {
            journal.append(&score.to_le_bytes())?;
        }
        *totals = after;
        Ok(after)
    }

    /// Returns the journal.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Closes the journal.
    pub(crate) fn close(self) -> Result<(), Arc<JournalError>> {
        self.journal.map_or(Ok(()), Journal::close)
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn reads_one_finite_number() {
        for (body, score) in [
            (r#"{"score":10}"#, 10.0),
            (" {\"by\": [1], \"score\" :\r\n -2.5e-3 }\t", -0.0025),
            (
                r#"{"score": 123456789012345678901234567890}"#,
                123_456_789_012_345_678_901_234_567_890.0,
            ),
        ] {
            assert_eq!(parse(body.as_bytes()), Ok(score), "{body}");
        }
        for body in [
            "",
            "10",
            "[10]",
            "{}",
            r#"{"score": "10"}"#,
            r#"{"score": null}"#,
            r#"{"score": true}"#,
            r#"{"score": {"score": 1}}"#,
            r#"{"score": NaN}"#,
            r#"{"score": Infinity}"#,
            r#"{"score": 1e999}"#,
            r#"{"score": 1, "score": 2}"#,
            r#"{"score": 1} {"score": 1}"#,
            r#"{"score": 1"#,
            "\u{c}{\"score\": 1}",
            "{\"score\": 1}\0",
        ] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn reads_the_closest_double() {
        for score in [31.245_270_191_439_438, 121.487_919_511_619_45, 0.1 + 0.2] {
            let body = format!("{{\"score\": {score}}}");
            assert_eq!(parse(body.as_bytes()), Ok(score));
        }
    }

    #[test]
    fn recognizes_json_media_types() {
        let is_json = |value: &'static str| {
            is_json(&HeaderMap::from_iter([(
                CONTENT_TYPE,
                HeaderValue::from_static(value),
            )]))
        };
        for json in ["application/json", "Application/JSON ; charset=utf-8"] {
            assert!(is_json(json), "{json}");
        }
        for other in ["", "text/plain", "application/jsonx", "text/json"] {
            assert!(!is_json(other), "{other}");
        }
        assert!(!super::is_json(&HeaderMap::new()));
    }

    fn totals(scores: impl IntoIterator<Item = f64>) -> ScoreTotals {
        let mut scores = scores.into_iter();
        let sum = scores.try_fold(ScoreTotals::default(), ScoreTotals::plus);
        sum.unwrap()
    }

    #[test]
    fn the_total_of_many_scores_is_exact() {
        let many = totals((0..1_000_000).map(|_| 0.1));
        assert_eq!(many.total(), 100_000.000_000_000_0);
        assert_eq!(many.answer().average_score, 0.1);
        assert_eq!(totals([1e16, 1.0, -1e16]).total(), 1.0);
        assert_eq!(totals([1.0, 1e100, 1.0, -1e100]).total(), 2.0);
    }

    #[test]
    fn a_total_too_large_for_a_double_changes_nothing() {
        let scores = SharedScores::open(&JournalSetting::None).unwrap();
        let first = scores.add(f64::MAX).unwrap();
        assert_eq!(scores.add(f64::MAX), Err(ScoreFault::Overflow));
        let second = scores.add(-f64::MAX).unwrap();
        assert_eq!((first.number, second.number), (1, 2));
        assert_eq!(second.total(), 0.0);
    }

    #[test]
    fn a_snapshot_restores_the_totals() {
        let before = totals([0.1, 1e9, -7.25, 1e-300]);
        assert_eq!(ScoreTotals::restore(&before.snapshot()), Some(before));
        for wrong in [&before.snapshot()[1..], &[], &[0; 32]] {
            assert_eq!(ScoreTotals::restore(wrong), None);
        }
        let mut applied = ScoreTotals::default();
        applied.apply(&[0.1, 1e9, -7.25, 1e-300].map(f64::to_le_bytes).concat());
        assert_eq!(applied, before);
    }
}
