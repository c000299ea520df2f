//! The thresholds of all verdicts. The figures come from our own cases and the first batch of
//! third-party cases in `cases/`, excluding the cases that are set aside (docs/accuracy.md).

use std::ops::{Range, RangeInclusive};

/// A resource is saturated if at least this share of it is in use. Threads that limited a server
/// were running or runnable for 0.975 to 0.998 of the time.
pub(crate) const SATURATED: f64 = 0.9;

/// Minimum share of a resource that its main consumer uses, and minimum share of requests at the
/// place that holds most of them. True by definition.
pub(crate) const MOST: f64 = 0.5;

/// Minimum share of CPUs, threads or time that counts as spare. At full load, Puma left 0.15
/// of the CPUs idle.
pub(super) const SPARE: f64 = 0.25;

/// Minimum share of the CPUs that a process uses if it competes for them. Also the minimum share of
/// a lock holder's time that a resource must take to explain why the lock is held, and the minimum
/// ratio of run delay to CPU time that indicates competition. The run delay of a client with its
/// own CPU was at most 0.06 of its CPU time.
pub(crate) const CONTENDED: f64 = 0.2;

/// Minimum share that affects throughput noticeably. In three of four runs, the rates of the
/// fastest and the slowest second differed by at most 0.05.
pub(crate) const NOTICEABLE: f64 = 0.1;

/// Minimum share of the limiting CPU time that garbage collection must take to be the
/// cause. Go's collector takes a quarter of the CPUs by design (`gcBackgroundUtilization`), and more
/// if goroutines assist it. Servers with default settings and a large heap spent up to 0.34 of their
/// CPU time on collection; servers that collected too often spent 0.48 to 0.9.
pub(super) const COLLECTING: f64 = 0.4;

/// Errors or stalls with at least this share limit a run. Under a rate limiter, the rates of two
/// seconds differ by at most this share (0.002 was measured).
pub(crate) const RARE: f64 = 0.02;

/// Range of ratios at which two numbers count as equal. Both numbers are means of samples, and
/// service times vary.
pub(crate) const SAME: RangeInclusive<f64> = 0.75..=1.34;

/// Range of means that indicates one request at a time. Servers with one lock had means of 0.75 to
/// 1.43, except for one server that also waited for an upstream (3.1).
pub(super) const ONE: Range<f64> = 0.7..1.5;

/// Minimum time in the accept queue, in seconds, that ordinary scheduling delays cannot explain.
/// Limits on connections and files that filled the accept queue delayed connections by 0.8 s or
/// more. Fresh connections to servers without such a limit waited for at most 0.04 s.
pub(super) const LONG_WAIT_S: f64 = 0.1;

/// Range of the time from the first to the last byte, in µs, that indicates delayed ACKs. Linux
/// delays an ACK by at least 40 ms (`TCP_DELACK_MIN`, HZ/25).
pub(super) const DELAYED_ACK_US: Range<f64> = 39_000.0..48_000.0;

/// Number of new connections per request at which connecting takes about half of the CPU time. A
/// request on a fresh connection costs five to seven times as much as a request on a kept
/// connection (docs/peers.md).
pub(super) const REOPENED: f64 = 0.2;

/// Maximum size, in bytes, of the part of a response that is expected to be in transit on a
/// saturated link. Socket buffers limit the data that a connection has in transit. The value is an
/// estimate, not a kernel constant.
pub(super) const MAX_IN_TRANSIT: f64 = 512.0 * 1024.0;

/// Returns whether two numbers are about equal.
pub(super) fn same(a: f64, b: f64) -> bool {
    b > 0.0 && SAME.contains(&(a / b))
}
