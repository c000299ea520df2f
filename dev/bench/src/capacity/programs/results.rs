//! The file with results.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use floodmark_record::capacity::CapacityResult;
use serde::{Deserialize, Serialize};

use super::super::score::KnownCapacity;
use crate::bench::{self, Failure};

/// A line of the file with results.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StoredLine {
    /// What is known about a server.
    Known {
        server: String,
        known: KnownCapacity,
    },
    /// A search.
    Search(StoredSearch),
}

/// A search and its result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredSearch {
    pub server: String,
    pub seed: u64,
    /// Maximum duration of the search.
    pub budget: Duration,
    /// Share of one CPU that another program used during the search.
    pub beside: Option<f64>,
    pub result: Box<CapacityResult>,
}

/// The file with results.
pub struct ResultFile {
    pub path: PathBuf,
    lines: Vec<StoredLine>,
}

impl ResultFile {
    pub fn read(path: PathBuf) -> Result<Self, Failure> {
        let text = if path.exists() {
            bench::read(&path)?
        } else {
            String::new()
        };
        let parse = |(index, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                let (path, line) = (path.display(), index + 1);
                format!("{path}:{line}: {error}; delete the line, or name another file")
            })
        };
        let lines = text.lines().enumerate().map(parse);
        let lines = lines.collect::<Result<_, _>>()?;
        Ok(ResultFile { path, lines })
    }

    pub fn add(&mut self, line: StoredLine) -> Result<(), Failure> {
        let failed = |error| format!("{}: {error}", self.path.display());
        let mut options = OpenOptions::new();
        let mut file = options
            .create(true)
            .append(true)
            .open(&self.path)
            .map_err(failed)?;
        let text = serde_json::to_string(&line)? + "\n";
        file.write_all(text.as_bytes()).map_err(failed)?;
        self.lines.push(line);
        Ok(())
    }

    pub fn known(&self, server: &str) -> Option<KnownCapacity> {
        self.lines.iter().find_map(|line| match line {
            StoredLine::Known { server: of, known } if of == server => Some(*known),
            _ => None,
        })
    }

    /// Returns a server's searches with this budget and this CPU share of the competing program.
    pub fn searches(
        &self,
        server: &str,
        budget: Duration,
        beside: Option<f64>,
    ) -> impl Iterator<Item = &StoredSearch> {
        self.lines.iter().filter_map(move |line| match line {
            StoredLine::Search(search)
                if search.server == server
                    && search.budget == budget
                    && search.beside == beside =>
            {
                Some(search)
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::score::RateRange;
    use super::*;

    #[test]
    fn the_file_with_results_continues() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let known = KnownCapacity {
            rising: RateRange::exactly(100.0),
            falling: None,
            limit_per_s: None,
        };
        let line = StoredLine::Known {
            server: "go".to_owned(),
            known,
        };
        ResultFile::read(path.clone()).unwrap().add(line).unwrap();
        let file = ResultFile::read(path.clone()).unwrap();
        assert_eq!((file.known("go"), file.known("java")), (Some(known), None));
        bench::write(&path, "{").unwrap();
        let error = ResultFile::read(path).err().unwrap().to_string();
        assert!(error.contains("results.jsonl:1: "), "{error}");
        assert!(
            error.ends_with("; delete the line, or name another file"),
            "{error}"
        );
    }
}
