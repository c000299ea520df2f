//! Formatted figures for messages.

pub(crate) use floodmark_record::host::show_processes;
pub(crate) use floodmark_record::units::{percent, plural, show_s};
use floodmark_record::units::{show_ns, show_rate};

/// Formats a count like [`plural`], or returns `None` if the count is 0.
pub(crate) fn plural_if_any(n: u64, noun: &str) -> Option<String> {
    (n > 0).then(|| plural(n, noun))
}

/// Formats a rate: `1,000/s`.
pub(crate) fn per_s(rate: f64) -> String {
    format!("{}/s", show_rate(rate))
}

/// Formats the CPUs that a role used, of the CPUs available to it.
pub(crate) fn show_available(role: &str, used: f64, available: f64) -> String {
    format!("{role}: {used:.2} of {available:.2} available CPUs used (/proc/PID/stat)")
}

/// Formats a number of idle CPUs and the total number of CPUs.
pub(crate) fn show_idle((idle, cpus): (f64, f64)) -> String {
    format!("{idle:.2} of {cpus:.0} CPUs idle (/proc/stat)")
}

/// Formats a time that is given in microseconds, if known.
pub(crate) fn show_us(us: Option<f64>) -> String {
    us.map_or_else(|| "unknown".to_owned(), |us| show_ns(us * 1e3))
}
