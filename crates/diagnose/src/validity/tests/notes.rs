//! What is remarked upon without a change of the status.

use floodmark_record::plan::Arrivals;

use super::*;

#[test]
fn redirects_are_said_with_their_statuses() {
    let mut case = Case::good(closed());
    let statuses = [(200, 5), (302, 1_200), (304, 7), (308, 1)];
    case.counts.statuses = statuses.into();
    case.notes_one(&["1,201 answers were redirects (302, 308)", "does not follow"]);
    case.counts.statuses = [(200, 5), (304, 7)].into();
    case.notes_nothing();
}

#[test]
fn each_remark_has_its_figure_and_its_mend() {
    let mut case = Case::good(closed());
    case.host.listen_overflows = Some(120.0);
    case.host.listen_drops = Some(120.0);
    case.notes_one(&[
        "120 new connections",
        "ListenOverflows",
        "net.core.somaxconn",
    ]);
    case.host.listen_overflows = Some(0.0);
    case.host.listen_drops = Some(1.0);
    case.notes_one(&["1 new connection was dropped", "ListenDrops"]);

    let mut case = Case::good(open());
    case.held = Some(Held {
        standing: 50,
        failed: 0,
        reasons: BTreeMap::new(),
        lost: 3,
        reopened: 1,
        opening_ns: 1,
    });
    case.notes_one(&["3 held connections ended", "1 was opened", "idle timeout"]);

    let mut case = Case::good(closed());
    case.host.syn_retransmits = Some(3.0);
    case.notes_one(&["3 connection requests were sent again", "TCPSynRetrans"]);

    let mut case = Case::good(closed());
    (case.counts.ok, case.counts.timed_out) = (9_998, 2);
    case.notes_one(&["2 requests got no answer within 5.00 s"]);

    let mut case = Case::good(closed());
    (case.seconds, case.response.mean) = (2.0, None);
    case.notes_one(&["lasted only 2.00 s", "-d 10s"]);

    let mut case = Case::good(closed());
    case.ceiling = Some(1_250.0);
    case.notes_one(&["1,000/s is 80 % of the 1,250/s"]);

    let mut case = Case::good(open());
    case.ended = EndReason::Interrupted;
    case.notes_one(&["interrupted"]);
}

#[test]
fn look_alikes_need_no_remark() {
    let mut burst = Case::good(open());
    burst.plan.arrivals = Some(Arrivals::Burst);
    burst.seconds = 1.0;
    burst.notes_nothing();

    let mut quiet = Case::good(closed());
    quiet.host = HostCounters {
        listen_overflows: Some(0.0),
        listen_drops: Some(0.0),
        syn_retransmits: Some(0.0),
    };
    quiet.ceiling = Some(2_000.0);
    quiet.notes_nothing();
}

#[test]
fn littles_law_is_asked_where_it_holds() {
    let mut case = Case::good(closed());
    case.response.mean = Some(49_500.0);
    case.notes_nothing();
    case.response.mean = Some(40_000.0);
    case.notes_one(&["gives 40.0 requests", "50 connections", "20 %"]);
    // Not with failures, fresh connections, an open schedule, or responses as long as the run.
    case.counts.reconnects = 1;
    case.notes_nothing();
    case.counts.reconnects = 0;
    case.plan.connection_use = floodmark_record::plan::ConnectionUse::Fresh;
    case.notes_nothing();
    case.plan = open();
    case.notes_nothing();
    case.plan = closed();
    case.response.mean = Some(400_000.0);
    case.notes_nothing();
}

#[test]
fn what_could_not_be_read_is_said_and_not_taken_for_nothing() {
    let unread = |on_cpu| ThreadUse {
        run_delay_s: None,
        ..thread(on_cpu, 0.0)
    };
    let mut case = Case::good(closed());
    case.threads = vec![unread(0.7)];
    case.notes_one(&[
        "waited for a CPU",
        "/proc/thread-self/schedstat) could not be read",
        "70 %",
        "not known",
    ]);
    // One thread that tells does not speak for the other.
    case.threads.push(thread(0.7, 0.29));
    case.notes_one(&["schedstat"]);
    case.threads = vec![unread(0.97)];
    case.is(
        Status::Bound,
        &["97 % on a CPU", "the wait for one not known", "-t 2"],
    );
    let mut died = Case::good(open());
    died.stall_ns = None;
    died.notes_one(&["stood still", "not known"]);
}

#[test]
fn an_address_that_was_left_out_is_named() {
    let at = |address: &str, opened, moved, left_out: Option<&str>| AddressUse {
        address: address.parse().unwrap(),
        opened,
        moved,
        left_out: left_out.map(str::to_owned),
    };
    let mut case = Case::good(closed());
    case.addresses = vec![at("127.0.0.1:8080", 50, 0, None)];
    case.notes_nothing();
    case.addresses
        .push(at("[::1]:8080", 0, 25, Some("connect_refused")));
    case.notes_one(&[
        "of localhost:8080",
        "[::1]:8080 (connect refused, 25 connections)",
        "all went to 127.0.0.1:8080",
    ]);
    // Where none was reached, the end of the run says so.
    case.addresses[0].opened = 0;
    case.notes_nothing();
}
