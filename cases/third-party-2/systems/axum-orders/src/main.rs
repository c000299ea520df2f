//! An order service on axum and PostgreSQL. See system.toml for the arguments.

use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, thread};

use axum::http::StatusCode;
use axum::routing::get;
use axum::Router;
use deadpool_postgres::{Manager, Pool};
use sha2::{Digest, Sha256};
use tower::limit::GlobalConcurrencyLimitLayer;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Work = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

const ORDERS: i32 = 10_000;

/// Everything that a request may use.
struct App {
    handler: String,
    pool: Option<Pool>,
    turn: tokio::sync::Mutex<()>,
    journal: Mutex<File>,
    next: std::sync::atomic::AtomicI32,
}

fn option(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn number(name: &str) -> usize {
    option(name).parse().expect(name)
}

fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(number("BLOCKING"))
        .enable_all()
        .build()?
        .block_on(serve())
}

async fn serve() -> Result<(), Failure> {
    let store = option("STORE");
    let app = Arc::new(App {
        handler: option("HANDLER"),
        pool: if store == "none" { None } else { Some(open(&store).await?) },
        turn: tokio::sync::Mutex::new(()),
        journal: Mutex::new(OpenOptions::new().create(true).append(true).open(option("JOURNAL"))?),
        next: 0.into(),
    });
    let index = move || {
        let work = work(app.clone());
        async move {
            match work.await {
                Ok(()) => (StatusCode::OK, "Hello World".to_owned()),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
    };
    let router = Router::new()
        .route("/", get(index))
        .layer(GlobalConcurrencyLimitLayer::new(number("LIMIT")));
    let listener = tokio::net::TcpListener::bind(option("LISTEN")).await?;
    axum::serve(listener, router).await?;
    Ok(())
}

/// Connects to PostgreSQL and creates the table of orders.
async fn open(store: &str) -> Result<Pool, Failure> {
    let (host, port) = store.split_once(':').ok_or("STORE is not HOST:PORT")?;
    let mut config = tokio_postgres::Config::new();
    config.host(host).port(port.parse()?).user("bars").dbname("bars");
    let manager = Manager::new(config, tokio_postgres::NoTls);
    let pool = Pool::builder(manager).max_size(number("POOL")).build()?;
    let sql = format!(
        "CREATE TABLE orders AS SELECT id, id % 500 AS customer, 0 AS amount
           FROM generate_series(1, {ORDERS}) AS id;
         ALTER TABLE orders ADD PRIMARY KEY (id);
         CREATE INDEX ON orders (customer);"
    );
    let client = pool.get().await?;
    client.batch_execute(&sql).await?;
    client.batch_execute("VACUUM ANALYZE orders").await?;
    drop(client);
    Ok(pool)
}

/// Returns what a request does.
fn work(app: Arc<App>) -> Work {
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
        "journal" => journal(app, false),
        "durable-journal" => journal(app, true),
        "report" => Box::pin(async move {
            client(&app).await?.execute("SELECT pg_sleep(0.02)", &[]).await?;
            Ok(())
        }),
        "list" => Box::pin(async move {
            let sql = "SELECT id, amount FROM orders WHERE customer = 7";
            client(&app).await?.query(sql, &[]).await?;
            Ok(())
        }),
        "list-each" => Box::pin(async move {
            let client = client(&app).await?;
            let ids = client.query("SELECT id FROM orders WHERE customer = 7", &[]).await?;
            let order = client.prepare_cached("SELECT amount FROM orders WHERE id = $1").await?;
            for row in ids {
                client.query_one(&order, &[&row.get::<_, i32>(0)]).await?;
            }
            Ok(())
        }),
        "pay" => pay(app, ORDERS),
        "pay-one" => pay(app, 1),
        other => panic!("unknown handler {other}"),
    }
}

async fn sleep(ms: u64) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok(())
}

async fn client(app: &App) -> Result<deadpool_postgres::Client, Failure> {
    Ok(app.pool.as_ref().ok_or("this handler needs a store")?.get().await?)
}

/// Uses CPU time like a proof of work.
fn hash() {
    let mut sum = Sha256::digest(b"order");
    for _ in 0..20_000 {
        sum = Sha256::digest(sum);
    }
    std::hint::black_box(sum);
}

/// Writes a line to the journal on a thread for blocking calls.
fn journal(app: Arc<App>, durable: bool) -> Work {
    Box::pin(async move {
        let write = move || -> std::io::Result<()> {
            let mut file = app.journal.lock().unwrap();
            writeln!(file, "order received")?;
            if durable {
                file.sync_all()?;
            }
            Ok(())
        };
        Ok(tokio::task::spawn_blocking(write).await??)
    })
}

/// Adds an amount to one of the first `rows` orders, in a transaction that takes 10 ms.
fn pay(app: Arc<App>, rows: i32) -> Work {
    Box::pin(async move {
        let id = 1 + app.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed).rem_euclid(rows);
        let mut client = client(&app).await?;
        let transaction = client.transaction().await?;
        transaction.execute("UPDATE orders SET amount = amount + 1 WHERE id = $1", &[&id]).await?;
        sleep(10).await?;
        transaction.commit().await?;
        Ok(())
    })
}
