//! Running a load generator and what it used, measured from outside and alike for all.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a process is asked whether it has ended: seldom enough to cost nothing.
const POLL: Duration = Duration::from_millis(20);

/// Whether the user wants us to stop.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

/// What a process and all its descendants used, and how it ended.
#[derive(Debug)]
pub struct Used {
    /// CPU in user mode, seconds.
    pub user_s: f64,
    /// CPU in the kernel, seconds.
    pub system_s: f64,
    /// Context switches because it waited for something.
    pub voluntary: u64,
    /// Context switches because another one was to run.
    pub involuntary: u64,
    /// Peak resident memory of the largest of them, bytes.
    pub peak_bytes: u64,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote on stdout.
    pub stdout: String,
    /// What it wrote on stderr.
    pub stderr: String,
}

impl Used {
    /// CPU in all, seconds.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

impl Interrupt {
    /// From now on Ctrl-C and SIGTERM are noted instead of ending us.
    pub fn catch() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Interrupt(flag))
    }

    /// An error once there was a signal.
    pub fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::other(
                "interrupted; the server is stopped and nothing was written",
            ));
        }
        Ok(())
    }

    /// Sleeps, but not through a signal.
    pub fn sleep(&self, time: Duration) -> io::Result<()> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(POLL));
        }
    }
}

/// Runs a command to its end, for at most `limit`, its output kept in `folder`.
pub fn run(
    command: &mut Command,
    folder: &Path,
    limit: Duration,
    interrupt: &Interrupt,
) -> io::Result<Used> {
    let (stdout, stderr) = (folder.join("stdout"), folder.join("stderr"));
    command
        .stdout(File::create(&stdout)?)
        .stderr(File::create(&stderr)?);
    let child = spawn(command)?;
    let pid = child.id();
    let end = Instant::now() + limit;
    let (status, usage) = loop {
        if let Some(ended) = wait(pid)? {
            break ended;
        }
        let in_time = || match Instant::now() < end {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "still running after {} s and was ended",
                limit.as_secs()
            ))),
        };
        if let Err(stop) = interrupt.check().and_then(|()| in_time()) {
            end_group(pid);
            while wait(pid)?.is_none() {
                thread::sleep(POLL);
            }
            return Err(stop);
        }
        thread::sleep(POLL);
    };
    let read = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Used {
        user_s: seconds(usage.ru_utime),
        system_s: seconds(usage.ru_stime),
        voluntary: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
        involuntary: u64::try_from(usage.ru_nivcsw).unwrap_or(0),
        peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        status,
        stdout: read(&stdout)?,
        stderr: read(&stderr)?,
    })
}

/// Starts a command without input in a process group of its own, which does not outlive us.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::null()).process_group(0);
    // SAFETY: between fork and exec only prctl(2) is called, which takes plain numbers here and does not allocate.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
    command.spawn()
}

/// Ends a process that [`spawn`] started and what it started.
pub fn end_group(pid: u32) {
    // SAFETY: kill(2) takes plain numbers; the group is the one that `spawn` made, whose leader is not reaped yet.
    unsafe { libc::kill(-pid.cast_signed(), libc::SIGKILL) };
}

/// Asks a process that [`spawn`] started to end.
pub fn terminate(pid: u32) {
    // SAFETY: kill(2) takes plain numbers; the process is our child and not reaped yet, so the id is still its own.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGTERM) };
}

/// Reaps a child that has ended; what it and the children it had reaped used (wait4(2)).
fn wait(pid: u32) -> io::Result<Option<(ExitStatus, libc::rusage)>> {
    let mut status = 0;
    // SAFETY: an rusage is plain numbers, for which zero is valid; both pointers are to memory of our own that
    // outlives the call.
    let (reaped, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let reaped = libc::wait4(
            pid.cast_signed(),
            &raw mut status,
            libc::WNOHANG,
            &raw mut usage,
        );
        (reaped, usage)
    };
    match reaped {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Some((ExitStatus::from_raw(status), usage))),
    }
}

/// CPU of this process and of all descendants that were reaped, seconds (getrusage(2)).
pub fn ours_s() -> f64 {
    let of = |who| {
        // SAFETY: an rusage is plain numbers, for which zero is valid, and outlives the call.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Interrupt {
        Interrupt(Arc::new(AtomicBool::new(false)))
    }

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    fn run_in(script: &str, limit: Duration, interrupt: &Interrupt) -> io::Result<Used> {
        let folder = tempfile::tempdir().unwrap();
        run(&mut shell(script), folder.path(), limit, interrupt)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_cpu_of_grandchildren_counts() {
        let burn = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo out; exit 3";
        let used = run_in(burn, MINUTE, &quiet()).unwrap();
        let idle = run_in("exit 0", MINUTE, &quiet()).unwrap();
        assert!(used.cpu_s() > idle.cpu_s() + 0.02, "{used:?}");
        assert_eq!(used.status.code(), Some(3));
        assert_eq!(used.stdout, "out\n");
        assert!(used.peak_bytes > 100_000, "{used:?}");
    }

    #[test]
    fn what_hangs_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let script = "sleep 100 & echo $!; wait";
        let limit = Duration::from_millis(500);
        let error = run(&mut shell(script), folder.path(), limit, &quiet()).unwrap_err();
        assert!(error.to_string().contains("was ended"), "{error}");
        let sleeper = fs::read_to_string(folder.path().join("stdout")).unwrap();
        let status = format!("/proc/{}/stat", sleeper.trim());
        let gone = || fs::read_to_string(&status).map_or(true, |stat| stat.contains(") Z "));
        let end = Instant::now() + Duration::from_secs(10);
        while !gone() && Instant::now() < end {
            thread::sleep(POLL);
        }
        assert!(gone());
    }

    #[test]
    fn an_interrupt_ends_it() {
        let interrupted = Interrupt(Arc::new(AtomicBool::new(true)));
        let begin = Instant::now();
        let error = run_in("sleep 100", MINUTE, &interrupted).unwrap_err();
        assert!(error.to_string().contains("interrupted"), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(50));
    }
}
