//! Building a system, a store or a client, unless what it is built of is as it was when it was built last.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use floodmark_host::{Child, Lease, Stop};
use floodmark_record::units::show_duration;
use ring::digest::{Context, SHA256};

use super::Ended;
use super::launch::{error_line, no_lease};
use crate::folder::own_temporary;
use crate::manifest::{Build, Filler};

/// How often a request to stop is looked for.
const GLANCE: Duration = Duration::from_millis(50);

/// How long an interrupted build may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// What is built.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its folder; the command runs there.
    pub folder: &'a Path,
    /// How.
    pub build: &'a Build,
}

/// Builds it where that is needed, its output in `log`, noted in `leases` while it runs; whether anything was done.
pub fn build(
    source: Source<'_>,
    log: &Path,
    leases: &Path,
    filler: &Filler,
    stop: &Stop,
) -> Result<bool, Ended> {
    let Source {
        name,
        folder,
        build,
    } = source;
    let failed = |what: String| Ended::Failed(format!("{name} does not build: {what}"));
    let stamp = Stamp::of(folder, build).map_err(|error| failed(error.to_string()))?;
    if stamp.holds() && build.outputs.iter().all(|path| path.exists()) {
        return Ok(false);
    }
    // What is killed halfway must not be taken for what was built before.
    stamp.forget().map_err(|error| failed(error.to_string()))?;
    let words: Vec<String> = build.command.iter().map(|word| filler.fill(word)).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder);
    let mut child = Child::start_logged(command, log).map_err(|error| failed(error.to_string()))?;
    // What it starts itself, a compiler say, would outlive a killed floodmark.
    let _lease = Lease::take(leases, &child).map_err(|error| failed(no_lease(leases, &error)))?;
    let begin = Instant::now();
    let status = loop {
        match child
            .wait(GLANCE)
            .map_err(|error| failed(error.to_string()))?
        {
            Some(status) => break status,
            None if stop.is_set() => {
                // Whatever it says now, it was told to end.
                let _ = child.stop(GRACE);
                return Err(Ended::Interrupted);
            }
            None if begin.elapsed() > build.within => {
                let _ = child.stop(GRACE);
                let within = show_duration(build.within);
                return Err(failed(format!(
                    "it took longer than {within}; its log is {}",
                    log.display()
                )));
            }
            None => {}
        }
    };
    if !status.success() {
        let said = error_line(log);
        return Err(failed(format!(
            "{status}{said}; its log is {}",
            log.display()
        )));
    }
    if let Some(missing) = build.outputs.iter().find(|path| !path.exists()) {
        return Err(failed(format!(
            "{} is not there after it; check outputs, or its log {}",
            missing.display(),
            log.display()
        )));
    }
    // Without a stamp it is built again next time, which is slow and no more.
    let _ = stamp.keep();
    Ok(true)
}

/// What a build was made of, and where that is noted.
struct Stamp {
    file: PathBuf,
    hash: Option<String>,
}

impl Stamp {
    /// Of a build without inputs it holds never.
    fn of(folder: &Path, build: &Build) -> io::Result<Self> {
        let folder = hex(&mut Context::new(&SHA256), |context| {
            context.update(folder.as_os_str().as_encoded_bytes());
            Ok(())
        })?;
        let hash = match build.inputs.is_empty() {
            true => None,
            false => Some(hex(&mut Context::new(&SHA256), |context| {
                for word in &build.command {
                    part(context, word.as_bytes());
                }
                build.inputs.iter().try_for_each(|path| add(context, path))
            })?),
        };
        Ok(Stamp {
            file: own_temporary().join("builds").join(folder),
            hash,
        })
    }

    fn holds(&self) -> bool {
        let noted = fs::read_to_string(&self.file).ok();
        self.hash.is_some() && noted == self.hash
    }

    fn forget(&self) -> io::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn keep(&self) -> io::Result<()> {
        let Some(hash) = &self.hash else {
            return Ok(());
        };
        fs::create_dir_all(self.file.parent().unwrap_or(Path::new("/")))?;
        fs::write(&self.file, hash)
    }
}

fn hex(
    context: &mut Context,
    fill: impl FnOnce(&mut Context) -> io::Result<()>,
) -> io::Result<String> {
    fill(context)?;
    let digest = context.clone().finish();
    Ok(digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Adds a part with its length, so that two parts are never taken for one.
fn part(context: &mut Context, bytes: &[u8]) {
    context.update(&(bytes.len() as u64).to_le_bytes());
    context.update(bytes);
}

/// Adds a file, or all that is in a folder, in order of names.
fn add(context: &mut Context, path: &Path) -> io::Result<()> {
    part(context, path.as_os_str().as_encoded_bytes());
    if path.is_dir() {
        let mut within: Vec<PathBuf> = fs::read_dir(path)?
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<_>>()?;
        within.sort_unstable();
        return within.iter().try_for_each(|path| add(context, path));
    }
    let mut content = Context::new(&SHA256);
    io::copy(&mut File::open(path)?, &mut Hashing(&mut content))?;
    part(context, content.finish().as_ref());
    Ok(())
}

/// A context as somewhere to write to.
struct Hashing<'a>(&'a mut Context);

impl io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::System;

    fn source(system: &System) -> Source<'_> {
        Source {
            name: &system.name,
            folder: &system.folder,
            build: system.build.as_ref().unwrap(),
        }
    }

    fn system(folder: &Path, build: &str) -> System {
        let name = folder.file_name().unwrap().to_string_lossy();
        let text = format!(
            "name = \"{name}\"\nworkloads = [\"hello\"]\n[start]\ncommand = \"x {{port}}\"\n[build]\n{build}\n"
        );
        fs::write(folder.join("system.toml"), text).unwrap();
        System::read(folder).unwrap()
    }

    #[test]
    fn built_again_only_when_inputs_change_or_outputs_are_missing() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("built");
        fs::create_dir_all(folder.join("src")).unwrap();
        fs::write(folder.join("src/a"), "1").unwrap();
        let system = system(
            &folder,
            "command = \"sh -c 'echo x >> out'\"\ninputs = [\"src\"]\noutputs = [\"out\"]",
        );
        let (log, leases) = (root.path().join("log"), root.path().join("leases"));
        let build = || {
            build(
                source(&system),
                &log,
                &leases,
                &Filler::default(),
                &Stop::new(),
            )
            .unwrap()
        };
        assert!(build());
        assert!(!build(), "nothing has changed");
        fs::write(folder.join("src/a"), "2").unwrap();
        assert!(build());
        fs::rename(folder.join("src/a"), folder.join("src/b")).unwrap();
        assert!(build());
        assert!(!build());
        fs::remove_file(folder.join("out")).unwrap();
        assert!(build());
        assert_eq!(fs::read_to_string(folder.join("out")).unwrap(), "x\n");
    }

    #[test]
    fn a_build_that_fails_or_hangs_names_its_log() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("bad");
        fs::create_dir(&folder).unwrap();
        let (log, leases) = (root.path().join("log"), root.path().join("leases"));
        let said = |text: &str| {
            let system = system(&folder, text);
            match build(
                source(&system),
                &log,
                &leases,
                &Filler::default(),
                &Stop::new(),
            ) {
                Err(Ended::Failed(what)) => what,
                other => panic!("{other:?}"),
            }
        };
        let failing = said("command = \"sh -c 'echo no such module; exit 3'\"");
        assert!(
            failing.contains("exit status: 3") && failing.contains("no such module"),
            "{failing}"
        );
        assert!(failing.contains(log.to_str().unwrap()), "{failing}");
        let hanging = said("command = \"sleep 60\"\nwithin = \"100ms\"");
        assert!(hanging.contains("longer than 100 ms"), "{hanging}");
        let empty = said("command = \"true\"\noutputs = [\"out\"]");
        assert!(empty.contains("out is not there"), "{empty}");
        let missing = said("command = \"no-such-program-here\"");
        assert!(missing.contains("is it installed"), "{missing}");
    }

    #[test]
    fn an_interrupted_build_ends() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("slow");
        fs::create_dir(&folder).unwrap();
        let system = system(&folder, "command = \"sleep 60\"");
        let stop = Stop::new();
        stop.set();
        let (log, leases) = (root.path().join("log"), root.path().join("leases"));
        let ended = build(source(&system), &log, &leases, &Filler::default(), &stop);
        assert!(matches!(ended, Err(Ended::Interrupted)), "{ended:?}");
    }
}
