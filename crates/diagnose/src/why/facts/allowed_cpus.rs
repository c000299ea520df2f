//! Which CPUs client, server and store may use.

use std::collections::BTreeSet;

use floodmark_record::host::Environment;
use floodmark_record::run::Run;
use floodmark_record::watch::Server;

/// Numbers of CPUs, and which roles share them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllowedCpus {
    /// Number of CPUs on the client's host, as far as known.
    pub client_host: f64,
    /// Number of CPUs on the server's host, as far as known.
    pub server_host: f64,
    /// Number of CPUs that the client may use.
    pub client: f64,
    /// Number of CPUs that the server may use.
    pub server: f64,
    /// Number of CPUs that the store may use.
    pub store: f64,
    /// Whether the client may use none of the CPUs of server and store.
    pub client_has_own: bool,
    /// Whether server and store may use none of the client's CPUs.
    pub server_has_own: bool,
    /// Whether the store may use none of the server's CPUs.
    pub store_has_own: bool,
}

impl AllowedCpus {
    /// Derives the CPUs of a run from its placement or, without one, from the CPUs that the kernel
    /// allowed to each process.
    pub fn of(run: &Run, environment: &Environment) -> Self {
        let own = environment.cpus.max(1);
        let client = f64::from(run.client_cpus(own));
        let all = AllowedCpus {
            client_host: f64::from(own),
            server_host: f64::from(own),
            client,
            server: f64::from(own),
            store: f64::from(own),
            client_has_own: false,
            server_has_own: false,
            store_has_own: false,
        };
        let seen = |of: &Option<Server>| of.as_ref()?.seen.allowed_cpus.clone();
        let (server, store) = (seen(&run.server), seen(&run.store));
        let count = |cpus: &Option<BTreeSet<u32>>, default: f64| {
            cpus.as_ref().map_or(default, |cpus| cpus.len() as f64)
        };
        if let Some(place) = &run.place {
            let server = f64::from(place.server.cpu_count);
            return AllowedCpus {
                server,
                store: server,
                client_has_own: place.client.cpus.is_some(),
                server_has_own: place.server.cpus.is_some(),
                ..all
            };
        }
        if let Some(remote) = &run.remote {
            let host = f64::from(remote.environment.cpus.max(1));
            return AllowedCpus {
                server_host: host.max(count(&server, host)),
                server: count(&server, host),
                store: count(&store, host),
                ..all
            };
        }
        let client_cpus = environment.allowed_cpus.as_ref();
        let client_cpus = client_cpus.filter(|_| run.agents.is_empty());
        let servers = [&server, &store].into_iter().flatten();
        let host = f64::from(run.host_cpus(environment));
        let is_separate = client_cpus.is_some_and(|client| {
            let mut servers = servers;
            server.is_some() && servers.all(|cpus| cpus.is_disjoint(client))
        });
        AllowedCpus {
            client_host: host,
            server_host: host,
            client,
            server: count(&server, all.server),
            store: count(&store, all.store),
            client_has_own: is_separate,
            server_has_own: is_separate,
            store_has_own: match (&server, &store) {
                (Some(server), Some(store)) => server.is_disjoint(store),
                _ => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::cause::Cause;

    use super::*;
    use crate::why::facts::RunFacts;
    use crate::why::tests::run_with;

    /// Returns a run whose server may use the CPUs `server`, and the environment of a client that
    /// may use the CPUs `client`. In total, `busy` CPUs are in use.
    fn restricted<const C: usize, const S: usize>(
        busy: f64,
        client: [u32; C],
        server: [u32; S],
    ) -> (Run, Environment) {
        let mut run = run_with(busy, 0.99, 0.99);
        run.server.as_mut().unwrap().seen.allowed_cpus = Some(server.into());
        let environment = Environment {
            cpus: client.len() as u32,
            allowed_cpus: Some(client.into()),
            ..Environment::default()
        };
        (run, environment)
    }

    fn available(run: &Run, environment: &Environment) -> [f64; 2] {
        let facts = RunFacts::of(run, environment).unwrap();
        let server = facts.server.as_ref().unwrap();
        [
            facts.available_to_client(),
            facts.available_to_server_side(server),
        ]
    }

    #[test]
    fn separate_cpus_are_recognized_without_a_placement() {
        let (run, environment) = restricted(1.5, [1], [0]);
        assert_eq!(available(&run, &environment), [1.0, 1.0]);
        let allowed = AllowedCpus::of(&run, &environment);
        assert_eq!((allowed.client_host, allowed.server_host), (2.0, 2.0));
        let found = crate::why::verdict(&run, &environment);
        assert_eq!(found.unwrap().cause, Cause::ServerCpu);
    }

    #[test]
    fn a_restricted_server_is_alone_if_the_client_can_move() {
        // The client uses 0.1 CPUs, and three CPUs are free for it.
        let (run, environment) = restricted(1.2, [0, 1, 2, 3], [2]);
        assert_eq!(available(&run, &environment)[1], 1.0);
        let facts = RunFacts::of(&run, &environment).unwrap();
        let (idle, cpus) = facts.idle_cpus().unwrap();
        assert!(idle < 0.02 && cpus == 1.0, "{idle} of {cpus}");
    }

    #[test]
    fn shared_cpus_are_not_separate() {
        let (run, environment) = restricted(1.2, [0, 1], [0, 1]);
        let [client, server] = available(&run, &environment);
        assert!((client - 1.01).abs() < 0.01, "{client}");
        assert!((server - 1.9).abs() < 0.01, "{server}");
        // Nothing is known about an older record.
        let mut run = run;
        run.server.as_mut().unwrap().seen.allowed_cpus = None;
        assert_eq!(available(&run, &environment), [client, server]);
    }

    #[test]
    fn a_store_on_other_cpus_takes_none_from_the_server() {
        let (mut run, environment) = restricted(1.9, [2, 3], [0]);
        run.store = run.server.clone();
        run.store.as_mut().unwrap().seen.allowed_cpus = Some([1].into());
        assert_eq!(available(&run, &environment)[1], 1.0);
        run.store.as_mut().unwrap().seen.allowed_cpus = Some([0].into());
        assert!(available(&run, &environment)[1] < 0.1);
    }
}
