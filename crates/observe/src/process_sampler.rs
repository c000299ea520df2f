//! Samples the process tree of a role: client, server or store.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floodmark_record::Metric;
use floodmark_record::metric::{JvmFigure, ProcessFigure, Role};
use floodmark_record::watch::{OtherThreads, ServerSeen, ServerThread};
use procfs_core::FromRead;
use procfs_core::process::Io;
use rustix::param::page_size;

use crate::blocked::BlockedThreads;
use crate::code::CodeProfile;
use crate::cpu::ticks_per_s;
use crate::jvm::Jvm;
use crate::sampler::UsedCpu;
use crate::samples::{Figures, Samples};
use crate::sock_diag::SockDiag;
use crate::sockets::Upstreams;
use crate::threads::{NAMED, ThreadGroups, Threads};
use crate::tree::{ENDED, Ticks, Tree};
use crate::{Root, cgroup, cpu, environment, host, namespace};

/// Interval between searches for new child processes, and maximum CPU share of these searches. A
/// search takes 0.1 to 0.3 ms per hundred processes on the host. The tree's CPU time includes
/// children that end between searches.
const SEARCH: (Duration, f64) = (Duration::from_millis(500), 0.002);

/// Interval between samples of the connections that the server opened, and maximum CPU share of
/// these samples. Each sample scans the kernel's whole connection table.
const UPSTREAMS: (Duration, f64) = (Duration::from_secs(1), 0.004);

/// Interval between samples of figures that are expensive to read and change slowly, and maximum
/// CPU share for each source of such figures.
const SLOW: (Duration, f64) = (Duration::from_secs(1), 0.002);
const THREAD_NAMES: (Duration, f64) = (Duration::from_secs(1), 0.004);

/// Maximum CPU shares for sampling processes, threads and system calls of threads.
const PROCESSES_SHARE: f64 = 0.003;
const THREADS_SHARE: f64 = 0.004;
const SYSTEM_CALLS_SHARE: f64 = 0.004;

/// Maximum number of threads that an observer reports by name each second. The record names fewer
/// threads, because the total for a thread is too low unless the thread is reported every second.
const MAX_DRAINED: usize = 64;

/// CPU time of a JVM's own threads.
const JVM_THREADS: [JvmFigure; 2] = [JvmFigure::CompilerTime, JvmFigure::CollectorTime];

/// Samples the processes of one role.
pub(crate) struct ProcessSampler {
    root: Root,
    role: Role,
    /// PIDs of the initial processes.
    pub(crate) pids: Vec<u32>,
    /// Name of the first initial process.
    pub(crate) name: String,
    tree: Rc<RefCell<Tree>>,
    threads: Option<Rc<RefCell<Threads>>>,
    /// CPU time that the tree had used at the start of the current period.
    base: Ticks,
}

impl ProcessSampler {
    /// Starts sampling the processes `pids` and their descendants, except `excluded`.
    ///
    /// # Errors
    /// None of the processes exists.
    pub(crate) fn open(
        samples: &mut Samples,
        root: &Root,
        role: Role,
        pids: &[u32],
        excluded: Option<u32>,
    ) -> io::Result<Self> {
        let tree = Tree::new(root, pids, excluded)?;
        let mut sampler = Self {
            root: root.clone(),
            role,
            pids: pids.to_vec(),
            name: tree.members[0].stat.comm.clone(),
            tree: Rc::new(RefCell::new(tree)),
            threads: None,
            base: Ticks::default(),
        };
        sampler.open_processes(samples);
        sampler.open_threads(samples);
        sampler.open_io(samples);
        if role != Role::Client {
            sampler.open_files(samples);
        }
        sampler.mark();
        Ok(sampler)
    }

    /// Returns the name of a source, which starts with the name of the role.
    fn source(&self, files: &str) -> String {
        format!("{}: {files}", self.role.name())
    }

    fn metrics<const N: usize>(&self, figures: [ProcessFigure; N]) -> Vec<Metric> {
        figures.map(|of| Metric::Process(self.role, of)).into()
    }

    /// Starts sampling `figures` of the tree. `read` returns their values in the same order.
    fn add<const N: usize>(
        &self,
        samples: &mut Samples,
        (files, timing): (&str, (Duration, f64)),
        figures: [ProcessFigure; N],
        mut read: impl FnMut(&mut Tree) -> io::Result<[f64; N]> + 'static,
    ) {
        let tree = Rc::clone(&self.tree);
        let read = move || read(&mut tree.borrow_mut());
        samples.add_values(&self.source(files), timing, self.metrics(figures), read);
    }

    fn open_processes(&self, samples: &mut Samples) {
        use ProcessFigure::{Processes, Rss, System, Threads, User};
        let (role, ticks_per_s) = (self.role, ticks_per_s());
        let live = Arc::clone(&samples.live);
        let source = ("/proc/PID/stat", (samples.step, PROCESSES_SHARE));
        let figures = [User, System, Rss, Threads, Processes];
        self.add(samples, source, figures, move |tree| {
            let used = tree.read()?;
            let [user_s, system_s] =
                [used.user, used.system].map(|ticks| ticks as f64 / ticks_per_s);
            let used = Some(UsedCpu {
                at: Instant::now(),
                user: Duration::from_secs_f64(user_s),
                system: Duration::from_secs_f64(system_s),
            });
            match (live.lock(), role) {
                (Ok(mut live), Role::Server) => live.server = used,
                (Ok(mut live), Role::Store) => live.store = used,
                _ => {}
            }
            let rss_bytes = tree.rss_pages() * page_size() as u64;
            let [rss_bytes, threads, processes] =
                [rss_bytes, tree.threads(), tree.members.len() as u64].map(|count| count as f64);
            Ok([user_s, system_s, rss_bytes, threads, processes])
        });
        self.add(samples, ("children", SEARCH), [], |tree| {
            tree.find_children();
            Ok([])
        });
    }

    fn open_threads(&mut self, samples: &mut Samples) {
        let role = self.role;
        let threads = match Threads::new(&self.root, &self.tree.borrow()) {
            Ok(threads) => Rc::new(RefCell::new(threads)),
            Err(error) => {
                samples.missing(format!("{}: threads: {error}", role.name()));
                return;
            }
        };
        self.threads = Some(Rc::clone(&threads));
        let is_jvm = role != Role::Client && self.open_jvm(samples);
        let mut metrics = self.metrics([ProcessFigure::OnCpu, ProcessFigure::RunDelay]);
        if is_jvm {
            metrics.extend(JVM_THREADS.map(|figure| Metric::Jvm(role, figure)));
        }
        let (tree, all) = (Rc::clone(&self.tree), Rc::clone(&threads));
        let source = self.source("/proc/PID/task/TID/schedstat");
        let count = metrics.len();
        samples.add_values(&source, (samples.step, THREADS_SHARE), metrics, move || {
            let sums = all.borrow_mut().read_schedstat(&tree.borrow())?;
            let jvm = [sums.compiling_ns, sums.collecting_ns];
            let all = [sums.on_cpu_ns, sums.waiting_ns].into_iter().chain(jvm);
            Ok(all.take(count).map(|ns| ns as f64 / 1e9))
        });
        let blocked = (role != Role::Client).then(|| self.open_blocked(samples, &threads));
        let tree = Rc::clone(&self.tree);
        let mut groups = (role != Role::Client).then(|| ThreadGroups::of(role));
        let source = self.source("/proc/PID/task/TID/{stat,status,wchan}");
        let metrics = self.metrics([
            ProcessFigure::VoluntarySwitches,
            ProcessFigure::InvoluntarySwitches,
        ]);
        let read = move |figures: &mut Figures| {
            let mut threads = threads.borrow_mut();
            threads.list(&tree.borrow(), true);
            threads.read_stat();
            let (voluntary, involuntary) = threads.read_switches()?;
            figures.extend([voluntary as f64, involuntary as f64]);
            if let Some(groups) = &mut groups {
                groups.begin();
                threads.report_activity(|activity| groups.add(activity, figures));
                groups.end(figures);
            }
            if let Some(blocked) = &blocked {
                blocked.borrow_mut().report(figures);
            }
            Ok(())
        };
        samples.add(&source, THREAD_NAMES, metrics, read);
    }

    /// Starts sampling what blocked threads are waiting for.
    fn open_blocked(
        &self,
        samples: &mut Samples,
        threads: &Rc<RefCell<Threads>>,
    ) -> Rc<RefCell<BlockedThreads>> {
        let process = self.pids.first().copied();
        let namespace_of = process.filter(|pid| namespace::is_other(&self.root, *pid));
        // Without sock_diag, sockets are not identified. Other samplers report the error.
        let diag = namespace::within(&self.root, namespace_of, SockDiag::open).ok();
        let blocked = BlockedThreads::new(&self.root, self.role, diag);
        let blocked = Rc::new(RefCell::new(blocked));
        let source = self.source("/proc/PID/task/TID/syscall");
        let timing = (samples.step, SYSTEM_CALLS_SHARE);
        let (sampled, threads) = (Rc::clone(&blocked), Rc::clone(threads));
        samples.add(&source, timing, Vec::new(), move |_| {
            sampled.borrow_mut().sample(&mut threads.borrow_mut())
        });
        blocked
    }

    /// Starts sampling the first JVM among the processes.
    fn open_jvm(&self, samples: &mut Samples) -> bool {
        for member in &self.tree.borrow().members {
            match Jvm::open(&self.root, member.pid) {
                Ok(None) if member.stat.comm == "java" => samples.missing(format!(
                    "JVM figures: process {} has no hsperfdata file; start it without -XX:-UsePerfData",
                    member.pid
                )),
                Ok(None) => {}
                Err(line) => samples.missing(line),
                Ok(Some(mut jvm)) => {
                    let (path, metrics) = (jvm.path.clone(), jvm.metrics(self.role));
                    let timing = (samples.step, SLOW.1);
                    samples.add_values(&path, timing, metrics, move || jvm.read());
                    return true;
                }
            }
        }
        false
    }

    /// Starts sampling the bytes read and written. As with CPU time, a parent's counters include
    /// those of its ended children.
    fn open_io(&self, samples: &mut Samples) {
        let (root, mut highest) = (self.root.clone(), [0, 0]);
        let figures = [ProcessFigure::ReadBytes, ProcessFigure::WriteBytes];
        self.add(samples, ("/proc/PID/io", SLOW), figures, move |tree| {
            let each = of_members(tree, |pid| {
                let text = root.read(format!("/proc/{pid}/io"))?;
                let io = Io::from_read(text.as_bytes());
                Ok(io.map_or((0, 0), |io| (io.read_bytes, io.write_bytes)))
            })?;
            let read = each.iter().map(|(read, _)| read).sum();
            let written = each.iter().map(|(_, written)| written).sum();
            highest = [highest[0].max(read), highest[1].max(written)];
            Ok(highest.map(|bytes: u64| bytes as f64))
        });
    }

    /// Starts sampling the number of open files, and the limit on it, for the process that is
    /// closest to its limit.
    fn open_files(&self, samples: &mut Samples) {
        let root = self.root.clone();
        let figures = [ProcessFigure::OpenFiles, ProcessFigure::OpenFilesLimit];
        self.add(samples, ("/proc/PID/fd", SLOW), figures, move |tree| {
            let each = of_members(tree, |pid| open_files(&root, pid))?.into_iter();
            let share = |[open, limit]: &[f64; 2]| open / limit;
            let nearest = each.max_by(|a, b| share(a).total_cmp(&share(b)));
            Ok(nearest.unwrap_or_default())
        });
    }

    /// Starts sampling the connections that the server opened, except connections to its own
    /// `port`.
    pub(crate) fn open_upstreams(&self, samples: &mut Samples, port: u16, diag: SockDiag) {
        let mut upstreams = Upstreams::new(diag, &self.root, Rc::clone(&self.tree), port);
        let read = move |figures: &mut Figures| upstreams.read(figures);
        samples.add("sock_diag: upstreams", UPSTREAMS, Vec::new(), read);
    }

    /// Starts sampling the code that the processes execute.
    pub(crate) fn open_code(&self, samples: &mut Samples) {
        let source = self.source("code (perf_event_open)");
        match CodeProfile::start(&self.root, &self.tree) {
            Ok(mut profile) => {
                for file in profile.hidden_collectors() {
                    let file = file.display();
                    samples.missing(format!(
                        "{source}: garbage collection not sampled: no collector found in {file}; \
                         use a build with a symbol table"
                    ));
                }
                if let Some(error) = profile.kernel_error() {
                    samples.missing(format!("{source}: fsync: {error}"));
                }
                let figures = profile.figures().iter();
                let metrics = figures
                    .map(|figure| Metric::Code(self.role, *figure))
                    .collect();
                samples.add_values(&source, SLOW, metrics, move || Ok(profile.read()));
            }
            Err(error) => samples.missing(format!("{source}: {error}")),
        }
    }

    /// Starts sampling the throttling of the first control group that differs from `own`. A start
    /// script may put the server in a group without joining the group itself.
    pub(crate) fn open_cgroup(&self, samples: &mut Samples, own: Option<&Path>) {
        let tree = self.tree.borrow();
        let pids = tree.members.iter().map(|member| member.pid);
        let mut levels = pids.filter_map(|pid| cgroup::throttled_level(&self.root, pid));
        if let Some(level) = levels.find(|level| Some(level.as_path()) != own) {
            host::throttling(samples, &self.root, Some(Role::Server), &level);
        }
    }

    /// Starts the period that [`ProcessSampler::seen`] covers.
    pub(crate) fn mark(&mut self) {
        let mut tree = self.tree.borrow_mut();
        // A tree that has ended keeps the CPU time of its last sample.
        self.base = tree.read().unwrap_or(tree.used);
        if let Some(threads) = &self.threads {
            let mut threads = threads.borrow_mut();
            threads.list(&tree, true);
            // Ignore an error: all threads may have ended since the last reading.
            let _ = threads.read_schedstat(&tree);
            threads.mark();
        }
    }

    /// Returns whether any process was alive at the last sample.
    pub(crate) fn is_alive(&self) -> bool {
        !self.tree.borrow().members.is_empty()
    }

    /// Returns the usage of threads since the previous call. Omits threads that neither ran nor
    /// waited for a CPU.
    pub(crate) fn drain_threads(&mut self) -> (Vec<ServerThread>, Option<OtherThreads>) {
        let used = self.tree.borrow().used;
        let since = used.since(std::mem::replace(&mut self.base, used));
        let Some(threads) = &self.threads else {
            return (Vec::new(), None);
        };
        let mut threads = threads.borrow_mut();
        let (mut named, others) = threads.busiest(since, ticks_per_s(), MAX_DRAINED);
        threads.count_from_now();
        named.retain(|thread| thread.on_cpu_s + thread.run_delay_s > 0.0);
        (named, others)
    }

    /// Excludes a process and its descendants.
    pub(crate) fn exclude(&self, pid: u32) {
        self.tree.borrow_mut().exclude(pid);
    }

    /// Returns the PIDs of all running processes of the tree.
    pub(crate) fn members(&self) -> Vec<u32> {
        let tree = self.tree.borrow();
        tree.members.iter().map(|member| member.pid).collect()
    }

    /// Returns the CPUs on which at least one thread of the tree may run; `None` if unknown.
    pub(crate) fn allowed_cpus(&self) -> Option<BTreeSet<u32>> {
        cpu::of_processes(&self.root, &self.members())
    }

    /// Returns the processes and threads, with their usage since [`ProcessSampler::mark`].
    pub(crate) fn seen(&self) -> ServerSeen {
        let allowed_cpus = self.allowed_cpus();
        let mut tree = self.tree.borrow_mut();
        let used = tree.read().unwrap_or(tree.used).since(self.base);
        let threads = self.threads.as_ref().map(|threads| {
            let mut threads = threads.borrow_mut();
            let _ = threads.read_schedstat(&tree);
            threads.read_stat();
            threads.busiest(used, ticks_per_s(), NAMED)
        });
        let (threads, other_threads) = threads.unwrap_or_default();
        ServerSeen {
            name: self.name.clone(),
            pids: self.pids.clone(),
            allowed_cpus,
            processes: tree.most_members as u64,
            peak_rss_bytes: tree.peak_rss_pages * page_size() as u64,
            threads,
            other_threads,
        }
    }
}

/// Returns a figure for each readable process in a tree.
///
/// # Errors
/// No process is readable.
fn of_members<T>(tree: &Tree, read: impl Fn(u32) -> io::Result<T>) -> io::Result<Vec<T>> {
    let mut failed = io::Error::other(ENDED);
    let mut figures = Vec::new();
    for member in &tree.members {
        match read(member.pid) {
            Ok(figure) => figures.push(figure),
            Err(error) => failed = error,
        }
    }
    if figures.is_empty() {
        Err(failed)
    } else {
        Ok(figures)
    }
}

/// Returns a process's number of open files and its limit on open files.
fn open_files(root: &Root, pid: u32) -> io::Result<[f64; 2]> {
    let directory = root.path(format!("/proc/{pid}/fd"));
    // Since Linux 6.2, the size of the directory is the number of open files.
    let open = match std::fs::metadata(&directory)?.len() {
        0 => std::fs::read_dir(&directory)?.count() as u64,
        open => open,
    };
    let limits = environment::parse_limits(&root.read(format!("/proc/{pid}/limits"))?);
    let limit = limits.get("nofile").copied().unwrap_or(u64::MAX);
    Ok([open as f64, limit as f64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_open_files_and_reads_the_limit() {
        let root = Root::host();
        let own = std::process::id();
        let [before, limit] = open_files(&root, own).unwrap();
        let held: Vec<_> = (0..50)
            .map(|_| std::fs::File::open("/proc/self/stat").unwrap())
            .collect();
        let [open, _] = open_files(&root, own).unwrap();
        drop(held);
        // Other tests in this process open and close files concurrently.
        assert!(open >= 50.0 && open <= limit, "{before} {open} {limit}");
        assert_eq!(limit, environment::open_files(&root).unwrap().soft as f64);
        assert!(open_files(&root, u32::MAX).is_err());
    }
}
