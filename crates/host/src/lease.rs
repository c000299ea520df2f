//! Leases: notes of the process groups that were started, so that what a killed floodmark left behind can be ended later.
//!
//! The kernel ends a child whose parent dies (`PR_SET_PDEATHSIG`), but not what that child has started itself: of a killed
//! floodmark's nginx the workers would go on. So each server's group is noted in a file, and the next start ends those whose
//! floodmark is gone. Ids are used again, so a note holds when the processes began, in ticks since boot, and which boot that was.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::child::Child;

/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends the name of a note that is being written.
const FRESH: &str = "new";

/// A note that is taken back when this is dropped: whoever holds it ends the group itself.
#[derive(Debug)]
pub struct Lease(PathBuf);

impl Lease {
    /// Notes a child and its group in a folder, which is made where it is missing.
    ///
    /// # Errors
    /// A folder that cannot be written, a child that has ended and was reaped.
    pub fn take(folder: &Path, child: &Child) -> io::Result<Self> {
        let owner = Process::read(std::process::id())?;
        let leader = Process::read(child.pid())?;
        let note = Note {
            owner: owner.id,
            owner_began: owner.began,
            group: leader.id,
            began: leader.began,
            session: leader.session,
            boot: boot()?,
        };
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}-{}", note.owner, note.group));
        // Whole or not at all: half a note would be thrown away as none.
        let fresh = path.with_extension(FRESH);
        fs::write(&fresh, note.text())?;
        fs::rename(&fresh, &path)?;
        Ok(Lease(path))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A note that stays does no harm: its owner and group are gone.
        let _ = fs::remove_file(&self.0);
    }
}

/// Ends what floodmarks that are gone have left running; the ids of the processes that were ended.
///
/// # Errors
/// A folder that is another user's or cannot be read. One that is missing holds nothing.
pub fn sweep(folder: &Path) -> io::Result<Vec<u32>> {
    let meta = match fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        meta => meta?,
    };
    if meta.uid() != fs::metadata("/proc/self")?.uid() {
        return Err(io::Error::other("it is another user's"));
    }
    let boot = boot()?;
    let mut ended = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if being_written(&path) {
            continue;
        }
        let note = fs::read_to_string(&path)
            .ok()
            .and_then(|text| Note::of(&text));
        match note {
            Some(note) if note.boot == boot && note.is_held() => continue,
            Some(note) if note.boot == boot => ended.extend(note.end_group()),
            _ => {}
        }
        // Another floodmark may be sweeping too.
        let _ = fs::remove_file(&path);
    }
    Ok(ended)
}

/// Whether another floodmark is about to give a note its name.
fn being_written(path: &Path) -> bool {
    let owner = path.file_stem().and_then(|name| name.to_str());
    let owner = owner.and_then(|name| name.split('-').next()?.parse().ok());
    path.extension().is_some_and(|extension| extension == FRESH)
        && owner.is_some_and(|owner| Process::read(owner).is_ok())
}

/// Which boot of the machine this is.
fn boot() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

/// What a lease's file holds, in one line of words.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    owner: u32,
    owner_began: u64,
    group: u32,
    began: u64,
    session: u32,
    boot: String,
}

impl Note {
    fn text(&self) -> String {
        format!(
            "{} {} {} {} {} {}\n",
            self.owner, self.owner_began, self.group, self.began, self.session, self.boot
        )
    }

    fn of(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        Some(Note {
            owner: words.next()?.parse().ok()?,
            owner_began: words.next()?.parse().ok()?,
            group: words.next()?.parse().ok()?,
            began: words.next()?.parse().ok()?,
            session: words.next()?.parse().ok()?,
            boot: words.next()?.to_owned(),
        })
    }

    /// Whether the floodmark that wrote it still runs.
    fn is_held(&self) -> bool {
        Process::read(self.owner).is_ok_and(|owner| owner.began == self.owner_began && owner.runs)
    }

    /// Kills what is left of the group, and waits until it is gone.
    fn end_group(&self) -> Vec<u32> {
        let mut ended = Vec::new();
        let begin = Instant::now();
        loop {
            let left = self.members();
            if left.is_empty() || begin.elapsed() > PATIENCE {
                return ended;
            }
            for id in left {
                // SAFETY: kill takes plain numbers and touches no memory of ours.
                unsafe { libc::kill(id.cast_signed(), libc::SIGKILL) };
                if !ended.contains(&id) {
                    ended.push(id);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Running processes of the group. As long as a group has a member its id is given to no new process, so one of that id that
    /// began at another time shows that the group is gone and its id is somebody else's.
    fn members(&self) -> Vec<u32> {
        let reused = Process::read(self.group).is_ok_and(|leader| leader.began != self.began);
        if reused {
            return Vec::new();
        }
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        ids.filter_map(|id| Process::read(id).ok())
            .filter(|process| {
                process.runs
                    && process.group == self.group
                    && process.session == self.session
                    && process.began >= self.began
            })
            .map(|process| process.id)
            .collect()
    }
}

/// A process as `/proc/PID/stat` has it (proc_pid_stat(5)).
#[derive(Debug)]
struct Process {
    id: u32,
    /// False for a zombie.
    runs: bool,
    group: u32,
    session: u32,
    /// Ticks since boot.
    began: u64,
}

impl Process {
    fn read(id: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{id}/stat"))?;
        Self::parse(id, &text).ok_or_else(|| io::Error::other("/proc/PID/stat cannot be read"))
    }

    fn parse(id: u32, text: &str) -> Option<Self> {
        // The name may hold blanks and brackets.
        let (_, rest) = text.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?;
        let group = words.nth(1)?.parse().ok()?;
        let session = words.next()?.parse().ok()?;
        let began = words.nth(15)?.parse().ok()?;
        Some(Process {
            id,
            runs: !matches!(state, "Z" | "X"),
            group,
            session,
            began,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        Child::start(command).unwrap()
    }

    fn line(child: &mut Child) -> String {
        let mut line = String::new();
        BufReader::new(child.stdout().unwrap())
            .read_line(&mut line)
            .unwrap();
        line.trim().to_owned()
    }

    fn runs(id: u32) -> bool {
        Process::read(id).is_ok_and(|process| process.runs)
    }

    fn note_of(folder: &Path) -> (PathBuf, Note) {
        let path = fs::read_dir(folder).unwrap().next().unwrap();
        let path = path.unwrap().path();
        let note = Note::of(&fs::read_to_string(&path).unwrap()).unwrap();
        (path, note)
    }

    #[test]
    fn this_process_is_read() {
        let own = Process::read(std::process::id()).unwrap();
        assert!(own.runs && own.began > 0);
        // SAFETY: both calls take plain numbers.
        let (group, session) = unsafe { (libc::getpgid(0), libc::getsid(0)) };
        assert_eq!(
            (own.group, own.session),
            (group.cast_unsigned(), session.cast_unsigned())
        );
    }

    #[test]
    fn what_is_held_stays_and_what_is_not_goes() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = shell("sleep 30 & echo $!; wait");
        let grandchild: u32 = line(&mut child).parse().unwrap();
        let lease = Lease::take(folder.path(), &child).unwrap();
        assert_eq!(sweep(folder.path()).unwrap(), [0; 0]);
        assert!(runs(grandchild), "its owner, this test, still runs");

        let (path, note) = note_of(folder.path());
        let orphaned = Note {
            owner_began: note.owner_began + 1,
            ..note.clone()
        };
        // Of another boot, or with a leader that began at another time, the id means nothing.
        for other in [
            Note {
                boot: "another".to_owned(),
                ..orphaned.clone()
            },
            Note {
                began: orphaned.began + 1,
                ..orphaned.clone()
            },
        ] {
            fs::write(&path, other.text()).unwrap();
            assert_eq!(sweep(folder.path()).unwrap(), [0; 0]);
            assert!(runs(grandchild) && !path.exists());
        }

        fs::write(&path, orphaned.text()).unwrap();
        let ended = sweep(folder.path()).unwrap();
        assert!(ended.contains(&grandchild), "{ended:?}");
        assert!(!runs(grandchild) && !runs(child.pid()) && !path.exists());
        drop(lease);
    }

    #[test]
    fn a_lease_goes_with_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let child = shell("sleep 30");
        drop(Lease::take(folder.path(), &child).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(sweep(&folder.path().join("none")).unwrap(), [0; 0]);
        fs::write(folder.path().join("garbage"), "1 2 three").unwrap();
        assert_eq!(sweep(folder.path()).unwrap(), [0; 0]);
        assert!(!folder.path().join("garbage").exists());
    }
}
