//! Keeps the responses that a check needs (`--check`), in 24 bytes each. Of the responses that are
//! not ok, also keeps the start of the first body with each status.

use std::collections::BTreeMap;

use floodmark_record::grpc::ResponseStatus;
use floodmark_record::kept::{KeptScore, SHOWN, ScoringSummary, StrangeTotal, TotalLine};
use floodmark_record::operation::{KeptOperation, key_of};
use floodmark_record::outcome::{MAX_EXCERPT, MAX_STATUSES, NotOkResponse};
use floodmark_record::plan::{Check, Plan};
use floodmark_wire::Reader;

use crate::clock::Ns;
use crate::connection::ConnectionSlot;
use crate::judge::{CheckedContent, ScoreResponse};
use crate::recorder::Moments;

/// Number of responses per block. With blocks, the list can grow without copying responses.
const BLOCK: usize = 64 * 1024;

/// The responses that one thread received and kept.
#[derive(Debug, Default)]
pub struct KeptResponses {
    blocks: Vec<Vec<[u64; 3]>>,
    /// Number of keys in a check of an API.
    keys: u64,
    /// Number of responses whose number does not exceed the previous number on the same connection.
    pub out_of_order: u64,
    /// Descriptions of the first responses that are out of order.
    pub offenders: Vec<String>,
    /// The expected totals, derived from the first response.
    line: Option<TotalLine>,
    scored: ScoringSummary,
}

impl KeptResponses {
    /// Creates an empty list for the responses to a plan's requests.
    pub fn of_plan(plan: &Plan) -> Self {
        let api = plan.check.as_ref().and_then(Check::api);
        KeptResponses {
            keys: api.map_or(1, |api| api.keys),
            ..KeptResponses::default()
        }
    }

    /// Keeps the content of the response to a request on a connection. `done` is the time at which
    /// the outcome of the request was known.
    pub fn add(
        &mut self,
        content: CheckedContent,
        moments: &Moments,
        connection: &mut ConnectionSlot,
        done: Ns,
    ) {
        let (pick, sent) = (moments.pick, moments.last_sent());
        let (number, words) = match content {
            CheckedContent::Operation(kind, value) => {
                let key = key_of(pick.number, self.keys);
                let value = value.unwrap_or(pick.number);
                return self.push(KeptOperation::new(kind, key, value, sent, done).0);
            }
            CheckedContent::Number(number) => (number, [number, sent, done]),
            CheckedContent::Score(score, response) => {
                let number = response.number_of_trials;
                let distance = self.distance(score, &response);
                let kept = KeptScore::new(number, distance, sent, done);
                (number, kept.0)
            }
        };
        if let Some(last) = connection.last_number
            && number <= last
        {
            self.out_of_order += 1;
            show(&mut self.offenders, || {
                format!("{number} after {last} on the same connection")
            });
        }
        connection.last_number = Some(number);
        self.push(words);
    }

    fn push(&mut self, words: [u64; 3]) {
        match self.blocks.last_mut() {
            Some(block) if block.len() < BLOCK => block.push(words),
            _ => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(words);
                self.blocks.push(block);
            }
        }
    }

    /// Returns the difference between a total and its expected value. Also checks the average.
    fn distance(&mut self, score: f64, response: &ScoreResponse) -> Option<i32> {
        let ScoreResponse {
            average_score: average,
            total_score: total,
            number_of_trials: number,
        } = *response;
        if !response.averages() {
            self.scored.wrong_averages += 1;
            show(&mut self.scored.first_wrong_averages, || {
                format!("{average} for {total} / {number}")
            });
        }
        let line = self
            .line
            .get_or_insert_with(|| TotalLine::through(score, number, total));
        let distance = line.distance(number, total);
        if distance.is_none() {
            self.scored.strange(StrangeTotal { number, total });
        }
        distance
    }

    /// Returns the number of responses.
    pub fn count(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// Returns the summary of the scores, or `None` if the responses contain no scores.
    pub fn scored(&self) -> Option<ScoringSummary> {
        self.line.map(|line| ScoringSummary {
            line: Some(line),
            ..self.scored.clone()
        })
    }

    /// Returns the expected totals with which all threads' totals are compared.
    pub fn line<'a>(mut all: impl Iterator<Item = &'a KeptResponses>) -> Option<TotalLine> {
        all.find_map(|responses| responses.line)
    }

    /// Writes the responses as triples of little-endian 64-bit integers. Scores are relative to
    /// `line`.
    ///
    /// # Errors
    /// Writing fails.
    pub fn write(
        &self,
        line: Option<TotalLine>,
        out: &mut dyn std::io::Write,
    ) -> std::io::Result<()> {
        // The offset between this thread's expected totals and the common ones. The offset is 0 if
        // the server is correct.
        let ahead = line.zip(self.line).map(|(line, mine)| mine.ahead_of(&line));
        for words in self.blocks.iter().flatten() {
            let words = match ahead {
                None | Some(Some(0)) => *words,
                Some(by) => KeptScore(*words).moved(by, 0).0,
            };
            out.write_all(words.map(u64::to_le_bytes).as_flattened())?;
        }
        Ok(())
    }
}

fn show(shown: &mut Vec<String>, words: impl FnOnce() -> String) {
    if shown.len() < SHOWN {
        shown.push(words());
    }
}

/// Maximum length of a kept body in bytes: one byte more than an excerpt, to show whether the body
/// is longer than the excerpt.
pub const MAX_KEPT: usize = MAX_EXCERPT + 1;

/// The bodies that one thread keeps, by status; for a gRPC status, the value of `grpc-message`. Memory is allocated only for a new status.
#[derive(Debug, Default)]
pub struct NotOkBodies(BTreeMap<ResponseStatus, Vec<u8>>);

impl NotOkBodies {
    /// Returns whether the body of a response with this status is still needed.
    pub fn wants(&self, status: ResponseStatus) -> bool {
        self.0.len() < MAX_STATUSES && !self.0.contains_key(&status)
    }

    /// Keeps the start of a body.
    #[cold]
    pub fn keep(&mut self, status: ResponseStatus, body: &[u8]) {
        let body = body.get(..MAX_KEPT).unwrap_or(body);
        self.0.insert(status, body.to_vec());
    }

    /// Returns the kept statuses, with an excerpt of each body.
    pub fn responses(&self) -> Vec<NotOkResponse> {
        let responses = self.0.iter();
        responses
            .map(|(status, body)| NotOkResponse::new(*status, body))
            .collect()
    }
}

/// Extracts the beginning of the body from the first bytes of a response.
#[cold]
pub fn body_in(data: &[u8], to_head: bool) -> Vec<u8> {
    let (mut reader, mut body) = (Reader::new(), Vec::new());
    reader.expect_response(to_head);
    // The connection's own reader has already reported any errors.
    let _ = reader.feed(data, &mut body);
    body.truncate(MAX_KEPT);
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::WorkerEnd;
    use floodmark_record::kept::KEPT_BYTES;
    use floodmark_record::operation::OperationKind;

    /// Adds the content of a response at 2 ns. Its request has the number 5 and was sent at 1 ns.
    fn add(kept: &mut KeptResponses, content: CheckedContent) {
        let mut moments = Moments {
            sent: 1,
            ..Moments::default()
        };
        moments.pick.number = 5;
        kept.add(content, &moments, &mut ConnectionSlot::default(), 2);
    }

    #[test]
    fn keeps_operations_with_their_keys() {
        let mut kept = KeptResponses {
            keys: 100,
            ..KeptResponses::default()
        };
        let read = CheckedContent::Operation(OperationKind::Read, Some(17));
        let write = CheckedContent::Operation(OperationKind::Unknown, None);
        for content in [read, write] {
            add(&mut kept, content);
        }
        let key = key_of(5, 100);
        let expected = [
            KeptOperation::new(OperationKind::Read, key, 17, 1, 2),
            KeptOperation::new(OperationKind::Unknown, key, 5, 1, 2),
        ];
        assert_eq!(kept.blocks, [expected.map(|operation| operation.0)]);
    }

    fn scores(responses: &[(u64, f64)]) -> KeptResponses {
        let mut kept = KeptResponses::default();
        for (number_of_trials, total_score) in responses {
            let response = ScoreResponse {
                average_score: 10.0,
                total_score: *total_score,
                number_of_trials: *number_of_trials,
            };
            let content = CheckedContent::Score(10.0, response);
            add(&mut kept, content);
        }
        kept
    }

    fn distances(threads: &[KeptResponses]) -> Vec<Option<i32>> {
        let mut bytes = Vec::new();
        for responses in threads {
            let line = KeptResponses::line(threads.iter());
            responses.write(line, &mut bytes).unwrap();
        }
        let triples = bytes.chunks_exact(KEPT_BYTES).map(|triple| {
            let word = |i: usize| u64::from_le_bytes(triple[8 * i..8 * i + 8].try_into().unwrap());
            KeptScore([word(0), word(1), word(2)])
        });
        triples.map(|kept| kept.distance()).collect()
    }

    #[test]
    fn compares_totals_of_all_threads_with_one_line() {
        let threads = [
            scores(&[]),
            scores(&[(5, 55.0), (6, 55.0), (7, 70.1)]),
            scores(&[(9, 75.0), (10, 105.0)]),
            scores(&[(11, 3.0), (12, 13.0)]),
        ];
        assert_eq!(
            distances(&threads),
            [Some(0), Some(-1), None, Some(-2), Some(0), None, None]
        );
        let mut all = WorkerEnd::default();
        for thread in &threads {
            all.merge(&WorkerEnd {
                scored: thread.scored(),
                ..WorkerEnd::default()
            });
        }
        let scored = all.scored.unwrap();
        assert_eq!(scored.line, Some(TotalLine::through(10.0, 5, 55.0)));
        let strange = StrangeTotal {
            number: 7,
            total: 70.1,
        };
        assert_eq!(scored.first_strange_totals, [strange]);
        assert_eq!(scored.wrong_averages, 7);
        assert_eq!(scored.first_wrong_averages.len(), SHOWN);
        assert_eq!(scored.first_wrong_averages[0], "10 for 55 / 5");
        assert_eq!(KeptResponses::default().scored(), None);
    }
}
