//! Activity of thread groups. Threads whose names differ only in a trailing number form a group.
//! The main thread of a process with several threads is a group of its own.

use std::borrow::Cow;

use floodmark_record::Metric;
use floodmark_record::metric::{Role, ThreadGroupFigure, WaitKind, WaitObject};

use crate::figures::Figures;
use crate::threads::ThreadActivity;

/// Maximum number of groups with a series at the same time. A JVM has about twenty groups of its
/// own, and half of them are idle.
const MAX_GROUPS: usize = 24;

/// Maximum number of kernel functions per group that have a series.
const MAX_FUNCTIONS: usize = 6;

/// Minimum activity of a working thread, as a share of the busiest thread's activity.
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

/// Returns the metrics of a role's thread groups. Group and kernel function names are empty.
pub(crate) fn produced(role: Role) -> impl Iterator<Item = Metric> {
    let waiting = Metric::ThreadsWaitingIn {
        role,
        group: String::new(),
        function: String::new(),
    };
    let blocked = Metric::ThreadsBlocked {
        role,
        group: String::new(),
        object: WaitObject::Kind(WaitKind::Other),
    };
    let figures = ThreadGroupFigure::ALL.iter();
    let groups = figures.map(move |figure| Metric::ThreadGroup(role, String::new(), *figure));
    groups.chain([waiting, blocked])
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

    /// Adds the group of a thread and returns its index. At the limit, an active group
    /// replaces one that has never been active. Returns `None` if there is no such group, or if the
    /// new group is not active.
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

/// Returns the name of a thread's group: the thread's name without a trailing number, and without
/// brackets around the name. `program` is 1 for the first program with the name of the thread's
/// process.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
