//! Tests of experiments that search for capacities.

use floodmark_record::Record;
use floodmark_record::comparison::ComparedMetric;

use super::ExperimentDirectory;
use crate::support::{code, finish, signal, text, wait_for};

/// A single-threaded server that works for a given time on each request.
const SERVER: &str = r#"
import selectors, socket, sys, time
work_s, port = float(sys.argv[1]) / 1000, int(sys.argv[2])
listener = socket.create_server(("127.0.0.1", port), backlog=1000)
waiting = selectors.DefaultSelector()
waiting.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in waiting.select():
        if key.fileobj is listener:
            waiting.register(listener.accept()[0], selectors.EVENT_READ)
            continue
        try:
            request = key.fileobj.recv(4096)
            if request:
                time.sleep(work_s)
                key.fileobj.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                continue
        except OSError:
            pass
        waiting.unregister(key.fileobj)
        key.fileobj.close()
"#;

fn experiment(more: &str) -> ExperimentDirectory {
    let trial = |name: &str, work_ms: u32| {
        format!(
            "[[trial]]\nname = \"{name}\"\ncommand = \"python3 server.py {work_ms} {{port}}\"\n"
        )
    };
    let directory = ExperimentDirectory::new(&format!(
        "question = \"Which server can take more?\"\n\
         [capacity]\nslo = [\"p90 < 50ms\"]\nbudget = \"20s\"\n{}{}{more}",
        trial("fast", 2),
        trial("slow", 6),
    ));
    std::fs::write(directory.0.path().join("server.py"), SERVER).unwrap();
    directory
}

#[test]
fn compares_the_capacities_of_trials_and_resumes() {
    let directory = experiment("");
    let child = directory.start(&[]);
    wait_for("a search", || {
        (directory.count("capacity_ended") > 0).then_some(())
    });
    signal(child.id(), libc::SIGINT);
    let (code, first, printed) = directory.ended(child);
    assert_eq!(code, 130, "{printed}");
    let (code, record, printed) = directory.ended(directory.begin("--resume", &[]));
    let of_fast = |record: &Record| record.capacities[0].clone();
    assert_eq!(
        of_fast(&first),
        of_fast(&record),
        "a complete search is not repeated"
    );
    assert_eq!(code, 0, "{printed}");
    let rates: Vec<f64> = record
        .trial_capacities
        .iter()
        .map(|trial| trial.rate_per_s.unwrap())
        .collect();
    let ratio = rates[0] / rates[1];
    assert!((1.8..5.0).contains(&ratio), "{rates:?}");
    let [compared] = &record.comparisons[..] else {
        panic!("{:?}", record.comparisons);
    };
    assert_eq!(compared.metric, ComparedMetric::Capacity);
    assert!((compared.ratio.unwrap() * ratio - 1.0).abs() < 1e-6);
    assert!(compared.low.unwrap() < compared.ratio.unwrap());
    let searches: Vec<_> = record
        .capacities
        .iter()
        .map(|found| found.trials.len())
        .collect();
    assert!(searches.iter().all(|trials| *trials > 3), "{searches:?}");
    // The record contains the loads around the capacity instead of the trials, after the
    // closed-model load, which a disturbance can repeat, and the load over a single connection.
    for trial in ["fast", "slow"] {
        let rates = record.runs_of(trial).map(|run| run.plan.rate_per_s());
        let rates: Vec<Option<f64>> = rates.collect();
        let before = rates.iter().take_while(|rate| rate.is_none()).count();
        assert!(before >= 2, "{rates:?}");
        let mut levels = rates[before..].to_vec();
        // A load that is void or misses by chance is sent again.
        levels.dedup();
        assert!(
            levels.len() == 5 && levels.iter().all(Option::is_some),
            "{rates:?}"
        );
    }
    for words in ["capacity/s", "p99 at 80 %", "ratio = slow ÷ fast"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}

#[test]
fn refuses_settings_that_conflict_with_a_search() {
    let refused = |more: &str| {
        let directory = experiment(more);
        let output = finish(directory.start(&[]));
        assert_eq!(code(&output), 2);
        text(&output.stderr)
    };
    for (more, words) in [
        (
            "load = { rate = 500 }\n",
            "the search chooses its loads; remove `rate`",
        ),
        ("load = { burst = 9, within = \"1s\" }\n", "remove `burst`"),
        ("load = { attempts = 2 }\n", "remove `attempts`"),
        (
            "load = { timeout = \"20ms\" }\n",
            "the limit is not below the timeout of 20 ms",
        ),
    ] {
        let printed = refused(more);
        assert!(printed.contains(words), "{printed}");
    }
}
