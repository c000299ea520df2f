//! Leases: files that record started process groups.
//!
//! When floodmark starts, it kills the process groups that a killed floodmark process left behind.
//! If floodmark dies, the kernel kills its children (`PR_SET_PDEATHSIG`), but not its
//! grandchildren, such as nginx workers.
//!
//! A lease is locked until its owner exits. Process IDs are reused, so a lease also contains the
//! boot ID and the leader's start time (in ticks since boot).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use procfs_core::FromRead;
use procfs_core::process::Stat;
use rustix::process::{Pid, Signal, kill_process};

use crate::child::Child;
use crate::files::{create_in_use, sweep_abandoned};

/// Maximum time to wait until killed processes have ended.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A lease on a process group. Dropping the lease removes its file.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    /// Locked until this process exits.
    _lock: File,
}

impl Lease {
    /// Creates a lease for a child's process group in a directory. Creates the directory if
    /// necessary.
    ///
    /// # Errors
    /// The directory cannot be written, or the child has been reaped.
    pub fn take(directory: &Path, child: &Child) -> io::Result<Self> {
        let note = LeaseNote::of(child.pid())?;
        let path = directory.join(format!("{}-{}", std::process::id(), note.group));
        let lock = create_in_use(directory, || {
            let mut file = File::create(&path)?;
            file.write_all(note.text().as_bytes())?;
            Ok(file)
        })?;
        Ok(Lease { path, _lock: lock })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A leftover file is harmless: its process group has ended, and a sweep removes the file.
        let _ = fs::remove_file(&self.path);
    }
}

/// Kills the process groups whose owners have ended. Returns the IDs of the killed processes.
///
/// # Errors
/// The directory belongs to another user or cannot be read. A missing directory is not an error.
pub fn sweep(directory: &Path) -> io::Result<Vec<u32>> {
    let user = fs::metadata("/proc/self")?.uid();
    if fs::metadata(directory).is_ok_and(|meta| meta.uid() != user) {
        return Err(io::Error::other("the directory belongs to another user"));
    }
    let boot = boot_id()?;
    let mut ended = Vec::new();
    sweep_abandoned(directory, |path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let note = LeaseNote::parse(&text).filter(|note| note.boot == boot);
        ended.extend(note.iter().flat_map(LeaseNote::end_group));
        fs::remove_file(path)
    })?;
    Ok(ended)
}

/// Returns the ID of the current boot.
fn boot_id() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

/// Content of a lease: one line of space-separated fields.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LeaseNote {
    group: i32,
    /// Start time of the group's leader, in ticks since boot.
    began: u64,
    session: i32,
    boot: String,
}

impl LeaseNote {
    fn of(leader: u32) -> io::Result<Self> {
        let leader = stat(leader.cast_signed()).map_err(io::Error::other)?;
        Ok(LeaseNote {
            group: leader.pid,
            began: leader.starttime,
            session: leader.session,
            boot: boot_id()?,
        })
    }

    fn text(&self) -> String {
        format!(
            "{} {} {} {}\n",
            self.group, self.began, self.session, self.boot
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        Some(LeaseNote {
            group: words.next()?.parse().ok()?,
            began: words.next()?.parse().ok()?,
            session: words.next()?.parse().ok()?,
            boot: words.next()?.to_owned(),
        })
    }

    /// Kills the remaining processes in the group and waits until they have ended. Returns the IDs
    /// of the killed processes.
    fn end_group(&self) -> Vec<u32> {
        let mut ended = Vec::new();
        let begin = Instant::now();
        loop {
            let left = self.members();
            if left.is_empty() || begin.elapsed() > KILL_TIMEOUT {
                return ended;
            }
            for pid in left {
                let _ = kill_process(pid, Signal::KILL);
                let id = pid.as_raw_pid().cast_unsigned();
                if !ended.contains(&id) {
                    ended.push(id);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the running processes in the group.
    /// If the leader has a different start time, the group has ended and its ID was reused.
    fn members(&self) -> Vec<Pid> {
        let reused = stat(self.group).is_ok_and(|leader| leader.starttime != self.began);
        let entries = fs::read_dir("/proc").ok().filter(|_| !reused);
        let ids = entries.into_iter().flatten();
        ids.filter_map(|entry| stat(entry.ok()?.file_name().to_str()?.parse().ok()?).ok())
            .filter(|process| {
                runs(process)
                    && (process.pgrp, process.session) == (self.group, self.session)
                    && process.starttime >= self.began
            })
            .filter_map(|process| Pid::from_raw(process.pid))
            .collect()
    }
}

fn stat(id: i32) -> procfs_core::ProcResult<Stat> {
    Stat::from_file(format!("/proc/{id}/stat"))
}

/// Returns whether a process is not a zombie.
fn runs(process: &Stat) -> bool {
    !matches!(process.state, 'Z' | 'X')
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

    fn is_running(id: u32) -> bool {
        stat(id.cast_signed()).is_ok_and(|process| runs(&process))
    }

    #[test]
    fn reads_the_stat_of_a_session_leader() {
        let mut command = Command::new("setsid");
        command
            .arg("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut leader = command.spawn().unwrap();
        let mut input = leader.stdin.take().unwrap();
        input.write_all(b"started\n").unwrap();
        let mut output = BufReader::new(leader.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();

        let id = leader.id();
        let note = LeaseNote::of(id).unwrap();
        assert!(is_running(id) && note.began > 0);
        drop(input);
        leader.wait().unwrap();
        let id = id.cast_signed();
        assert_eq!((note.group, note.session), (id, id));
    }

    #[test]
    fn sweep_kills_only_orphaned_groups() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = shell("sleep 30 & echo $!; wait");
        let grandchild: u32 = line(&mut child).parse().unwrap();
        let lease = Lease::take(directory.path(), &child).unwrap();
        assert_eq!(sweep(directory.path()).unwrap(), [0; 0]);
        assert!(is_running(grandchild), "the owner still runs");

        let note = LeaseNote::of(child.pid()).unwrap();
        let abandoned = directory.path().join("abandoned");
        // A different boot ID or start time means that the process ID was reused.
        for other in [
            LeaseNote {
                boot: "another".to_owned(),
                ..note.clone()
            },
            LeaseNote {
                began: note.began + 1,
                ..note.clone()
            },
        ] {
            fs::write(&abandoned, other.text()).unwrap();
            assert_eq!(sweep(directory.path()).unwrap(), [0; 0]);
            assert!(is_running(grandchild) && !abandoned.exists());
        }

        fs::write(&abandoned, note.text()).unwrap();
        let ended = sweep(directory.path()).unwrap();
        assert!(ended.contains(&grandchild), "{ended:?}");
        assert!(!is_running(grandchild) && !is_running(child.pid()) && !abandoned.exists());
        drop(lease);
    }

    #[test]
    fn removes_the_lease_on_drop() {
        let directory = tempfile::tempdir().unwrap();
        let child = shell("sleep 30");
        drop(Lease::take(directory.path(), &child).unwrap());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(sweep(&directory.path().join("none")).unwrap(), [0; 0]);
        fs::write(directory.path().join("garbage"), "1 2 three").unwrap();
        assert_eq!(sweep(directory.path()).unwrap(), [0; 0]);
        assert!(!directory.path().join("garbage").exists());
    }
}
