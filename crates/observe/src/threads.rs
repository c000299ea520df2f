//! CPU time and run delay of each thread in a process tree, and the activity of thread groups.
//!
//! Threads whose names differ only in a trailing number form a group. The main thread of a process
//! with several threads forms its own group.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::ops::AddAssign;

use floodmark_record::Metric;
use floodmark_record::metric::{Role, ThreadGroupFigure};
use floodmark_record::watch::{OtherThreads, ServerThread};
use procfs_core::FromRead;
use procfs_core::process::Stat;

use crate::Root;
use crate::process::{parse_schedstat, parse_switches};
use crate::root::KernelFile;
use crate::samples::Figures;
use crate::tree::{Ticks, Tree};

/// Maximum number of threads whose `schedstat` and `syscall` files are kept open. Without a limit,
/// floodmark could run out of file descriptors.
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
    /// Kernel function in which the thread is waiting; `None` if it is running or runnable.
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
    /// Whether the process has ever had several threads. All but one may end during a run.
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

    /// Adds the new threads of all processes if `all` is set, otherwise only those of processes
    /// whose number of threads has changed.
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

/// Returns whether a name is that of a HotSpot compiler thread. The kernel truncates names to 15
/// bytes.
fn compiles(name: &str) -> bool {
    name.starts_with("C1 Compiler") || name.starts_with("C2 Compiler")
}

/// Returns whether a name is that of a HotSpot collector thread, such as `G1 Conc#0`,
/// `GC Thread#0`, `ZWorker#0` or `Shenandoah GC T`.
fn collects(name: &str) -> bool {
    const PREFIXES: [&str; 5] = ["GC Thread", "G1 ", "ZWorker", "ZDriver", "Shenandoah GC"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Maximum number of groups with a series at the same time. A JVM alone has about twenty groups,
/// half of which are idle.
const MAX_GROUPS: usize = 24;

/// Maximum number of kernel functions per group with their own series.
const MAX_FUNCTIONS: usize = 6;

/// Minimum activity of a thread that counts as working, as a share of the activity of the busiest
/// thread in its group.
const WORKING_SHARE: f64 = 0.2;

/// State of one group.
#[derive(Debug, Default)]
struct ThreadGroupState {
    name: String,
    functions: Vec<String>,
    /// Sums over all threads since the first sample.
    waits: u64,
    on_cpu_ns: u64,
    run_delay_ns: u64,
    /// Waits and CPU time of each thread since the previous sample.
    activities: Vec<(u64, u64)>,
}

impl ThreadGroupState {
    /// Returns the number of working threads.
    fn working(&self) -> usize {
        let part = |of: fn(&(u64, u64)) -> u64| {
            let most = self.activities.iter().map(of).max().unwrap_or(0);
            move |activity: &(u64, u64)| {
                most > 0 && of(activity) as f64 >= WORKING_SHARE * most as f64
            }
        };
        let (waited, ran) = (part(|activity| activity.0), part(|activity| activity.1));
        let works = |activity: &&(u64, u64)| waited(activity) || ran(activity);
        self.activities.iter().filter(works).count()
    }
}

/// The thread groups of a process tree.
#[derive(Debug)]
pub(crate) struct ThreadGroups {
    role: Role,
    groups: Vec<ThreadGroupState>,
}

impl ThreadGroups {
    pub(crate) fn of(role: Role) -> Self {
        Self {
            role,
            groups: Vec::new(),
        }
    }

    /// Begins a sample.
    pub(crate) fn begin(&mut self) {
        self.groups
            .iter_mut()
            .for_each(|group| group.activities.clear());
    }

    /// Adds a thread.
    pub(crate) fn add(&mut self, activity: ThreadActivity<'_>, figures: &mut Figures) {
        let name = activity.group;
        let known = self.groups.iter().position(|group| group.name == name);
        let Some(at) = known.or_else(|| self.add_group(&activity)) else {
            return;
        };
        let group = &mut self.groups[at];
        group.waits += activity.waits;
        group.on_cpu_ns += activity.on_cpu_ns;
        group.run_delay_ns += activity.run_delay_ns;
        group.activities.push((activity.waits, activity.on_cpu_ns));
        let Some(function) = activity.waits_in else {
            return;
        };
        if !group.functions.iter().any(|known| known == function) {
            if group.functions.len() == MAX_FUNCTIONS {
                return;
            }
            group.functions.push(function.to_owned());
        }
        let metric = Metric::ThreadsWaitingIn {
            role: self.role,
            group: name.to_owned(),
            function: function.to_owned(),
        };
        figures.set(metric, 1.0);
    }

    /// Adds the group of a thread and returns its index. If there are already [`MAX_GROUPS`]
    /// groups, an active group replaces one that has never been active. If this is not possible,
    /// returns `None`.
    fn add_group(&mut self, activity: &ThreadActivity<'_>) -> Option<usize> {
        let group = ThreadGroupState {
            name: activity.group.to_owned(),
            ..ThreadGroupState::default()
        };
        if self.groups.len() < MAX_GROUPS {
            self.groups.push(group);
            return Some(self.groups.len() - 1);
        }
        let is_active = activity.waits > 0 || activity.on_cpu_ns > 0;
        let mut groups = self.groups.iter();
        let at = groups.position(|group| group.waits == 0 && group.on_cpu_ns == 0);
        let at = at.filter(|_| is_active)?;
        self.groups[at] = group;
        Some(at)
    }

    /// Ends a sample.
    pub(crate) fn end(&mut self, figures: &mut Figures) {
        for group in &self.groups {
            for (figure, value) in [
                (ThreadGroupFigure::Threads, group.activities.len() as f64),
                (ThreadGroupFigure::Working, group.working() as f64),
                (ThreadGroupFigure::Waits, group.waits as f64),
                (ThreadGroupFigure::OnCpu, group.on_cpu_ns as f64 / 1e9),
                (ThreadGroupFigure::RunDelay, group.run_delay_ns as f64 / 1e9),
            ] {
                let metric = Metric::ThreadGroup(self.role, group.name.clone(), figure);
                figures.set(metric, value);
            }
        }
    }
}

/// Returns the name of a thread's group: the thread's name without surrounding brackets and without
/// a trailing number. `program` is the number of the thread's program; see [`Programs::number`].
pub(crate) fn group_of(name: &str, is_main: bool, program: usize) -> Cow<'_, str> {
    let inner = name.strip_prefix('[');
    let inner = inner.and_then(|name| name.strip_suffix(']'));
    let group = inner
        .unwrap_or(name)
        .trim_end_matches(|c: char| c.is_ascii_digit())
        .trim_end_matches(['-', '_', '#', ':', '/', '.', ' ']);
    let group = if group.is_empty() { name } else { group };
    let main = if is_main { " (main)" } else { "" };
    match program {
        ..=1 if main.is_empty() => group.into(),
        ..=1 => format!("{group}{main}").into(),
        program => format!("{group}{main} [{program}]").into(),
    }
}

/// Programs whose processes have the same name, such as a server and a log reader that both run in
/// Python.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// Name of the process, and the start of its command line.
    known: Vec<(String, Vec<u8>)>,
}

impl Programs {
    /// Returns 1 for the first program with this process name, 2 for the second program, and so on.
    pub(crate) fn number(&mut self, root: &Root, pid: u32, name: &str) -> usize {
        let line = std::fs::read(root.path(format!("/proc/{pid}/cmdline"))).unwrap_or_default();
        // Group names omit trailing numbers, so `python` and `python3` count as the same name.
        let name = group_of(name, false, 1).into_owned();
        let program = (name, start_of_command(&line));
        let same_name = self.known.iter().filter(|known| known.0 == program.0);
        let at = same_name.clone().position(|known| *known == program);
        let number = at.unwrap_or_else(|| same_name.count()) + 1;
        if at.is_none() {
            self.known.push(program);
        }
        number
    }
}

/// Returns the part of a command line that identifies a program: the first two arguments, the text
/// before the colon of a process title such as `nginx: worker process`, or any other process title
/// without its digits, such as `unicorn worker[]` for `unicorn worker[1]`.
fn start_of_command(line: &[u8]) -> Vec<u8> {
    let mut arguments = line.split(|byte| *byte == 0);
    let first = arguments.next().unwrap_or_default();
    if let Some(title) = first.windows(2).position(|part| part == b": ") {
        return first[..title].to_vec();
    }
    if first.contains(&b' ') {
        let title = first.iter().filter(|byte| !byte.is_ascii_digit());
        return title.copied().collect();
    }
    [first, arguments.next().unwrap_or_default()].join(&0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

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

    fn activity<'a>(name: &'a str, waits: u64, waits_in: Option<&'a str>) -> ThreadActivity<'a> {
        ThreadActivity {
            group: name,
            waits_in,
            waits,
            on_cpu_ns: 1_000_000 * waits,
            run_delay_ns: 2_000_000 * waits,
        }
    }

    fn value(figures: &Figures, name: &str) -> f64 {
        let mut metrics = figures.metrics().iter();
        let at = metrics.position(|metric| metric.name() == name);
        figures.values()[at.unwrap_or_else(|| panic!("no {name} in {figures:?}"))]
    }

    #[test]
    fn groups_threads_by_name_without_number() {
        assert_eq!(group_of("node", true, 1), "node (main)");
        assert_eq!(group_of("node-1", true, 2), "node (main) [2]");
        assert_eq!(group_of("node", false, 2), "node [2]");
        for (name, group) in [
            ("pool-1-thread", "pool-1-thread"),
            ("GC Thread#0", "GC Thread"),
            ("[ET_NET 1]", "ET_NET"),
            ("[42]", "[42]"),
            ("worker_12", "worker"),
            ("node", "node"),
            ("7", "7"),
            ("", ""),
        ] {
            assert_eq!(group_of(name, false, 1), group);
        }
    }

    #[test]
    fn counts_working_threads_and_the_functions_they_wait_in() {
        let mut groups = ThreadGroups::of(Role::Server);
        let mut figures = Figures::default();
        for _ in 0..2 {
            figures.begin();
            groups.begin();
            for (name, waits, waits_in) in [
                ("pool-1-thread", 50, Some("futex_wait_queue")),
                ("pool-1-thread", 45, Some("futex_wait_queue")),
                ("pool-1-thread", 1, Some("futex_wait_queue")),
                ("main", 0, Some("do_epoll_wait")),
                ("busy", 9, None),
            ] {
                groups.add(activity(name, waits, waits_in), &mut figures);
            }
            groups.end(&mut figures);
        }
        assert_eq!(value(&figures, "pool-1-thread threads"), 3.0);
        assert_eq!(value(&figures, "pool-1-thread at work"), 2.0);
        assert_eq!(value(&figures, "pool-1-thread waits"), 192.0);
        let waiting = value(&figures, "pool-1-thread in futex_wait_queue");
        assert_eq!(waiting, 3.0);
        assert_eq!(value(&figures, "main threads"), 1.0);
        let names: Vec<_> = figures.metrics().iter().map(Metric::name).collect();
        assert!(!names.iter().any(|name| name == "main at work"));
        assert!(!names.iter().any(|name| name.starts_with("busy in")));
        assert!((value(&figures, "busy on_cpu") - 0.018).abs() < 1e-9);
        assert!((value(&figures, "busy run_delay") - 0.036).abs() < 1e-9);
    }

    #[test]
    fn limits_the_number_of_groups_and_functions() {
        let mut groups = ThreadGroups::of(Role::Server);
        let mut figures = Figures::default();
        groups.begin();
        let names: Vec<String> = (0..100).map(|i| format!("{i}-x")).collect();
        let functions: Vec<String> = (0..100).map(|i| format!("f{i}")).collect();
        for (name, function) in names.iter().zip(&functions) {
            groups.add(activity(name, 1, Some(function)), &mut figures);
            groups.add(activity("same", 1, Some(function)), &mut figures);
        }
        groups.end(&mut figures);
        assert_eq!(groups.groups.len(), MAX_GROUPS);
        assert!(figures.values().len() <= MAX_GROUPS * (5 + MAX_FUNCTIONS));
    }

    #[test]
    fn an_active_group_replaces_an_idle_one() {
        let mut groups = ThreadGroups::of(Role::Server);
        let mut figures = Figures::default();
        let names: Vec<String> = (0..MAX_GROUPS).map(|i| format!("{i}-x")).collect();
        for waits in [0, 5] {
            figures.begin();
            groups.begin();
            for (i, name) in names.iter().enumerate() {
                let waits = if i == 7 { 0 } else { 1 };
                groups.add(activity(name, waits, None), &mut figures);
            }
            for _ in 0..3 {
                groups.add(activity("pool", waits, None), &mut figures);
            }
            groups.add(activity("late", 9, None), &mut figures);
            groups.end(&mut figures);
        }
        assert_eq!(value(&figures, "late waits"), 18.0);
        let is_known = |name: &str| figures.metrics().iter().any(|of| of.name() == name);
        assert!(!is_known("pool threads"), "all groups were active");
        assert!(!is_known("7-x threads"), "replaced by \"late\"");
        assert_eq!(groups.groups.len(), MAX_GROUPS);
    }

    #[test]
    fn identifies_programs_by_the_start_of_their_command_line() {
        for (line, start) in [
            (
                &b"python3\0server.py\08080\0"[..],
                &b"python3\0server.py"[..],
            ),
            (b"nginx: worker process", b"nginx"),
            (
                b"postgres: bench bench 127.0.0.1(4321) idle\0\0",
                b"postgres",
            ),
            (
                b"unicorn worker[12] -c unicorn.conf.rb",
                b"unicorn worker[] -c unicorn.conf.rb",
            ),
            (b"node\0", b"node\0"),
            (b"", b"\0"),
        ] {
            assert_eq!(start_of_command(line), start);
        }
    }
}
