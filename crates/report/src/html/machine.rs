//! Where and by what the record was taken.

use floodmark_record::result::Record;
use floodmark_record::units::{show_bytes, show_count};
use maud::{Markup, html};

use super::text::Shown;

/// Draws the environment.
pub(crate) fn draw(record: &Record) -> Markup {
    let at = &record.environment;
    let mut rows: Vec<(&str, String)> = vec![("kernel", at.kernel.clone())];
    let model = at.cpu_model.as_ref().map(|model| format!(", {model}"));
    rows.push(("CPUs", format!("{}{}", at.cpus, model.unwrap_or_default())));
    rows.extend(at.memory_bytes.map(|bytes| ("memory", show_bytes(bytes))));
    if let Some(cgroup) = &at.cgroup {
        rows.extend(
            cgroup
                .cpu_quota
                .map(|cpus| ("CPU quota", format!("{cpus} CPUs"))),
        );
        rows.extend(
            cgroup
                .memory_bytes
                .map(|bytes| ("memory limit", show_bytes(bytes))),
        );
    }
    let places = crate::place::lines(record);
    rows.extend(places.into_iter().map(|line| ("hosts", line)));
    let limits = at
        .limits
        .iter()
        .map(|(name, n)| (name.as_str(), show_count(*n)));
    let settings = at
        .sysctls
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()));
    let judges: Vec<String> = record
        .judges
        .iter()
        .map(|(judge, version)| format!("{judge} {version}"))
        .collect();
    rows.push((
        "taken by",
        format!("{} {}", record.tool.name, record.tool.version),
    ));
    rows.extend((!judges.is_empty()).then(|| ("judged by", judges.join(", "))));
    html! {
        dl {
            @for (name, value) in &rows { dt { (name) } dd { (Shown(value)) } }
        }
        dl.small {
            @for (name, value) in limits.chain(settings) { dt { (Shown(name)) } dd { (Shown(&value)) } }
        }
    }
}
