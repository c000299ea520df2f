//! TLS handshakes, with clients or with an upstream, use up the server's CPU.

use floodmark_record::metric::CodeFigure;

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::ServerCpu),
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::TlsHandshake, Place::Server, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let (run, server) = (facts.run, facts.server.as_ref()?);
    let code = facts.code_share(CodeFigure::Cryptography);
    // If the functions that the server executes were not sampled, use the share of its CPU time in
    // user mode: cryptography runs in user mode, while connections are opened in kernel mode.
    let share = code.unwrap_or_else(|| server.in_user());
    let (per_request, figure) = match &run.tls {
        Some(tls) => {
            let full = tls.used.handshakes.saturating_sub(tls.used.resumed);
            let (handshakes, ok) = (show_count(full), show_count(run.requests.ok));
            let figure = format!(
                "{handshakes} full handshakes for {ok} ok responses (tls.handshakes, tls.resumed)"
            );
            (full as f64 / run.requests.ok.max(1) as f64, figure)
        }
        // Handshakes with an upstream are visible only if the functions that the server executes
        // were sampled.
        None => {
            let per_request = facts.opened_by_others()? / facts.responses_per_s.max(1e-9);
            let figure = format!(
                "processes other than the client opened {per_request:.2} connections per response (ActiveOpens)"
            );
            code.filter(|share| *share >= NOTICEABLE)
                .map(|_| (per_request, figure))?
        }
    };
    let of_cpu = match code {
        Some(share) => format!(
            "cryptography: {} of the server's CPU time (perf_event_open)",
            percent(share)
        ),
        None => format!("{} of the server's CPU time in user mode", percent(share)),
    };
    if per_request < MOST || share < MOST || !facts.is_server_saturated(server) {
        return ruled_out(format!("{figure}; {of_cpu}"));
    }
    let time = run.handshake_time_us.mean.map(|us| {
        let time = show_us(Some(us));
        format!("mean handshake time: {time} (handshake_time_us)")
    });
    Candidate::consumer(
        StepKind::Tls,
        match &run.tls {
            Some(_) => {
                format!("the server is busy with TLS: {per_request:.2} full handshakes per request")
            }
            None => format!(
                "the server is busy with cryptography, probably TLS handshakes: it opens \
                 {per_request:.2} upstream connections per request"
            ),
        },
        [Some(figure), Some(of_cpu), time],
        "reuse connections, resume sessions, or use an ECDSA certificate instead of RSA",
    )
    .found()
}
