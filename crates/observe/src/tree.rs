//! A process and its descendants, followed as they come and go, and the CPU that all of them used.

use std::collections::{HashMap, HashSet};
use std::io;

use crate::Root;
use crate::account::{Account, name};
use crate::kept::Kept;

/// Clock ticks by which an ended child's last reading may exceed what its parent was charged for it: both are rounded down.
const ROUNDING: u64 = 2;

/// For how many readings an ended child is looked for in its parent's account.
const PATIENCE: u32 = 20;

/// CPU in clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    pub user: u64,
    pub system: u64,
}

impl Ticks {
    /// What a process is charged with: its own, and that of children it waited for.
    fn of(account: &Account) -> Self {
        Self {
            user: account.user + account.children_user,
            system: account.system + account.children_system,
        }
    }

    fn sum(self) -> u64 {
        self.user + self.system
    }

    /// What was used since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
        }
    }
}

/// A process of the tree.
#[derive(Debug)]
pub(crate) struct Member {
    pub pid: u32,
    pub name: String,
    stat: Kept,
    pub account: Account,
    /// What its children's account grew by that no ended member explains yet, clock ticks.
    unexplained: u64,
}

impl Member {
    fn open(root: &Root, pid: u32) -> Option<Self> {
        let mut stat = Kept::open(root, format!("/proc/{pid}/stat")).ok()?;
        let bytes = stat.bytes().ok()?;
        let (account, name) = (Account::parse(bytes)?, name(bytes));
        Some(Self {
            pid,
            name,
            stat,
            account,
            unexplained: 0,
        })
    }
}

/// A process and its descendants, those of them that may be read.
#[must_use]
pub fn family(root: &Root, pid: u32) -> Vec<u32> {
    let tree = Tree::new(root, &[pid], &[]);
    tree.map_or_else(
        |_| Vec::new(),
        |tree| tree.members.iter().map(|member| member.pid).collect(),
    )
}

/// An ended process, until it is known whether its parent was charged with it.
#[derive(Debug)]
struct Ended {
    parent: u32,
    used: Ticks,
    readings: u32,
}

/// A server, or the load process, with all of its descendants.
///
/// A child that ends is in its parent's account from then on, if the parent waits for it; if not (`SIGCHLD` ignored), its last
/// reading is kept. Children that come and go between two looks at the machine's processes are in the former only.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Root,
    members: Vec<Member>,
    /// Processes that do not belong to it whatever their parents: the one that watches.
    strangers: HashSet<u32>,
    /// Of the last look at all processes.
    seen: HashSet<u32>,
    ended: Vec<Ended>,
    /// Of ended processes that nobody was charged with.
    lost: Ticks,
    /// What was told last: never less is told later.
    told: Ticks,
    /// Most resident memory of all members together so far, pages.
    peak_rss_pages: u64,
    /// Most members at once so far.
    pub most_members: usize,
}

impl Tree {
    /// The processes `pids` and their descendants without `strangers` and theirs.
    ///
    /// # Errors
    /// None of `pids` can be read.
    pub(crate) fn new(root: &Root, pids: &[u32], strangers: &[u32]) -> io::Result<Self> {
        let members: Vec<Member> = pids
            .iter()
            .filter_map(|pid| Member::open(root, *pid))
            .collect();
        if members.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the process is gone",
            ));
        }
        let mut tree = Self {
            root: root.clone(),
            members,
            strangers: strangers.iter().copied().collect(),
            seen: HashSet::new(),
            ended: Vec::new(),
            lost: Ticks::default(),
            told: Ticks::default(),
            peak_rss_pages: 0,
            most_members: 0,
        };
        tree.look_for_children();
        Ok(tree)
    }

    /// Leaves a process out from now on.
    pub(crate) fn disown(&mut self, pid: u32) {
        self.strangers.insert(pid);
        self.members.retain(|member| member.pid != pid);
    }

    /// The members, those that were named first.
    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Goes over the machine's processes for new descendants. One whose parent ended before this look is not found.
    pub(crate) fn look_for_children(&mut self) {
        let all = self.root.numbered("/proc");
        let mut new: Vec<Member> = all
            .iter()
            .filter(|pid| !self.seen.contains(pid) && !self.strangers.contains(pid))
            .filter(|pid| self.members.iter().all(|member| member.pid != **pid))
            .filter_map(|pid| Member::open(&self.root, *pid))
            .collect();
        // A grandchild may have a lower id than its parent: go on until nobody more belongs.
        loop {
            let before = self.members.len();
            let ours: HashSet<u32> = self.members.iter().map(|member| member.pid).collect();
            let (add, rest) = new
                .into_iter()
                .partition(|member: &Member| ours.contains(&member.account.parent));
            self.members.extend::<Vec<Member>>(add);
            new = rest;
            if self.members.len() == before {
                break;
            }
        }
        self.seen = all.into_iter().collect();
        self.most_members = self.most_members.max(self.members.len());
    }

    /// Reads all members: CPU of the tree since its processes began. It never goes back.
    ///
    /// # Errors
    /// No member lives any more.
    pub(crate) fn read(&mut self) -> io::Result<Ticks> {
        let mut ended = Vec::new();
        self.members.retain_mut(|member| {
            let now = member.stat.bytes().ok().and_then(Account::parse);
            let Some(now) = now else {
                ended.push(Ended {
                    parent: member.account.parent,
                    used: Ticks::of(&member.account),
                    readings: 0,
                });
                return false;
            };
            let charged = |account: &Account| account.children_user + account.children_system;
            member.unexplained += charged(&now).saturating_sub(charged(&member.account));
            member.account = now;
            true
        });
        self.ended.append(&mut ended);
        self.settle();
        let told = self.members.iter().fold(self.lost, |sum, member| {
            sum.plus(Ticks::of(&member.account))
        });
        let told = self
            .ended
            .iter()
            .fold(told, |sum, ended| sum.plus(ended.used));
        self.told = Ticks {
            user: told.user.max(self.told.user),
            system: told.system.max(self.told.system),
        };
        self.peak_rss_pages = self.peak_rss_pages.max(self.rss_pages());
        if self.members.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its process ended"));
        }
        Ok(self.told)
    }

    /// Drops ended members that their parents are charged with now.
    fn settle(&mut self) {
        let mut parents: HashMap<u32, &mut u64> = self
            .members
            .iter_mut()
            .map(|member| (member.pid, &mut member.unexplained))
            .collect();
        let lost = &mut self.lost;
        self.ended.retain_mut(|ended| {
            let used = ended.used.sum();
            ended.readings += 1;
            match parents.get_mut(&ended.parent) {
                Some(charged) if **charged + ROUNDING >= used => {
                    **charged = charged.saturating_sub(used);
                    false
                }
                Some(_) if ended.readings < PATIENCE => true,
                _ => {
                    *lost = lost.plus(ended.used);
                    false
                }
            }
        });
    }

    /// CPU as it was last read, also after all members have ended.
    pub(crate) fn told(&self) -> Ticks {
        self.told
    }

    /// Resident memory of all members; pages that several of them map count for each.
    pub(crate) fn rss_pages(&self) -> u64 {
        let each = self.members.iter().map(|member| member.account.rss_pages);
        each.sum()
    }

    /// Most of that at any reading.
    pub(crate) fn peak_rss_pages(&self) -> u64 {
        self.peak_rss_pages
    }

    /// Threads of all members.
    pub(crate) fn threads(&self) -> u64 {
        self.members
            .iter()
            .map(|member| member.account.threads)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::ticks_per_s;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    /// A shell that reads commands and answers with a line after each.
    struct Shell(Child);

    impl Shell {
        fn start() -> Self {
            let mut command = Command::new("sh");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            Shell(command.spawn().unwrap())
        }

        /// Runs a command and gives the line it prints.
        fn ask(&mut self, command: &str) -> String {
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

    /// A command that burns CPU and prints nothing.
    const BURN: &str = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'";

    fn tree_of(shell: &Shell) -> Tree {
        Tree::new(&Root::host(), &[shell.0.id()], &[]).unwrap()
    }

    /// What the shell says that it and its ended children used, seconds (`times` prints `0m0.120000s`).
    fn times(shell: &mut Shell) -> f64 {
        let text = shell.ask("times") + " " + &shell.line();
        text.split_ascii_whitespace()
            .map(|word| {
                let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
                minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
            })
            .sum()
    }

    #[test]
    fn children_count_once_while_they_run_and_after_they_were_waited_for() {
        let mut shell = Shell::start();
        let mut tree = tree_of(&shell);
        let before = tree.read().unwrap().sum();
        let mut last = before;
        shell.ask(&format!("for n in 1 2 3 4; do {BURN} & done; echo started"));
        let begin = Instant::now();
        tree.look_for_children();
        assert!(tree.members().len() > 1, "{:?}", tree.members());
        writeln!(shell.0.stdin.as_mut().unwrap(), "wait").unwrap();
        while tree.members().len() > 1 && begin.elapsed() < Duration::from_secs(60) {
            tree.look_for_children();
            let now = tree.read().unwrap().sum();
            assert!(now >= last, "went back from {last} to {now}");
            last = now;
            std::thread::sleep(Duration::from_millis(5));
        }
        let truth = times(&mut shell);
        for _ in 0..=PATIENCE {
            last = tree.read().unwrap().sum();
        }
        let told = (last - before) as f64 / ticks_per_s();
        // Each process rounds user and system down to ticks of 10 ms.
        assert!(
            (told - truth).abs() <= 0.11,
            "{told} s, the shell: {truth} s"
        );
        assert!(truth > 0.1, "{truth}");
    }

    #[test]
    fn children_that_nobody_waits_for_are_not_lost() {
        let mut shell = Shell::start();
        let mut tree = tree_of(&shell);
        // The grandchild's parent ends at once; it was seen before, so it still belongs.
        let pid: u32 = shell
            .ask("sh -c 'sleep 60 & echo $!; sleep 0.5'")
            .parse()
            .unwrap();
        tree.look_for_children();
        assert!(tree.members().iter().any(|member| member.pid == pid));
        shell.ask("echo waited");
        tree.look_for_children();
        assert!(tree.read().is_ok());
        assert!(
            tree.members()
                .iter()
                .any(|member| member.pid == pid && member.account.parent != shell.0.id()),
            "{:?}",
            tree.members()
        );
        shell.ask(&format!("kill {pid}; echo killed"));
    }

    #[test]
    fn an_ended_tree_says_so_and_keeps_what_it_used() {
        let mut shell = Shell::start();
        let mut tree = tree_of(&shell);
        shell.ask(&format!("{}; echo burnt", BURN.replace("sh -c", "eval")));
        let used = tree.read().unwrap();
        assert!(used.sum() > 0);
        shell.0.kill().unwrap();
        shell.0.wait().unwrap();
        assert!(tree.read().is_err());
        assert_eq!(tree.told(), used);
        assert!(tree.peak_rss_pages() > 0);
        assert!(Tree::new(&Root::host(), &[shell.0.id()], &[]).is_err());
    }

    #[test]
    fn strangers_do_not_belong() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        let with = Tree::new(&Root::host(), &[own], &[]).unwrap();
        let without = Tree::new(&Root::host(), &[own], &[child.id()]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let has = |tree: &Tree| tree.members().iter().any(|m| m.pid == child.id());
        assert!(has(&with));
        assert!(!has(&without));
    }
}
