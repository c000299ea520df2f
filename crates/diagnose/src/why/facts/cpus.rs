//! The CPUs that the client, the server and the store may use, and the CPU time that they and other
//! programs use.

use std::collections::BTreeSet;

use floodmark_record::Metric;
use floodmark_record::events::ThreadUsage;
use floodmark_record::host::Environment;
use floodmark_record::metric::{HostFigure, ProcessFigure, Role};
use floodmark_record::run::Run;
use floodmark_record::watch::{Server, ServerThread};

use super::{RunFacts, ThreadGroupFacts, WindowSamples};
use crate::text::{percent, show_idle};
use crate::why::thresholds::{CONTENDED, MOST, NOTICEABLE, ONE, SATURATED, SPARE, same};

/// Numbers of CPUs, and which roles share them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllowedCpus {
    /// Known number of CPUs on the client's host: those that floodmark, the server or the store may
    /// use.
    pub client_host: f64,
    /// Known number of CPUs on the server's host.
    pub server_host: f64,
    /// Number of CPUs that the client may use.
    pub client: f64,
    /// Number of CPUs that the server may use.
    pub server: f64,
    /// Number of CPUs that the store may use.
    pub store: f64,
    /// Whether the client is excluded from the CPUs of the server and the store.
    pub client_has_own: bool,
    /// Whether the server and the store are excluded from the client's CPUs.
    pub server_has_own: bool,
    /// Whether the store is excluded from the server's CPUs.
    pub store_has_own: bool,
}

impl AllowedCpus {
    /// Derives the CPUs of a run from its placement or, if it has none, from the CPUs that the
    /// kernel allowed each process to use.
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

/// CPU use of one role.
pub struct CpuUse {
    /// Number of CPUs that the role may use.
    pub allowed: f64,
    /// Number of CPUs used.
    pub used: f64,
    /// Number of CPUs used in kernel mode.
    pub in_kernel: f64,
    /// Mean number of runnable threads that are waiting for a CPU.
    pub runnable: Option<f64>,
    /// CPU time per response, in µs.
    pub cpu_us: Option<f64>,
    pub busiest: Option<BusiestThread>,
}

impl CpuUse {
    /// Returns the share of the CPU time in user mode.
    pub fn in_user(&self) -> f64 {
        1.0 - self.in_kernel / self.used.max(1e-9)
    }
}

/// The busiest thread of the client, the server or the store.
pub struct BusiestThread {
    pub name: String,
    /// Share of the time that the thread was on a CPU.
    pub on_cpu: f64,
    /// Share of the time that the thread was runnable but waiting for a CPU.
    pub runnable: f64,
}

impl BusiestThread {
    /// Returns the share of the time that the thread was running or runnable.
    pub fn busy(&self) -> f64 {
        self.on_cpu + self.runnable
    }
}

impl RunFacts<'_> {
    /// Returns whether the client and the server run on separate CPUs or hosts.
    pub fn is_client_separate(&self) -> bool {
        self.run.remote.is_some()
            || self.client_here.is_none()
            || (self.allowed.client_has_own && self.allowed.server_has_own)
    }

    /// Returns how many of the server's CPUs the client uses.
    pub fn client_on_server_cpus(&self) -> f64 {
        if self.is_client_separate() {
            0.0
        } else {
            used(&self.client_here)
        }
    }

    /// Returns the number of idle CPUs and the total number of CPUs available to the server.
    /// Returns `None` without server metrics, because the server's host is then unknown.
    pub fn idle_cpus(&self) -> Option<(f64, f64)> {
        let server = self.server.as_ref()?;
        let AllowedCpus {
            server_host: cpus,
            server_has_own,
            store_has_own,
            ..
        } = self.allowed;
        let own_idle = server.allowed - server.used;
        let (idle, cpus) = match (server_has_own, store_has_own) {
            (true, true) => (own_idle, server.allowed),
            (true, false) => {
                let busy = server.used + used(&self.store);
                (server.allowed - busy, server.allowed)
            }
            (false, _) if server.allowed < cpus => {
                (own_idle.min(cpus - self.server_host_busy?), server.allowed)
            }
            (false, _) => (cpus - self.server_host_busy?, cpus),
        };
        Some((idle.max(0.0), cpus))
    }

    /// Returns how many more CPUs the server could use, and the total number of CPUs. CPUs that
    /// other programs use count as usable if the client, the server and the store get all the CPU
    /// time that they need.
    pub fn spare_cpus(&self) -> Option<(f64, f64)> {
        let (idle, cpus) = self.idle_cpus()?;
        let programs = self.other_programs();
        let programs = programs.filter(|_| !self.allowed.server_has_own && !self.lacks_cpu());
        Some((idle + programs.unwrap_or(0.0), cpus))
    }

    /// Returns the number of CPUs that programs outside the experiment use on the server's host.
    pub fn other_programs(&self) -> Option<f64> {
        let of_server = used(&self.server) + used(&self.store);
        let of_client = match self.run.remote {
            Some(_) => 0.0,
            None => used(&self.client_here),
        };
        let busy = self.server_host_busy? - self.stolen();
        Some((busy - of_server - of_client).max(0.0))
    }

    /// Returns the number of CPUs that the hypervisor gives to other guests.
    pub fn stolen(&self) -> f64 {
        let host = self.run.remote.as_ref().map(|_| Role::Server);
        self.samples
            .mean(Metric::Host(host, HostFigure::Steal))
            .unwrap_or(0.0)
    }

    /// Returns the CPU use of the client (on the coordinator's host), the server and the store.
    fn participants(&self) -> impl Iterator<Item = &CpuUse> + Clone {
        let participants = [&self.client_here, &self.server, &self.store];
        participants.into_iter().flatten()
    }

    /// Returns whether requests are in service while the client, the server and the store together
    /// have less than half a running or runnable thread, so CPU time cannot limit the run. Returns
    /// `false` if this is unknown.
    pub fn spends_time_elsewhere(&self) -> bool {
        let threads = |of: &CpuUse| of.used + of.runnable.unwrap_or(0.0);
        let threads: f64 = self.participants().map(threads).sum();
        let is_little = |requests: f64| threads < MOST * requests.min(1.0);
        self.server.is_some() && self.concurrency.is_some_and(is_little)
    }

    /// Returns whether the client, the server or the store needs more CPU time than it gets: one of
    /// their threads waits only for CPU time, together they could use all CPUs, or they wait for
    /// CPUs for longer than they use them while no CPU is idle. Exception: requests spend most of
    /// their time elsewhere.
    pub fn lacks_cpu(&self) -> bool {
        let participants = self.participants();
        let is_starved = |on_cpu: f64, runnable: f64, share: f64| {
            on_cpu + runnable >= share && runnable >= CONTENDED * on_cpu
        };
        let mut threads = participants.clone().filter_map(|of| of.busiest.as_ref());
        let used: f64 = participants.clone().map(|of| of.used).sum();
        let runnable: f64 = participants.filter_map(|of| of.runnable).sum();
        let busy = self.server_host_busy.unwrap_or(0.0);
        let is_crowded = runnable >= used
            && busy >= SATURATED * self.allowed.server_host
            && !self.spends_time_elsewhere();
        threads.any(|of| is_starved(of.on_cpu, of.runnable, SATURATED))
            || self.thread_groups.iter().any(|group| {
                group.workers() >= ONE.start
                    && group.never_waits()
                    && is_starved(group.on_cpu, group.runnable, MOST * group.workers())
            })
            || used + runnable >= SATURATED * self.allowed.server_host
            || is_crowded
    }

    /// Returns the number of CPUs available to the server or the store: those that others leave
    /// free, but at most those that the process may use.
    pub fn available_to_server_side(&self, process: &CpuUse) -> f64 {
        let server_side = used(&self.server) + used(&self.store) - process.used;
        let AllowedCpus {
            server_host,
            server_has_own,
            store_has_own,
            ..
        } = self.allowed;
        match (server_has_own, store_has_own) {
            (true, true) => self.available(process, 0.0, None),
            (true, false) => self.available(process, server_side, None),
            (false, _) => {
                let others = self.client_on_server_cpus() + server_side;
                self.available(process, others, Some(server_host))
            }
        }
    }

    /// Returns the number of CPUs available to the client.
    pub fn available_to_client(&self) -> f64 {
        let others = if self.is_client_separate() {
            0.0
        } else {
            used(&self.server) + used(&self.store)
        };
        let AllowedCpus {
            client_has_own,
            client_host,
            ..
        } = self.allowed;
        self.available(
            &self.client,
            others,
            (!client_has_own).then_some(client_host),
        )
    }

    /// Returns the number of CPUs available to a process: those that the other participants and the
    /// hypervisor leave free, but at most those that the process may use. If the CPUs are shared
    /// and the participants lack CPU time, the CPUs that other programs use do not count as free.
    /// `participants` is the number of CPUs that the other participants use. `shared` is the number
    /// of CPUs on the host if the participants share them, or `None` if only this side of the
    /// experiment may use its CPUs.
    ///
    /// Clocks differ, so the CPU use of others can appear to exceed the number of CPUs.
    fn available(&self, process: &CpuUse, participants: f64, shared: Option<f64>) -> f64 {
        const MINIMUM: f64 = 0.05;
        let (cpus, programs) = match shared {
            None => (process.allowed, None),
            Some(cpus) => (cpus, self.other_programs().filter(|_| self.lacks_cpu())),
        };
        let others = participants + programs.unwrap_or(0.0) + self.stolen();
        (cpus - others).min(process.allowed).max(MINIMUM)
    }

    /// Returns the busiest thread of the server.
    pub fn busiest_thread(&self) -> Option<&BusiestThread> {
        self.server.as_ref()?.busiest.as_ref()
    }

    /// Returns the thread groups that may consist of only this thread.
    pub fn groups_like<'f>(
        &'f self,
        thread: &'f BusiestThread,
    ) -> impl Iterator<Item = &'f ThreadGroupFacts> {
        self.thread_groups
            .iter()
            .filter(|group| ONE.contains(&group.workers()) && same(group.on_cpu, thread.on_cpu))
    }

    /// Returns the share of a thread's CPU time in system calls that write a file to disk, such as
    /// fsync.
    pub fn file_sync_share(&self, thread: &BusiestThread) -> f64 {
        let distance = |group: &ThreadGroupFacts| (group.on_cpu - thread.on_cpu).abs();
        let groups = self.groups_like(thread);
        let group = groups.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        group.map_or(0.0, ThreadGroupFacts::file_sync_share)
    }

    /// Returns the server's busiest thread if it is saturated: nearly always running or runnable,
    /// or running or runnable for at least half of the time and never idle. A thread that writes a
    /// file to disk counts as waiting for the disk, even while it uses a CPU.
    pub fn saturated_thread(&self) -> Option<&BusiestThread> {
        let thread = self.busiest_thread()?;
        let busy = thread.busy() * (1.0 - self.file_sync_share(thread));
        let mut groups = self.groups_like(thread);
        let is_saturated =
            busy >= SATURATED || (busy >= MOST && groups.any(ThreadGroupFacts::never_waits));
        is_saturated.then_some(thread)
    }

    /// Returns the number of CPUs whose time in system calls that write a file to disk counts as a
    /// wait for the disk. If no CPU is idle, the CPUs limit this time, not the disk.
    pub fn waits_in_file_sync(&self) -> f64 {
        let cpus = self.in_file_sync.filter(|_| self.has_spare_cpu());
        cpus.unwrap_or(0.0)
    }

    /// Returns whether the server's threads together use one CPU while most requests wait for a
    /// lock, as under an interpreter lock.
    pub fn locks_one_cpu(&self) -> bool {
        let waiting: f64 = self
            .thread_groups
            .iter()
            .map(ThreadGroupFacts::active_locks)
            .sum();
        let mut requests = self.in_flight.iter();
        (SATURATED..1.0 + NOTICEABLE).contains(&used(&self.server))
            && requests.any(|requests| waiting >= MOST * requests)
    }

    /// Returns whether the server could use more CPU time and its busiest thread is not saturated.
    pub fn has_spare_cpu(&self) -> bool {
        let is_spare = |(spare, cpus): (f64, f64)| spare >= SPARE * cpus;
        self.spare_cpus().is_some_and(is_spare) && self.saturated_thread().is_none()
    }

    /// Returns whether the server is the main consumer of its CPUs, and saturates either the CPUs
    /// or one thread. Only then can a part of the server's CPU time, such as TLS handshakes, limit
    /// the run.
    pub fn is_server_saturated(&self, server: &CpuUse) -> bool {
        let all = server.used + self.client_on_server_cpus() + used(&self.store);
        let cpus = server.used >= SATURATED * self.available_to_server_side(server);
        server.used >= MOST * all && (cpus || self.saturated_thread().is_some())
    }

    /// Returns the CPU utilization and a description of the saturated thread if there is not enough
    /// idle CPU time for a second thread. In that case, both the thread and the CPUs are saturated.
    pub fn thread_without_idle_cpu(&self) -> Option<(f64, String)> {
        let thread = self.saturated_thread()?;
        let (idle, cpus) = self.spare_cpus()?;
        // A second thread helps only if the idle CPU time exceeds a tenth of the used CPU time, and
        // if the first thread is closer to saturation than the CPUs are.
        let could_add = idle > NOTICEABLE * (cpus - idle) && thread.on_cpu >= (cpus - idle) / cpus;
        let has_one_cpu = self.server.as_ref()?.allowed <= 1.0;
        (!could_add || has_one_cpu).then(|| {
            let text = format!(
                "server thread {}: {} of its time on a CPU, {} runnable (schedstat); {}",
                thread.name,
                percent(thread.on_cpu),
                percent(thread.runnable),
                show_idle((idle, cpus))
            );
            ((cpus - idle) / cpus, text)
        })
    }

    /// Describes the idle CPUs and the server's busiest thread. Returns `None` if the number of
    /// idle CPUs is unknown.
    pub fn show_spare_cpu(&self) -> Option<String> {
        let (idle, _) = self.idle_cpus()?;
        let busiest = self.busiest_thread().map(|thread| {
            let on_cpu = percent(thread.on_cpu);
            format!("; busiest server thread: {on_cpu} of its time on a CPU")
        });
        Some(format!(
            "{idle:.2} CPUs idle{}",
            busiest.unwrap_or_default()
        ))
    }
}

/// Returns the number of CPUs that a process used, or 0 if unknown.
pub fn used(process: &Option<CpuUse>) -> f64 {
    process.as_ref().map_or(0.0, |process| process.used)
}

/// Returns the CPU use of a sampled process.
pub(super) fn process_cpu(
    of: &Server,
    role: Role,
    samples: &WindowSamples<'_>,
    allowed: f64,
    responses_per_s: f64,
) -> CpuUse {
    let seconds = of.wall_s.max(f64::MIN_POSITIVE);
    // Series cover only the window, while totals cover the whole run.
    let mean = |figure| samples.mean(Metric::Process(role, figure));
    let in_kernel = mean(ProcessFigure::System).unwrap_or(of.system_s / seconds);
    let used = mean(ProcessFigure::User).map_or(of.cpu_s / seconds, |user| user + in_kernel);
    let busiest = of
        .seen
        .threads
        .iter()
        .map(|thread: &ServerThread| BusiestThread {
            name: thread.name.clone(),
            on_cpu: thread.on_cpu_s / seconds,
            runnable: thread.run_delay_s / seconds,
        });
    CpuUse {
        allowed,
        used,
        in_kernel,
        runnable: mean(ProcessFigure::RunDelay),
        cpu_us: (responses_per_s > 0.0).then(|| used / responses_per_s * 1e6),
        busiest: busiest.max_by(|a, b| a.on_cpu.total_cmp(&b.on_cpu)),
    }
}

/// Returns the CPU use of the client. floodmark's threads report their own use; an external client
/// is sampled.
pub(super) fn client_cpu(
    run: &Run,
    threads: &[ThreadUsage],
    samples: &WindowSamples<'_>,
    allowed: f64,
    responses_per_s: f64,
) -> CpuUse {
    let client = &run.client;
    if client.name.is_some() || threads.is_empty() {
        // Short-lived processes appear only in their parent's total (wait4).
        let whole_s = client.tool.as_ref().map(|tool| tool.wall_s);
        let whole_s = whole_s.filter(|s| *s > 0.0).unwrap_or(run.sending_s);
        return CpuUse {
            allowed,
            used: (client.user_s + client.system_s) / whole_s,
            in_kernel: client.system_s / whole_s,
            runnable: samples.mean(Metric::Process(Role::Client, ProcessFigure::RunDelay)),
            cpu_us: client.cpu_us_per_request,
            busiest: None,
        };
    }
    let threads = || threads.iter().filter(|thread| thread.wall_s > 0.0);
    let share = |seconds: f64, thread: &ThreadUsage| (seconds / thread.wall_s).min(1.0);
    let used: f64 = threads().map(|t| share(t.user_s + t.system_s, t)).sum();
    let busiest = threads().filter(|t| t.drives_load).map(|t| BusiestThread {
        name: t.name.clone(),
        on_cpu: share(t.user_s + t.system_s, t),
        runnable: share(t.run_delay_s.unwrap_or(0.0), t),
    });
    CpuUse {
        allowed,
        used,
        in_kernel: threads().map(|t| share(t.system_s, t)).sum(),
        runnable: threads().map(|t| t.run_delay_s.map(|s| share(s, t))).sum(),
        cpu_us: (responses_per_s > 0.0).then(|| used / responses_per_s * 1e6),
        busiest: busiest.max_by(|a, b| a.busy().total_cmp(&b.busy())),
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
        let found = crate::why::tests::verdict(&run, &environment);
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
        // An older record does not contain the allowed CPUs.
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
