//! Reads the files of a process or thread: `stat`, `schedstat` and `status`.

use std::fs::File;
use std::io;

use procfs_core::FromRead;
use procfs_core::process::Stat;

use crate::Root;
use crate::cpu::ticks_per_s;
use crate::kernel_file::labelled;

/// Reads `/proc/PID/stat`.
pub(crate) fn stat(root: &Root, pid: u32) -> io::Result<Stat> {
    let path = format!("/proc/{pid}/stat");
    let stat = Stat::from_read(File::open(root.path(&path))?);
    stat.map_err(|error| io::Error::other(format!("{path}: {error}")))
}

/// Parses a `schedstat` file. Returns the time on a CPU and the run delay, in ns.
pub(crate) fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Parses the numbers of voluntary and involuntary context switches in a `status` file.
pub(crate) fn parse_switches(text: &str) -> Option<(u64, u64)> {
    let number = |label: &str| labelled(text, label)?.parse().ok();
    number("voluntary_ctxt_switches:").zip(number("nonvoluntary_ctxt_switches:"))
}

/// Returns whether a process exists and is not a zombie.
#[must_use]
pub fn is_running(root: &Root, pid: u32) -> bool {
    stat(root, pid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Returns the CPU seconds that a process has used since it started, including ended threads.
///
/// # Errors
/// The process doesn't exist or can't be read.
pub fn cpu_s(root: &Root, pid: u32) -> io::Result<f64> {
    stat(root, pid).map(|stat| own_cpu_s(&stat))
}

fn own_cpu_s(stat: &Stat) -> f64 {
    (stat.utime + stat.stime) as f64 / ticks_per_s()
}

/// Returns the PID, name and CPU seconds of every visible process except kernel threads, sorted by
/// PID. Kernel threads have no memory.
pub(crate) fn all_cpu(root: &Root) -> Vec<(u32, String, f64)> {
    let of = |pid| {
        let stat = stat(root, pid).ok().filter(|stat| stat.vsize > 0)?;
        let cpu_s = own_cpu_s(&stat);
        Some((pid, stat.comm, cpu_s))
    };
    root.numbered("/proc").into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stat_with_any_name() {
        const REST: &str = "S 7493 7493 4358 0 -1 4194304 104 0 0 0 250 125 30 40 20 0 17 0 89214 3133440 388 184 \
            1 2 3 4 5 0 0 0 0 0 0 0 17 1 0 0 0 0 0";
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/7508")).unwrap();
        for given in [&b"cat"[..], b"a) R 1 (b", b"(sd-pam)", b"", b"\xff\xfe)"] {
            let text = [&b"7508 ("[..], given, b") ", REST.as_bytes(), b"\n"].concat();
            std::fs::write(folder.path().join("proc/7508/stat"), text).unwrap();
            let stat = stat(&Root::at(folder.path()), 7508).unwrap();
            assert_eq!(stat.comm, String::from_utf8_lossy(given));
            assert_eq!((stat.state, stat.ppid, stat.utime), ('S', 7493, 250));
        }
    }

    #[test]
    fn parses_schedstat_and_status() {
        assert_eq!(parse_schedstat("14 99 3\n"), Some((14, 99)));
        assert_eq!(parse_schedstat("1"), None);
        assert_eq!(parse_schedstat("x y z"), None);
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(parse_switches(status), Some((150, 545)));
        assert_eq!(parse_switches("Name:\tx\n"), None);
    }

    #[test]
    fn counts_the_cpu_of_this_process() {
        let begin = crate::clock::thread_cpu();
        while (crate::clock::thread_cpu() - begin).as_millis() < 100 {}
        let (root, own) = (Root::host(), std::process::id());
        let used = cpu_s(&root, own).unwrap();
        assert!(used >= 0.08, "{used}");
        let listed = |(pid, _, cpu): &(u32, String, f64)| *pid == own && *cpu >= used;
        assert!(all_cpu(&root).iter().any(listed));
    }

    #[test]
    fn reports_a_process_that_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(cpu_s(&Root::host(), child.id()).is_err());
    }
}
