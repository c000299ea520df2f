//! The host, the placement of the client and the server, and the floodmark version of a record.

use std::collections::BTreeMap;

use floodmark_record::Record;
use floodmark_record::run::{HostLayout, Placement, RolePlacement, StorePlacement};
use floodmark_record::units::{show_bytes, show_count};

use super::document::{TextLine, gathered, line};
use super::figures::{count_of, duration, joined, settings};

/// Returns the lines about the host, the placements and the versions.
pub(crate) fn lines(record: &Record) -> Vec<TextLine> {
    let host = &record.environment;
    let model = host.cpu_model.as_ref().map(|model| format!(", {model}"));
    let cpus = format!("{}{}", host.cpus, model.unwrap_or_default());
    let mut lines = vec![line("kernel", &host.kernel), line("CPUs", cpus)];
    let cgroup = host.cgroup.as_ref();
    let quota = cgroup.and_then(|cgroup| cgroup.cpu_quota);
    let limit = cgroup.and_then(|cgroup| cgroup.memory_bytes);
    let memory = |label, bytes: Option<u64>| bytes.map(|bytes| line(label, show_bytes(bytes)));
    lines.extend(memory("memory", host.memory_bytes));
    lines.extend(quota.map(|cpus| line("CPU quota", format!("{cpus} CPUs"))));
    lines.extend(memory("memory limit", limit));
    lines.extend(placements(record));
    let tool = format!("{} {}", record.tool.name, record.tool.version);
    lines.push(line("measured by", tool));
    let judges = record.judges.iter();
    let judges = joined(
        judges.map(|(judge, version)| format!("{judge} {version}")),
        ", ",
    );
    lines.extend((!judges.is_empty()).then(|| line("judged by", judges)));
    lines
}

/// Returns the limits and kernel settings of the host.
pub(crate) fn host_settings(record: &Record) -> Vec<TextLine> {
    let host = &record.environment;
    let limits = host.limits.iter();
    let limits = limits.map(|(name, n)| line(name, show_count(*n)));
    let sysctls = host.sysctls.iter().map(|(name, value)| line(name, value));
    limits.chain(sysctls).collect()
}

/// Returns one line per placement, or no lines if no placement was requested. If there are several
/// placements, each line names its trials.
pub(crate) fn placements(record: &Record) -> Vec<TextLine> {
    if record.runs.iter().all(|run| run.place.is_none()) {
        return Vec::new();
    }
    let placed = record.runs.iter().map(|run| {
        let default = || "all CPUs of this host".to_owned();
        let trial = run.trial.as_deref().unwrap_or(&run.system);
        (trial, [run.place.as_ref().map_or_else(default, describe)])
    });
    gathered("hosts", placed)
}

/// Returns text such as `client on CPU 0, server on CPUs 1-3`.
fn describe(place: &Placement) -> String {
    let hosts = match place.hosts {
        HostLayout::Shared => "",
        HostLayout::Separate => "separate network namespaces joined by a veth pair: ",
    };
    let delay = delay(place.delay_s, "delay each way");
    let store = place.store.as_ref().map(describe_store);
    let store = store.unwrap_or_default();
    let (client, server) = (role("client", &place.client), role("server", &place.server));
    format!("{hosts}{client}, {server}{store}{delay}")
}

/// Returns text such as `, store postgresql, 20 ms of round-trip delay through floodmark's proxy`.
fn describe_store(store: &StorePlacement) -> String {
    let with = with(&store.setting);
    let running = if store.started {
        ""
    } else {
        ", already running"
    };
    let delay = delay(store.delay_s, "round-trip delay");
    format!(", store {}{with}{running}{delay}", store.name)
}

/// Returns text such as `, 20 ms of delay each way through floodmark's proxy`.
fn delay(delay_s: Option<f64>, kind: &str) -> String {
    match delay_s {
        None => String::new(),
        Some(0.0) => ", through floodmark's proxy without delay".to_owned(),
        Some(s) => format!(", {} of {kind} through floodmark's proxy", duration(s)),
    }
}

fn role(name: &str, placed: &RolePlacement) -> String {
    let on = match &placed.cpus {
        Some(cpus) if placed.cpu_count == 1 => format!("{name} on CPU {cpus}"),
        Some(cpus) => format!("{name} on CPUs {cpus}"),
        None => format!("{name} on all {}", count_of(placed.cpu_count.into(), "CPU")),
    };
    format!("{on}{}", with(&placed.sysctls))
}

/// Returns text such as ` with a = 1, b = 2`, or an empty text without settings.
fn with(values: &BTreeMap<String, String>) -> String {
    match settings(values) {
        none if none.is_empty() => none,
        values => format!(" with {values}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::model::document::line;

    fn kept(cpus: &str, cpu_count: u32) -> RolePlacement {
        RolePlacement {
            cpus: Some(cpus.to_owned()),
            cpu_count,
            address: None,
            sysctls: Default::default(),
        }
    }

    #[test]
    fn describes_each_placement_with_its_trials() {
        let mut record = fixture::record(vec![fixture::closed(), fixture::closed()]);
        assert_eq!(placements(&record), []);
        let place = Placement {
            hosts: HostLayout::Shared,
            client: kept("0", 1),
            server: kept("1-3", 3),
            delay_s: None,
            store: None,
        };
        record.runs[0].place = Some(place.clone());
        record.runs[0].trial = Some("kept".to_owned());
        record.runs[1].trial = Some("free".to_owned());
        assert_eq!(
            placements(&record),
            [
                line("hosts", "client on CPU 0, server on CPUs 1-3").of("kept"),
                line("hosts", "all CPUs of this host").of("free")
            ]
        );
        let mut apart = place.clone();
        apart.hosts = HostLayout::Separate;
        apart.client.sysctls = [("net.a".to_owned(), "1 2".to_owned())].into();
        assert_eq!(
            describe(&apart),
            "separate network namespaces joined by a veth pair: client on CPU 0 with net.a = 1 2, server on CPUs 1-3"
        );
        apart.client.sysctls.clear();
        for (delay_s, end) in [
            (0.0, ", through floodmark's proxy without delay"),
            (0.02, ", 20 ms of delay each way through floodmark's proxy"),
        ] {
            apart.delay_s = Some(delay_s);
            assert!(
                describe(&apart).replace('\u{a0}', " ").ends_with(end),
                "{}",
                describe(&apart)
            );
        }
        let mut store = StorePlacement {
            name: "cassandra".to_owned(),
            started: true,
            setting: [("heap".to_owned(), "512m".to_owned())].into(),
            delay_s: Some(0.02),
        };
        let mut behind = place.clone();
        behind.store = Some(store.clone());
        assert_eq!(
            describe(&behind).replace('\u{a0}', " "),
            "client on CPU 0, server on CPUs 1-3, store cassandra with heap = 512m, 20 ms of round-trip delay through floodmark's proxy"
        );
        (store.started, store.delay_s) = (false, None);
        store.setting.clear();
        behind.store = Some(store);
        assert!(describe(&behind).ends_with(", store cassandra, already running"));
        record.runs[1].place = Some(place);
        let both = line("hosts", "client on CPU 0, server on CPUs 1-3");
        assert_eq!(placements(&record), [both]);
    }
}
