//! The sides of a load as processes: the server's tree, that of the store behind it, and the load process's.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floodmark_record::watch::{OtherThreads, ServerSeen, ServerThread};

use crate::account::parse_io;
use crate::cpu::ticks_per_s;
use crate::group::Source;
use crate::jvm::Jvm;
use crate::kinds::Kinds;
use crate::samples::{Samples, subject};
use crate::series::{Kind, Subject};
use crate::sock_diag::SockDiag;
use crate::threads::{NAMED, Threads};
use crate::tree::{Ticks, Tree};
use crate::upstreams::Upstreams;
use crate::watch::{LastRead, UsedCpu};
use crate::{Root, cgroup, host, limits};

/// How often new children are looked for among the machine's processes, which takes 0.1 to 0.3 ms where there are a hundred. Those that
/// end before are in the CPU of the tree all the same.
const LOOK: Duration = Duration::from_millis(500);

/// How often figures are read that cost more than they tell in a shorter time.
const SLOW: Duration = Duration::from_secs(1);

/// Shares of one CPU that readings may take, each: processes; threads; what is read once a second; threads by name.
const PROCESSES: f64 = 0.003;
const THREADS: f64 = 0.004;
const SELDOM: f64 = 0.002;
const NAMES: f64 = 0.004;

/// Threads that are told by name where they are told each second: a thread that is among them in some seconds only is told too
/// low, so these are more than a record keeps.
const DRAINED: usize = 64;

/// The subject of a JVM's own figures, of sides that may be one.
fn jvm_of(whose: &str) -> Option<&'static str> {
    match whose {
        "server" => Some("jvm"),
        "store" => Some("store jvm"),
        _ => None,
    }
}

/// The subject of what its threads do, of sides of which that is asked.
fn threads_of(whose: &str) -> Option<&'static str> {
    match whose {
        "server" => Some("server threads"),
        "store" => Some("store threads"),
        _ => None,
    }
}

/// Threads by name: what takes three files of each.
struct ByName {
    tree: Rc<RefCell<Tree>>,
    threads: Rc<RefCell<Threads>>,
    kinds: Option<Kinds>,
}

impl Source for ByName {
    fn read(&mut self, into: &mut Vec<f64>) -> io::Result<()> {
        let mut threads = self.threads.borrow_mut();
        threads.list(&self.tree.borrow(), true);
        threads.read_stat();
        let (voluntary, involuntary) = threads.read_switches()?;
        into.extend([voluntary as f64, involuntary as f64]);
        if let Some(kinds) = &mut self.kinds {
            kinds.begin();
            threads.look(|doing| kinds.take(doing));
            kinds.end();
            into.extend(kinds.values());
        }
        Ok(())
    }

    fn found(&mut self) -> Vec<Subject> {
        self.kinds.as_mut().map(Kinds::found).unwrap_or_default()
    }
}

/// One side that is being watched.
pub(crate) struct Side {
    pids: Vec<u32>,
    name: String,
    tree: Rc<RefCell<Tree>>,
    threads: Option<Rc<RefCell<Threads>>>,
    /// What it had used at the moment that figures count from.
    base: Ticks,
}

impl Side {
    /// Watches the processes `pids` and their descendants, without `strangers`, as `whose` series. What cannot be read is said.
    ///
    /// # Errors
    /// None of the processes lives.
    pub(crate) fn open(
        samples: &mut Samples,
        root: &Root,
        whose: &'static str,
        pids: &[u32],
        strangers: &[u32],
        shown: &LastRead,
    ) -> io::Result<Self> {
        let tree = Tree::new(root, pids, strangers)?;
        let name = tree
            .members()
            .first()
            .map(|member| member.name.clone())
            .unwrap_or_default();
        let tree = Rc::new(RefCell::new(tree));
        let mut side = Self {
            pids: pids.to_vec(),
            name,
            threads: None,
            base: Ticks::default(),
            tree,
        };
        side.open_processes(samples, whose, Arc::clone(shown));
        side.open_threads(samples, root, whose);
        side.open_io(samples, root, whose);
        if threads_of(whose).is_some() {
            side.open_files(samples, root, whose);
        }
        side.mark();
        Ok(side)
    }

    fn open_processes(&self, samples: &mut Samples, whose: &'static str, shown: LastRead) {
        let ticks_per_s = ticks_per_s();
        // SAFETY: sysconf takes a plain number and touches no memory of ours.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as f64;
        let subjects = vec![
            subject(whose, "user", "s", Kind::Increase),
            subject(whose, "system", "s", Kind::Increase),
            subject(whose, "rss", "bytes", Kind::Level),
            subject(whose, "threads", "threads", Kind::Level),
            subject(whose, "processes", "processes", Kind::Level),
        ];
        let tree = Rc::clone(&self.tree);
        let source = format!("{whose}: /proc/PID/stat");
        samples.add(&source, PROCESSES, subjects, move |into| {
            let mut tree = tree.borrow_mut();
            let used = tree.read()?;
            let (user_s, system_s) = (
                used.user as f64 / ticks_per_s,
                used.system as f64 / ticks_per_s,
            );
            if let Ok(mut last) = shown.lock() {
                *last = Some(UsedCpu {
                    at: Instant::now(),
                    user: Duration::from_secs_f64(user_s),
                    system: Duration::from_secs_f64(system_s),
                });
            }
            into.extend([
                user_s,
                system_s,
                tree.rss_pages() as f64 * page,
                tree.threads() as f64,
                tree.members().len() as f64,
            ]);
            Ok(())
        });
        let tree = Rc::clone(&self.tree);
        let look = move |_: &mut Vec<f64>| {
            tree.borrow_mut().look_for_children();
            Ok(())
        };
        let source = format!("{whose}: children");
        samples.add_every(LOOK, &source, SELDOM, Vec::new(), Box::new(look));
    }

    fn open_threads(&mut self, samples: &mut Samples, root: &Root, whose: &'static str) {
        let threads = match Threads::new(root, &self.tree.borrow()) {
            Ok(threads) => Rc::new(RefCell::new(threads)),
            Err(error) => {
                samples.missing(format!("{whose}: threads: {error}"));
                return;
            }
        };
        self.threads = Some(Rc::clone(&threads));
        let jvm = jvm_of(whose).filter(|subject| self.open_jvm(samples, root, subject));
        let mut subjects = vec![
            subject(whose, "on_cpu", "s", Kind::Increase),
            subject(whose, "run_delay", "s", Kind::Increase),
        ];
        if let Some(jvm) = jvm {
            subjects.push(subject(jvm, "compiler_threads", "s", Kind::Increase));
            subjects.push(subject(jvm, "collector_threads", "s", Kind::Increase));
        }
        let (tree, all) = (Rc::clone(&self.tree), Rc::clone(&threads));
        let source = format!("{whose}: /proc/PID/task/TID/schedstat");
        samples.add(&source, THREADS, subjects, move |into| {
            let sums = all.borrow_mut().read_schedstat(&tree.borrow())?;
            let seconds = |ns: u64| ns as f64 / 1e9;
            into.extend([seconds(sums.on_cpu_ns), seconds(sums.waiting_ns)]);
            if jvm.is_some() {
                into.extend([seconds(sums.compiling_ns), seconds(sums.collecting_ns)]);
            }
            Ok(())
        });
        let by_name = ByName {
            tree: Rc::clone(&self.tree),
            threads,
            kinds: threads_of(whose).map(Kinds::of),
        };
        let subjects = vec![
            subject(whose, "voluntary_ctxt_switches", "count", Kind::Increase),
            subject(whose, "nonvoluntary_ctxt_switches", "count", Kind::Increase),
        ];
        let source = format!("{whose}: /proc/PID/task/TID/{{stat,status,wchan}}");
        samples.add_every(SLOW, &source, NAMES, subjects, Box::new(by_name));
    }

    /// Reads a JVM's own figures, where one of the processes is one; of several the first.
    fn open_jvm(&self, samples: &mut Samples, root: &Root, whose: &'static str) -> bool {
        for member in self.tree.borrow().members() {
            match Jvm::open(root, member.pid) {
                Ok(None) if member.name == "java" => samples.missing(format!(
                    "JVM figures: process {} keeps none (-XX:-UsePerfData?)",
                    member.pid
                )),
                Ok(None) => {}
                Err(line) => samples.missing(line),
                Ok(Some(mut jvm)) => {
                    let (path, subjects) = (jvm.path.clone(), jvm.subjects(whose));
                    samples.add(&path, SELDOM, subjects, move |into| jvm.read(into));
                    return true;
                }
            }
        }
        false
    }

    /// Reads what the processes had read and written; their parents are charged with it once they ended, as with their CPU.
    fn open_io(&self, samples: &mut Samples, root: &Root, whose: &'static str) {
        let (tree, root) = (Rc::clone(&self.tree), root.clone());
        let mut told = (0, 0);
        let read = move |into: &mut Vec<f64>| {
            let mut sum = (0, 0);
            let mut readable = Err(io::Error::new(io::ErrorKind::NotFound, "its process ended"));
            for member in tree.borrow().members() {
                match root.read(format!("/proc/{}/io", member.pid)) {
                    Ok(text) => {
                        let (read, written) = parse_io(&text).unwrap_or_default();
                        sum = (sum.0 + read, sum.1 + written);
                        readable = Ok(());
                    }
                    Err(error) if readable.is_err() => readable = Err(error),
                    Err(_) => {}
                }
            }
            readable?;
            told = (sum.0.max(told.0), sum.1.max(told.1));
            into.extend([told.0 as f64, told.1 as f64]);
            Ok(())
        };
        let subjects = vec![
            subject(whose, "read_bytes", "bytes", Kind::Increase),
            subject(whose, "write_bytes", "bytes", Kind::Increase),
        ];
        let source = format!("{whose}: /proc/PID/io");
        samples.add_every(SLOW, &source, SELDOM, subjects, Box::new(read));
    }

    /// Reads how many files the process has open that is nearest to its limit, and that limit.
    fn open_files(&self, samples: &mut Samples, root: &Root, whose: &'static str) {
        let (tree, root) = (Rc::clone(&self.tree), root.clone());
        let read = move |into: &mut Vec<f64>| {
            let mut nearest: Option<(f64, f64, f64)> = None;
            let mut failed = io::Error::new(io::ErrorKind::NotFound, "its process ended");
            for member in tree.borrow().members() {
                match open_files(&root, member.pid) {
                    Ok((open, limit)) => {
                        let share = open / limit;
                        if nearest.is_none_or(|(most, ..)| share > most) {
                            nearest = Some((share, open, limit));
                        }
                    }
                    Err(error) => failed = error,
                }
            }
            let (_, open, limit) = nearest.ok_or(failed)?;
            into.extend([open, limit]);
            Ok(())
        };
        let subjects = vec![
            subject(whose, "open_files", "files", Kind::Level),
            subject(whose, "open_files_limit", "files", Kind::Level),
        ];
        let source = format!("{whose}: /proc/PID/fd");
        samples.add_every(SLOW, &source, SELDOM, subjects, Box::new(read));
    }

    /// Reads the connections that it opened itself; those of `port` are the load's.
    pub(crate) fn open_upstreams(
        &self,
        samples: &mut Samples,
        root: &Root,
        port: u16,
        diag: SockDiag,
    ) {
        let tree = Rc::clone(&self.tree);
        let upstreams = Upstreams::new(diag, root, tree, port, "server upstreams");
        let source = "sock_diag: upstreams";
        samples.add_every(SLOW, source, SELDOM, Vec::new(), Box::new(upstreams));
    }

    /// Reads how often the control group of its processes was kept from running: that of the first of them which is in another one than
    /// `own`, for what starts a server may put it in one and stay outside.
    pub(crate) fn open_cgroup(
        &self,
        samples: &mut Samples,
        root: &Root,
        own: Option<cgroup::Group>,
    ) {
        let own = host::throttled_level(root, own);
        let tree = self.tree.borrow();
        let pids = tree.members().iter().map(|member| member.pid);
        let mut levels =
            pids.filter_map(|pid| host::throttled_level(root, cgroup::group_of(root, pid, "cpu")));
        if let Some(level) = levels.find(|level| Some(level) != own.as_ref()) {
            host::throttling(samples, root, "server cgroup", &level);
        }
    }

    /// Figures of [`Side::seen`] count from now.
    pub(crate) fn mark(&mut self) {
        let mut tree = self.tree.borrow_mut();
        // A tree that has ended keeps what it used.
        self.base = tree.read().unwrap_or_else(|_| tree.told());
        if let Some(threads) = &self.threads {
            let mut threads = threads.borrow_mut();
            threads.list(&tree, true);
            // Threads that ended in between are read no more.
            let _ = threads.read_schedstat(&tree);
            threads.mark();
        }
    }

    /// One of the processes that it was opened with.
    pub(crate) fn first_pid(&self) -> Option<u32> {
        self.pids.first().copied()
    }

    /// Name of its first process, and those that it was opened with.
    pub(crate) fn named(&self) -> (String, Vec<u32>) {
        (self.name.clone(), self.pids.clone())
    }

    /// Whether any of its processes lived when they were last read.
    pub(crate) fn lives(&self) -> bool {
        !self.tree.borrow().members().is_empty()
    }

    /// What the threads used since this was last asked, as far as their own readings have come; those that used nothing are left
    /// out.
    pub(crate) fn drain_threads(&mut self) -> (Vec<ServerThread>, Option<OtherThreads>) {
        let told = self.tree.borrow().told();
        let used = told.since(self.base);
        self.base = told;
        let Some(threads) = &self.threads else {
            return (Vec::new(), None);
        };
        let mut threads = threads.borrow_mut();
        let (mut named, others) = threads.most(used, ticks_per_s(), DRAINED);
        threads.count_from_now();
        named.retain(|thread| thread.on_cpu_s + thread.run_delay_s > 0.0);
        (named, others)
    }

    /// Leaves a process and its descendants out.
    pub(crate) fn disown(&self, pid: u32) {
        self.tree.borrow_mut().disown(pid);
    }

    /// The processes and threads, since the mark.
    pub(crate) fn seen(&self) -> ServerSeen {
        let mut tree = self.tree.borrow_mut();
        let now = tree.read().unwrap_or_else(|_| tree.told());
        let used = now.since(self.base);
        let (threads, other_threads) = match &self.threads {
            Some(threads) => {
                let mut threads = threads.borrow_mut();
                let _ = threads.read_schedstat(&tree);
                threads.read_stat();
                threads.most(used, ticks_per_s(), NAMED)
            }
            None => (Vec::new(), None),
        };
        // SAFETY: sysconf takes a plain number and touches no memory of ours.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        ServerSeen {
            name: self.name.clone(),
            pids: self.pids.clone(),
            processes: tree.most_members as u64,
            peak_rss_bytes: tree.peak_rss_pages() * u64::try_from(page).unwrap_or(4096),
            threads,
            other_threads,
        }
    }
}

/// How many files a process has open, and how many it may have.
fn open_files(root: &Root, pid: u32) -> io::Result<(f64, f64)> {
    let folder = root.path(format!("/proc/{pid}/fd"));
    // Linux 6.2 and later tell it as the folder's size.
    let open = match std::fs::metadata(&folder)?.len() {
        0 => std::fs::read_dir(&folder)?.count() as u64,
        open => open,
    };
    let limits = limits::parse(&root.read(format!("/proc/{pid}/limits"))?);
    let limit = limits.get("nofile").copied().unwrap_or(u64::MAX);
    Ok((open as f64, limit as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_of_a_process_and_its_limit() {
        let root = Root::host();
        let own = std::process::id();
        let (before, limit) = open_files(&root, own).unwrap();
        let held: Vec<_> = (0..50)
            .map(|_| std::fs::File::open("/proc/self/stat").unwrap())
            .collect();
        let (open, _) = open_files(&root, own).unwrap();
        drop(held);
        // Other tests of this process open and close files meanwhile.
        assert!(open >= 50.0 && open <= limit, "{before} {open} {limit}");
        assert_eq!(limit, limits::open_files(&root).unwrap().soft as f64);
        assert!(open_files(&root, u32::MAX).is_err());
    }
}
