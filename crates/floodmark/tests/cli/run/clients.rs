//! Tests of experiments with external clients.

use floodmark_record::Metric;
use floodmark_record::events::EndReason;
use floodmark_record::run::Status;

use super::{ExperimentDirectory, NATIVE, leases, processes_of, python};

/// Writes a client that runs a shell script. Returns a trial that uses this client.
fn shell(lab: &ExperimentDirectory, name: &str, script: &str, more: &str) -> String {
    let text = format!(
        "name = \"{name}\"\nneeds = [\"sh\"]\n{more}\n[kept]\nduration = \"sh client.sh {{connections}} {{seconds}} {{url}}\"\n\
         [figures]\nanswers = {{ find = '^(\\d+) answers' }}\nwrong = {{ find = '(\\d+) wrong', sum = true }}\n\
         throughput = {{ find = '([\\d.]+)/s' }}\np99 = {{ find = 'p99 ([\\d.]+)', unit = \"ms\" }}\n"
    );
    let directory = lab.0.path().join("clients").join(name);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("client.toml"), text).unwrap();
    std::fs::write(directory.join("client.sh"), script).unwrap();
    format!("{NATIVE}client = \"{name}\"\nname = \"{name}\"\n")
}

#[test]
fn records_the_figures_and_cpu_use_of_a_client() {
    let lab = ExperimentDirectory::new("");
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done\n\
                  echo \"$1 connections, $2 s, $3\" >&2; echo '400 answers, 100 wrong, 200.5/s, p99 1.5'";
    let trial = shell(&lab, "teller", script, "version = \"echo teller 1.2\"");
    lab.write(&format!(
        "question = \"?\"\n[load]\nconnections = 3\nduration = \"1s\"\nattempts = 2\n{trial}"
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
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
        // A quarter of the responses are unexpected and therefore excluded.
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
        printed.contains("teller 1.2 – sh client.sh 3 1 http://"),
        "{printed}"
    );
    assert_eq!((processes_of(lab.0.path()), leases(&lab)), (vec![], 0));
}

#[test]
#[cfg_attr(not(installed = "curl"), ignore = "curl is not installed")]
fn records_the_cpu_of_the_delay_proxy() {
    let trial = "[[trial]]\nsystem = \"native\"\nworkload = \"hello\"\nclient = \"curl-loop\"\ndelay = \"0s\"\n";
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 1\nduration = \"1s\"\nfresh = true\n{trial}"
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let mut seen = record.runs[0].observations.iter();
    let proxy = seen
        .find(|seen| seen.metric == Metric::DelayProxyCpu)
        .unwrap();
    // The series value covers the second in which the client ran.
    assert!(proxy.step_ms >= 1000 && proxy.values[0] >= 0.0, "{proxy:?}");
}

#[test]
#[cfg_attr(not(installed = "curl"), ignore = "curl is not installed")]
fn curl_loops_agree_with_the_server() {
    let trial =
        "[[trial]]\nsystem = \"native\"\nworkload = \"dispatcher\"\nclient = \"curl-loop\"\n";
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"3s\"\nfresh = true\n{trial}"
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let run = &record.runs[0];
    let tool = run.client.tool.as_ref().unwrap();
    let counter = tool.counter.as_ref().unwrap();
    assert!(counter.readings >= 1, "{counter:?}");
    assert_eq!(tool.said.answers, Some(counter.answers()), "{printed}");
    assert!(printed.contains("by the server"), "{printed}");
    // The per-second values come from the same counter as the total.
    let mut seen = run.observations.iter();
    let seen = seen.find(|seen| seen.metric.subject() == "server").unwrap();
    assert!(seen.values.iter().sum::<f64>() <= counter.answers() as f64);
    // Each request starts a shell and curl.
    assert!(run.client.cpu_us_per_request.unwrap() > 500.0);
    assert_eq!(run.response_time_us.count, 0);
}

#[test]
fn reports_a_failed_client_in_one_line_and_continues() {
    let lab = ExperimentDirectory::new("");
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
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 3, "{printed}");
    let expected = [
        "client exotic skipped: no-such-program-here is not installed",
        "fails: fails failed (exit status: 7): \"cannot connect\"; see ",
        "mute: mute reported no responses: \"nothing of use\"",
        "hangs: hangs did not exit within 1.2 s and was stopped",
    ];
    assert_eq!(record.skipped.len(), expected.len(), "{:?}", record.skipped);
    for (line, expected) in record.skipped.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
        assert!(printed.contains(line.as_str()), "{printed}");
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
#[cfg_attr(not(installed = "wrk"), ignore = "wrk is not installed")]
fn a_client_script_may_request_its_own_path() {
    let lab = ExperimentDirectory::new("");
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
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    let requests = &record.runs[0].requests;
    assert!(requests.ok > 0 && requests.wrong == 0, "{requests:?}");
}
