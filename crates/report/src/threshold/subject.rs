//! What a condition's figures are of: a run, or one group of its mix.

use floodmark_record::groups::Group;
use floodmark_record::outcome::Counts;
use floodmark_record::run::Run;
use floodmark_record::times::Times;

/// Figures of a run or of a group; what a group does not have to itself is none.
pub(super) struct Subject<'a> {
    pub throughput_per_s: Option<f64>,
    pub goodput_per_s: Option<f64>,
    pub requests: &'a Counts,
    pub response: &'a Times,
    pub service: &'a Times,
    pub blocked: &'a Times,
    pub lateness: &'a Times,
    pub connect: Option<&'a Times>,
    pub handshake: Option<&'a Times>,
    pub first_byte: &'a Times,
    pub error: &'a Times,
    pub cpu_us_per_request: Option<f64>,
    pub timeout_s: f64,
}

impl<'a> Subject<'a> {
    pub fn run(run: &'a Run) -> Self {
        Subject {
            throughput_per_s: run.throughput_per_s,
            goodput_per_s: run.goodput_per_s,
            requests: &run.requests,
            response: &run.response_time_us,
            service: &run.service_time_us,
            blocked: &run.blocked_us,
            lateness: &run.lateness_us,
            connect: Some(&run.connect_time_us),
            handshake: Some(&run.handshake_time_us),
            first_byte: &run.first_byte_us,
            error: &run.error_time_us,
            cpu_us_per_request: run.client.cpu_us_per_request,
            timeout_s: run.plan.timeout_s,
        }
    }

    pub fn group(run: &'a Run, group: &'a Group) -> Self {
        Subject {
            throughput_per_s: group.throughput_per_s,
            goodput_per_s: group.goodput_per_s,
            requests: &group.requests,
            response: &group.response_time_us,
            service: &group.service_time_us,
            blocked: &group.blocked_us,
            lateness: &group.lateness_us,
            connect: None,
            handshake: None,
            first_byte: &group.first_byte_us,
            error: &group.error_time_us,
            cpu_us_per_request: None,
            timeout_s: run.plan.timeout_s,
        }
    }
}
