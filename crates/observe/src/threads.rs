//! CPU time and run delay of each thread in a process tree.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::ops::AddAssign;

use floodmark_record::watch::{OtherThreads, ServerThread};
use procfs_core::FromRead;
use procfs_core::process::Stat;

use crate::Root;
use crate::kernel_file::KernelFile;
use crate::process::{parse_schedstat, parse_switches};
use crate::programs::Programs;
use crate::thread_groups::group_of;
use crate::tree::{Ticks, Tree};

/// Maximum number of threads whose two files stay open, so that floodmark doesn't run out of file
/// descriptors.
const MAX_OPEN_FILES: usize = 256;

/// Shown as the kernel function of a thread that can't be inspected or is no longer waiting.
pub(crate) const HIDDEN: &str = "unknown";

/// Error for a process tree without readable threads.
const UNREADABLE: &str = "no thread can be read";

/// Maximum number of threads reported by name, busiest first.
pub(crate) const NAMED: usize = 16;

/// Usage of a thread since it started.
#[derive(Debug, Clone, Copy, Default)]
struct ThreadCounters {
    on_cpu_ns: u64,
    waiting_ns: u64,
    ticks: Ticks,
}

impl ThreadCounters {
    fn since(self, earlier: Self) -> Self {
        Self {
            on_cpu_ns: self.on_cpu_ns.saturating_sub(earlier.on_cpu_ns),
            waiting_ns: self.waiting_ns.saturating_sub(earlier.waiting_ns),
            ticks: self.ticks.since(earlier.ticks),
        }
    }
}

impl AddAssign for ThreadCounters {
    fn add_assign(&mut self, other: Self) {
        self.on_cpu_ns += other.on_cpu_ns;
        self.waiting_ns += other.waiting_ns;
        self.ticks += other.ticks;
    }
}

#[derive(Debug, Default)]
struct Thread {
    pid: u32,
    tid: u32,
    name: String,
    schedstat: Option<KernelFile>,
    syscall: Option<KernelFile>,
    /// Usage at the start of the current period.
    base: ThreadCounters,
    used: ThreadCounters,
    switches: (u64, u64),
    /// State in the last `stat` file.
    state: char,
    /// Waits and usage at the last call to [`Threads::report_activity`].
    reported: Option<(u64, ThreadCounters)>,
    ended: bool,
}

impl Thread {
    fn path(&self, file: &str) -> String {
        format!("/proc/{}/task/{}/{file}", self.pid, self.tid)
    }

    /// Reads the name, state, user time and kernel time.
    fn read_stat(&mut self, root: &Root) {
        let bytes = std::fs::read(root.path(self.path("stat"))).unwrap_or_default();
        if let Ok(stat) = Stat::from_read(&*bytes) {
            self.name = stat.comm;
            self.state = stat.state;
            self.used.ticks = Ticks {
                user: stat.utime,
                system: stat.stime,
            };
        }
    }

    /// Reads the CPU time and run delay.
    fn read_schedstat(&mut self, root: &Root) -> Option<()> {
        let (on_cpu_ns, waiting_ns) = match &mut self.schedstat {
            Some(file) => parse_schedstat(file.text().ok()?)?,
            None => parse_schedstat(&root.read(self.path("schedstat")).ok()?)?,
        };
        self.used.on_cpu_ns = on_cpu_ns;
        self.used.waiting_ns = waiting_ns;
        Some(())
    }
}

/// Current state of a thread, and its activity since the previous sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadActivity<'a> {
    pub group: &'a str,
    /// Kernel function in which the thread waits; `None` if it is running or runnable.
    pub waits_in: Option<&'a str>,
    /// Voluntary context switches.
    pub waits: u64,
    pub on_cpu_ns: u64,
    pub run_delay_ns: u64,
}

/// Sums over all threads. These values never decrease.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadSums {
    pub on_cpu_ns: u64,
    pub waiting_ns: u64,
    /// CPU time of JVM compiler threads, recognized by name.
    pub compiling_ns: u64,
    /// CPU time of JVM collector threads, recognized by name.
    pub collecting_ns: u64,
}

/// The threads of a process tree. If a thread starts and ends between two listings, it is included
/// only in the tree's CPU time.
#[derive(Debug)]
pub(crate) struct Threads {
    root: Root,
    threads: Vec<Thread>,
    processes: HashMap<u32, ThreadedProcess>,
    programs: Programs,
}

/// A process of the tree.
#[derive(Debug)]
struct ThreadedProcess {
    /// Number of threads at the last listing.
    threads: i64,
    /// Whether the process has had several threads. Helper threads may end during a run.
    is_threaded: bool,
    /// Number of the process's program; see [`Programs::number`].
    program: usize,
}

impl Threads {
    /// Lists all threads of a tree.
    ///
    /// # Errors
    /// The kernel has no `schedstat`, or the threads can't be read.
    pub(crate) fn new(root: &Root, tree: &Tree) -> io::Result<Self> {
        let mut threads = Self {
            root: root.clone(),
            threads: Vec::new(),
            processes: HashMap::new(),
            programs: Programs::default(),
        };
        threads.list(tree, true);
        threads.read_schedstat(tree)?;
        threads.mark();
        Ok(threads)
    }

    /// Adds new threads of all processes, or only of processes whose number of threads changed.
    pub(crate) fn list(&mut self, tree: &Tree, all: bool) {
        for member in &tree.members {
            let count = member.stat.num_threads;
            let known = self.processes.get(&member.pid);
            if !all && known.is_some_and(|process| process.threads == count) {
                continue;
            }
            let program = match known {
                Some(process) => process.program,
                None => self
                    .programs
                    .number(&self.root, member.pid, &member.stat.comm),
            };
            let process = ThreadedProcess {
                threads: count,
                is_threaded: count > 1 || known.is_some_and(|process| process.is_threaded),
                program,
            };
            self.processes.insert(member.pid, process);
            for tid in self.root.numbered(format!("/proc/{}/task", member.pid)) {
                let known = |thread: &Thread| thread.tid == tid && !thread.ended;
                if self.threads.iter().any(known) {
                    continue;
                }
                let mut thread = Thread {
                    pid: member.pid,
                    tid,
                    ..Thread::default()
                };
                let open = self.threads.iter().filter(|t| t.schedstat.is_some());
                if open.count() < MAX_OPEN_FILES {
                    thread.schedstat = KernelFile::open(&self.root, thread.path("schedstat")).ok();
                    thread.syscall = KernelFile::open(&self.root, thread.path("syscall")).ok();
                }
                thread.read_stat(&self.root);
                self.threads.push(thread);
            }
        }
        self.merge_ended();
    }

    /// Merges all ended threads if there are many. A server with one thread per connection would
    /// otherwise exhaust memory.
    fn merge_ended(&mut self) {
        const MAX_ENDED: usize = 1024;
        if self.threads.iter().filter(|thread| thread.ended).count() <= MAX_ENDED {
            return;
        }
        let ended = self.threads.extract_if(.., |thread| thread.ended);
        let sum = ended.reduce(|mut sum, thread| {
            sum.name = "ended threads".to_owned();
            sum.used += thread.used;
            sum.base += thread.base;
            sum.switches.0 += thread.switches.0;
            sum.switches.1 += thread.switches.1;
            sum
        });
        self.threads.extend(sum);
    }

    /// Reads the CPU time and run delay of all threads.
    ///
    /// # Errors
    /// No thread is readable.
    pub(crate) fn read_schedstat(&mut self, tree: &Tree) -> io::Result<ThreadSums> {
        self.list(tree, false);
        for thread in self.threads.iter_mut().filter(|thread| !thread.ended) {
            if thread.read_schedstat(&self.root).is_none() {
                thread.ended = true;
                (thread.schedstat, thread.syscall) = (None, None);
            }
        }
        if self.threads.iter().all(|thread| thread.ended) {
            return Err(io::Error::other(UNREADABLE));
        }
        let mut sums = ThreadSums::default();
        for thread in &self.threads {
            sums.on_cpu_ns += thread.used.on_cpu_ns;
            sums.waiting_ns += thread.used.waiting_ns;
            if compiles(&thread.name) {
                sums.compiling_ns += thread.used.on_cpu_ns;
            } else if collects(&thread.name) {
                sums.collecting_ns += thread.used.on_cpu_ns;
            }
        }
        Ok(sums)
    }

    /// Reads the name, user time and kernel time of all threads.
    pub(crate) fn read_stat(&mut self) {
        // TIDs are reused: read the files only while the thread exists.
        for thread in self.threads.iter_mut().filter(|thread| !thread.ended) {
            thread.read_stat(&self.root);
        }
    }

    /// Returns voluntary and involuntary context switches.
    ///
    /// # Errors
    /// No thread is readable.
    pub(crate) fn read_switches(&mut self) -> io::Result<(u64, u64)> {
        let mut any = false;
        for thread in self.threads.iter_mut().filter(|thread| !thread.ended) {
            let text = self.root.read(thread.path("status")).ok();
            if let Some(switches) = text.and_then(|text| parse_switches(&text)) {
                thread.switches = switches;
                any = true;
            }
        }
        if !any {
            return Err(io::Error::other(UNREADABLE));
        }
        Ok(self.threads.iter().fold((0, 0), |sum, thread| {
            (sum.0 + thread.switches.0, sum.1 + thread.switches.1)
        }))
    }

    /// Reads the `syscall` file of each thread. Passes the PID, the thread's group and the text to
    /// `each`.
    ///
    /// # Errors
    /// No file is readable.
    pub(crate) fn read_system_calls(
        &mut self,
        mut each: impl FnMut(u32, &str, &str),
    ) -> io::Result<()> {
        let mut failed = Some(io::Error::other(UNREADABLE));
        for thread in self.threads.iter_mut().filter(|thread| !thread.ended) {
            let closed: String;
            let text = match &mut thread.syscall {
                Some(file) => file.text(),
                None => {
                    closed = self.root.read(thread.path("syscall")).unwrap_or_default();
                    Ok(&*closed)
                }
            };
            match text {
                Ok(text) => {
                    let id = (thread.pid, thread.tid);
                    each(thread.pid, &group(&thread.name, id, &self.processes), text);
                    failed = None;
                }
                Err(error) => failed = failed.map(|_| error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Reports each thread's state from its last `stat` file, and its activity since the previous
    /// call. The activity of a new thread starts at 0.
    pub(crate) fn report_activity(&mut self, mut each: impl FnMut(ThreadActivity<'_>)) {
        for thread in self.threads.iter_mut().filter(|thread| !thread.ended) {
            let now = (thread.switches.0, thread.used);
            let before = thread.reported.replace(now).unwrap_or(now);
            let used = now.1.since(before.1);
            let waits_in = matches!(thread.state, 'S' | 'D').then(|| {
                let function = self.root.line(thread.path("wchan"));
                let known = function.filter(|function| !matches!(function.as_str(), "" | "0"));
                known.unwrap_or_else(|| HIDDEN.to_owned())
            });
            each(ThreadActivity {
                group: &group(&thread.name, (thread.pid, thread.tid), &self.processes),
                waits_in: waits_in.as_deref(),
                waits: now.0.saturating_sub(before.0),
                on_cpu_ns: used.on_cpu_ns,
                run_delay_ns: used.waiting_ns,
            });
        }
    }

    /// Starts the period that [`Threads::busiest`] covers.
    pub(crate) fn mark(&mut self) {
        self.read_stat();
        self.count_from_now();
    }

    /// Moves the start of the period that [`Threads::busiest`] covers to the last sample.
    pub(crate) fn count_from_now(&mut self) {
        for thread in &mut self.threads {
            thread.base = thread.used;
        }
    }

    /// Returns the `named` busiest threads of the current period, and the sum of all others.
    /// `used` is the CPU time of the whole tree.
    pub(crate) fn busiest(
        &self,
        used: Ticks,
        ticks_per_s: f64,
        named: usize,
    ) -> (Vec<ServerThread>, Option<OtherThreads>) {
        let threads = self.threads.iter();
        let mut threads: Vec<(&Thread, ThreadCounters)> = threads
            .map(|thread| (thread, thread.used.since(thread.base)))
            .collect();
        threads.sort_by_key(|(_, used)| Reverse(used.on_cpu_ns));
        let seconds = |ticks: u64| ticks as f64 / ticks_per_s;
        let row = |(thread, used): &(&Thread, ThreadCounters)| ServerThread {
            pid: thread.pid,
            tid: thread.tid,
            name: thread.name.clone(),
            user_s: seconds(used.ticks.user),
            system_s: seconds(used.ticks.system),
            on_cpu_s: used.on_cpu_ns as f64 / 1e9,
            run_delay_s: used.waiting_ns as f64 / 1e9,
        };
        let (named, others) = threads.split_at(threads.len().min(named));
        let named: Vec<ServerThread> = named.iter().map(row).collect();
        let left = |all: u64, of: fn(&ServerThread) -> f64| {
            (seconds(all) - named.iter().map(of).sum::<f64>()).max(0.0)
        };
        let rest = OtherThreads {
            count: others.len() as u64,
            user_s: left(used.user, |thread| thread.user_s),
            system_s: left(used.system, |thread| thread.system_s),
            run_delay_s: others.iter().map(|(_, used)| used.waiting_ns).sum::<u64>() as f64 / 1e9,
        };
        // Differences of one tick may be rounding errors.
        let any = rest.count > 0 || (rest.user_s + rest.system_s) * ticks_per_s > 1.5;
        (named, any.then_some(rest))
    }
}

/// Returns the name of a thread's group.
fn group<'a>(
    name: &'a str,
    (pid, tid): (u32, u32),
    processes: &HashMap<u32, ThreadedProcess>,
) -> Cow<'a, str> {
    let process = processes.get(&pid);
    let is_main = pid == tid && process.is_some_and(|process| process.is_threaded);
    let program = process.map_or(1, |process| process.program);
    group_of(name, is_main, program)
}

/// Returns whether a HotSpot compiler thread has this name. The kernel truncates names to 15 bytes.
fn compiles(name: &str) -> bool {
    name.starts_with("C1 Compiler") || name.starts_with("C2 Compiler")
}

/// Returns whether a HotSpot collector thread has this name: `GC Thread#0`, `G1 Conc#0`,
/// `ZWorker#0`, `Shenandoah GC T`.
fn collects(name: &str) -> bool {
    const PREFIXES: [&str; 5] = ["GC Thread", "G1 ", "ZWorker", "ZDriver", "Shenandoah GC"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    fn thread_cpu_s() -> f64 {
        crate::clock::thread_cpu().as_secs_f64()
    }

    #[test]
    fn measures_threads_and_keeps_ended_ones() {
        let root = Root::host();
        let tree = Tree::new(&root, &[std::process::id()], None).unwrap();
        let mut threads = Threads::new(&root, &tree).unwrap();
        let (sender, receiver) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let burner = std::thread::Builder::new()
            .name("bur) ner".into())
            .spawn(move || {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(300) {
                    std::hint::black_box(begin);
                }
                sender.send(thread_cpu_s()).unwrap();
                let _ = wait.recv();
            })
            .unwrap();
        let truth: f64 = receiver.recv().unwrap();
        threads.list(&tree, true);
        let sums = threads.read_schedstat(&tree).unwrap();
        threads.read_stat();
        assert!(threads.read_switches().unwrap().0 > 0);
        drop(done);
        burner.join().unwrap();
        let after = threads.read_schedstat(&tree).unwrap();
        assert!(
            after.on_cpu_ns >= sums.on_cpu_ns,
            "the CPU time of an ended thread was lost"
        );
        let used = Ticks {
            user: 100,
            system: 100,
        };
        let (named, others) = threads.busiest(used, 100.0, NAMED);
        let thread = named.iter().find(|t| t.name == "bur) ner").unwrap();
        assert!((thread.on_cpu_s - truth).abs() < 0.01, "{thread:?} {truth}");
        assert!(
            (thread.user_s + thread.system_s - truth).abs() < 0.03,
            "{thread:?} {truth}"
        );
        let sum: f64 = named.iter().map(|t| t.user_s + t.system_s).sum();
        let others = others.unwrap();
        assert!(
            (sum + others.user_s + others.system_s - 2.0).abs() < 1e-6,
            "{others:?} {sum}"
        );
        assert!(named.len() <= NAMED);
    }

    #[test]
    fn recognizes_jvm_threads_by_name() {
        for name in ["C1 CompilerThre", "C2 CompilerThre"] {
            assert!(compiles(name) && !collects(name));
        }
        for name in ["GC Thread#0", "G1 Conc#0", "ZWorker#1"] {
            assert!(collects(name) && !compiles(name));
        }
        assert!(!compiles("C1") && !collects("G10"));
    }
}
