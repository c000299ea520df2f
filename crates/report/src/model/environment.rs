//! The host and the floodmark version of a record.

use floodmark_record::Record;
use floodmark_record::units::{show_bytes, show_count};

use super::{TextLine, line, placement};

/// Adds host, placements and versions.
pub(crate) fn lines(record: &Record) -> Vec<TextLine> {
    let host = &record.environment;
    let model = host.cpu_model.iter().map(|model| format!(", {model}"));
    let cpus = format!("{}{}", host.cpus, model.collect::<String>());
    let mut lines = vec![line("kernel", &host.kernel), line("CPUs", cpus)];
    let cgroup = host.cgroup.as_ref();
    let quota = cgroup.and_then(|cgroup| cgroup.cpu_quota);
    let memory =
        |label: &str, bytes: Option<u64>| bytes.map(|bytes| line(label, show_bytes(bytes)));
    lines.extend(memory("memory", host.memory_bytes));
    lines.extend(quota.map(|cpus| line("CPU quota", format!("{cpus} CPUs"))));
    lines.extend(memory(
        "memory limit",
        cgroup.and_then(|cgroup| cgroup.memory_bytes),
    ));
    lines.extend(placement::lines(record));
    let tool = format!("{} {}", record.tool.name, record.tool.version);
    lines.push(line("measured by", tool));
    let judges = record
        .judges
        .iter()
        .map(|(judge, version)| format!("{judge} {version}"));
    let judges: Vec<String> = judges.collect();
    if !judges.is_empty() {
        lines.push(line("judged by", judges.join(", ")));
    }
    lines
}

/// Adds the limits and kernel settings of the host.
pub(crate) fn settings(record: &Record) -> Vec<TextLine> {
    let host = &record.environment;
    let limits = host
        .limits
        .iter()
        .map(|(name, n)| line(name, show_count(*n)));
    let sysctls = host.sysctls.iter().map(|(name, value)| line(name, value));
    limits.chain(sysctls).collect()
}
