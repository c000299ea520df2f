//! What the whole machine says: network counters, CPUs, pressure, control group, disks.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::kept::Kept;
use crate::samples::{Samples, subject};
use crate::series::{Kind, Subject};
use crate::{Root, cgroup, cpu, netstat, sockstat};

/// Counters of `/proc/net/netstat` that are kept as series.
const NETSTAT: [&str; 10] = [
    "ListenOverflows",
    "ListenDrops",
    "TCPReqQFullDrop",
    "TCPReqQFullDoCookies",
    "TCPSynRetrans",
    "TCPTimeouts",
    "TW",
    "TWRecycled",
    "TCPTimeWaitOverflow",
    "DelayedACKs",
];

/// Counters of `/proc/net/snmp` that are kept as series.
const SNMP: [&str; 6] = [
    "ActiveOpens",
    "PassiveOpens",
    "AttemptFails",
    "EstabResets",
    "RetransSegs",
    "OutRsts",
];

/// How often these are read at most: what they count is of the whole machine, and `netstat` and `snmp` alone take 80 µs.
const STEP: Duration = Duration::from_millis(200);

/// How often disks are read at most: they are busy for longer, or do not matter.
const STEP_OF_DISKS: Duration = Duration::from_secs(1);

/// Share of one CPU that each of these files may take; they take a tenth of it.
const SHARE: f64 = 0.002;

/// Bytes of a sector in `/proc/diskstats`, whatever the disk's own are.
const SECTOR: f64 = 512.0;

/// Starts reading all of them.
pub(crate) fn open(samples: &mut Samples, root: &Root) {
    network(samples, root, "network", "/proc/net");
    own_cgroup(samples, root);
    machine(samples, root);
}

/// Starts reading what is of the whole machine, whoever asks: CPUs, pressure, disks.
pub(crate) fn machine(samples: &mut Samples, root: &Root) {
    cpus(samples, root);
    pressure(samples, root);
    disks(samples, root);
}

/// Reads a file that stays open; what cannot be parsed is an error with the file's name.
fn add_file(
    samples: &mut Samples,
    root: &Root,
    file: &str,
    subjects: Vec<Subject>,
    step: Duration,
    parse: impl Fn(&str, &mut Vec<f64>) -> Option<()> + 'static,
) {
    match Kept::open(root, file) {
        Err(error) => samples.missing(error.to_string()),
        Ok(mut kept) => {
            let read = move |into: &mut Vec<f64>| {
                parse(kept.text()?, into)
                    .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown format"))
            };
            samples.add_every(step, file, SHARE, subjects, Box::new(read));
        }
    }
}

/// Reads the counters of a network namespace from its folder.
pub(crate) fn network(samples: &mut Samples, root: &Root, whose: &'static str, folder: &str) {
    for (file, names) in [("netstat", &NETSTAT[..]), ("snmp", &SNMP[..])] {
        let file = format!("{folder}/{file}");
        let text = root.read(&file).unwrap_or_default();
        // Each of the two texts has groups that the other has not, so one parser takes either alone.
        let present = netstat::parse(&text, &text);
        let (names, absent): (Vec<&'static str>, Vec<&'static str>) =
            names.iter().partition(|name| present.get(name).is_some());
        if !absent.is_empty() {
            samples.missing(format!("{file}: no {}", absent.join(", ")));
        }
        if names.is_empty() {
            continue;
        }
        let subjects = names
            .iter()
            .map(|name| subject(whose, *name, "count", Kind::Increase))
            .collect();
        add_file(samples, root, &file, subjects, STEP, move |text, into| {
            netstat::pick(text, &names, into)
        });
    }
    let subjects = vec![subject(whose, "tw", "sockets", Kind::Level)];
    let file = format!("{folder}/sockstat");
    add_file(samples, root, &file, subjects, STEP, |text, into| {
        into.push(sockstat::parse(text, "")?.time_wait as f64);
        Some(())
    });
}

fn cpus(samples: &mut Samples, root: &Root) {
    let ticks = cpu::ticks_per_s();
    let subjects = vec![
        subject("host", "busy", "CPUs", Kind::Mean),
        subject("host", "interrupt", "CPUs", Kind::Mean),
        subject("host", "steal", "CPU-seconds", Kind::Increase),
    ];
    add_file(
        samples,
        root,
        "/proc/stat",
        subjects,
        STEP,
        move |text, into| {
            // The first line is of all CPUs.
            let total = cpu::parse_stat(text.lines().next()?, ticks)?.total;
            into.extend([total.busy_s(), total.interrupt_s, total.steal_s]);
            Some(())
        },
    );
}

fn pressure(samples: &mut Samples, root: &Root) {
    for (file, metric) in [
        ("/proc/pressure/cpu", "pressure_cpu"),
        ("/proc/pressure/io", "pressure_io"),
        ("/proc/pressure/memory", "pressure_memory"),
    ] {
        let subjects = vec![subject("host", metric, "s", Kind::Increase)];
        add_file(samples, root, file, subjects, STEP, |text, into| {
            into.push(cpu::parse_pressure(text)?);
            Some(())
        });
    }
}

fn own_cgroup(samples: &mut Samples, root: &Root) {
    match throttled_level(root, cgroup::group(root, "cpu")) {
        Some(level) => throttling(samples, root, "cgroup", &level),
        None => {
            samples.missing("cpu.stat: no control group with throttling counters".to_owned());
        }
    }
}

pub(crate) fn throttled_level(root: &Root, group: Option<cgroup::Group>) -> Option<PathBuf> {
    group.and_then(|group| group.throttled_level(root))
}

/// Reads how often and how long a control group was kept from running.
pub(crate) fn throttling(
    samples: &mut Samples,
    root: &Root,
    whose: &'static str,
    level: &std::path::Path,
) {
    let file = level.join("cpu.stat").display().to_string();
    let subjects = vec![
        subject(whose, "nr_throttled", "periods", Kind::Increase),
        subject(whose, "throttled_time", "s", Kind::Increase),
    ];
    add_file(samples, root, &file, subjects, STEP, |text, into| {
        let throttling = cgroup::parse_throttling(text)?;
        into.extend([throttling.throttled as f64, throttling.throttled_s]);
        Some(())
    });
}

/// Whole disks only: a partition's transfers are its disk's, and loop and memory devices have none of their own.
fn disks(samples: &mut Samples, root: &Root) {
    let mut names: Vec<String> = std::fs::read_dir(root.path("/sys/block"))
        .map(|entries| {
            entries
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .collect()
        })
        .unwrap_or_default();
    names.retain(|name| {
        !["loop", "ram", "zram", "dm-", "md"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    });
    let subjects = vec![
        subject("disk", "read_bytes", "bytes", Kind::Increase),
        subject("disk", "written_bytes", "bytes", Kind::Increase),
        subject("disk", "writes", "count", Kind::Increase),
        subject("disk", "io_time", "disk-seconds", Kind::Increase),
        subject("disk", "flushes", "count", Kind::Increase),
    ];
    add_file(
        samples,
        root,
        "/proc/diskstats",
        subjects,
        STEP_OF_DISKS,
        move |text, into| {
            into.extend(parse_disks(text, &names)?);
            Some(())
        },
    );
}

/// Bytes read and written, writes, seconds in which each disk was busy, and flushes of their caches, over disks by name.
fn parse_disks(text: &str, names: &[String]) -> Option<[f64; 5]> {
    let mut sums = [0.0; 5];
    for line in text.lines() {
        // major minor name, reads merged sectors ms, writes merged sectors ms, in flight, ms busy, ms weighed, since Linux 4.18 four of
        // discards, since 5.5 flushes and their ms: Documentation/admin-guide/iostats.rst.
        let mut words = line.split_ascii_whitespace().skip(2);
        let name = words.next()?;
        if !names.iter().any(|ours| ours == name) {
            continue;
        }
        let mut word = |skip| words.nth(skip)?.parse::<f64>().ok();
        sums[0] += word(2)? * SECTOR;
        sums[2] += word(1)?;
        sums[1] += word(1)? * SECTOR;
        sums[3] += word(2)? / 1e3;
        sums[4] += word(5).unwrap_or(0.0);
    }
    Some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn whole_disks_in_bytes_and_seconds() {
        let text = "   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9\n\
            254       0 vda 100 1 2000 5 300 7 4000 8 0 1500 13 0 0 0 0 42 9\n\
            254       1 vda1 100 1 2000 5 300 7 4000 8 0 1500 13 0 0 0 0 0 0\n\
            254      16 vdb 1 0 2 0 3 0 4 0 0 500 0\n";
        let names = ["vda", "vdb"].map(str::to_owned);
        let expected = [2002.0 * 512.0, 4004.0 * 512.0, 303.0, 2.0, 42.0];
        assert_eq!(parse_disks(text, &names), Some(expected));
        assert_eq!(parse_disks("x\n", &names), None);
        assert_eq!(parse_disks("1 1 vda 3\n", &names), None);
    }

    #[test]
    fn a_source_that_is_no_longer_what_it_was_ends_its_series() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proc/stat");
        std::fs::create_dir_all(folder.path().join("proc")).unwrap();
        std::fs::write(&file, "cpu 1 2 3 4 5 6 7 8\n").unwrap();
        let mut samples = Samples::new(Duration::from_secs(1));
        cpus(&mut samples, &Root::at(folder.path()));
        let begin = samples.begin;
        samples.take(begin + Duration::from_secs(1));
        std::fs::write(&file, "nothing\n").unwrap();
        samples.take(begin + Duration::from_secs(2));
        samples.take(begin + Duration::from_secs(3));
        let (observations, missing) = samples.finish(usize::MAX);
        let busy = observations.iter().find(|o| o.metric == "busy").unwrap();
        assert_eq!(busy.values, [0.0]);
        let gone: Vec<_> = missing
            .iter()
            .filter(|line| line.contains("first 1 values"))
            .collect();
        assert_eq!(gone.len(), 1, "{missing:?}");
    }

    #[test]
    fn a_sample_costs_little() {
        let mut samples = Samples::new(Duration::from_millis(10));
        open(&mut samples, &Root::host());
        let begin = Instant::now();
        let before = crate::watcher::thread_cpu();
        for step in 1..=100 {
            samples.take(begin + Duration::from_millis(10) * step);
        }
        let each = (crate::watcher::thread_cpu() - before).as_secs_f64() / 100.0;
        println!(
            "{:.1} µs for each reading of all files of the host",
            each * 1e6
        );
        assert!(each < 0.005, "{each} s: a bug, not a slow machine");
    }
}
