//! What a process and its threads used: `/proc/PID/stat`, `/proc/PID/task/TID/{stat,schedstat}`, `/proc/PID/status`, `/proc/PID/fd`.

use std::io;

use crate::Root;
use crate::cpu::ticks_per_s;

/// The fields of a `stat` file that are used here.
#[derive(Debug, Clone, PartialEq)]
pub struct Stat {
    /// Name, cut to 15 bytes by the kernel; may hold spaces and parentheses.
    pub name: String,
    /// Parent process.
    pub parent: u32,
    /// CPU in user mode, seconds; of a process with its ended threads.
    pub user_s: f64,
    /// CPU in the kernel, seconds.
    pub system_s: f64,
}

/// Reads the text of `/proc/PID/stat` or `/proc/PID/task/TID/stat`.
#[must_use]
pub fn parse_stat(text: &str, ticks_per_s: f64) -> Option<Stat> {
    // A name may hold anything, a ')' too: the last one ends it, and only plain numbers follow.
    let (head, tail) = text.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    // proc(5) numbers the fields from 1; the state, field 3, is the first one after the name.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        name: name.to_owned(),
        parent: u32::try_from(field(4)?).ok()?,
        user_s: field(14)? as f64 / ticks_per_s,
        system_s: field(15)? as f64 / ticks_per_s,
    })
}

/// What the scheduler counted for one thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SchedStat {
    /// Time on a CPU, seconds; finer than the ticks of `stat`.
    pub on_cpu_s: f64,
    /// Time it was ready to run and waited for a CPU, seconds.
    pub run_delay_s: f64,
}

/// Reads the text of a `schedstat` file: nanoseconds on a CPU, nanoseconds waiting, number of turns.
#[must_use]
pub fn parse_schedstat(text: &str) -> Option<SchedStat> {
    let mut words = text.split_ascii_whitespace().map(str::parse::<u64>);
    let on_cpu = words.next()?.ok()?;
    let waiting = words.next()?.ok()?;
    Some(SchedStat {
        on_cpu_s: on_cpu as f64 / 1e9,
        run_delay_s: waiting as f64 / 1e9,
    })
}

/// What one thread used since it began.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadUse {
    /// Its id.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// CPU in user mode, seconds.
    pub user_s: f64,
    /// CPU in the kernel, seconds.
    pub system_s: f64,
    /// From `schedstat`; none on kernels without it.
    pub sched: Option<SchedStat>,
}

/// What a process used since it began.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessUse {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// CPU in user mode, seconds, ended threads included.
    pub user_s: f64,
    /// CPU in the kernel, seconds, ended threads included.
    pub system_s: f64,
    /// Waiting for a CPU, seconds, summed over the threads that live; none on kernels without `schedstat`.
    ///
    /// `/proc/PID/schedstat` is not used: it holds the main thread only.
    pub run_delay_s: Option<f64>,
    /// Resident memory, bytes.
    pub rss_bytes: Option<u64>,
    /// Most resident memory so far, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// Its threads that live, by id.
    pub threads: Vec<ThreadUse>,
}

/// Reads what a process used.
///
/// # Errors
/// There is no such process, or it may not be read.
pub fn read(root: &Root, pid: u32) -> io::Result<ProcessUse> {
    let path = format!("/proc/{pid}/stat");
    let ticks = ticks_per_s();
    let stat = parse_stat(&root.read(&path)?, ticks).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{path}: unknown format"),
        )
    })?;
    // A thread that ends between the listing and the reading is left out.
    let threads: Vec<ThreadUse> = root
        .numbered(format!("/proc/{pid}/task"))
        .into_iter()
        .filter_map(|tid| thread(root, pid, tid, ticks))
        .collect();
    let status = root.read(format!("/proc/{pid}/status")).unwrap_or_default();
    Ok(ProcessUse {
        pid,
        name: stat.name,
        user_s: stat.user_s,
        system_s: stat.system_s,
        run_delay_s: threads
            .iter()
            .map(|thread| thread.sched.map(|sched| sched.run_delay_s))
            .sum(),
        rss_bytes: status_bytes(&status, "VmRSS:"),
        peak_rss_bytes: status_bytes(&status, "VmHWM:"),
        threads,
    })
}

fn thread(root: &Root, pid: u32, tid: u32, ticks: f64) -> Option<ThreadUse> {
    let folder = format!("/proc/{pid}/task/{tid}");
    let stat = parse_stat(&root.read(format!("{folder}/stat")).ok()?, ticks)?;
    let sched = root
        .read(format!("{folder}/schedstat"))
        .ok()
        .and_then(|text| parse_schedstat(&text));
    Some(ThreadUse {
        tid,
        name: stat.name,
        user_s: stat.user_s,
        system_s: stat.system_s,
        sched,
    })
}

/// Reads a line of `/proc/PID/status` that holds kibibytes.
fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// How many files a process has open; none where that may not be read.
#[must_use]
pub fn open_files(root: &Root, pid: u32) -> Option<u64> {
    let entries = std::fs::read_dir(root.path(format!("/proc/{pid}/fd"))).ok()?;
    u64::try_from(entries.count()).ok()
}

/// CPU that every visible process used since it began: id, name, seconds.
#[must_use]
pub fn all_cpu(root: &Root) -> Vec<(u32, String, f64)> {
    let ticks = ticks_per_s();
    root.numbered("/proc")
        .into_iter()
        .filter_map(|pid| {
            let stat = parse_stat(&root.read(format!("/proc/{pid}/stat")).ok()?, ticks)?;
            Some((pid, stat.name, stat.user_s + stat.system_s))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;

    #[test]
    fn names_may_hold_anything() {
        let rest =
            "S 7493 7493 4358 0 -1 4194304 104 0 0 0 250 125 0 0 20 0 17 0 89214 3133440 388";
        for name in [
            "cat",
            "VM Thread",
            "C2 CompilerThre",
            "a) R 1 (b",
            "(sd-pam)",
            "",
        ] {
            let stat = parse_stat(&format!("7508 ({name}) {rest}"), 100.0).unwrap();
            assert_eq!(stat.name, name);
            assert_eq!(stat.parent, 7493);
            assert_eq!((stat.user_s, stat.system_s), (2.5, 1.25));
        }
        for bad in ["", "7508", "7508 (cat", "7508 (cat) S 1", ") ("] {
            assert_eq!(parse_stat(bad, 100.0), None, "{bad}");
        }
    }

    #[test]
    fn schedstat_in_seconds() {
        let sched = parse_schedstat("14000000000 99300000000 1234\n").unwrap();
        assert_eq!((sched.on_cpu_s, sched.run_delay_s), (14.0, 99.3));
        assert_eq!(parse_schedstat("1"), None);
        assert_eq!(parse_schedstat("x y z"), None);
    }

    #[test]
    fn memory_in_bytes() {
        let status = "Name:\tcat\nVmHWM:\t    1708 kB\nVmRSS:\t    1604 kB\n";
        assert_eq!(status_bytes(status, "VmRSS:"), Some(1604 * 1024));
        assert_eq!(
            status_bytes(status, "VmSwap:"),
            None,
            "a kernel thread has none"
        );
    }

    /// CPU of the calling thread so far, seconds.
    fn own_cpu_s() -> f64 {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel writes a timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }

    #[test]
    fn a_burning_thread_is_seen_and_told_from_the_others() {
        let (done, wait) = mpsc::channel::<()>();
        let (burnt, ready) = mpsc::channel();
        let spawned = Instant::now();
        let burner = std::thread::Builder::new()
            .name("bur) ner".into())
            .spawn(move || {
                while own_cpu_s() < 0.1 {}
                burnt.send(own_cpu_s()).unwrap();
                let _ = wait.recv();
            })
            .unwrap();
        let own_s = ready.recv().unwrap();
        let root = Root::host();
        let process = read(&root, std::process::id()).unwrap();
        let lived_s = spawned.elapsed().as_secs_f64();
        drop(done);
        burner.join().unwrap();

        let thread = process
            .threads
            .iter()
            .find(|thread| thread.name == "bur) ner")
            .unwrap();
        let sched = thread.sched.unwrap();
        assert!(
            (sched.on_cpu_s - own_s).abs() < 0.02,
            "{thread:?}, {own_s} s by its own clock"
        );
        assert!(sched.on_cpu_s + sched.run_delay_s < lived_s, "{thread:?}");
        assert!(
            (thread.user_s + thread.system_s - sched.on_cpu_s).abs() < 0.05,
            "{thread:?}"
        );
        assert!(
            process.user_s + process.system_s + 0.03 >= sched.on_cpu_s,
            "{process:?}"
        );
        assert!(process.run_delay_s >= Some(sched.run_delay_s));
        assert!(process.rss_bytes.unwrap() > 100_000);
        assert!(process.peak_rss_bytes >= process.rss_bytes);
        assert!(open_files(&root, std::process::id()).unwrap() >= 3);
        assert!(
            all_cpu(&root)
                .iter()
                .any(|(pid, _, cpu)| *pid == std::process::id() && *cpu > 0.0)
        );
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(read(&Root::host(), child.id()).is_err());
        assert_eq!(open_files(&Root::host(), child.id()), None);
    }
}
