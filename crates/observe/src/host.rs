//! Samples the host: network counters, CPUs, pressure, control group and disks.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floodmark_record::Metric;
use floodmark_record::metric::{CgroupFigure, DiskFigure, HostFigure, NetworkFigure, Role};
use procfs_core::{DiskStats, FromRead};

use crate::cpu::{self, CpuTime};
use crate::root::{KernelFile, labelled};
use crate::sampler::HostCpu;
use crate::samples::Samples;
use crate::{Root, cgroup};

/// Sampled counters of `/proc/net/netstat`.
const NETSTAT: [NetworkFigure; 10] = [
    NetworkFigure::ListenOverflows,
    NetworkFigure::ListenDrops,
    NetworkFigure::RequestQueueDrops,
    NetworkFigure::RequestQueueCookies,
    NetworkFigure::SynRetransmits,
    NetworkFigure::Timeouts,
    NetworkFigure::TimeWaitEnded,
    NetworkFigure::TimeWaitRecycled,
    NetworkFigure::TimeWaitOverflows,
    NetworkFigure::DelayedAcks,
];

/// Sampled counters of `/proc/net/snmp`.
const SNMP: [NetworkFigure; 6] = [
    NetworkFigure::ActiveOpens,
    NetworkFigure::PassiveOpens,
    NetworkFigure::FailedAttempts,
    NetworkFigure::Resets,
    NetworkFigure::Retransmits,
    NetworkFigure::ResetsSent,
];

const CPUS: [HostFigure; 3] = [HostFigure::Busy, HostFigure::Interrupt, HostFigure::Steal];

const PRESSURE: [(&str, HostFigure); 3] = [
    ("/proc/pressure/cpu", HostFigure::CpuPressure),
    ("/proc/pressure/io", HostFigure::IoPressure),
    ("/proc/pressure/memory", HostFigure::MemoryPressure),
];

/// Minimum sampling interval of counters that cover the whole host. Reading `netstat` and `snmp`
/// takes 80 µs.
const STEP: Duration = Duration::from_millis(200);

/// Minimum interval between disk samples. Shorter bursts of disk activity don't matter.
const DISK_STEP: Duration = Duration::from_secs(1);

/// Maximum CPU share for reading each file. The typical cost is a tenth of this share.
const SHARE: f64 = 0.002;

/// Bytes per sector in `/proc/diskstats`, independent of the disk's own sector size.
const SECTOR: f64 = 512.0;

/// Starts all samplers of the host.
pub(crate) fn open(samples: &mut Samples, root: &Root) {
    network(samples, root, None, "/proc/net");
    match cgroup::throttled_level(root, "self") {
        Some(level) => throttling(samples, root, None, &level),
        None => samples.missing("cpu.stat: no control group has throttling counters".to_owned()),
    }
    machine(samples, root);
}

/// Starts the samplers that don't depend on namespaces: CPUs, pressure and disks.
pub(crate) fn machine(samples: &mut Samples, root: &Root) {
    cpus(samples, root);
    for (file, figure) in PRESSURE {
        let metrics = vec![Metric::Host(None, figure)];
        add_file(samples, root, file, STEP, metrics, |text| {
            Some(vec![cpu::parse_pressure(text)?])
        });
    }
    disks(samples, root);
}

/// Starts sampling a file that stays open. If parsing fails, the error contains the path.
fn add_file(
    samples: &mut Samples,
    root: &Root,
    file: &str,
    step: Duration,
    metrics: Vec<Metric>,
    parse: impl Fn(&str) -> Option<Vec<f64>> + 'static,
) {
    match KernelFile::open(root, file) {
        Err(error) => samples.missing(error.to_string()),
        Ok(mut kernel_file) => samples.add_values(file, (step, SHARE), metrics, move || {
            parse(kernel_file.text()?).ok_or_else(|| io::Error::other("unexpected format"))
        }),
    }
}

/// Starts sampling the counters of a network namespace. `directory` is the namespace's directory in
/// `/proc`.
pub(crate) fn network(samples: &mut Samples, root: &Root, of: Option<Role>, directory: &str) {
    for (file, figures) in [("netstat", &NETSTAT[..]), ("snmp", &SNMP[..])] {
        let file = format!("{directory}/{file}");
        let text = root.read(&file).unwrap_or_default();
        let exists = |figure: &&NetworkFigure| pick(&text, &[figure.name()]).is_some();
        let (figures, absent): (Vec<NetworkFigure>, Vec<NetworkFigure>) =
            figures.iter().partition(exists);
        let [names, absent] =
            [&figures, &absent].map(|of| of.iter().map(|figure| figure.name()).collect::<Vec<_>>());
        if !absent.is_empty() {
            samples.missing(format!("{file}: missing counters: {}", absent.join(", ")));
        }
        if !names.is_empty() {
            let metrics = figures
                .into_iter()
                .map(|figure| Metric::Network(of, figure));
            add_file(samples, root, &file, STEP, metrics.collect(), move |text| {
                pick(text, &names)
            });
        }
    }
    let metrics = vec![Metric::Network(of, NetworkFigure::TimeWait)];
    let file = format!("{directory}/sockstat");
    add_file(samples, root, &file, STEP, metrics, |text| {
        Some(vec![time_wait(text)? as f64])
    });
}

fn cpus(samples: &mut Samples, root: &Root) {
    let live = Arc::clone(&samples.live);
    let ticks = cpu::ticks_per_s();
    let metrics = CPUS.map(|figure| Metric::Host(None, figure)).into();
    add_file(samples, root, "/proc/stat", STEP, metrics, move |text| {
        let time = CpuTime::parse(text, ticks)?;
        if let Ok(mut live) = live.lock() {
            live.host = Some(HostCpu {
                at: Instant::now(),
                busy_s: time.busy_s,
                total_s: time.total_s,
            });
        }
        Some(vec![time.busy_s, time.interrupt_s, time.steal_s])
    });
}

/// Starts sampling the throttling of a control group.
pub(crate) fn throttling(samples: &mut Samples, root: &Root, of: Option<Role>, level: &Path) {
    let file = level.join("cpu.stat").display().to_string();
    let metrics = CgroupFigure::ALL
        .map(|figure| Metric::Cgroup(of, figure))
        .into();
    add_file(samples, root, &file, STEP, metrics, |text| {
        let throttling = cgroup::parse_throttling(text)?;
        Some(vec![throttling.throttled as f64, throttling.throttled_s])
    });
}

/// Starts sampling whole disks. A disk's counters include its partitions. Skips loop devices, RAM
/// disks, and devices that are built from other disks (`dm-`, `md`).
fn disks(samples: &mut Samples, root: &Root) {
    const SKIPPED: [&str; 5] = ["loop", "ram", "zram", "dm-", "md"];
    let is_skipped = |name: &String| SKIPPED.iter().any(|prefix| name.starts_with(prefix));
    let names = root.names("/sys/block").filter(|name| !is_skipped(name));
    let names: Vec<String> = names.collect();
    let metrics = DiskFigure::ALL
        .map(|figure| Metric::Disk(None, figure))
        .into();
    let (file, step) = ("/proc/diskstats", DISK_STEP);
    add_file(samples, root, file, step, metrics, move |text| {
        Some(parse_disks(text, &names)?.into())
    });
}

/// Returns bytes read and written, writes, busy seconds and flushes, summed over the named disks.
fn parse_disks(text: &str, names: &[String]) -> Option<[f64; 5]> {
    let mut sums = [0.0; 5];
    let disks = DiskStats::from_read(text.as_bytes()).ok()?.0;
    for disk in disks.iter().filter(|disk| names.contains(&disk.name)) {
        sums[0] += disk.sectors_read as f64 * SECTOR;
        sums[1] += disk.sectors_written as f64 * SECTOR;
        sums[2] += disk.writes as f64;
        sums[3] += disk.time_in_progress as f64 / 1e3;
        // Linux 5.5 and later
        sums[4] += disk.flushes.unwrap_or(0) as f64;
    }
    Some(sums)
}

/// Parses counters from the contents of `netstat` or `snmp`, in the order of `names`.
pub(crate) fn pick(text: &str, names: &[&str]) -> Option<Vec<f64>> {
    let mut values = vec![f64::NAN; names.len()];
    for group in ["TcpExt:", "Tcp:"] {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
        while let (Some(heads), Some(counters)) = (lines.next(), lines.next()) {
            let heads = heads.split_ascii_whitespace();
            for (head, counter) in heads.zip(counters.split_ascii_whitespace()) {
                if let Some(at) = names.iter().position(|name| *name == head) {
                    values[at] = counter.parse::<u64>().ok()? as f64;
                }
            }
        }
    }
    let all = values.iter().all(|value| !value.is_nan());
    all.then_some(values)
}

/// Returns the number of IPv4 and IPv6 sockets in TIME_WAIT.
pub(crate) fn time_wait(sockstat: &str) -> Option<u64> {
    let mut words = labelled(sockstat, "TCP:")?.split_ascii_whitespace();
    words.find(|word| *word == "tw")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_whole_disks_in_bytes_and_seconds() {
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
    fn a_parse_failure_ends_the_series() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("proc/stat");
        std::fs::create_dir_all(directory.path().join("proc")).unwrap();
        std::fs::write(&file, "cpu 1 2 3 4 5 6 7 8\n").unwrap();
        let mut samples = Samples::new(Duration::from_secs(1));
        cpus(&mut samples, &Root::at(directory.path()));
        let begin = samples.begin;
        samples.take(begin + Duration::from_secs(1));
        std::fs::write(&file, "nothing\n").unwrap();
        samples.take(begin + Duration::from_secs(2));
        samples.take(begin + Duration::from_secs(3));
        let (observations, missing) = samples.finish(usize::MAX);
        let busy = observations
            .iter()
            .find(|o| o.metric.name() == "busy")
            .unwrap();
        assert_eq!(busy.values, [0.0]);
        let gone: Vec<_> = missing
            .iter()
            .filter(|line| line.contains("after sample 1:"))
            .collect();
        assert_eq!(gone.len(), 1, "{missing:?}");
    }

    #[test]
    fn a_sample_is_cheap() {
        let mut samples = Samples::new(Duration::from_millis(10));
        open(&mut samples, &Root::host());
        let begin = Instant::now();
        let before = crate::clock::thread_cpu();
        for step in 1..=100 {
            samples.take(begin + Duration::from_millis(10) * step);
        }
        let each = (crate::clock::thread_cpu() - before).as_secs_f64() / 100.0;
        println!("{:.1} µs per sample of all host files", each * 1e6);
        assert!(each < 0.005, "a sample takes {each} s of CPU time");
    }

    const NETSTAT: &str = "\
TcpExt: SyncookiesSent TW TWRecycled DelayedACKs DelayedACKLocked DelayedACKLost ListenOverflows ListenDrops TCPTimeWaitOverflow TCPReqQFullDoCookies TCPReqQFullDrop TCPSynRetrans
TcpExt: 3 217333 709 1 2 4 12 13 0 5 6 7
IpExt: InNoRoutes InOctets
IpExt: 0 55240573
MPTcpExt: MPCapableSYNRX MPJoinRejected
MPTcpExt: 9 9
";
    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives
Ip: 2 64 2886
IcmpMsg: InType3
IcmpMsg: 1
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors
Tcp: 1 200 120000 -1 83 2 1 59 0 2718 2142 11 0 90 0
Udp: InDatagrams NoPorts
Udp: 167 0
";

    #[test]
    fn reads_counters_in_the_order_of_their_names() {
        let values = pick(NETSTAT, &["TWRecycled", "TW"]);
        assert_eq!(values, Some(vec![709.0, 217_333.0]));
        assert_eq!(pick(SNMP, &["ActiveOpens"]), Some(vec![83.0]));
        assert_eq!(pick(SNMP, &["TW"]), None, "in the other file");
    }

    #[test]
    fn rejects_damaged_texts() {
        for text in [
            "",
            "TcpExt: TW",
            "TcpExt: TW\nTcpExt:\n",
            "TcpExt: TW\nTcpExt: x\n",
        ] {
            assert_eq!(pick(text, &["TW"]), None, "{text:?}");
        }
    }

    #[test]
    fn counts_sockets_in_time_wait() {
        let text = "sockets: used 1216\nTCP: inuse 101 orphan 2 tw 27804 alloc 215 mem 233\nUDP: inuse 0 mem 0\n";
        assert_eq!(time_wait(text), Some(27_804));
        assert_eq!(time_wait("sockets: used 16\n"), None);
    }
}
