//! The threads of a process tree: CPU and run delay of each, from `/proc/PID/task/TID/{schedstat,stat,status}`.

use std::collections::HashMap;
use std::io;

use floodmark_record::watch::{OtherThreads, ServerThread};

use crate::Root;
use crate::account::{Account, name, parse_schedstat, parse_switches};
use crate::kept::Kept;
use crate::tree::{Ticks, Tree};

/// Threads whose files stay open; those beyond are opened for each reading, so that the watcher does not run out of files.
const KEPT: usize = 256;

/// What a thread waits in where the kernel does not say: it may not be looked at, or has stopped waiting.
pub(crate) const HIDDEN: &str = "unknown";

/// Threads that are kept by name, those that used most CPU.
pub(crate) const NAMED: usize = 16;

/// What one thread used since it began.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    on_cpu_ns: u64,
    waiting_ns: u64,
    ticks: Ticks,
}

#[derive(Debug)]
struct Thread {
    pid: u32,
    tid: u32,
    name: String,
    schedstat: Option<Kept>,
    /// At the moment that figures count from.
    base: Used,
    used: Used,
    switches: (u64, u64),
    /// Of the last `stat`.
    state: u8,
    /// What was told of it when it was last looked at: times that it waited, and its time on a CPU.
    looked_at: Option<(u64, u64)>,
    alive: bool,
}

/// What a thread was found doing, and what it did since it was last looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doing<'a> {
    pub name: &'a str,
    /// The kernel's function that it waits in; none where it runs, or is ready to.
    pub waits_in: Option<&'a str>,
    /// Times that it gave the CPU up to wait.
    pub waits: u64,
    pub on_cpu_ns: u64,
}

/// Sums over all threads that were seen; none of them ever goes back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sums {
    pub on_cpu_ns: u64,
    pub waiting_ns: u64,
    /// Of those whose names say that they compile (JVM).
    pub compiling_ns: u64,
    /// Of those whose names say that they collect garbage (JVM).
    pub collecting_ns: u64,
}

/// The threads of a tree. One that begins and ends between two listings is in no figure here, but in the tree's.
#[derive(Debug)]
pub(crate) struct Threads {
    root: Root,
    threads: Vec<Thread>,
    /// Threads of each process, by the process's own count, at the last listing.
    listed: HashMap<u32, u64>,
}

impl Threads {
    /// All threads of a tree as they are now.
    ///
    /// # Errors
    /// The kernel has no `schedstat`, or the threads may not be read.
    pub(crate) fn new(root: &Root, tree: &Tree) -> io::Result<Self> {
        let mut threads = Self {
            root: root.clone(),
            threads: Vec::new(),
            listed: HashMap::new(),
        };
        threads.list(tree, true);
        threads.read_schedstat(tree)?;
        threads.mark();
        Ok(threads)
    }

    /// Takes in threads that are new: of every process where `all`, else of those whose number of threads changed.
    pub(crate) fn list(&mut self, tree: &Tree, all: bool) {
        for member in tree.members() {
            let count = member.account.threads;
            if !all && self.listed.get(&member.pid) == Some(&count) {
                continue;
            }
            self.listed.insert(member.pid, count);
            for tid in self.root.numbered(format!("/proc/{}/task", member.pid)) {
                let known = |thread: &Thread| thread.tid == tid && thread.alive;
                if !self.threads.iter().any(known) {
                    let kept = self.threads.iter().filter(|t| t.schedstat.is_some());
                    let keep = kept.count() < KEPT;
                    let path = format!("/proc/{}/task/{tid}/schedstat", member.pid);
                    let thread = Thread {
                        pid: member.pid,
                        tid,
                        name: String::new(),
                        schedstat: keep.then(|| Kept::open(&self.root, path).ok()).flatten(),
                        base: Used::default(),
                        used: Used::default(),
                        switches: (0, 0),
                        state: 0,
                        looked_at: None,
                        alive: true,
                    };
                    self.threads.push(thread);
                    let last = self.threads.len() - 1;
                    self.read_stat_of(last);
                }
            }
        }
        self.join_the_ended();
    }

    /// Makes one of all ended threads where there are many, so that a server with a thread for each connection does not fill the
    /// memory.
    fn join_the_ended(&mut self) {
        const MOST_ENDED: usize = 1024;
        let ended = self.threads.iter().filter(|thread| !thread.alive).count();
        if ended <= MOST_ENDED {
            return;
        }
        let (ended, mut alive): (Vec<_>, Vec<_>) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(|thread| !thread.alive);
        let mut sum: Option<Thread> = None;
        for thread in ended {
            match &mut sum {
                None => sum = Some(thread),
                Some(sum) => sum.absorb(&thread),
            }
        }
        alive.extend(sum);
        self.threads = alive;
    }

    /// Reads CPU and run delay of all threads.
    ///
    /// # Errors
    /// Not one of them could be read.
    pub(crate) fn read_schedstat(&mut self, tree: &Tree) -> io::Result<Sums> {
        self.list(tree, false);
        let mut read = 0;
        for thread in self.threads.iter_mut().filter(|thread| thread.alive) {
            let told = match &mut thread.schedstat {
                Some(kept) => kept.text().ok().and_then(parse_schedstat),
                None => {
                    let path = format!("/proc/{}/task/{}/schedstat", thread.pid, thread.tid);
                    let text = self.root.read(path).ok();
                    text.and_then(|text| parse_schedstat(&text))
                }
            };
            match told {
                Some((on_cpu_ns, waiting_ns)) => {
                    thread.used.on_cpu_ns = on_cpu_ns;
                    thread.used.waiting_ns = waiting_ns;
                    read += 1;
                }
                None => {
                    thread.alive = false;
                    thread.schedstat = None;
                }
            }
        }
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no thread can be read",
            ));
        }
        let mut sums = Sums::default();
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

    /// Reads name, user and kernel time of all threads.
    pub(crate) fn read_stat(&mut self) {
        for index in 0..self.threads.len() {
            self.read_stat_of(index);
        }
    }

    fn read_stat_of(&mut self, index: usize) {
        let thread = &mut self.threads[index];
        if !thread.alive {
            return;
        }
        let path = format!("/proc/{}/task/{}/stat", thread.pid, thread.tid);
        // Another process of the same number would be another thread's account: the id is only looked up while it lives.
        let Ok(bytes) = std::fs::read(self.root.path(path)) else {
            return;
        };
        if let Some(account) = Account::parse(&bytes) {
            thread.name = name(&bytes);
            thread.state = account.state;
            thread.used.ticks = Ticks {
                user: account.user,
                system: account.system,
            };
        }
    }

    /// Reads how often threads gave up the CPU, and how often it was taken from them.
    ///
    /// # Errors
    /// Not one of them could be read.
    pub(crate) fn read_switches(&mut self) -> io::Result<(u64, u64)> {
        let mut read = 0;
        for thread in self.threads.iter_mut().filter(|thread| thread.alive) {
            let path = format!("/proc/{}/task/{}/status", thread.pid, thread.tid);
            let text = self.root.read(path).ok();
            if let Some(switches) = text.and_then(|text| parse_switches(&text)) {
                thread.switches = switches;
                read += 1;
            }
        }
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no thread can be read",
            ));
        }
        Ok(self.threads.iter().fold((0, 0), |sum, thread| {
            (sum.0 + thread.switches.0, sum.1 + thread.switches.1)
        }))
    }

    /// Tells of each living thread what it was doing when its `stat` was last read. Of a thread that is new, or had not been looked at,
    /// nothing is told of what it did before.
    pub(crate) fn look(&mut self, mut each: impl FnMut(Doing<'_>)) {
        for thread in self.threads.iter_mut().filter(|thread| thread.alive) {
            let now = (thread.switches.0, thread.used.on_cpu_ns);
            let before = thread.looked_at.replace(now).unwrap_or(now);
            let waits_in = matches!(thread.state, b'S' | b'D').then(|| {
                let path = format!("/proc/{}/task/{}/wchan", thread.pid, thread.tid);
                let function = self.root.read(path).unwrap_or_default();
                match function.trim() {
                    "" | "0" => HIDDEN.to_owned(),
                    function => function.to_owned(),
                }
            });
            each(Doing {
                name: &thread.name,
                waits_in: waits_in.as_deref(),
                waits: now.0.saturating_sub(before.0),
                on_cpu_ns: now.1.saturating_sub(before.1),
            });
        }
    }

    /// Figures of [`Threads::most`] count from now.
    pub(crate) fn mark(&mut self) {
        self.read_stat();
        self.count_from_now();
    }

    /// The same, from what was last read.
    pub(crate) fn count_from_now(&mut self) {
        for thread in &mut self.threads {
            thread.base = thread.used;
        }
    }

    /// The `named` threads that used most CPU since the mark, and the others together: what the tree used in all, `used`, less
    /// those.
    pub(crate) fn most(
        &self,
        used: Ticks,
        ticks_per_s: f64,
        named: usize,
    ) -> (Vec<ServerThread>, Option<OtherThreads>) {
        let mut threads: Vec<&Thread> = self.threads.iter().collect();
        threads.sort_by_key(|thread| {
            std::cmp::Reverse(thread.used.on_cpu_ns.saturating_sub(thread.base.on_cpu_ns))
        });
        let seconds = |ticks: u64| ticks as f64 / ticks_per_s;
        let row = |thread: &&Thread| ServerThread {
            pid: thread.pid,
            tid: thread.tid,
            name: thread.name.clone(),
            user_s: seconds(
                thread
                    .used
                    .ticks
                    .user
                    .saturating_sub(thread.base.ticks.user),
            ),
            system_s: seconds(
                thread
                    .used
                    .ticks
                    .system
                    .saturating_sub(thread.base.ticks.system),
            ),
            on_cpu_s: since(thread.used.on_cpu_ns, thread.base.on_cpu_ns),
            run_delay_s: since(thread.used.waiting_ns, thread.base.waiting_ns),
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
            run_delay_s: others
                .iter()
                .map(|t| since(t.used.waiting_ns, t.base.waiting_ns))
                .fold(0.0, |sum, waited| sum + waited),
        };
        // Less than a tick is what was rounded.
        let any = rest.count > 0 || (rest.user_s + rest.system_s) * ticks_per_s > 1.5;
        (named, any.then_some(rest))
    }
}

impl Thread {
    /// Adds an ended thread to another.
    fn absorb(&mut self, other: &Thread) {
        self.name = "ended threads".to_owned();
        self.used.on_cpu_ns += other.used.on_cpu_ns;
        self.used.waiting_ns += other.used.waiting_ns;
        self.used.ticks.user += other.used.ticks.user;
        self.used.ticks.system += other.used.ticks.system;
        self.base.on_cpu_ns += other.base.on_cpu_ns;
        self.base.waiting_ns += other.base.waiting_ns;
        self.base.ticks.user += other.base.ticks.user;
        self.base.ticks.system += other.base.ticks.system;
        self.switches.0 += other.switches.0;
        self.switches.1 += other.switches.1;
    }
}

fn since(now_ns: u64, base_ns: u64) -> f64 {
    now_ns.saturating_sub(base_ns) as f64 / 1e9
}

/// HotSpot's compiler threads, by the names that the kernel has of them (15 bytes).
fn compiles(name: &str) -> bool {
    name.starts_with("C1 Compiler") || name.starts_with("C2 Compiler")
}

/// Threads of HotSpot's collectors: `GC Thread#0`, `G1 Conc#0`, `ZWorker#0`, `Shenandoah GC T`.
fn collects(name: &str) -> bool {
    ["GC Thread", "G1 ", "ZWorker", "ZDriver", "Shenandoah GC"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    fn thread_cpu_s() -> f64 {
        crate::watcher::thread_cpu().as_secs_f64()
    }

    #[test]
    fn threads_against_their_own_clocks_also_after_they_ended() {
        let root = Root::host();
        let tree = Tree::new(&root, &[std::process::id()], &[]).unwrap();
        let mut threads = Threads::new(&root, &tree).unwrap();
        let (tell, told) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let burner = std::thread::Builder::new()
            .name("bur) ner".into())
            .spawn(move || {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(300) {
                    std::hint::black_box(begin);
                }
                tell.send(thread_cpu_s()).unwrap();
                let _ = wait.recv();
            })
            .unwrap();
        let truth: f64 = told.recv().unwrap();
        threads.list(&tree, true);
        let sums = threads.read_schedstat(&tree).unwrap();
        threads.read_stat();
        assert!(threads.read_switches().unwrap().0 > 0);
        drop(done);
        burner.join().unwrap();
        let after = threads.read_schedstat(&tree).unwrap();
        assert!(
            after.on_cpu_ns >= sums.on_cpu_ns,
            "an ended thread's CPU went"
        );
        let used = Ticks {
            user: 100,
            system: 100,
        };
        let (named, others) = threads.most(used, 100.0, NAMED);
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
    fn names_of_a_jvm() {
        for name in ["C1 CompilerThre", "C2 CompilerThre"] {
            assert!(compiles(name) && !collects(name));
        }
        for name in ["GC Thread#0", "G1 Conc#0", "ZWorker#1"] {
            assert!(collects(name) && !compiles(name));
        }
        assert!(!compiles("C1") && !collects("G10"));
    }
}
