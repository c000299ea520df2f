//! Prepares an experiment: checks that the required programs are available, and builds a
//! system, store or client if its inputs have changed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark_host::{Child, ProcessPlacement, Stop};
use floodmark_record::units::show_duration;
use sha2::{Digest, Sha256};

use super::program::{WaitEnd, command, leased, wait};
use super::{LEASES, RunningExperiment, StepError};
use crate::manifest::{Build, Filler, ManifestPackage, Need, Trial};
use crate::server_log::quote_build_failure;

/// Time that an interrupted build has to exit before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Returns a trial's system, store and client, each with its name for messages.
fn parts(trial: &Trial) -> Vec<(String, &ManifestPackage)> {
    let server: &ManifestPackage = &trial.server;
    let mut parts = vec![(server.name.clone(), server)];
    if let Some(store) = trial.at.store.as_ref().and_then(|behind| behind.started()) {
        parts.push((format!("store {}", store.name), store));
    }
    if let Some(client) = &trial.client {
        parts.push((format!("client {}", client.package.name), &client.package));
    }
    // Skip packages that require no programs and have no build, such as a user's own server. Such a
    // server may have the same name as a system.
    parts.retain(|(_, part)| !part.needs.is_empty() || part.build.is_some());
    parts
}

impl RunningExperiment<'_> {
    /// Checks and builds each system, store and client once. Skips trials for which one of these
    /// programs is not available.
    pub(super) fn prepare(&mut self) {
        let mut available: BTreeMap<String, bool> = BTreeMap::new();
        for trial in &self.runner.experiment.trials {
            for (label, part) in parts(trial) {
                let is_available = match available.get(&label) {
                    Some(known) => *known,
                    None => match self.prepare_part(&label, part) {
                        Some(is_available) => is_available,
                        None => return,
                    },
                };
                if !is_available {
                    self.leave_out(trial);
                }
                available.insert(label, is_available);
            }
        }
    }

    /// Returns whether a package is available, or `None` if floodmark was interrupted.
    fn prepare_part(&mut self, label: &str, part: &ManifestPackage) -> Option<bool> {
        let missing: Vec<String> = part.needs.iter().filter_map(Need::missing).collect();
        if !missing.is_empty() {
            self.skip(format!("{label} skipped: {}", missing.join("; ")));
            return Some(false);
        }
        let Some(command) = &part.build else {
            return Some(true);
        };
        self.listener
            .on_step(&format!("building {label} if needed"));
        let log = self
            .directory
            .path()
            .join(format!("build-{}.log", part.name));
        let mut filler = Filler::default();
        filler.set("floodmark", self.runner.floodmark.display().to_string());
        let stop = self.runner.stop;
        match build(part, command, &log, &self.temporary, &filler, stop) {
            Ok(_) => Some(true),
            Err(StepError::Interrupted) => None,
            Err(StepError::Failed(what)) => {
                self.fail(what);
                Some(false)
            }
        }
    }
}

/// Builds a package unless its inputs are unchanged. Returns whether the build ran.
///
/// The build's output goes to `log`, and the stamp is stored under `temporary`.
fn build(
    package: &ManifestPackage,
    build: &Build,
    log: &Path,
    temporary: &Path,
    filler: &Filler,
    stop: &Stop,
) -> Result<bool, StepError> {
    let (name, directory) = (&package.name, &*package.directory);
    let failed = |what: String| StepError::Failed(format!("{name}: build failed: {what}"));
    let io_failed = |error: io::Error| failed(error.to_string());
    let see_log = || format!("see {}", log.display());
    let stamp = BuildStamp::of(temporary, directory, build).map_err(io_failed)?;
    if stamp.is_current() && build.missing_output(directory).is_none() {
        return Ok(false);
    }
    // An interrupted build must not look like the previous successful one.
    stamp.remove().map_err(io_failed)?;
    let words = filler.fill_words(&build.command);
    let (side, leases) = (ProcessPlacement::default(), temporary.join(LEASES));
    let started = Child::start_logged(command(&side, &words, directory), log);
    let (mut child, _lease) = leased(started, &leases).map_err(failed)?;
    let end = wait(&mut child, build.within(), GRACE, stop);
    match end.map_err(|error| failed(error.to_string()))? {
        WaitEnd::Exited(status) if status.success() => {}
        WaitEnd::Exited(status) => {
            let error = quote_build_failure(log);
            return Err(failed(format!("{status}{error}; {}", see_log())));
        }
        WaitEnd::Interrupted => return Err(StepError::Interrupted),
        WaitEnd::TimedOut => {
            let within = show_duration(build.within());
            return Err(failed(format!(
                "did not finish within {within}; {}",
                see_log()
            )));
        }
    }
    if let Some(missing) = build.missing_output(directory) {
        return Err(failed(format!(
            "output {} is missing; check `outputs` in the manifest, or {}",
            missing.display(),
            see_log()
        )));
    }
    // If the stamp cannot be written, the next experiment builds again.
    let _ = stamp.write();
    Ok(true)
}

/// Hash of a build's inputs, saved after a successful build.
struct BuildStamp {
    file: PathBuf,
    /// `None` if the build lists no inputs. Such a build always runs.
    hash: Option<String>,
}

impl BuildStamp {
    fn of(temporary: &Path, directory: &Path, build: &Build) -> io::Result<Self> {
        let name = Sha256::digest(directory.as_os_str().as_encoded_bytes());
        let mut hash = Sha256::new();
        for word in build.command.iter() {
            add_part(&mut hash, word.as_bytes());
        }
        let inputs = build.inputs(directory);
        for path in &inputs {
            add_path(&mut hash, path)?;
        }
        Ok(BuildStamp {
            file: temporary.join("builds").join(hex(&name)),
            hash: (!inputs.is_empty()).then(|| hex(&hash.finalize())),
        })
    }

    fn is_current(&self) -> bool {
        self.hash.is_some() && fs::read_to_string(&self.file).ok() == self.hash
    }

    fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn write(&self) -> io::Result<()> {
        let Some(hash) = &self.hash else {
            return Ok(());
        };
        fs::create_dir_all(self.file.parent().unwrap_or(Path::new("/")))?;
        fs::write(&self.file, hash)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes a part's length and then its bytes, so that adjacent parts stay distinct.
fn add_part(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// Hashes a file, or all files in a directory, sorted by name.
fn add_path(hash: &mut Sha256, path: &Path) -> io::Result<()> {
    add_part(hash, path.as_os_str().as_encoded_bytes());
    if path.is_dir() {
        let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
        let mut entries: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
        entries.sort_unstable();
        return entries.iter().try_for_each(|path| add_path(hash, path));
    }
    add_part(hash, &fs::read(path)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::System;

    fn run(system: &System, root: &Path, stop: &Stop) -> Result<bool, StepError> {
        let command = system.build.as_ref().unwrap();
        let log = root.join("log");
        build(system, command, &log, root, &Filler::default(), stop)
    }

    fn system(directory: &Path, build: &str) -> System {
        let name = directory.file_name().unwrap().to_string_lossy();
        let text = format!(
            "name = \"{name}\"\nworkloads = [\"hello\"]\n[start]\ncommand = \"x {{port}}\"\n[build]\n{build}\n"
        );
        fs::write(directory.join("system.toml"), text).unwrap();
        System::read(directory).unwrap()
    }

    #[test]
    fn rebuilds_when_inputs_change_or_outputs_are_missing() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("built");
        fs::create_dir_all(directory.join("src")).unwrap();
        fs::write(directory.join("src/a"), "1").unwrap();
        let system = system(
            &directory,
            "command = \"sh -c 'echo x >> out'\"\ninputs = [\"src\"]\noutputs = [\"out\"]",
        );
        let build = || run(&system, root.path(), &Stop::new()).unwrap();
        assert!(build());
        assert!(!build(), "nothing has changed");
        fs::write(directory.join("src/a"), "2").unwrap();
        assert!(build());
        fs::rename(directory.join("src/a"), directory.join("src/b")).unwrap();
        assert!(build());
        assert!(!build());
        fs::remove_file(directory.join("out")).unwrap();
        assert!(build());
        assert_eq!(fs::read_to_string(directory.join("out")).unwrap(), "x\n");
    }

    #[test]
    fn names_the_log_of_a_failed_build() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("bad");
        fs::create_dir(&directory).unwrap();
        let log = root.path().join("log");
        let error = |text: &str| {
            let system = system(&directory, text);
            match run(&system, root.path(), &Stop::new()) {
                Err(StepError::Failed(what)) => what,
                other => panic!("{other:?}"),
            }
        };
        let failing = error("command = \"sh -c 'echo no such module; exit 3'\"");
        assert!(
            failing.contains("exit status: 3") && failing.contains("no such module"),
            "{failing}"
        );
        assert!(failing.contains(log.to_str().unwrap()), "{failing}");
        let hanging = error("command = \"sleep 60\"\nwithin = \"100ms\"");
        assert!(
            hanging.contains("did not finish within 100 ms"),
            "{hanging}"
        );
        let empty = error("command = \"true\"\noutputs = [\"out\"]");
        assert!(empty.contains("out is missing"), "{empty}");
        let missing = error("command = \"no-such-program-here\"");
        assert!(missing.contains("install it"), "{missing}");
    }

    #[test]
    fn ends_an_interrupted_build() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("slow");
        fs::create_dir(&directory).unwrap();
        let system = system(&directory, "command = \"sleep 60\"");
        let stop = Stop::new();
        stop.set();
        let ended = run(&system, root.path(), &stop);
        assert!(matches!(ended, Err(StepError::Interrupted)), "{ended:?}");
    }
}
