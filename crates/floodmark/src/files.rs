//! Files that a record is drawn into, for all commands that have `--json`, `--html`, `--csv` and `--hdr`.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use floodmark_record::{Record, Run};

use crate::exit::Ending;
use crate::out;

/// What to write, and where.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// The page.
    pub html: Option<&'a Path>,
    /// The record itself; `-` for stdout.
    pub json: Option<&'a Path>,
    /// The figures of each second.
    pub csv: Option<&'a Path>,
    /// The distribution of response times.
    pub hdr: Option<&'a Path>,
}

impl Files<'_> {
    /// Finds out before a run that a file cannot be written after it. Nothing is left behind: the run may yet be refused.
    pub fn writable(&self) -> Result<(), Ending> {
        let named: Vec<(&str, &Path)> = self.named().collect();
        for (i, (flag, path)) in named.iter().copied().enumerate() {
            let existing = fs::metadata(path).ok();
            if existing
                .as_ref()
                .is_some_and(|meta| !meta.is_file() && !meta.is_dir())
            {
                // Opening a pipe or a device is something its other end may notice.
                continue;
            }
            if let Some((other, _)) = named[..i].iter().find(|(_, other)| *other == path) {
                return Err(Ending::usage(format!(
                    "{flag} {}: {other} names the same file; give each its own",
                    path.display()
                )));
            }
            let tried = fs::File::options().create(true).append(true).open(path);
            if tried.is_ok() && existing.is_none() {
                // Its absence does no harm: it is made anew after the run.
                let _ = fs::remove_file(path);
            }
            tried.map_err(|e| {
                Ending::usage(format!(
                    "{flag} {}: {e}; name a file in a folder that exists and can be written",
                    path.display()
                ))
            })?;
        }
        Ok(())
    }

    /// Refuses to write over any of `sources`, which the record is read from: a measurement cannot be taken twice.
    pub fn spares(&self, sources: &[PathBuf]) -> Result<(), Ending> {
        let sources: Vec<PathBuf> = sources
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        for (flag, path) in self.named() {
            if path.canonicalize().is_ok_and(|at| sources.contains(&at)) {
                return Err(Ending::usage(format!(
                    "{flag} {}: the record is read from it; name another file",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// The files with their flags.
    fn named(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [
            ("--html", self.html),
            ("--json", self.json.filter(|path| !is_stdout(path))),
            ("--csv", self.csv),
            ("--hdr", self.hdr),
        ];
        all.into_iter()
            .filter_map(|(flag, path)| Some((flag, path?)))
    }

    /// Whether there is nothing to write.
    pub fn none(&self) -> bool {
        [self.html, self.json, self.csv, self.hdr] == [None; 4]
    }

    /// Draws the record into each. `damaged` is whose fault it is where the record cannot be drawn: floodmark's where it was just
    /// taken, the file's where it was read.
    pub fn write(
        &self,
        record: &Record,
        damaged: fn(&dyn Display) -> Ending,
    ) -> Result<(), Ending> {
        let write = |path: &Path, text: String| {
            fs::write(path, text).map_err(|e| Ending::failed(format!("{}: {e}", path.display())))
        };
        if let Some(path) = self.json {
            let text = serde_json::to_string_pretty(record).map_err(Ending::failed)? + "\n";
            if is_stdout(path) {
                out::deliver(&text)
                    .map_err(|e| Ending::failed(format!("--json -: stdout: {e}")))?;
            } else {
                write(path, text)?;
            }
        }
        if let Some(path) = self.html {
            let next = next_step(record);
            let page = floodmark_report::html::of_record(record, next.as_deref());
            write(path, page.map_err(|e| damaged(&e))?)?;
        }
        if let Some(path) = self.csv {
            write(path, floodmark_report::csv::of_record(record))?;
        }
        if let Some(path) = self.hdr {
            let text = floodmark_report::hdr::of_record(record);
            write(path, text.map_err(|e| damaged(&e))?)?;
        }
        Ok(())
    }
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// The one next step, from the last run of a record that floodmark itself drove.
pub fn next_step(record: &Record) -> Option<String> {
    let own = |run: &&Run| run.client.tool.is_none();
    let last = record.runs.iter().rfind(own)?;
    Some(floodmark_diagnose::next_step(
        last,
        last.client_cpus(record.environment.cpus),
    ))
}
