//! Tests of client and server placement: on CPUs, and with a proxy between them.

use super::{ExperimentDirectory, NATIVE};
use crate::support::{code, finish, text};
use floodmark_host::Cpus;
use floodmark_record::Metric;

#[test]
fn restricts_client_and_server_to_their_cpus() {
    let allowed = Cpus::allowed().unwrap();
    let Some((client, server)) = allowed.halves() else {
        println!("skipped: this host has only one CPU");
        return;
    };
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"200ms\"\n[place]\ncpus = {{ client = \"{client}\", server = \"{server}\" }}\n\
         [[trial]]\nname = \"pinned\"\ncommand = \"sh -c 'grep Cpus_allowed_list /proc/self/status; echo threads {{threads}}; exec {{floodmark}} serve hello --listen {{host}}:{{port}}'\"\nworkload = \"hello\"\n\
         {NATIVE}place = {{ cpus = {{ server = \"{server}\" }} }}\n"
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let [pinned, native] = &record.runs[..] else {
        panic!("{printed}");
    };
    let place = pinned.place.as_ref().unwrap();
    assert_eq!(place.client.cpus, Some(client.to_string()));
    assert_eq!(place.server.cpus, Some(server.to_string()));
    assert_eq!(pinned.plan.threads, client.count());
    assert_eq!(pinned.client_cpus(99), client.count());
    let log = std::fs::read_to_string(lab.result().join("pinned-1.log")).unwrap();
    assert!(log.contains(&format!("\t{server}\n")), "{log}");
    assert!(
        log.contains(&format!("threads {}\n", server.count())),
        "{log}"
    );
    assert!(
        printed.contains(&format!(
            "pinned: client on CPU{} {client}, ",
            if client.count() > 1 { "s" } else { "" }
        )),
        "{printed}"
    );
    let free = native.place.as_ref().unwrap();
    assert_eq!(
        (&free.client.cpus, free.client.cpu_count),
        (&None, allowed.count())
    );
}

#[test]
fn delays_both_directions() {
    let near = NATIVE.replace("native\"\n", "native\"\nname = \"near\"\n");
    let control = near.replace("near", "control");
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"600ms\"\nwarmup = \"100ms\"\n{near}\
         {NATIVE}delay = \"20ms\"\n{control}delay = \"0s\"\n"
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let [near, far, control] = &record.runs[..] else {
        panic!("{printed}");
    };
    assert_eq!(
        (near.place.is_none(), far.place.as_ref().unwrap().delay_s),
        (true, Some(0.02))
    );
    let p50_us = |run: &floodmark_record::Run| run.response_time_us.p50.unwrap();
    let added_us = p50_us(far) - p50_us(near);
    assert!((40_000.0..60_000.0).contains(&added_us), "{added_us} µs");
    // The proxy itself adds no delay.
    assert_eq!(control.place.as_ref().unwrap().delay_s, Some(0.0));
    let added_us = p50_us(far) - p50_us(control);
    assert!((30_000.0..45_000.0).contains(&added_us), "{added_us} µs");
    for run in [far, control] {
        let mut seen = run.observations.iter();
        let proxy = seen.find(|seen| seen.metric == Metric::DelayProxyCpu);
        assert!(proxy.is_some_and(|seen| seen.values.len() == 1));
    }
    assert!(
        near.observations
            .iter()
            .all(|seen| seen.metric != Metric::DelayProxyCpu)
    );
    assert!(printed.contains("native: client on all"), "{printed}");
    let words = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("20 ms of delay each way"), "{printed}");
    assert!(words.contains("proxy without delay"), "{printed}");
    assert_eq!(super::processes_of(lab.0.path()), [0; 0]);
}

#[test]
fn refuses_missing_cpus_before_the_start() {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[place]\ncpus = {{ server = \"1023\" }}\n{NATIVE}"
    ));
    let output = finish(lab.start(&[]));
    assert_eq!(code(&output), 2);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("e.toml:4: place: cpus: server: CPU 1023 is not available; choose from "),
        "{stderr}"
    );
    assert!(!lab.result().exists());
}

#[test]
fn agents_divide_the_load_of_a_trial() {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 4\nrequests = 400\n[place]\nagents = \"local:2\"\n\
         {NATIVE}name = \"two\"\n{NATIVE}name = \"four\"\nplace = {{ agents = \"local:4\" }}\n"
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let [two, four] = &record.runs[..] else {
        panic!("{printed}");
    };
    for (run, agents) in [(two, 2), (four, 4)] {
        assert_eq!(run.requests.ok, 400, "{printed}");
        assert_eq!(run.agents.len(), agents, "{printed}");
        let sent = run.agents.iter().map(|agent| agent.requests.sent);
        assert_eq!(sent.sum::<u64>(), 400);
    }
}
