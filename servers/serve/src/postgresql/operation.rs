//! The two statements of the `bars` workload.

use std::sync::Arc;

use bytes::Bytes;
use tokio_postgres::Row;

use super::session::{PreparedStatement, StatementEnd, StatementFault};
use crate::bars::{BarInsert, BarList, MAX_BATCH, StoredBar, answer_inserts, answer_lists};
use crate::store_queue::{StoreFault, StoreRequest, StoreResult};

/// A statement that serves several requests at once.
pub(super) trait BarOperation {
    /// A waiting request.
    type Request: StoreRequest + Send + 'static;
    /// SQL text.
    const STATEMENT: &str;
    /// Lowest and highest limit on the number of requests per statement.
    const MAX_BATCH: [usize; 2];

    /// Runs the statement and answers all requests. After an error, the bars may still be stored.
    fn run(
        statement: Arc<PreparedStatement>,
        batch: Vec<Self::Request>,
    ) -> impl Future<Output = StatementEnd> + Send + 'static;

    /// Answers requests with a fault, without running the statement.
    fn refuse(batch: Vec<Self::Request>, fault: &StoreFault);
}

/// Inserts bars. PostgreSQL stores all bars of a batch or none, and responds after the commit.
pub(super) struct InsertBars;

impl BarOperation for InsertBars {
    type Request = BarInsert;
    const STATEMENT: &str = "INSERT INTO bar (name) \
        SELECT name FROM unnest($1::text[]) AS batch (name) RETURNING id, name";
    // Even a slow database serves several requests per statement.
    const MAX_BATCH: [usize; 2] = [16, MAX_BATCH];

    async fn run(statement: Arc<PreparedStatement>, batch: Vec<BarInsert>) -> StatementEnd {
        let names = Vec::from_iter(batch.iter().map(|insert| insert.name.as_str()));
        let rows = statement.rows(&[&names]).await;
        let ids = rows.and_then(|rows| {
            let stored: Result<_, _> = rows.iter().map(stored_bar).collect();
            assign_ids(&names, stored?).ok_or_else(StatementFault::unexpected_rows)
        });
        finish(ids, |ids| answer_inserts(batch, ids))
    }

    fn refuse(batch: Vec<BarInsert>, fault: &StoreFault) {
        answer_inserts(batch, Err(fault.clone()));
    }
}

/// Lists the bars. All waiting list requests share the result.
pub(super) struct ListBars;

impl BarOperation for ListBars {
    type Request = BarList;
    const STATEMENT: &str = "SELECT id, name FROM bar ORDER BY id";
    const MAX_BATCH: [usize; 2] = [usize::MAX; 2];

    async fn run(statement: Arc<PreparedStatement>, batch: Vec<BarList>) -> StatementEnd {
        let rows = statement.rows(&[]).await;
        finish(rows.and_then(|rows| json(&rows)), |bars| {
            answer_lists(batch, &bars);
        })
    }

    fn refuse(batch: Vec<BarList>, fault: &StoreFault) {
        answer_lists(batch, &Err(fault.clone()));
    }
}

/// Answers a statement's requests, and returns how the statement ended.
fn finish<T>(
    result: Result<T, StatementFault>,
    answer: impl FnOnce(StoreResult<T>),
) -> StatementEnd {
    match result {
        Ok(value) => {
            answer(Ok(value));
            StatementEnd::Completed
        }
        Err(fault) => {
            answer(Err(StoreFault(fault.message)));
            fault.end
        }
    }
}

/// Returns the bar in a row. If the columns have changed, the statement fails, but the session
/// remains usable.
fn stored_bar(row: &Row) -> Result<StoredBar<'_>, StatementFault> {
    match (row.try_get(0), row.try_get(1)) {
        (Ok(id), Ok(name)) => Ok(StoredBar { id, name }),
        _ => Err(StatementFault::unexpected_rows()),
    }
}

/// Returns the ids of a batch in the order of its names, or `None` if the stored names differ from
/// them. Bars with equal names are interchangeable.
fn assign_ids(names: &[&str], mut stored: Vec<StoredBar<'_>>) -> Option<Vec<i64>> {
    if stored.len() != names.len() {
        return None;
    }
    let mut order = Vec::from_iter(0..names.len());
    // PostgreSQL usually returns the rows in the order of the batch, but does not guarantee it.
    if names
        .iter()
        .zip(&stored)
        .any(|(name, bar)| *name != bar.name)
    {
        order.sort_by_key(|index| names[*index]);
        stored.sort_by_key(|bar| (bar.name, bar.id));
    }
    let mut ids = vec![0; names.len()];
    for (index, bar) in order.into_iter().zip(stored) {
        if names[index] != bar.name {
            return None;
        }
        ids[index] = bar.id;
    }
    Some(ids)
}

fn json(rows: &[Row]) -> Result<Bytes, StatementFault> {
    let mut json = Vec::from(b"[");
    for row in rows {
        if json.len() > 1 {
            json.push(b',');
        }
        // Writing to a vector cannot fail.
        let _ = serde_json::to_writer(&mut json, &stored_bar(row)?);
    }
    json.push(b']');
    Ok(json.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assigns_each_id_by_its_name() {
        let names = ["b", "a", "c", "a"];
        for (rows, ids) in [
            ([(1, "b"), (2, "a"), (3, "c"), (4, "a")], Some([1, 2, 3, 4])),
            ([(4, "b"), (3, "a"), (2, "c"), (1, "a")], Some([4, 3, 2, 1])),
            ([(1, "a"), (9, "a"), (5, "b"), (7, "c")], Some([5, 1, 7, 9])),
            ([(1, "a"), (2, "b"), (3, "c"), (4, "b")], None),
            ([(1, "b"), (2, "a"), (3, "c"), (4, "A")], None),
        ] {
            let stored = Vec::from(rows.map(|(id, name)| StoredBar { id, name }));
            let ids = ids.map(Vec::from);
            assert_eq!(assign_ids(&names, stored), ids, "{rows:?}");
        }
        assert_eq!(assign_ids(&names, Vec::new()), None);
    }
}
