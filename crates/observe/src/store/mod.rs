//! The store behind the server: its processes and its own statistics.

mod cassandra;
mod monitor;
#[cfg(feature = "postgresql")]
mod postgresql;
#[cfg(test)]
mod testing;

pub(crate) use monitor::{MAX_JSON_LENGTH, StoreMonitor};

#[cfg(test)]
mod tests {
    use crate::sampler::{EVERY, Sampler};
    use crate::targets::{MonitorTargets, MonitoredStore};
    use crate::testing::sum;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    fn store(address: std::net::SocketAddr, pid: Option<u32>) -> MonitoredStore {
        MonitoredStore {
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
    fn samples_the_store_separately_from_the_server() {
        let (mut server, mut burning) = (child("sleep 60"), child("while :; do :; done"));
        let address = "127.0.0.1:1".parse().unwrap();
        let watch = MonitorTargets {
            server_pid: Some(server.id()),
            store: Some(store(address, Some(burning.id()))),
            ..MonitorTargets::default()
        };
        let sampler = Sampler::start_at(Instant::now(), EVERY, watch.clone());
        sampler.measuring();
        std::thread::sleep(Duration::from_millis(600));
        let live = sampler.store_cpu().unwrap();
        burning.kill().unwrap();
        burning.wait().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let (observed, missing) = sampler.stop();
        let sum = |subject, name| sum(&observed, subject, name);
        let used = sum("store", "user") + sum("store", "system");
        assert!(used > 0.05 && live.user > Duration::ZERO, "{used} {live:?}");
        assert!(sum("store", "on_cpu") > 0.05);
        assert!(sum("store", "run_delay") >= 0.0 && sum("store", "rss") > 0.0);
        assert!(sum("server", "user") < used / 2.0);
        let seen = observed.store.as_ref().unwrap();
        assert_eq!(
            (seen.name.as_str(), &seen.pids),
            ("sh", &vec![burning.id()])
        );
        assert_eq!(observed.server.as_ref().unwrap().pids, [server.id()]);
        // Slow samplers may not have noticed yet that the store has ended, but there is always
        // exactly one line.
        let ended =
            |line: &&String| line.starts_with("store: ") && line.contains("sampling stopped");
        assert_eq!(missing.iter().filter(ended).count(), 1, "{missing:?}");

        // A store that has already ended is also reported.
        let (observed, missing) = Sampler::start_at(Instant::now(), EVERY, watch).stop();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(observed.store.is_none() && observed.server.is_some());
        let gone =
            |line: &String| line.starts_with("store: bars: ") && line.contains("does not exist");
        assert!(missing.iter().any(gone), "{missing:?}");
    }
}
