//! What a request does.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::{App, ORDERS, OrderError};

type Work = Pin<Box<dyn Future<Output = Result<(), OrderError>> + Send>>;

/// Returns the work of one request.
pub fn start(app: Arc<App>) -> Work {
    match app.handler.as_str() {
        "hello" => Box::pin(async { Ok(()) }),
        "sleep" => Box::pin(async { sleep(20).await }),
        "thread-sleep" => Box::pin(async { Ok(thread::sleep(Duration::from_millis(20))) }),
        "blocking" => Box::pin(async {
            let call = || thread::sleep(Duration::from_millis(20));
            Ok(tokio::task::spawn_blocking(call).await?)
        }),
        "mutex" => Box::pin(async move {
            let _turn = app.turn.lock().await;
            sleep(10).await
        }),
        "hash" => Box::pin(async { Ok(hash()) }),
        "report" => Box::pin(async move {
            client(&app)
                .await?
                .execute("SELECT pg_sleep(0.02)", &[])
                .await?;
            Ok(())
        }),
        "list" => Box::pin(async move {
            let sql = "SELECT id, amount FROM orders WHERE customer = 7";
            client(&app).await?.query(sql, &[]).await?;
            Ok(())
        }),
        "list-each" => Box::pin(async move {
            let client = client(&app).await?;
            let ids = client
                .query("SELECT id FROM orders WHERE customer = 7", &[])
                .await?;
            let order = client
                .prepare_cached("SELECT amount FROM orders WHERE id = $1")
                .await?;
            for row in ids {
                client.query_one(&order, &[&row.get::<_, i32>(0)]).await?;
            }
            Ok(())
        }),
        "save" => Box::pin(async move { save(&app, "on").await }),
        "save-later" => Box::pin(async move { save(&app, "off").await }),
        "pay" => pay(app, ORDERS),
        "pay-one" => pay(app, 1),
        other => panic!("unknown handler {other}"),
    }
}

async fn sleep(ms: u64) -> Result<(), OrderError> {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok(())
}

async fn client(app: &App) -> Result<deadpool_postgres::Client, OrderError> {
    Ok(app
        .pool
        .as_ref()
        .ok_or("this handler needs a store")?
        .get()
        .await?)
}

/// Inserts an order. The commit waits for the disk if `commit` is "on".
async fn save(app: &App, commit: &str) -> Result<(), OrderError> {
    let sql = format!(
        "BEGIN; SET LOCAL synchronous_commit = {commit};
         INSERT INTO orders SELECT nextval('ids'), 1, 1; COMMIT"
    );
    client(app).await?.batch_execute(&sql).await?;
    Ok(())
}

/// Uses CPU time like a proof of work.
fn hash() {
    let mut sum = Sha256::digest(b"order");
    for _ in 0..20_000 {
        sum = Sha256::digest(sum);
    }
    std::hint::black_box(sum);
}

/// Adds an amount to one of the first `rows` orders, in a transaction that takes 10 ms.
fn pay(app: Arc<App>, rows: i32) -> Work {
    Box::pin(async move {
        let id = 1 + app.next.fetch_add(1, Ordering::Relaxed).rem_euclid(rows);
        let mut client = client(&app).await?;
        let transaction = client.transaction().await?;
        transaction
            .execute(
                "UPDATE orders SET amount = amount + 1 WHERE id = $1",
                &[&id],
            )
            .await?;
        sleep(10).await?;
        transaction.commit().await?;
        Ok(())
    })
}
