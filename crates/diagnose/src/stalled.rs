//! Detects a server that sent no response for a while and then resumed.

use floodmark_record::run::{Run, Silence};
use floodmark_record::units::show_count;

use crate::why::thresholds::{MOST, SATURATED};

/// Minimum number of requests in flight during a stall. A few requests can all be slow at once.
const MIN_IN_FLIGHT: u64 = 5;

/// Minimum number of responses that the server would have sent at its mean rate. With fewer, chance
/// can explain the silence.
const MIN_EXPECTED: f64 = 20.0;

/// Maximum share of the window that a server stall may take without distorting means over the window:
/// half of the margin below saturation. A resource that is used for at least 0.975 of the remaining
/// time then still counts as saturated.
const MAX_STALLED: f64 = (1.0 - SATURATED) / 2.0;

/// Returns the server stall of a run: a silence while at least [`MIN_IN_FLIGHT`] requests were in
/// flight. Returns `None` if chance, slow requests or the client can explain the silence.
///
/// Requests whose service times vary, or that end together because workers run in step, cause
/// silences shorter than the usual service time, or many silences.
pub(crate) fn server_stall(run: &Run) -> Option<&Silence> {
    let silence = run.silence.as_ref()?;
    let length_s = silence.to_s - silence.from_s;
    let in_window = silence.from_s >= run.window.from_s && silence.to_s <= run.window.to_s;
    let times = &run.service_time_us;
    let usual_s = times.p50? / 1e6;
    let client_s = run.longest_stall_ns? as f64 / 1e9;
    let counts = &run.requests;
    // In a stall, requests wait for the whole silence, unless they end without a response.
    let without_response = counts.in_flight_at_end + counts.timed_out + counts.reset;
    let has_waiting_request = times.max? / 1e6 >= length_s || without_response >= silence.in_flight;
    let is_stall = run.server_gone_since_s.is_none()
        && in_window
        && silence.in_flight >= MIN_IN_FLIGHT
        && run.throughput_per_s? * length_s >= MIN_EXPECTED
        && usual_s <= MOST * length_s
        && client_s < MOST * length_s
        && length_s >= MOST * silence.total_s
        && has_waiting_request;
    is_stall.then_some(silence)
}

/// Returns whether a stall is so long that means over the window do not show what limits the server.
pub(crate) fn distorts_means(run: &Run, stall: &Silence) -> bool {
    stall.total_s >= MAX_STALLED * (run.window.to_s - run.window.from_s)
}

/// Describes a stall. Silences are measured in parts of 100 ms.
pub(crate) fn show(stall: &Silence) -> String {
    let again = stall.total_s - (stall.to_s - stall.from_s);
    let again = if again >= 0.1 {
        format!(" ({:.1} s in total)", stall.total_s)
    } else {
        String::new()
    };
    format!(
        "the server sent no response for at least {:.1} s from {:.1} s on{again}, with {} requests in \
         flight",
        stall.to_s - stall.from_s,
        stall.from_s,
        show_count(stall.in_flight)
    )
}
