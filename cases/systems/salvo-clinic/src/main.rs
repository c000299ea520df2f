//! Appointments of a clinic on Salvo and PostgreSQL. See system.toml for the environment variables.

use std::env;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use deadpool_postgres::{Client, Manager, Pool};
use salvo::prelude::*;
use salvo::rate_limiter::{BasicQuota, FixedGuard, MokaStore, RateLimiter, RemoteIpIssuer};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

type ClinicError = Box<dyn std::error::Error + Send + Sync>;

const CALL: Duration = Duration::from_millis(20);

/// State of the applications.
struct Clinic {
    app: String,
    pool: Option<Pool>,
    doctors: u32,
    next: AtomicU32,
    client: reqwest::Client,
    lab: String,
}

fn main() -> Result<(), ClinicError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(number("WORKERS"))
        .max_blocking_threads(number("BLOCKING"))
        .enable_all()
        .build()?
        .block_on(serve())
}

async fn serve() -> Result<(), ClinicError> {
    let clinic = Clinic {
        app: option("APP"),
        pool: match option("STORE").as_str() {
            "none" => None,
            store => Some(open(store).await?),
        },
        doctors: number("DOCTORS") as u32,
        next: AtomicU32::new(0),
        client: reqwest::Client::builder()
            .pool_max_idle_per_host(number("IDLE"))
            .build()?,
        lab: env::var("LAB").unwrap_or_default(),
    };
    let mut router = Router::new().get(clinic);
    let rate = number("RATE");
    if rate > 0 {
        router = router.hoop(RateLimiter::new(
            FixedGuard::new(),
            MokaStore::new(),
            RemoteIpIssuer,
            BasicQuota::per_second(rate),
        ));
    }
    let acceptor = TcpListener::new(option("LISTEN")).try_bind().await?;
    Server::new(acceptor)
        .max_connections(number("MAX_CONNECTIONS"))
        .try_serve(router)
        .await?;
    Ok(())
}

fn option(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn number(name: &str) -> usize {
    option(name).parse().expect(name)
}

/// Connects to PostgreSQL and creates the table of doctors.
async fn open(store: &str) -> Result<Pool, ClinicError> {
    let (host, port) = store.split_once(':').ok_or("STORE is not HOST:PORT")?;
    let mut config = tokio_postgres::Config::new();
    config
        .host(host)
        .port(port.parse()?)
        .user("bars")
        .dbname("bars");
    let pool = Pool::builder(Manager::new(config, tokio_postgres::NoTls))
        .max_size(number("POOL"))
        .build()?;
    let sql = "CREATE TABLE doctors AS
                 SELECT id, 0 AS appointments FROM generate_series(1, 10000) AS id;
               ALTER TABLE doctors ADD PRIMARY KEY (id);";
    pool.get().await?.batch_execute(sql).await?;
    Ok(pool)
}

#[handler]
impl Clinic {
    async fn handle(&self, response: &mut Response) {
        match self.work().await {
            Ok(()) => response.render("Hello World"),
            Err(error) => {
                response.status_code(StatusCode::INTERNAL_SERVER_ERROR);
                response.render(error.to_string());
            }
        }
    }

    async fn work(&self) -> Result<(), ClinicError> {
        match self.app.as_str() {
            "hello" => {}
            "remind" => sleep(CALL).await,
            "scan" => spawn_blocking(|| thread::sleep(CALL)).await?,
            "hash" => hash(),
            "lab" => {
                let result = self.client.get(&self.lab).send().await?;
                result.error_for_status()?.text().await?;
            }
            "search" => {
                self.database()
                    .await?
                    .execute("SELECT pg_sleep(0.02)", &[])
                    .await?;
            }
            "book" => {
                let next = self.next.fetch_add(7919, Ordering::Relaxed);
                self.book(1 + (next % self.doctors) as i32).await?;
            }
            other => panic!("unknown application {other}"),
        }
        Ok(())
    }

    async fn database(&self) -> Result<Client, ClinicError> {
        let pool = self.pool.as_ref().ok_or("this application needs a store")?;
        Ok(pool.get().await?)
    }

    /// Adds an appointment in a transaction that takes 10 ms.
    async fn book(&self, doctor: i32) -> Result<(), ClinicError> {
        let mut client = self.database().await?;
        let transaction = client.transaction().await?;
        let sql = "UPDATE doctors SET appointments = appointments + 1 WHERE id = $1";
        transaction.execute(sql, &[&doctor]).await?;
        sleep(CALL / 2).await;
        transaction.commit().await?;
        Ok(())
    }
}

/// Uses CPU time like a slow hash of a password.
fn hash() {
    let mut sum = Sha256::digest(b"patient");
    for _ in 0..10_000 {
        sum = Sha256::digest(sum);
    }
    std::hint::black_box(sum);
}
