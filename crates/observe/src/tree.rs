//! A process tree and the CPU time that it has used.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::AddAssign;

use procfs_core::FromRead;
use procfs_core::process::Stat;

use crate::Root;
use crate::root::KernelFile;

/// Tolerance in clock ticks when a child's last sample is compared with the CPU time charged to its
/// parent. Both values are rounded down.
const ROUNDING: u64 = 2;

/// Maximum number of samples to wait for a parent to be charged for an ended child.
const MAX_WAIT_SAMPLES: u32 = 20;

/// Error for a process tree without running processes.
pub(crate) const ENDED: &str = "the process ended";

/// CPU time in clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    pub user: u64,
    pub system: u64,
}

impl Ticks {
    /// Returns the CPU time charged to a process, including that of children it waited for.
    fn of(stat: &Stat) -> Self {
        Self {
            user: stat.utime + stat.cutime.cast_unsigned(),
            system: stat.stime + stat.cstime.cast_unsigned(),
        }
    }

    fn sum(self) -> u64 {
        self.user + self.system
    }

    /// Returns the CPU time used since an earlier sample.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

impl AddAssign for Ticks {
    fn add_assign(&mut self, other: Self) {
        self.user += other.user;
        self.system += other.system;
    }
}

/// A process of the tree.
#[derive(Debug)]
pub(crate) struct Member {
    pub pid: u32,
    file: KernelFile,
    /// Last sample of the file.
    pub stat: Stat,
    /// CPU time charged for children but not yet matched to an ended member, in clock ticks.
    unexplained: u64,
}

impl Member {
    fn open(root: &Root, pid: u32) -> Option<Self> {
        let mut file = KernelFile::open(root, format!("/proc/{pid}/stat")).ok()?;
        let stat = Stat::from_read(file.bytes().ok()?).ok()?;
        Some(Self {
            pid,
            file,
            stat,
            unexplained: 0,
        })
    }

    fn parent(&self) -> u32 {
        self.stat.ppid.cast_unsigned()
    }
}

/// Returns the PIDs of a process and all its descendants. Processes that can't be read are omitted.
#[must_use]
pub fn family(root: &Root, pid: u32) -> Vec<u32> {
    let members = Tree::new(root, &[pid], None).map(|tree| tree.members);
    let members = members.unwrap_or_default().into_iter();
    members.map(|member| member.pid).collect()
}

/// An ended process whose CPU time may not have been charged to its parent yet.
#[derive(Debug)]
struct EndedProcess {
    parent: u32,
    used: Ticks,
    readings: u32,
}

/// Processes and all of their descendants.
///
/// When a child ends, its CPU time moves to its parent if the parent waits for it. If the parent
/// ignores `SIGCHLD`, the child's last sample is kept. A child that starts and ends between two
/// searches is included only in its parent's CPU time.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Root,
    /// Running processes. The initial processes come first.
    pub members: Vec<Member>,
    /// Processes to exclude, including their descendants.
    excluded: HashSet<u32>,
    /// PIDs seen by the last search.
    seen: HashSet<u32>,
    ended: Vec<EndedProcess>,
    /// CPU time of ended processes that was not charged to a parent.
    lost: Ticks,
    /// CPU time at the last sample. This value never decreases, even after all members have ended.
    pub used: Ticks,
    /// Maximum resident memory of all members together, in pages.
    pub peak_rss_pages: u64,
    /// Maximum number of members at once.
    pub most_members: usize,
}

impl Tree {
    /// Follows the processes `pids` and their descendants, except `excluded`.
    ///
    /// # Errors
    /// None of `pids` can be read.
    pub(crate) fn new(root: &Root, pids: &[u32], excluded: Option<u32>) -> io::Result<Self> {
        let members = pids.iter().filter_map(|pid| Member::open(root, *pid));
        let members: Vec<Member> = members.collect();
        if members.is_empty() {
            return Err(io::Error::other("the process does not exist"));
        }
        let mut tree = Self {
            root: root.clone(),
            members,
            excluded: excluded.into_iter().collect(),
            seen: HashSet::new(),
            ended: Vec::new(),
            lost: Ticks::default(),
            used: Ticks::default(),
            peak_rss_pages: 0,
            most_members: 0,
        };
        tree.find_children();
        Ok(tree)
    }

    /// Excludes a process.
    pub(crate) fn exclude(&mut self, pid: u32) {
        self.excluded.insert(pid);
        self.members.retain(|member| member.pid != pid);
    }

    /// Finds new descendants, except those whose parent has already ended.
    pub(crate) fn find_children(&mut self) {
        let all = self.root.numbered("/proc");
        let mut new: Vec<Member> = all
            .iter()
            .filter(|pid| !self.seen.contains(pid) && !self.excluded.contains(pid))
            .filter(|pid| self.members.iter().all(|member| member.pid != **pid))
            .filter_map(|pid| Member::open(&self.root, *pid))
            .collect();
        // A grandchild's PID may be lower than its parent's, so repeat until nothing new is found.
        loop {
            let ours: HashSet<u32> = self.members.iter().map(|member| member.pid).collect();
            let is_ours = |member: &mut Member| ours.contains(&member.parent());
            let before = self.members.len();
            self.members.extend(new.extract_if(.., is_ours));
            if self.members.len() == before {
                break;
            }
        }
        self.seen = all.into_iter().collect();
        self.most_members = self.most_members.max(self.members.len());
    }

    /// Returns the CPU time that the tree has used since its processes started. This value never
    /// decreases.
    ///
    /// # Errors
    /// All members have ended.
    pub(crate) fn read(&mut self) -> io::Result<Ticks> {
        let ended = &mut self.ended;
        self.members.retain_mut(|member| {
            let bytes = member.file.bytes().ok();
            let Some(now) = bytes.and_then(|bytes| Stat::from_read(bytes).ok()) else {
                ended.push(EndedProcess {
                    parent: member.parent(),
                    used: Ticks::of(&member.stat),
                    readings: 0,
                });
                return false;
            };
            let charged = |stat: &Stat| (stat.cutime + stat.cstime).cast_unsigned();
            member.unexplained += charged(&now).saturating_sub(charged(&member.stat));
            member.stat = now;
            true
        });
        self.settle();
        let mut used = self.lost;
        let members = self.members.iter().map(|member| Ticks::of(&member.stat));
        for ticks in members.chain(self.ended.iter().map(|ended| ended.used)) {
            used += ticks;
        }
        self.used = Ticks {
            user: used.user.max(self.used.user),
            system: used.system.max(self.used.system),
        };
        self.peak_rss_pages = self.peak_rss_pages.max(self.rss_pages());
        if self.members.is_empty() {
            return Err(io::Error::other(ENDED));
        }
        Ok(self.used)
    }

    /// Removes ended processes whose CPU time has been charged to their parent. If the CPU time of
    /// an ended process is not charged in time, or its parent has ended, adds this CPU time to
    /// `lost`.
    fn settle(&mut self) {
        let members = self.members.iter_mut();
        let parents = members.map(|member| (member.pid, &mut member.unexplained));
        let mut parents: HashMap<u32, &mut u64> = parents.collect();
        let lost = &mut self.lost;
        self.ended.retain_mut(|ended| {
            let used = ended.used.sum();
            ended.readings += 1;
            match parents.get_mut(&ended.parent) {
                Some(charged) if **charged + ROUNDING >= used => {
                    **charged = charged.saturating_sub(used);
                    false
                }
                Some(_) if ended.readings < MAX_WAIT_SAMPLES => true,
                _ => {
                    *lost += ended.used;
                    false
                }
            }
        });
    }

    /// Returns the resident memory of all members, in pages. Counts shared pages once per member.
    pub(crate) fn rss_pages(&self) -> u64 {
        let each = self.members.iter().map(|member| member.stat.rss);
        each.sum()
    }

    /// Returns the total number of threads of all members.
    pub(crate) fn threads(&self) -> u64 {
        let each = self
            .members
            .iter()
            .map(|member| member.stat.num_threads.cast_unsigned());
        each.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::ticks_per_s;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    /// A shell that executes commands and prints a line after each.
    struct Shell(Child);

    impl Shell {
        fn start() -> Self {
            let mut command = Command::new("sh");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            Shell(command.spawn().unwrap())
        }

        /// Executes a command and returns the line it prints.
        fn run(&mut self, command: &str) -> String {
            writeln!(self.0.stdin.as_mut().unwrap(), "{command}").unwrap();
            self.line()
        }

        fn line(&mut self) -> String {
            let mut line = String::new();
            let mut stdout = BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap());
            stdout.read_line(&mut line).unwrap();
            line.trim().to_owned()
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A command that uses CPU and prints nothing.
    const BURN: &str = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'";

    fn tree_of(shell: &Shell) -> Tree {
        Tree::new(&Root::host(), &[shell.0.id()], None).unwrap()
    }

    /// Returns the CPU seconds used by the shell and its ended children (`times` prints
    /// `0m0.120000s`).
    fn times(shell: &mut Shell) -> f64 {
        let text = shell.run("times") + " " + &shell.line();
        text.split_ascii_whitespace()
            .map(|word| {
                let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
                minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
            })
            .sum()
    }

    #[test]
    fn counts_children_once_before_and_after_they_end() {
        let mut shell = Shell::start();
        let mut tree = tree_of(&shell);
        let before = tree.read().unwrap().sum();
        let mut last = before;
        shell.run(&format!("for n in 1 2 3 4; do {BURN} & done; echo started"));
        let begin = Instant::now();
        tree.find_children();
        assert!(tree.members.len() > 1, "{:?}", tree.members);
        writeln!(shell.0.stdin.as_mut().unwrap(), "wait").unwrap();
        while tree.members.len() > 1 && begin.elapsed() < Duration::from_secs(60) {
            tree.find_children();
            let now = tree.read().unwrap().sum();
            assert!(now >= last, "decreased from {last} to {now}");
            last = now;
            std::thread::sleep(Duration::from_millis(5));
        }
        let truth = times(&mut shell);
        for _ in 0..=MAX_WAIT_SAMPLES {
            last = tree.read().unwrap().sum();
        }
        let measured = (last - before) as f64 / ticks_per_s();
        // Each process rounds user and system time down to ticks of 10 ms.
        assert!(
            (measured - truth).abs() <= 0.11,
            "measured {measured} s, the shell reports {truth} s"
        );
        assert!(truth > 0.1, "{truth}");
    }

    #[test]
    fn keeps_orphaned_descendants() {
        let mut shell = Shell::start();
        let mut tree = tree_of(&shell);
        // The tree finds the grandchild before the grandchild's parent ends.
        let pid: u32 = shell
            .run("sh -c 'sleep 60 & echo $!; sleep 0.5'")
            .parse()
            .unwrap();
        tree.find_children();
        assert!(tree.members.iter().any(|member| member.pid == pid));
        shell.run("echo waited");
        tree.find_children();
        assert!(tree.read().is_ok());
        assert!(
            tree.members
                .iter()
                .any(|member| member.pid == pid && member.parent() != shell.0.id()),
            "{:?}",
            tree.members
        );
        shell.run(&format!("kill {pid}; echo killed"));
    }

    #[test]
    fn an_ended_tree_fails_and_keeps_its_cpu() {
        let mut shell = Shell::start();
        let mut tree = tree_of(&shell);
        shell.run(&format!("{}; echo burnt", BURN.replace("sh -c", "eval")));
        let used = tree.read().unwrap();
        assert!(used.sum() > 0);
        shell.0.kill().unwrap();
        shell.0.wait().unwrap();
        assert!(tree.read().is_err());
        assert_eq!(tree.used, used);
        assert!(tree.peak_rss_pages > 0);
        assert!(Tree::new(&Root::host(), &[shell.0.id()], None).is_err());
    }

    #[test]
    fn leaves_out_excluded_processes() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        let with = Tree::new(&Root::host(), &[own], None).unwrap();
        let without = Tree::new(&Root::host(), &[own], Some(child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let has = |tree: &Tree| tree.members.iter().any(|m| m.pid == child.id());
        assert!(has(&with));
        assert!(!has(&without));
    }
}
