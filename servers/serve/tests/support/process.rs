//! A server in a process of its own, which a test can kill. A test binary that uses it has an
//! ignored test `child` that calls [`run_child`].

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use floodmark_serve::{ServeError, Settings, serve};
use tokio::sync::oneshot;

use super::TestClient;

/// Environment variable with the path of the server's state file, journal or store.
const SERVED_PATH: &str = "FLOODMARK_TEST_PATH";

/// Serves until stdin is closed. A line on stdin limits the file size, so that writes fail. Prints
/// the address, failures, `stopping`, and at the end `stopped` or the cause of a failure.
pub fn run_child(settings: impl FnOnce(PathBuf) -> Settings) {
    let path = env::var_os(SERVED_PATH).expect("started by another test");
    let (stop, stopped) = oneshot::channel::<()>();
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            line.unwrap();
            limit_file_size();
        }
        println!("stopping");
        // The server may have ended already.
        let _ = stop.send(());
    });
    let shutdown = async {
        let _ = stopped.await;
    };
    let settings = Settings {
        on_failure: |error| println!("noticed: {error}"),
        ..settings(path.into())
    };
    let served = serve(settings, shutdown, |at| {
        println!("\nlistening on {at}");
        std::io::stdout().flush().unwrap();
    });
    match served {
        Ok(_) => println!("stopped"),
        Err(
            error @ (ServeError::StateFailed(_)
            | ServeError::JournalFailed(_)
            | ServeError::StoreFailed { .. }),
        ) => {
            println!("failed: {error}");
        }
        Err(error) => panic!("{error}"),
    }
}

fn limit_file_size() {
    let limit = libc::rlimit {
        rlim_cur: 100,
        rlim_max: 100,
    };
    // SAFETY: the calls get valid arguments. Without a handler, the signal would end the process.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}

/// A server process that is killed on drop.
pub struct KillableServer {
    child: Child,
    output: BufReader<ChildStdout>,
    pub address: SocketAddr,
}

impl Drop for KillableServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl KillableServer {
    /// Starts the test `child` of this binary without waiting for the server.
    pub fn spawn(path: &Path) -> Child {
        Command::new(env::current_exe().unwrap())
            .args(["child", "--exact", "--ignored", "--nocapture"])
            .env(SERVED_PATH, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Starts a server and waits until it accepts connections.
    pub fn start(path: &Path) -> Self {
        let mut child = Self::spawn(path);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let address = (&mut output)
            .lines()
            .find_map(|line| Some(line.ok()?.strip_prefix("listening on ")?.parse().unwrap()))
            .expect("the server started");
        KillableServer {
            child,
            output,
            address,
        }
    }

    /// Makes the server's subsequent writes fail.
    pub fn fail_writes(&mut self) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(b"fail\n").unwrap();
    }

    /// Stops the server. Returns its output before and after the stop request.
    pub fn stop_failed(self) -> (String, String) {
        let text = self.stop();
        let (before, after) = text.split_once("stopping").expect("the server was stopped");
        (before.to_owned(), after.to_owned())
    }

    /// Stops the server and returns its remaining output.
    pub fn stop(mut self) -> String {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        text
    }

    /// Runs `client` on each of several connections, kills the server at a random moment under
    /// load, and returns the results. `client` adds its acknowledged requests to the counter, and
    /// returns when its connection ends.
    pub fn kill_under_load<T: Send>(
        self,
        clients: usize,
        random: &mut RandomDelay,
        client: impl Fn(usize, TestClient, &AtomicU64) -> T + Sync,
    ) -> Vec<T> {
        let acknowledged = AtomicU64::new(0);
        let (client, count) = (&client, &acknowledged);
        thread::scope(|scope| {
            // A failed assertion in this closure drops the server, which ends the clients.
            let server = self;
            // Connect all clients before the server can be killed.
            let connections = (0..clients).map(|_| TestClient::connect(server.address));
            let connections = Vec::from_iter(connections);
            let threads = connections.into_iter().enumerate();
            let threads =
                threads.map(|(n, connection)| scope.spawn(move || client(n, connection, count)));
            let threads = Vec::from_iter(threads);
            // Wait for a response, so that the server is under load even on a slow disk.
            let until = Instant::now() + Duration::from_secs(30);
            while count.load(Ordering::Relaxed) == 0 {
                assert!(Instant::now() < until, "nothing was acknowledged");
                thread::sleep(Duration::from_millis(1));
            }
            random.sleep(Duration::from_millis(300));
            drop(server);
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            results.collect()
        })
    }
}

/// Random delays (Marsaglia's xorshift).
pub struct RandomDelay(u32);

impl RandomDelay {
    pub fn new() -> Self {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        RandomDelay(seed.subsec_nanos() | 1)
    }

    /// Sleeps for less than `most`.
    pub fn sleep(&mut self, most: Duration) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        let most = most.as_micros() as u64;
        thread::sleep(Duration::from_micros(u64::from(self.0) % most));
    }
}
