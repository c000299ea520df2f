//! Servers for tests of `floodmark disk`. Each server is another process of this test program.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::sync::Mutex;
use std::{env, thread};

use floodmark_record::disk::{DiskResult, DiskRow};

const METHOD: &str = "FLOODMARK_TEST_METHOD";
const ADDRESS: &str = "FLOODMARK_TEST_ADDRESS";
const DIRECTORY: &str = "FLOODMARK_TEST_DIRECTORY";

/// Returns a server command that runs an ignored test of this program. `method` selects how the
/// server stores data, correctly or not.
pub fn server_command(test: &str, method: &str) -> Vec<String> {
    let program = env::current_exe().unwrap();
    [
        "env",
        &format!("{METHOD}={method}"),
        &format!("{ADDRESS}={{address}}"),
        &format!("{DIRECTORY}={{run}}"),
        program.to_str().unwrap(),
        test,
        "--exact",
        "--ignored",
        "--nocapture",
    ]
    .map(str::to_owned)
    .into()
}

/// Serves until the process is killed. The process must have been started with a
/// [`server_command`]. `open` opens the state in a directory, and `serve` serves one connection and
/// gets the name of the method.
pub fn run_server<S: Send>(
    open: impl FnOnce(&str) -> S,
    serve: impl Fn(TcpStream, &Mutex<S>, &str) + Sync,
) {
    let variable = |name| env::var(name).expect("started by another test");
    let (method, directory) = (variable(METHOD), variable(DIRECTORY));
    let state = Mutex::new(open(&directory));
    File::open(directory).unwrap().sync_all().unwrap();
    let listener = TcpListener::bind(variable(ADDRESS)).unwrap();
    thread::scope(|scope| {
        for client in listener.incoming() {
            let (state, method, serve) = (&state, &method, &serve);
            scope.spawn(move || serve(client.unwrap(), state, method));
        }
    });
}

/// Syncs a file, except with the method `no-sync`. Ends the process if the sync fails, except with
/// the method `ignored-error`.
pub fn sync(file: &File, method: &str) {
    let synced = match method {
        "no-sync" => Ok(()),
        _ => file.sync_data(),
    };
    if synced.is_err() && method != "ignored-error" {
        eprintln!("the disk failed");
        std::process::exit(1);
    }
}

/// Parses the output of `floodmark disk --json`.
pub fn result(output: &Output) -> DiskResult {
    let result = serde_json::from_slice(&output.stdout);
    result.unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Returns the names of the rows with failures.
pub fn failed(rows: &[DiskRow]) -> Vec<&str> {
    let failed = rows.iter().filter(|row| row.failed > 0);
    failed
        .map(|row| row.fault.as_deref().unwrap_or("power loss"))
        .collect()
}
