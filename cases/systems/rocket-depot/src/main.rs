//! A parcel service on Rocket and PostgreSQL. See system.toml for the arguments.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use deadpool_postgres::{Client, Manager, Pool};
use rocket::tokio::task::spawn_blocking;
use rocket::tokio::time::sleep;
use rocket::{Config, State, get, routes};
use sha2::{Digest, Sha256};

type DepotError = Box<dyn std::error::Error + Send + Sync>;

const PARCELS: i32 = 10_000;
const CALL: Duration = Duration::from_millis(20);

/// State of the handlers.
struct Depot {
    handler: String,
    pool: Option<Pool>,
    next: AtomicI32,
    agent: ureq::Agent,
    customs: CustomsUpstream,
}

/// A Python process that responds after 50 ms. It ends with this process.
struct CustomsUpstream {
    _process: Option<Child>,
    url: String,
}

fn main() -> Result<(), DepotError> {
    // Rocket reads its settings, such as ROCKET_WORKERS, from the environment.
    rocket::execute(serve())
}

async fn serve() -> Result<(), DepotError> {
    let handler = option("HANDLER");
    let store = option("STORE");
    let depot = Depot {
        pool: match store.as_str() {
            "none" => None,
            _ => Some(open(&store).await?),
        },
        next: 0.into(),
        agent: ureq::AgentBuilder::new().max_idle_connections_per_host(64).build(),
        customs: start_customs(&handler)?,
        handler,
    };
    rocket::custom(Config::figment())
        .manage(depot)
        .mount("/", routes![index])
        .launch()
        .await?;
    Ok(())
}

fn option(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// Starts the upstream if the handler needs it.
fn start_customs(handler: &str) -> Result<CustomsUpstream, DepotError> {
    if !handler.starts_with("customs") {
        return Ok(CustomsUpstream {
            _process: None,
            url: String::new(),
        });
    }
    let mut process = Command::new("python3")
        .args(["../slow-upstream/upstream.py", "50"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut port = String::new();
    let stdout = process.stdout.as_mut().ok_or("the upstream has no stdout")?;
    BufReader::new(stdout).read_line(&mut port)?;
    Ok(CustomsUpstream {
        url: format!("http://127.0.0.1:{}/customs", port.trim()),
        _process: Some(process),
    })
}

/// Connects to PostgreSQL and creates the table of parcels.
async fn open(store: &str) -> Result<Pool, DepotError> {
    let (host, port) = store.split_once(':').ok_or("STORE is not HOST:PORT")?;
    let mut config = tokio_postgres::Config::new();
    config
        .host(host)
        .port(port.parse()?)
        .user("bars")
        .dbname("bars");
    let manager = Manager::new(config, tokio_postgres::NoTls);
    let pool = Pool::builder(manager)
        .max_size(option("POOL").parse()?)
        .build()?;
    let sql = format!(
        "CREATE TABLE parcels AS SELECT id, 0 AS scans FROM generate_series(1, {PARCELS}) AS id;
         ALTER TABLE parcels ADD PRIMARY KEY (id);"
    );
    let client = pool.get().await?;
    client.batch_execute(&sql).await?;
    client.batch_execute("VACUUM ANALYZE parcels").await?;
    drop(client);
    Ok(pool)
}

#[get("/")]
async fn index(depot: &State<Depot>) -> Result<&'static str, rocket::response::Debug<DepotError>> {
    work(depot).await?;
    Ok("Hello World")
}

async fn work(depot: &Depot) -> Result<(), DepotError> {
    match depot.handler.as_str() {
        "hello" => {}
        "sleep" => sleep(CALL).await,
        "blocking" => spawn_blocking(|| thread::sleep(CALL)).await?,
        "hash" => hash(),
        "customs" => {
            let (agent, url) = (depot.agent.clone(), depot.customs.url.clone());
            spawn_blocking(move || declare(&agent, &url)).await??;
        }
        "customs-on-worker" => declare(&depot.agent, &depot.customs.url)?,
        "report" => {
            let client = client(depot).await?;
            client.execute("SELECT pg_sleep(0.02)", &[]).await?;
        }
        "scan" => {
            let next = depot.next.fetch_add(7919, Ordering::Relaxed);
            scan(depot, 1 + next.rem_euclid(PARCELS)).await?;
        }
        "scan-one" => scan(depot, 1).await?,
        other => panic!("unknown handler {other}"),
    }
    Ok(())
}

/// Calls the upstream and blocks the thread until it responds.
fn declare(agent: &ureq::Agent, url: &str) -> Result<(), DepotError> {
    agent.get(url).call()?.into_string()?;
    Ok(())
}

async fn client(depot: &Depot) -> Result<Client, DepotError> {
    let pool = depot.pool.as_ref().ok_or("this handler needs a store")?;
    Ok(pool.get().await?)
}

/// Updates a parcel in a transaction that takes 10 ms.
async fn scan(depot: &Depot, parcel: i32) -> Result<(), DepotError> {
    let mut client = client(depot).await?;
    let transaction = client.transaction().await?;
    let sql = "UPDATE parcels SET scans = scans + 1 WHERE id = $1";
    transaction.execute(sql, &[&parcel]).await?;
    sleep(CALL / 2).await;
    transaction.commit().await?;
    Ok(())
}

/// Uses CPU time like a proof of work.
fn hash() {
    let mut sum = Sha256::digest(b"parcel");
    for _ in 0..20_000 {
        sum = Sha256::digest(sum);
    }
    std::hint::black_box(sum);
}
