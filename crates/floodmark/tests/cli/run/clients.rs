//! Other load generators as drivers: what they say is kept, and one that fails is one line.

use floodmark_record::events::EndReason;
use floodmark_record::run::Status;

use super::{Lab, NATIVE, installed, leases, processes_of, python};

/// A client of the given name whose commands are those of a shell.
fn shell(lab: &Lab, name: &str, script: &str, more: &str) -> String {
    let text = format!(
        "name = \"{name}\"\nneeds = [\"sh\"]\n{more}\n[kept]\nduration = \"sh client.sh {{connections}} {{seconds}} {{url}}\"\n\
         [figures]\nanswers = {{ find = '^(\\d+) answers' }}\nwrong = {{ find = '(\\d+) wrong', sum = true }}\n\
         throughput = {{ find = '([\\d.]+)/s' }}\np99 = {{ find = 'p99 ([\\d.]+)', unit = \"ms\" }}\n"
    );
    let folder = lab.0.path().join("clients").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("client.toml"), text).unwrap();
    std::fs::write(folder.join("client.sh"), script).unwrap();
    format!("{NATIVE}client = \"{name}\"\nname = \"{name}\"\n")
}

#[test]
fn what_a_client_says_is_kept_beside_what_it_used() {
    let lab = Lab::new("");
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done\n\
                  echo \"$1 connections, $2 s, $3\" >&2; echo '400 answers, 100 wrong, 200.5/s, p99 1.5'";
    let trial = shell(&lab, "teller", script, "version = \"echo teller 1.2\"");
    lab.write(&format!(
        "question = \"?\"\n[load]\nconnections = 3\nduration = \"1s\"\nattempts = 2\n{trial}"
    ));
    let (code, record, said) = lab.run(&[]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(record.runs.len(), 2);
    for run in &record.runs {
        let tool = run.client.tool.as_ref().unwrap();
        assert_eq!(run.client.name.as_deref(), Some("teller"));
        assert_eq!(tool.version.as_deref(), Some("teller 1.2"));
        assert_eq!(tool.command[..4], ["sh", "client.sh", "3", "1"]);
        let log = std::fs::read_to_string(lab.result().join(&tool.log)).unwrap();
        assert!(
            log.contains("3 connections, 1 s, http://127.0.0.1:"),
            "{log}"
        );
        // A quarter of its answers is none that counts.
        assert_eq!(run.throughput_per_s, Some(200.5 * 0.75));
        assert_eq!((run.requests.ok, run.requests.wrong), (300, 100));
        assert_eq!(run.requests.balance(), Ok(()));
        assert_eq!(run.response_time_us.p99, Some(1500.0));
        assert_eq!((run.response_time_us.p50, run.goodput_per_s), (None, None));
        assert!(run.client.cpu_us_per_request.unwrap() > 0.0);
        assert!(run.series.is_empty() && tool.counter.is_none());
        assert_eq!(run.validity.status, Status::Valid);
        assert_eq!(run.ended.reason, EndReason::Completed);
    }
    assert!(
        said.contains("teller 1.2 – sh client.sh 3 1 http://"),
        "{said}"
    );
    assert_eq!((processes_of(lab.0.path()), leases(&lab)), (vec![], 0));
}

#[test]
fn of_a_delayed_server_the_proxys_cpu_is_kept() {
    if !installed("curl") {
        return;
    }
    let trial = "[[trial]]\nsystem = \"native\"\nworkload = \"hello\"\nclient = \"curl-loop\"\ndelay = \"0s\"\n";
    let lab = Lab::new(&format!(
        "question = \"?\"\n[load]\nconnections = 1\nduration = \"1s\"\nfresh = true\n{trial}"
    ));
    let (code, record, said) = lab.run(&[]);
    assert_eq!(code, 0, "{said}");
    let mut seen = record.runs[0].observations.iter();
    let proxy = seen.find(|seen| seen.subject == "delay proxy").unwrap();
    // Over the client's second.
    assert!(proxy.step_ms >= 1000 && proxy.values[0] >= 0.0, "{proxy:?}");
}

#[test]
fn curl_loops_count_what_the_server_counts() {
    if !installed("curl") {
        return;
    }
    let trial =
        "[[trial]]\nsystem = \"native\"\nworkload = \"dispatcher\"\nclient = \"curl-loop\"\n";
    let lab = Lab::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"3s\"\nfresh = true\n{trial}"
    ));
    let (code, record, said) = lab.run(&[]);
    assert_eq!(code, 0, "{said}");
    let run = &record.runs[0];
    let tool = run.client.tool.as_ref().unwrap();
    let counter = tool.counter.as_ref().unwrap();
    assert!(counter.readings >= 1, "{counter:?}");
    assert_eq!(tool.said.answers, Some(counter.answers()), "{said}");
    assert!(said.contains("by the server's own counter"), "{said}");
    // Second by second the same counter.
    let mut seen = run.observations.iter();
    let seen = seen.find(|seen| seen.subject == "server").unwrap();
    assert!(seen.values.iter().sum::<f64>() <= counter.answers() as f64);
    // Each request has processes of its own: a shell and curl.
    assert!(run.client.cpu_us_per_request.unwrap() > 500.0);
    assert_eq!(run.response_time_us.count, 0);
}

#[test]
fn a_client_that_fails_is_one_line_and_the_rest_goes_on() {
    let lab = Lab::new("");
    let trials = [
        shell(&lab, "fails", "echo cannot connect; exit 7", ""),
        shell(&lab, "mute", "echo nothing of use", ""),
        shell(&lab, "hangs", "sleep 60", "linger = \"200ms\""),
        shell(&lab, "exotic", "", ""),
    ];
    let exotic = lab.0.path().join("clients/exotic/client.toml");
    let text = std::fs::read_to_string(&exotic).unwrap();
    std::fs::write(exotic, text.replace("\"sh\"", "\"no-such-program-here\"")).unwrap();
    lab.write(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"1s\"\n[place]\nprocesses = 2\n{}{NATIVE}",
        trials.concat()
    ));
    let (code, record, said) = lab.run(&[]);
    assert_eq!(code, 3, "{said}");
    let expected = [
        "client exotic is skipped: no-such-program-here is not installed",
        "fails: fails failed (exit status: 7) – it said \"cannot connect\"; its log is ",
        "mute: mute counted no answer – it said \"nothing of use\"",
        "hangs: hangs did not end within 1.2 s and was ended",
    ];
    assert_eq!(record.skipped.len(), expected.len(), "{:?}", record.skipped);
    for (line, expected) in record.skipped.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
        assert!(said.contains(line.as_str()), "{said}");
    }
    let ended: Vec<(&str, EndReason)> = record
        .runs
        .iter()
        .map(|run| (run.trial.as_deref().unwrap(), run.ended.reason))
        .collect();
    let failed = EndReason::ClientFailed;
    let done = EndReason::Completed;
    assert_eq!(
        ended,
        [
            ("fails", failed),
            ("mute", failed),
            ("hangs", failed),
            ("native", done),
            ("native", done)
        ]
    );
    for run in record.runs.iter().filter(|run| run.ended.reason == failed) {
        assert_eq!((run.throughput_per_s, run.requests.ok), (None, 0));
        assert_eq!(run.validity.status, Status::Invalid);
    }
    assert_eq!((processes_of(lab.0.path()), leases(&lab)), (vec![], 0));
}

#[test]
fn a_script_of_the_clients_own_asks_for_its_own_path() {
    if !installed("wrk") {
        return;
    }
    let lab = Lab::new("");
    let server = python(lab.0.path(), "").replace("workload = \"hello\"\n", "");
    let path = lab.0.path().join("server.py");
    let scores = "    def do_POST(self):\n\
                  \x20       body = self.rfile.read(int(self.headers['Content-Length']))\n\
                  \x20       if self.path != '/scoring' or body != b'{\"score\": 10}': self.send_error(400)\n\
                  \x20       else: self.do_GET()\n";
    let script = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        script.replace(
            "http.server.Threading",
            &format!("{scores}http.server.Threading"),
        ),
    )
    .unwrap();
    lab.write(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nthreads = 1\nduration = \"1s\"\n{server}client = \"wrk-scoring\"\n"
    ));
    let (code, record, said) = lab.run(&[]);
    assert_eq!(code, 0, "{said}");
    let requests = &record.runs[0].requests;
    assert!(requests.ok > 0 && requests.wrong == 0, "{requests:?}");
}
