//! The store behind the server: its processes, and what it says of itself.

#[cfg_attr(
    not(any(feature = "cassandra", feature = "postgresql")),
    expect(dead_code, reason = "without a client there is nothing to connect for")
)]
mod asking;
#[cfg(feature = "cassandra")]
mod cassandra;
#[cfg(feature = "cassandra")]
mod cql;
#[cfg(feature = "postgresql")]
mod postgresql;
#[cfg(test)]
mod testing;

pub(crate) use asking::{Asking, MOST_WRITTEN};

use crate::Root;
use crate::listener::{Listeners, find};
use crate::samples::Samples;
use crate::sides::Side;
use crate::watch::{LastRead, WatchedStore};

/// Begins to read the processes of a store.
///
/// # Errors
/// They are not on this machine, may not be looked at, or are gone: one line for the record.
pub(crate) fn open(
    samples: &mut Samples,
    root: &Root,
    store: &WatchedStore,
    shown: &LastRead,
) -> Result<Side, String> {
    let pids = match store.pid {
        Some(pid) => vec![pid],
        None => processes(root, store)?,
    };
    let own = [std::process::id()];
    // Where floodmark is the store, as in tests, it is no stranger to it.
    let strangers = if pids == own { &[][..] } else { &own };
    Side::open(samples, root, "store", &pids, strangers, shown)
        .map_err(|error| format!("store: {}: process {pids:?}: {error}", store.name))
}

/// The processes that listen where the store is.
fn processes(root: &Root, store: &WatchedStore) -> Result<Vec<u32>, String> {
    let (name, address) = (&store.name, store.address);
    match find(root, address) {
        Listeners::Processes(pids) => Ok(pids),
        Listeners::Hidden => Err(format!(
            "store: {name}: the process that listens on {address} may not be looked at (another user's, or in a container); \
             run floodmark as that user or as root"
        )),
        Listeners::Nobody => Err(format!(
            "store: {name}: no process here listens on {address}, so its CPU, memory and threads are not known (it is on \
             another machine, or in another network namespace)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{EVERY, Sampler};
    use crate::watch::Watch;
    use std::net::TcpListener;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    fn store(address: std::net::SocketAddr, pid: Option<u32>) -> WatchedStore {
        WatchedStore {
            name: "bars".to_owned(),
            kind: None,
            address,
            pid,
        }
    }

    fn child(program: &str) -> Child {
        Command::new("sh").args(["-c", program]).spawn().unwrap()
    }

    #[test]
    fn its_processes_are_read_beside_the_server_and_apart_from_it() {
        let (mut server, mut burning) = (child("sleep 60"), child("while :; do :; done"));
        let address = "127.0.0.1:1".parse().unwrap();
        let watch = Watch {
            server_pid: Some(server.id()),
            store: Some(store(address, Some(burning.id()))),
            ..Watch::default()
        };
        let sampler = Sampler::start_at(Instant::now(), EVERY, watch.clone());
        sampler.measuring();
        std::thread::sleep(Duration::from_millis(600));
        let shown = sampler.store_cpu().unwrap();
        burning.kill().unwrap();
        burning.wait().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let (observed, missing) = sampler.stop();
        let sum = |subject: &str, metric: &str| -> f64 {
            let mut all = observed.observations.iter();
            let series = all.find(|o| o.subject == subject && o.metric == metric);
            let series = series.unwrap_or_else(|| panic!("no {subject} {metric}"));
            series.values.iter().sum()
        };
        let used = sum("store", "user") + sum("store", "system");
        assert!(
            used > 0.05 && shown.user > Duration::ZERO,
            "{used} {shown:?}"
        );
        assert!(sum("store", "on_cpu") > 0.05);
        assert!(sum("store", "run_delay") >= 0.0 && sum("store", "rss") > 0.0);
        assert!(sum("server", "user") < used / 2.0);
        let seen = observed.store.as_ref().unwrap();
        assert_eq!(
            (seen.name.as_str(), &seen.pids),
            ("sh", &vec![burning.id()])
        );
        assert_eq!(observed.server.as_ref().unwrap().pids, [server.id()]);
        // What is read seldom may not have been read again; what was ended with one line.
        let ended = |line: &&String| line.starts_with("store: ") && line.contains("values only");
        assert_eq!(missing.iter().filter(ended).count(), 1, "{missing:?}");

        // One that is dead already is said to be.
        let (observed, missing) = Sampler::start_at(Instant::now(), EVERY, watch).stop();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(observed.store.is_none() && observed.server.is_some());
        let gone = |line: &String| line.starts_with("store: bars: ") && line.contains("is gone");
        assert!(missing.iter().any(gone), "{missing:?}");
    }

    #[test]
    fn found_by_where_it_listens_or_said_why_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let root = Root::host();
        assert_eq!(
            processes(&root, &store(address, None)),
            Ok(vec![std::process::id()])
        );
        drop(listener);
        let error = processes(&root, &store(address, None)).unwrap_err();
        assert!(error.starts_with("store: bars: no process"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
        let line = "   1: 0100007F:2382 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1\n";
        std::fs::write(folder.path().join("proc/net/tcp"), line).unwrap();
        let hidden = store("127.0.0.1:9090".parse().unwrap(), None);
        let error = processes(&Root::at(folder.path()), &hidden).unwrap_err();
        assert!(error.contains("may not be looked at"), "{error}");
    }
}
