//! Where client and server run.

use super::{Lab, NATIVE};
use crate::support::{code, finish, text};
use floodmark_host::Cpus;

#[test]
fn each_side_is_kept_to_its_cpus_and_the_record_says_so() {
    let allowed = Cpus::allowed().unwrap();
    let Some((client, server)) = allowed.halves() else {
        println!("skipped: there is one CPU only");
        return;
    };
    let lab = Lab::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"200ms\"\n[place]\ncpus = {{ client = \"{client}\", server = \"{server}\" }}\n\
         [[trial]]\nname = \"told\"\ncommand = \"sh -c 'grep Cpus_allowed_list /proc/self/status; echo threads {{threads}}; exec {{floodmark}} serve hello --listen {{host}}:{{port}}'\"\nworkload = \"hello\"\n\
         {NATIVE}place = {{ cpus = {{ server = \"{server}\" }} }}\n"
    ));
    let (code, record, said) = lab.run(&[]);
    assert!(matches!(code, 0 | 4), "{said}");
    let [told, native] = &record.runs[..] else {
        panic!("{said}");
    };
    let place = told.place.as_ref().unwrap();
    assert_eq!(place.client.cpus, Some(client.to_string()));
    assert_eq!(place.server.cpus, Some(server.to_string()));
    assert_eq!(told.plan.threads, client.count());
    assert_eq!(told.client_cpus(99), client.count());
    let log = std::fs::read_to_string(lab.result().join("told-1.log")).unwrap();
    assert!(log.contains(&format!("\t{server}\n")), "{log}");
    assert!(
        log.contains(&format!("threads {}\n", server.count())),
        "{log}"
    );
    assert!(
        said.contains(&format!(
            "told: client on CPU{} {client}, ",
            if client.count() > 1 { "s" } else { "" }
        )),
        "{said}"
    );
    let free = native.place.as_ref().unwrap();
    assert_eq!(
        (&free.client.cpus, free.client.cpu_count),
        (&None, allowed.count())
    );
}

#[test]
fn a_delayed_server_answers_later_by_the_way_there_and_back() {
    let near = NATIVE.replace("native\"\n", "native\"\nname = \"near\"\n");
    let control = near.replace("near", "control");
    let lab = Lab::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"600ms\"\nwarmup = \"100ms\"\n{near}\
         {NATIVE}delay = \"20ms\"\n{control}delay = \"0s\"\n"
    ));
    let (code, record, said) = lab.run(&[]);
    assert!(matches!(code, 0 | 4), "{said}");
    let [near, far, control] = &record.runs[..] else {
        panic!("{said}");
    };
    assert_eq!(
        (near.place.is_none(), far.place.as_ref().unwrap().delay_s),
        (true, Some(0.02))
    );
    let p50_us = |run: &floodmark_record::Run| run.response_time_us.p50.unwrap();
    let added_us = p50_us(far) - p50_us(near);
    assert!((40_000.0..60_000.0).contains(&added_us), "{added_us} µs");
    // Through the same proxy, and no later for that.
    assert_eq!(control.place.as_ref().unwrap().delay_s, Some(0.0));
    let added_us = p50_us(far) - p50_us(control);
    assert!((30_000.0..45_000.0).contains(&added_us), "{added_us} µs");
    for run in [far, control] {
        let mut seen = run.observations.iter();
        let proxy = seen.find(|seen| seen.subject == "delay proxy");
        assert!(proxy.is_some_and(|seen| seen.metric == "cpu" && seen.values.len() == 1));
    }
    assert!(
        near.observations
            .iter()
            .all(|seen| seen.subject != "delay proxy")
    );
    assert!(said.contains("native: client on all"), "{said}");
    assert!(said.contains("each byte 20 ms later"), "{said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("proxy, without a delay"), "{said}");
    assert_eq!(super::processes_of(lab.0.path()), [0; 0]);
}

#[test]
fn cpus_that_there_are_not_are_refused_before_anything_starts() {
    let lab = Lab::new(&format!(
        "question = \"?\"\n[place]\ncpus = {{ server = \"1023\" }}\n{NATIVE}"
    ));
    let output = finish(lab.start(&[]));
    assert_eq!(code(&output), 2);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains(
            "e.toml:4: place: cpus: server: floodmark may not use CPU 1023 here; it may use "
        ),
        "{stderr}"
    );
    assert!(!lab.result().exists());
}
