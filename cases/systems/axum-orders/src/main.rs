//! An order service on axum and PostgreSQL. See system.toml for the arguments.

mod work;

use std::env;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use deadpool_postgres::{Manager, Pool};
use tower::limit::GlobalConcurrencyLimitLayer;

type OrderError = Box<dyn std::error::Error + Send + Sync>;

const ORDERS: i32 = 10_000;

/// Everything that a request may use.
struct App {
    handler: String,
    pool: Option<Pool>,
    turn: tokio::sync::Mutex<()>,
    next: AtomicI32,
}

fn option(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn number(name: &str) -> usize {
    option(name).parse().expect(name)
}

fn main() -> Result<(), OrderError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(number("BLOCKING"))
        .enable_all()
        .build()?
        .block_on(serve())
}

async fn serve() -> Result<(), OrderError> {
    let store = option("STORE");
    let app = Arc::new(App {
        handler: option("HANDLER"),
        pool: if store == "none" {
            None
        } else {
            Some(open(&store).await?)
        },
        turn: tokio::sync::Mutex::new(()),
        next: 0.into(),
    });
    let index = move || {
        let work = work::start(app.clone());
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
async fn open(store: &str) -> Result<Pool, OrderError> {
    let (host, port) = store.split_once(':').ok_or("STORE is not HOST:PORT")?;
    let mut config = tokio_postgres::Config::new();
    config
        .host(host)
        .port(port.parse()?)
        .user("bars")
        .dbname("bars");
    let manager = Manager::new(config, tokio_postgres::NoTls);
    let pool = Pool::builder(manager).max_size(number("POOL")).build()?;
    let sql = format!(
        "CREATE TABLE orders AS SELECT id, id % 500 AS customer, 0 AS amount
           FROM generate_series(1, {ORDERS}) AS id;
         ALTER TABLE orders ADD PRIMARY KEY (id);
         CREATE INDEX ON orders (customer);
         CREATE SEQUENCE ids START 1000000;"
    );
    let client = pool.get().await?;
    client.batch_execute(&sql).await?;
    client.batch_execute("VACUUM ANALYZE orders").await?;
    drop(client);
    Ok(pool)
}
