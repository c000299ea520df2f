//! A stock service on actix-web and PostgreSQL. See system.toml for the arguments.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use actix_governor::{GlobalKeyExtractor, Governor, GovernorConfigBuilder};
use actix_web::rt::{System, time};
use actix_web::{App, HttpResponse, HttpServer, error, web};
use deadpool_postgres::{Manager, Pool};
use sha2::{Digest, Sha256};

type StockError = Box<dyn std::error::Error>;

const ITEMS: i32 = 50_000;

/// State of one worker's handlers.
struct Stock {
    handler: String,
    pool: Option<Pool>,
    next: AtomicI32,
    client: awc::Client,
    price_url: String,
}

/// A Python process that responds after 50 ms. It ends with this process.
struct PriceUpstream {
    _process: Option<Child>,
    url: String,
}

fn main() -> Result<(), StockError> {
    System::new().block_on(serve())
}

async fn serve() -> Result<(), StockError> {
    let handler = option("HANDLER");
    let store = option("STORE");
    let pool = if store == "none" {
        None
    } else {
        Some(open(&store).await?)
    };
    let upstream = if handler == "price" {
        start_upstream()?
    } else {
        PriceUpstream {
            _process: None,
            url: String::new(),
        }
    };
    let limiter = GovernorConfigBuilder::default()
        .requests_per_second(number("RATE") as u64)
        .burst_size(20)
        .key_extractor(GlobalKeyExtractor)
        .finish()
        .ok_or("RATE is 0")?;
    let url = Arc::new(upstream.url);
    let connections = number("CONNECTIONS");
    HttpServer::new(move || {
        let connector = awc::Connector::new().limit(connections);
        let stock = web::Data::new(Stock {
            handler: handler.clone(),
            pool: pool.clone(),
            next: 0.into(),
            client: awc::Client::builder().connector(connector).finish(),
            price_url: url.to_string(),
        });
        App::new()
            .wrap(Governor::new(&limiter))
            .app_data(stock)
            .route("/", web::get().to(index))
    })
    .workers(number("WORKERS"))
    .max_connections(number("MAX_CONNECTIONS"))
    .worker_max_blocking_threads(number("BLOCKING"))
    .shutdown_timeout(1)
    .bind(option("LISTEN"))?
    .run()
    .await?;
    Ok(())
}

fn option(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn number(name: &str) -> usize {
    option(name).parse().expect(name)
}

fn start_upstream() -> Result<PriceUpstream, StockError> {
    let mut process = Command::new("python3")
        .args(["../slow-upstream/upstream.py", "50"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut port = String::new();
    let stdout = process.stdout.as_mut().ok_or("the upstream has no stdout")?;
    BufReader::new(stdout).read_line(&mut port)?;
    Ok(PriceUpstream {
        url: format!("http://127.0.0.1:{}/price", port.trim()),
        _process: Some(process),
    })
}

/// Connects to PostgreSQL and creates the table of items.
async fn open(store: &str) -> Result<Pool, StockError> {
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
        "CREATE TABLE items AS SELECT id, id AS code FROM generate_series(1, {ITEMS}) AS id;
         ALTER TABLE items ADD PRIMARY KEY (id);"
    );
    let client = pool.get().await?;
    client.batch_execute(&sql).await?;
    client.batch_execute("VACUUM ANALYZE items").await?;
    drop(client);
    Ok(pool)
}

async fn index(stock: web::Data<Stock>) -> actix_web::Result<HttpResponse> {
    match stock.handler.as_str() {
        "hello" => {}
        "sleep" => time::sleep(Duration::from_millis(20)).await,
        "blocking" => web::block(|| thread::sleep(Duration::from_millis(20))).await?,
        "hash" => hash(),
        "price" => {
            let request = stock.client.get(&stock.price_url);
            let mut response = request.send().await.map_err(internal)?;
            response.body().await.map_err(internal)?;
        }
        "find" => find(&stock, "id").await?,
        "find-by-code" => find(&stock, "code").await?,
        other => panic!("unknown handler {other}"),
    }
    Ok(HttpResponse::Ok()
        .content_type("text/plain")
        .body("Hello World"))
}

/// Finds an item by a column.
async fn find(stock: &Stock, column: &str) -> actix_web::Result<()> {
    let pool = stock.pool.as_ref().expect("this handler needs a store; set STORE");
    let client = pool.get().await.map_err(internal)?;
    let sql = format!("SELECT id FROM items WHERE {column} = $1");
    let query = client.prepare_cached(&sql).await.map_err(internal)?;
    let item = 1 + stock.next.fetch_add(7919, Ordering::Relaxed).rem_euclid(ITEMS);
    client.query_one(&query, &[&item]).await.map_err(internal)?;
    Ok(())
}

fn internal(failure: impl std::fmt::Display) -> actix_web::Error {
    error::ErrorInternalServerError(failure.to_string())
}

/// Uses CPU time like a proof of work.
fn hash() {
    let mut sum = Sha256::digest(b"stock");
    for _ in 0..20_000 {
        sum = Sha256::digest(sum);
    }
    std::hint::black_box(sum);
}
