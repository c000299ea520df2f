//! CPU time that other programs and the hypervisor take from the server and the client.
//!
//! Three facts together show a loss: threads of the server or the client were runnable but waited
//! for a CPU (run delay), another program ran on one of their CPUs at that time, and this program
//! already used CPU time before the first load. Each of the facts alone is no disturbance: an
//! overloaded server makes its own threads wait, programs on other CPUs delay nobody, and a worker
//! that starts under load is part of the server. Stolen time of the CPUs always counts, because
//! only the hypervisor causes it.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use floodmark_record::metric::Role;
use floodmark_record::plan::Address;
use procfs_core::FromRead;
use procfs_core::process::Stat;

use crate::clock::{monotonic_ns, thread_cpu};
use crate::cpu::{of_processes, ticks_per_s};
use crate::root::KernelFile;
use crate::threads::Threads;
use crate::tree::Tree;
use crate::{MonitorTargets, Root, listener};

/// Interval between two samples.
const EVERY: Duration = Duration::from_millis(25);

/// Maximum share of a CPU for sampling. If the server has thousands of threads, samples become less
/// frequent.
const MOST_CPU: f64 = 0.02;

/// Maximum time to wait for a sample.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Length of the baseline before the first load.
const BASELINE: Duration = Duration::from_secs(1);

/// Minimum CPU use of a program in the baseline, in clock ticks.
const LEAST_TICKS: u64 = 3;

/// A period, and the CPU time in it that was taken from the server and the client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossSample {
    /// Start on the host's monotonic clock, in ns.
    pub from_ns: u64,
    /// End on the host's monotonic clock, in ns.
    pub to_ns: u64,
    /// Lost time in seconds: the mean over the CPUs that the server and the client may use.
    pub lost_s: f64,
}

/// One sample of CPU use. CPU times are means over the CPUs that the server and the client may use.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CpuSample {
    from_ns: u64,
    to_ns: u64,
    /// Time during which a thread of the server waited for a CPU, plus that of a thread of the
    /// client, in seconds. The kernel adds the whole wait when it ends.
    delay_s: f64,
    /// Stolen time in seconds.
    steal_s: f64,
    /// CPU time of other programs in seconds.
    taken_s: f64,
}

/// Returns the losses of the consecutive samples of a load.
fn losses(samples: &[CpuSample]) -> Vec<LossSample> {
    // CPU time that other programs used and that has not been matched with a delay yet.
    let mut taken_s: Vec<f64> = samples.iter().map(|sample| sample.taken_s).collect();
    let mut lost_s: Vec<f64> = samples.iter().map(|sample| sample.steal_s).collect();
    for (last, sample) in samples.iter().enumerate() {
        // A wait that ended in this sample may have begun before it.
        let mut delay_s = sample.delay_s;
        let reach_ns = sample.from_ns.saturating_sub((delay_s * 1e9) as u64);
        for at in (0..=last).rev() {
            if delay_s <= 0.0 || samples[at].to_ns + EVERY.as_nanos() as u64 <= reach_ns {
                break;
            }
            let matched_s = delay_s.min(taken_s[at]);
            lost_s[at] += matched_s;
            taken_s[at] -= matched_s;
            delay_s -= matched_s;
        }
    }
    let loss = |(sample, lost_s): (&CpuSample, f64)| LossSample {
        from_ns: sample.from_ns,
        to_ns: sample.to_ns,
        lost_s: lost_s.min((sample.to_ns - sample.from_ns) as f64 / 1e9),
    };
    samples.iter().zip(lost_s).map(loss).collect()
}

/// The start or end of a load.
enum MonitorCommand {
    /// A load starts. Its client has this PID.
    Start(u32),
    End,
}

/// Until dropped, samples the CPU time that other programs take from a local server and its client.
#[derive(Debug)]
pub struct DisturbanceMonitor {
    commands: Sender<MonitorCommand>,
    samples: Receiver<CpuSample>,
}

impl DisturbanceMonitor {
    /// Observes the idle host for 1 s to find the programs that can disturb the server. Returns
    /// `None` if the server's processes are unknown or cannot be sampled.
    #[must_use]
    pub fn of_server(targets: &MonitorTargets, addresses: &[Address]) -> Option<Self> {
        let root = Root::host();
        let pids = match targets.server_pid {
            Some(pid) => vec![pid],
            None => listener::processes(&root, (Role::Server, "server"), addresses).ok()?,
        };
        let mut sampler = CpuSampler::new(root, &pids)?;
        let (sender, samples) = mpsc::channel();
        let (commands, received) = mpsc::channel();
        let run = move || sampler.run(&received, &sender);
        let named = std::thread::Builder::new().name("disturbance".to_owned());
        named.spawn(run).ok()?;
        Some(Self { commands, samples })
    }

    /// Starts to sample a load. The client's PID is `client`.
    pub fn start_load(&self, client: u32) {
        let _ = self.commands.send(MonitorCommand::Start(client));
    }

    /// Ends the load. Returns its losses, in order.
    #[must_use]
    pub fn end_load(&self) -> Vec<LossSample> {
        let now_ns = monotonic_ns();
        let mut samples: Vec<CpuSample> = self.samples.try_iter().collect();
        let _ = self.commands.send(MonitorCommand::End);
        // The command leads to a sample that covers the rest of the load.
        while samples.last().is_none_or(|last| last.to_ns < now_ns)
            && let Ok(sample) = self.samples.recv_timeout(LONGEST_WAIT)
        {
            samples.push(sample);
        }
        losses(&samples)
    }
}

/// A process tree and the run delay of its threads.
struct DelayedTree {
    tree: Tree,
    threads: Threads,
}

impl DelayedTree {
    fn new(root: &Root, pids: &[u32]) -> Option<Self> {
        let tree = Tree::new(root, pids, None).ok()?;
        let threads = Threads::new(root, &tree).ok()?;
        Some(Self { tree, threads })
    }

    fn pids(&self) -> impl Iterator<Item = u32> {
        self.tree.members.iter().map(|member| member.pid)
    }

    /// Returns the longest run delay of one thread since the last call, in seconds. Threads that
    /// wait at the same time lose this time only once.
    fn delay_s(&mut self) -> f64 {
        let _ = self.tree.read();
        let sums = self.threads.read_schedstat(&self.tree);
        sums.map_or(0.0, |sums| sums.longest_wait_ns as f64 / 1e9)
    }
}

/// A process outside the server and the client.
struct OtherProcess {
    file: KernelFile,
    ticks: u64,
}

impl OtherProcess {
    /// Opens a process. Kernel threads, which have no user-space memory, work for other processes.
    fn open(root: &Root, pid: u32) -> Option<Self> {
        let mut file = KernelFile::open(root, format!("/proc/{pid}/stat")).ok()?;
        let stat = Stat::from_read(file.bytes().ok()?).ok()?;
        let ticks = stat.utime + stat.stime;
        (stat.vsize > 0).then_some(Self { file, ticks })
    }

    /// Returns the clock ticks since the last call, and the process's last CPU.
    fn used(&mut self) -> Option<(u64, u32)> {
        let stat = Stat::from_read(self.file.bytes().ok()?).ok()?;
        let ticks = stat.utime + stat.stime;
        let since = ticks.saturating_sub(std::mem::replace(&mut self.ticks, ticks));
        Some((since, u32::try_from(stat.processor?).ok()?))
    }
}

/// Returns the programs that use CPU time while the server is idle, other than `excluded`.
fn baseline(root: &Root, excluded: &BTreeSet<u32>) -> Vec<OtherProcess> {
    let ticks = |pid: u32| OtherProcess::open(root, pid).map(|of| of.ticks);
    let pids = root.numbered("/proc").into_iter();
    let others = pids.filter(|pid| !excluded.contains(pid));
    let before: Vec<(u32, u64)> = others.filter_map(|pid| Some((pid, ticks(pid)?))).collect();
    std::thread::sleep(BASELINE);
    let after = before.into_iter().filter_map(|(pid, before)| {
        let other = OtherProcess::open(root, pid)?;
        (other.ticks.saturating_sub(before) >= LEAST_TICKS).then_some(other)
    });
    after.collect()
}

/// Reads the counters of the kernel.
struct CpuSampler {
    root: Root,
    server: DelayedTree,
    client: Option<DelayedTree>,
    stat: KernelFile,
    /// CPUs that the server and the client may use.
    cpus: BTreeSet<u32>,
    /// Stolen clock ticks of these CPUs.
    stolen: u64,
    others: Vec<OtherProcess>,
    at_ns: u64,
}

impl CpuSampler {
    fn new(root: Root, pids: &[u32]) -> Option<Self> {
        let stat = KernelFile::open(&root, "/proc/stat").ok()?;
        let server = DelayedTree::new(&root, pids)?;
        let own = std::process::id();
        let excluded: BTreeSet<u32> = server.pids().chain([own]).collect();
        Some(Self {
            client: None,
            stat,
            cpus: BTreeSet::new(),
            stolen: 0,
            others: baseline(&root, &excluded),
            at_ns: monotonic_ns(),
            server,
            root,
        })
    }

    /// Samples each load until the other side is dropped.
    fn run(&mut self, commands: &Receiver<MonitorCommand>, samples: &Sender<CpuSample>) {
        while let Ok(command) = commands.recv() {
            if let MonitorCommand::Start(client) = command {
                self.start(client);
                if self.run_load(commands, samples).is_none() {
                    return;
                }
            }
        }
    }

    /// Samples a load until its end. Returns `None` if the other side was dropped.
    fn run_load(
        &mut self,
        commands: &Receiver<MonitorCommand>,
        samples: &Sender<CpuSample>,
    ) -> Option<()> {
        let mut wait = EVERY;
        loop {
            let command = commands.recv_timeout(wait);
            let before = thread_cpu();
            samples.send(self.sample()).ok()?;
            wait = EVERY.max((thread_cpu() - before).mul_f64(1.0 / MOST_CPU));
            match command {
                Ok(MonitorCommand::Start(client)) => self.start(client),
                Ok(MonitorCommand::End) => return Some(()),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Starts to sample a load.
    fn start(&mut self, client: u32) {
        self.client = DelayedTree::new(&self.root, &[client]);
        self.server.tree.find_children();
        let clients = self.client.iter().flat_map(DelayedTree::pids);
        let members: Vec<u32> = self.server.pids().chain(clients).collect();
        self.cpus = of_processes(&self.root, &members).unwrap_or_default();
        self.stolen = self.read_stolen();
        // Counters from before the load do not count.
        let _ = self.sample();
    }

    fn sample(&mut self) -> CpuSample {
        let now_ns = monotonic_ns();
        let server_s = self.server.delay_s();
        let client_s = self.client.as_mut().map_or(0.0, DelayedTree::delay_s);
        let stolen = self.read_stolen();
        let steal = stolen.saturating_sub(std::mem::replace(&mut self.stolen, stolen));
        let taken = self.read_taken();
        // If the CPUs are unknown, nothing counts as lost.
        let per_cpu_s = |ticks: u64| ticks as f64 / ticks_per_s() / self.cpus.len().max(1) as f64;
        CpuSample {
            from_ns: std::mem::replace(&mut self.at_ns, now_ns),
            to_ns: now_ns,
            delay_s: server_s + client_s,
            steal_s: per_cpu_s(steal),
            taken_s: per_cpu_s(taken),
        }
    }

    /// Returns the clock ticks that other programs used since the last call on the CPUs of the
    /// server and the client.
    fn read_taken(&mut self) -> u64 {
        let cpus = &self.cpus;
        let used = self.others.iter_mut().filter_map(OtherProcess::used);
        used.filter(|(_, cpu)| cpus.contains(cpu))
            .map(|(ticks, _)| ticks)
            .sum()
    }

    /// Returns the stolen clock ticks of the CPUs that the server and the client may use.
    fn read_stolen(&mut self) -> u64 {
        let cpus = &self.cpus;
        let text = self.stat.text();
        text.map_or(self.stolen, |text| stolen(text, |cpu| cpus.contains(&cpu)))
    }
}

/// Returns the stolen clock ticks of some CPUs, from `/proc/stat`.
fn stolen(text: &str, is_counted: impl Fn(u32) -> bool) -> u64 {
    /// Index of the stolen time among the times of a CPU.
    const STEAL: usize = 7;
    let lines = text.lines().filter_map(|line| line.strip_prefix("cpu"));
    let cpus = lines.filter_map(|line| {
        let (cpu, times) = line.split_once(' ')?;
        let steal = times.split_ascii_whitespace().nth(STEAL)?.parse().ok()?;
        Some((cpu.parse().ok()?, steal))
    });
    cpus.filter(|(cpu, _)| is_counted(*cpu))
        .map(|(_, steal): (u32, u64)| steal)
        .sum()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Length of a sample in ns.
    const STEP_NS: u64 = 25_000_000;

    /// Returns the losses, in ms, of consecutive samples. Each has a run delay and the CPU time of
    /// other programs, in ms.
    fn lost_ms(of: &[(f64, f64)]) -> Vec<f64> {
        let sample = |(i, (delay_ms, taken_ms)): (u64, &(f64, f64))| CpuSample {
            from_ns: i * STEP_NS,
            to_ns: (i + 1) * STEP_NS,
            delay_s: delay_ms / 1e3,
            steal_s: 0.0,
            taken_s: taken_ms / 1e3,
        };
        let samples: Vec<CpuSample> = (0..).zip(of).map(sample).collect();
        let losses = losses(&samples);
        let ms = |loss: &LossSample| (loss.lost_s * 1e6).round() / 1e3;
        losses.iter().map(ms).collect()
    }

    #[test]
    fn a_program_that_delays_the_server_takes_its_time() {
        assert_eq!(lost_ms(&[(5.0, 7.5)]), [5.0]);
        assert_eq!(lost_ms(&[(50.0, 7.5)]), [7.5]);
    }

    #[test]
    fn the_kernel_reports_a_wait_when_it_ends() {
        let burst = (0.0, 25.0);
        assert_eq!(
            lost_ms(&[burst, burst, burst, (75.0, 0.0)]),
            [25.0, 25.0, 25.0, 0.0]
        );
    }

    #[test]
    fn programs_that_delay_nobody_take_nothing() {
        assert_eq!(lost_ms(&[(0.0, 25.0); 4]), [0.0; 4]);
    }

    #[test]
    fn threads_that_wait_for_each_other_lose_nothing() {
        assert_eq!(lost_ms(&[(100.0, 0.0); 4]), [0.0; 4]);
    }

    #[test]
    fn stolen_time_is_lost() {
        let sample = CpuSample {
            from_ns: 0,
            to_ns: STEP_NS,
            delay_s: 0.0,
            steal_s: 0.02,
            taken_s: 0.0,
        };
        assert_eq!(losses(&[sample])[0].lost_s, 0.02);
    }

    #[test]
    fn counts_the_stolen_time_of_some_cpus() {
        let text = "cpu  1 2 3 4 5 6 7 99 0 0\ncpu0 1 0 0 0 0 0 0 30 0 0\ncpu1 1 0 0 0 0 0 0 69 0 0\nintr 1\n";
        assert_eq!(stolen(text, |_| true), 99);
        assert_eq!(stolen(text, |cpu| cpu == 1), 69);
    }

    /// A program that uses CPU time until dropped.
    struct Burner(Child);

    impl Burner {
        fn start() -> Self {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]);
            Self(shell.stdout(Stdio::null()).spawn().unwrap())
        }
    }

    impl Drop for Burner {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Returns a sampler of this process, and the only other program that it samples.
    fn sampler(other: &Burner) -> CpuSampler {
        let root = Root::host();
        let pid = std::process::id();
        let mut sampler = CpuSampler::new(root, &[pid]).unwrap();
        sampler.others = vec![OtherProcess::open(&sampler.root, other.0.id()).unwrap()];
        sampler.start(pid);
        sampler
    }

    #[test]
    fn programs_count_on_the_cpus_of_the_server_only() {
        let burner = Burner::start();
        let mut sampler = sampler(&burner);
        let mut taken = |cpus: Option<BTreeSet<u32>>| {
            sampler.cpus = cpus.unwrap_or_else(|| sampler.cpus.clone());
            let _ = sampler.read_taken();
            std::thread::sleep(Duration::from_millis(500));
            sampler.read_taken()
        };
        assert!(taken(None) > 0);
        assert_eq!(taken(Some([u32::MAX].into())), 0, "another CPU");
    }

    #[test]
    fn only_programs_of_the_baseline_count() {
        let before = Burner::start();
        let root = Root::host();
        let count = |excluded: &[u32]| {
            let of = baseline(&root, &excluded.iter().copied().collect());
            of.len()
        };
        assert!(count(&[]) > 0);
        let all: Vec<u32> = root.numbered("/proc").into_iter().collect();
        assert_eq!(count(&all), 0, "excluded");
        drop(before);
    }

    #[test]
    fn samples_cover_the_whole_load() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let targets = MonitorTargets::default();
        let monitor = DisturbanceMonitor::of_server(&targets, &[address]).unwrap();
        for _ in 0..2 {
            monitor.start_load(std::process::id());
            std::thread::sleep(Duration::from_millis(100));
            let begin_ns = monotonic_ns();
            std::thread::sleep(Duration::from_millis(300));
            let end_ns = monotonic_ns();
            let losses = monitor.end_load();
            assert!(losses[0].from_ns <= begin_ns && losses.last().unwrap().to_ns >= end_ns);
            let is_gap = |pair: &[LossSample]| pair[0].to_ns != pair[1].from_ns;
            assert!(!losses.windows(2).any(is_gap), "{losses:?}");
            assert!(losses.iter().all(|loss| loss.lost_s >= 0.0));
        }
    }
}
