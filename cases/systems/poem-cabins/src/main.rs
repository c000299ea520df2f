//! Cabin rental service on Poem, r2d2 and PostgreSQL. See system.toml for the environment
//! variables.

use std::env;
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::sleep;
use std::time::Duration;

use flate2::{write::GzEncoder, Compression};
use poem::http::StatusCode;
use poem::listener::TcpListener;
use poem::{Response, Server};
use postgres::NoTls;
use r2d2::Pool;
use r2d2_postgres::PostgresConnectionManager;
use sha2::{Digest, Sha256};
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

type Work = Box<dyn Fn() -> Result<(), Box<dyn Error>> + Send + Sync>;
type Database = Pool<PostgresConnectionManager<NoTls>>;

const CABINS: i32 = 50_000;

fn main() -> Result<(), Box<dyn Error>> {
    let work = Arc::new(work(&setting::<String>("HANDLER")?)?);
    let is_logged: bool = setting("LOG")?;
    let address = format!("{}:{}", setting::<String>("HOST")?, setting::<u16>("PORT")?);
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(setting("THREADS")?)
        .build()?;
    // The work blocks a thread, so it runs on Tokio's pool for blocking calls.
    let respond = poem::endpoint::make(move |request| {
        let work = work.clone();
        async move {
            let run = move || {
                let result = work().map_err(|error| error.to_string());
                if is_logged {
                    println!(
                        "{} {} {}",
                        request.remote_addr(),
                        request.method(),
                        request.uri()
                    );
                }
                result
            };
            match spawn_blocking(run).await {
                Ok(Ok(())) => Response::builder()
                    .content_type("text/plain")
                    .body("Hello World"),
                Ok(Err(error)) => failure(error),
                Err(error) => failure(error.to_string()),
            }
        }
    });
    Ok(runtime.block_on(Server::new(TcpListener::bind(address)).run(respond))?)
}

fn failure(error: String) -> Response {
    Response::builder()
        .status(StatusCode::INTERNAL_SERVER_ERROR)
        .body(error)
}

/// Parses an environment variable.
fn setting<T: FromStr>(name: &str) -> Result<T, Box<dyn Error>> {
    let value = env::var(name)?;
    value
        .parse()
        .map_err(|_| format!("{name}: invalid value \"{value}\"").into())
}

/// Returns the work of one request.
fn work(handler: &str) -> Result<Work, Box<dyn Error>> {
    Ok(match handler {
        "hello" => Box::new(|| Ok(())),
        "pause" => Box::new(|| {
            sleep(Duration::from_millis(20));
            Ok(())
        }),
        "quote" => Box::new(|| {
            let mut sum = [0; 32];
            for _ in 0..5000 {
                sum = Sha256::digest(sum).into();
            }
            black_box(sum);
            Ok(())
        }),
        "calendar" => calendar(setting("LOCKED")?),
        "boat" => boat(setting("BOATS")?),
        "brochure" => brochure(setting("LEVEL")?),
        "guest-book" => guest_book()?,
        "weather" => weather(setting("IDLE")?)?,
        "report" => report()?,
        "review" => review()?,
        "find" => find(setting("INDEX")?)?,
        _ => return Err(format!("unknown handler \"{handler}\"").into()),
    })
}

/// Returns work that counts the free days of 2,000 cabins. If `is_locked`, it holds a mutex on the
/// calendar.
fn calendar(is_locked: bool) -> Work {
    let cabins: Vec<[u8; 366]> = (0..2000)
        .map(|_| std::array::from_fn(|_| fastrand::u8(..)))
        .collect();
    let mutex = Mutex::new(());
    Box::new(move || {
        let _guard = is_locked.then(|| mutex.lock());
        let party = fastrand::u32(2..9);
        let free = |day: &&u8| (u32::from(**day) * 7 + 3) % party == 0;
        let days: usize = cabins
            .iter()
            .map(|days| days.iter().filter(free).count())
            .sum();
        black_box(days);
        Ok(())
    })
}

/// Returns work of 20 ms that needs one of `count` boats.
fn boat(count: usize) -> Work {
    let free = Mutex::new(count);
    let returned = Condvar::new();
    Box::new(move || {
        let lock = || free.lock().map_err(|error| error.to_string());
        let mut left = returned
            .wait_while(lock()?, |left| *left == 0)
            .map_err(|error| error.to_string())?;
        *left -= 1;
        drop(left);
        sleep(Duration::from_millis(20));
        *lock()? += 1;
        returned.notify_one();
        Ok(())
    })
}

/// Returns work that compresses a brochure with 2,000 lines.
fn brochure(level: u32) -> Work {
    let mut random = fastrand::Rng::with_seed(1);
    let text: String = (0..2000)
        .map(|i| {
            format!(
                "cabin {i}: {} beds, {} EUR\n",
                random.u8(1..9),
                random.u16(..)
            )
        })
        .collect();
    Box::new(move || {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
        encoder.write_all(text.as_bytes())?;
        black_box(encoder.finish()?);
        Ok(())
    })
}

/// Returns work that appends a line to the guest book while it holds a mutex. If the environment
/// variable `DURABLE` is true, it flushes the line to disk.
fn guest_book() -> Result<Work, Box<dyn Error>> {
    let is_durable: bool = setting("DURABLE")?;
    let file = Mutex::new(File::create(env::var("RUN")? + "/guests")?);
    Ok(Box::new(move || {
        let mut file = file.lock().map_err(|error| error.to_string())?;
        file.write_all(b"We had a lovely week.\n")?;
        if is_durable {
            file.sync_data()?;
        }
        Ok(())
    }))
}

/// Returns work that calls the upstream. The client keeps at most `idle` idle connections open.
fn weather(idle: usize) -> Result<Work, Box<dyn Error>> {
    let url = env::var("UPSTREAM")?;
    let agent = ureq::builder()
        .max_idle_connections(idle)
        .max_idle_connections_per_host(idle)
        .build();
    Ok(Box::new(move || {
        agent.get(&url).call()?.into_string()?;
        Ok(())
    }))
}

/// Connects to the database and creates the tables.
fn connect() -> Result<Database, Box<dyn Error>> {
    let store = env::var("STORE")?;
    let commit = env::var("SYNCHRONOUS_COMMIT")?;
    let config = format!("postgresql://bars@{store}/bars?options=-csynchronous_commit%3D{commit}");
    let manager = PostgresConnectionManager::new(config.parse()?, NoTls);
    let database = Pool::builder().max_size(setting("POOL")?).build(manager)?;
    database.get()?.batch_execute(&format!(
        "CREATE TABLE cabins AS SELECT id, 'lake ' || id AS name
             FROM generate_series(1, {CABINS}) AS id;
         ALTER TABLE cabins ADD PRIMARY KEY (id);
         CREATE TABLE reviews (id bigserial PRIMARY KEY, cabin integer);"
    ))?;
    Ok(database)
}

/// Returns work that runs a query that takes 20 ms.
fn report() -> Result<Work, Box<dyn Error>> {
    let database = connect()?;
    Ok(Box::new(move || {
        database.get()?.execute("SELECT pg_sleep(0.02)", &[])?;
        Ok(())
    }))
}

/// Returns work that inserts a review.
fn review() -> Result<Work, Box<dyn Error>> {
    let database = connect()?;
    Ok(Box::new(move || {
        let cabin = fastrand::i32(1..=CABINS);
        database
            .get()?
            .execute("INSERT INTO reviews (cabin) VALUES ($1)", &[&cabin])?;
        Ok(())
    }))
}

/// Returns work that finds a cabin by its name, which has an index if `is_indexed`.
fn find(is_indexed: bool) -> Result<Work, Box<dyn Error>> {
    let database = connect()?;
    if is_indexed {
        database
            .get()?
            .batch_execute("CREATE INDEX ON cabins (name)")?;
    }
    database.get()?.batch_execute("VACUUM ANALYZE cabins")?;
    Ok(Box::new(move || {
        let name = format!("lake {}", fastrand::i32(1..=CABINS));
        database
            .get()?
            .query_one("SELECT id FROM cabins WHERE name = $1", &[&name])?;
        Ok(())
    }))
}
