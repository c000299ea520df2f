//! What the threads of a side do, by kind: threads whose names differ only in what numbers them.

use crate::figures::Figures;
use crate::series::Subject;
use crate::threads::Doing;

/// Kinds that have series of their own, in the order in which they come up; a JVM has about twenty, of which half never do anything.
const MOST_KINDS: usize = 24;

/// Functions of the kernel that threads of one kind wait in which have a series of their own.
const MOST_FUNCTIONS: usize = 6;

/// A thread belongs to those that work where it did this share of what the busiest of its kind did.
const AT_WORK: f64 = 0.2;

/// One kind.
#[derive(Debug, Default)]
struct Kind {
    name: String,
    functions: Vec<String>,
    /// Sums so far.
    waits: u64,
    on_cpu_ns: u64,
    /// Of each of its threads since the last reading.
    did: Vec<(u64, u64)>,
}

impl Kind {
    /// How many of its threads worked.
    fn at_work(&self) -> usize {
        let part = |of: fn(&(u64, u64)) -> u64| {
            let most = self.did.iter().map(of).max().unwrap_or(0);
            move |did: &(u64, u64)| most > 0 && of(did) as f64 >= AT_WORK * most as f64
        };
        let (waited, ran) = (part(|did| did.0), part(|did| did.1));
        let works = |did: &&(u64, u64)| waited(did) || ran(did);
        self.did.iter().filter(works).count()
    }
}

/// The kinds of a side's threads.
#[derive(Debug)]
pub(crate) struct Kinds {
    figures: Figures,
    kinds: Vec<Kind>,
}

impl Kinds {
    /// As series of a subject: `KIND threads`, of which `KIND at work`; `KIND waits`, the times that they gave the CPU up to wait;
    /// `KIND on_cpu`; and `KIND in FUNCTION`, how many were found waiting in a function of the kernel.
    pub(crate) fn of(subject: &'static str) -> Self {
        Self {
            figures: Figures::of(subject),
            kinds: Vec::new(),
        }
    }

    /// Begins a reading.
    pub(crate) fn begin(&mut self) {
        self.figures.begin();
        self.kinds.iter_mut().for_each(|kind| kind.did.clear());
    }

    /// Takes a thread in.
    pub(crate) fn take(&mut self, doing: Doing<'_>) {
        let name = kind_of(doing.name);
        let known = self.kinds.iter().position(|kind| kind.name == name);
        let Some(at) = known.or_else(|| {
            (self.kinds.len() < MOST_KINDS).then(|| {
                self.kinds.push(Kind {
                    name: name.to_owned(),
                    ..Kind::default()
                });
                self.kinds.len() - 1
            })
        }) else {
            return;
        };
        let kind = &mut self.kinds[at];
        kind.waits += doing.waits;
        kind.on_cpu_ns += doing.on_cpu_ns;
        kind.did.push((doing.waits, doing.on_cpu_ns));
        let Some(function) = doing.waits_in else {
            return;
        };
        if !kind.functions.iter().any(|known| known == function) {
            if kind.functions.len() == MOST_FUNCTIONS {
                return;
            }
            kind.functions.push(function.to_owned());
        }
        self.figures
            .level(format!("{name} in {function}"), "threads", 1.0);
    }

    /// Ends a reading.
    pub(crate) fn end(&mut self) {
        for kind in &self.kinds {
            let name = &kind.name;
            let level = |count: usize| count as f64;
            let figures = &mut self.figures;
            figures.level(format!("{name} threads"), "threads", level(kind.did.len()));
            figures.level(format!("{name} at work"), "threads", level(kind.at_work()));
            figures.counter(format!("{name} waits"), "count", kind.waits as f64);
            figures.counter(format!("{name} on_cpu"), "s", kind.on_cpu_ns as f64 / 1e9);
        }
    }

    /// The values, in the order in which their series were found.
    pub(crate) fn values(&self) -> &[f64] {
        self.figures.values()
    }

    /// Series that are new.
    pub(crate) fn found(&mut self) -> Vec<Subject> {
        self.figures.found()
    }
}

/// The name without the number at its end.
fn kind_of(name: &str) -> &str {
    let kind = name
        .trim_end_matches(|c: char| c.is_ascii_digit())
        .trim_end_matches(['-', '_', '#', ':', '/', '.', ' ']);
    if kind.is_empty() { name } else { kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doing<'a>(name: &'a str, waits: u64, waits_in: Option<&'a str>) -> Doing<'a> {
        Doing {
            name,
            waits_in,
            waits,
            on_cpu_ns: 1_000_000 * waits,
        }
    }

    fn value(kinds: &Kinds, names: &[String], name: &str) -> f64 {
        let at = names.iter().position(|n| n == name);
        kinds.values()[at.unwrap_or_else(|| panic!("no {name} in {names:?}"))]
    }

    #[test]
    fn threads_are_told_apart_by_what_is_not_their_number() {
        for (name, kind) in [
            ("pool-1-thread-3", "pool-1-thread"),
            ("GC Thread#0", "GC Thread"),
            ("worker_12", "worker"),
            ("node", "node"),
            ("7", "7"),
            ("", ""),
        ] {
            assert_eq!(kind_of(name), kind);
        }
    }

    #[test]
    fn those_at_work_are_counted_and_what_they_wait_in() {
        let mut kinds = Kinds::of("server threads");
        let mut names: Vec<String> = Vec::new();
        for _ in 0..2 {
            kinds.begin();
            for (name, waits, waits_in) in [
                ("pool-1-thread-1", 50, Some("futex_wait_queue")),
                ("pool-1-thread-2", 45, Some("futex_wait_queue")),
                ("pool-1-thread-3", 1, Some("futex_wait_queue")),
                ("main", 0, Some("do_epoll_wait")),
                ("busy", 9, None),
            ] {
                kinds.take(doing(name, waits, waits_in));
            }
            kinds.end();
            let found = kinds.found().into_iter();
            names.extend(found.map(|subject| subject.metric.into_owned()));
        }
        assert_eq!(value(&kinds, &names, "pool-1-thread threads"), 3.0);
        assert_eq!(value(&kinds, &names, "pool-1-thread at work"), 2.0);
        assert_eq!(value(&kinds, &names, "pool-1-thread waits"), 192.0);
        let waiting = value(&kinds, &names, "pool-1-thread in futex_wait_queue");
        assert_eq!(waiting, 3.0);
        assert_eq!(value(&kinds, &names, "main threads"), 1.0);
        assert!(!names.iter().any(|name| name == "main at work"));
        assert!(!names.iter().any(|name| name.starts_with("busy in")));
        assert!((value(&kinds, &names, "busy on_cpu") - 0.018).abs() < 1e-9);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut kinds = Kinds::of("server threads");
        kinds.begin();
        let names: Vec<String> = (0..100).map(|i| format!("{i}-x")).collect();
        let functions: Vec<String> = (0..100).map(|i| format!("f{i}")).collect();
        for (name, function) in names.iter().zip(&functions) {
            kinds.take(doing(name, 1, Some(function)));
            kinds.take(doing("same", 1, Some(function)));
        }
        kinds.end();
        assert_eq!(kinds.kinds.len(), MOST_KINDS);
        assert!(kinds.values().len() <= MOST_KINDS * (4 + MOST_FUNCTIONS));
    }
}
