//! Detects a server that sends no response for a while, or stops responding before the run ends.

use floodmark_record::events::EndReason;
use floodmark_record::reason::{CLIENT_ERRORS, show_stopped};
use floodmark_record::run::{Run, Silence};
use floodmark_record::units::show_count;

use crate::why::thresholds::{MOST, NOTICEABLE, SATURATED};

/// Minimum number of requests in flight during a stall. With fewer, all of them may be slow at the
/// same time by chance.
const MIN_IN_FLIGHT: u64 = 5;

/// Minimum number of responses that the server would have sent during the silence at its mean rate.
/// With fewer, chance can explain the silence.
const MIN_EXPECTED: f64 = 20.0;

/// A server stall distorts means over the window if it takes at least this share of the window:
/// half of the difference between full use and [`SATURATED`]. If the stall is shorter, a resource
/// that is in use for at least 0.975 of the remaining time still counts as saturated.
const MAX_STALLED: f64 = (1.0 - SATURATED) / 2.0;

/// Returns the server stall of a run: a silence during which at least [`MIN_IN_FLIGHT`] requests
/// were in flight. Returns `None` if chance, slow requests or the client can explain the silence.
///
/// Silences also occur if service times vary, or if requests end together because workers run in
/// step. Such silences are shorter than the usual service time, or there are many of them.
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

/// Returns whether a stall is so long that means over the window do not show what limits the
/// server.
pub(crate) fn distorts_means(run: &Run, stall: &Silence) -> bool {
    stall.total_s >= MAX_STALLED * (run.window.to_s - run.window.from_s)
}

/// Describes a stall. Silences are measured in intervals of 100 ms.
pub(crate) fn show_stall(stall: &Silence) -> String {
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

/// Returns the time of the last response, in seconds since the start, if the server did not respond
/// from then until the end of the run. Returns 0 for a server that became unreachable before its
/// first response.
///
/// Unless the server became unreachable, the silence must exceed the timeout, or take a noticeable
/// share of the run and exceed all service times. Requests must have failed during the silence or
/// be in flight at the end, so an idle server is not reported. Returns `None` if most errors are
/// client errors, such as a lack of local ports.
#[must_use]
pub fn server_gone_since_s(run: &Run, last_response_s: Option<f64>) -> Option<f64> {
    if run.ended.reason == EndReason::ServerGone {
        return Some(last_response_s.unwrap_or(0.0));
    }
    let since_s = last_response_s?;
    let silence_s = run.sending_s - since_s;
    let service_s = run.service_time_us.max.unwrap_or(0.0) / 1e6;
    let is_long = silence_s > run.plan.timeout.as_secs_f64()
        || (silence_s >= NOTICEABLE * run.sending_s && silence_s > service_s);
    let mut rows = run.series.iter();
    let has_failures =
        run.requests.in_flight_at_end > 0 || rows.any(|row| row.to_s > since_s && row.failed > 0);
    let of_client = CLIENT_ERRORS.iter();
    let of_client = of_client.filter_map(|(name, ..)| run.errors.get(*name));
    let are_of_client = 2 * of_client.sum::<u64>() > run.errors.values().sum();
    (is_long && has_failures && !are_of_client).then_some(since_s)
}

/// Returns when the server stopped responding, as text, if it had responded before.
pub(crate) fn show_stop(run: &Run) -> Option<String> {
    let since_s = run.server_gone_since_s.filter(|since| *since > 0.0)?;
    Some(show_stopped(since_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::next::tests::run;
    use crate::testing::{closed, open};
    use floodmark_record::run::SeriesRow;

    /// Returns a ten-second run with a timeout of 5 s and service times of up to 200 ms. Requests
    /// fail in the last second.
    fn failing(plan: floodmark_record::Plan) -> Run {
        let mut run = run(plan);
        run.service_time_us.max = Some(200_000.0);
        run.series = vec![SeriesRow {
            from_s: 9.0,
            to_s: 10.0,
            failed: 1,
            ..SeriesRow::default()
        }];
        run
    }

    #[test]
    fn finds_when_a_server_stopped_responding() {
        for plan in [closed(), open()] {
            let mut run = failing(plan);
            let since = |run: &Run, last| server_gone_since_s(run, last);
            assert_eq!(since(&run, Some(2.0)), Some(2.0));
            assert_eq!(since(&run, Some(8.9)), Some(8.9));
            assert_eq!(since(&run, Some(9.1)), None, "less than a tenth of the run");
            assert_eq!(since(&run, Some(10.1)), None, "a response after the window");
            assert_eq!(since(&run, None), None, "no response at all");
            run.service_time_us.max = Some(3e6);
            assert_eq!(since(&run, Some(8.0)), None, "requests may take this long");
            assert_eq!(since(&run, Some(4.0)), Some(4.0), "longer than the timeout");
            run.series[0].failed = 0;
            assert_eq!(since(&run, Some(4.0)), None, "no request was waiting");
            run.requests.in_flight_at_end = 1;
            assert_eq!(since(&run, Some(4.0)), Some(4.0));
        }
    }

    #[test]
    fn a_client_without_local_ports_does_not_stop_the_server() {
        let mut run = failing(closed());
        run.errors.insert("connection_reset".to_owned(), 9);
        run.errors.insert("ports_exhausted".to_owned(), 10);
        assert_eq!(server_gone_since_s(&run, Some(2.0)), None);
        run.errors.insert("ports_exhausted".to_owned(), 8);
        assert_eq!(server_gone_since_s(&run, Some(2.0)), Some(2.0));
    }

    #[test]
    fn an_unreachable_server_is_gone_since_its_last_response() {
        let mut run = run(closed());
        run.ended.reason = EndReason::ServerGone;
        assert_eq!(server_gone_since_s(&run, Some(9.9)), Some(9.9));
        assert_eq!(server_gone_since_s(&run, None), Some(0.0));
    }
}
