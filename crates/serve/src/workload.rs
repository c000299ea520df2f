//! The workloads that are served natively.

use std::fmt;
use std::str::FromStr;

/// An HTTP API that several systems implement, so that they can be measured at the same work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workload {
    /// `GET /` answers `Hello World`.
    Hello,
    /// `GET /json` answers `{"message":"Hello, World!"}`.
    Json,
    /// `GET /dispatcher` answers the next number, from 1; each is handed out once.
    Dispatcher,
}

impl Workload {
    /// Every workload, in the order in which help lists them.
    pub const ALL: [Workload; 3] = [Workload::Hello, Workload::Json, Workload::Dispatcher];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Hello => "hello",
            Workload::Json => "json",
            Workload::Dispatcher => "dispatcher",
        }
    }

    /// Whether its answers depend on those before, so that there must be only one server of it.
    #[must_use]
    pub const fn has_state(self) -> bool {
        match self {
            Workload::Hello | Workload::Json => false,
            Workload::Dispatcher => true,
        }
    }

    /// The one path that it answers.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Workload::Hello => "/",
            Workload::Json => "/json",
            Workload::Dispatcher => "/dispatcher",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no workload of this server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown workload {asked:?}; {hint}")]
pub struct UnknownWorkload {
    asked: String,
    hint: String,
}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(asked: &str) -> Result<Self, Self::Err> {
        if let Some(found) = Self::ALL.into_iter().find(|w| w.name() == asked) {
            return Ok(found);
        }
        let folded = asked.to_lowercase();
        let near = Self::ALL
            .into_iter()
            .map(|w| (edit_distance(&folded, w.name()), w))
            .min_by_key(|(distance, _)| *distance)
            .filter(|(distance, w)| *distance <= w.name().len() / 2);
        let hint = match near {
            Some((_, w)) => format!("did you mean {:?}?", w.name()),
            None => "there are hello, json and dispatcher".to_owned(),
        };
        // Long input is cut so that the message stays one line of readable length.
        let asked = asked.chars().take(40).collect();
        Err(UnknownWorkload { asked, hint })
    }
}

/// Levenshtein's distance: the fewest single-character insertions, removals and replacements that turn one into the other.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for workload in Workload::ALL {
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
    }

    #[test]
    fn a_slip_is_answered_with_the_nearest_name() {
        for (asked, meant) in [
            ("helo", "hello"),
            ("Json", "json"),
            ("dispacher", "dispatcher"),
            ("dispatch", "dispatcher"),
        ] {
            let error = asked.parse::<Workload>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!("unknown workload {asked:?}; did you mean {meant:?}?")
            );
        }
        assert_eq!(
            "scoring".parse::<Workload>().unwrap_err().to_string(),
            "unknown workload \"scoring\"; there are hello, json and dispatcher"
        );
    }

    #[test]
    fn distance_counts_single_edits() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "json"), 4);
        assert_eq!(edit_distance("json", "json"), 0);
    }
}
