//! Tests of experiments with gRPC calls.

use floodmark_record::grpc::GrpcStatus;

use super::ExperimentDirectory;
use crate::support::grpc::Greeter;
use crate::support::{code, finish, text};

/// Returns an experiment with a trial named "greeter", whose server relays connections to `server`.
fn experiment(server: &Greeter, load: &str, trial: &str) -> ExperimentDirectory {
    ExperimentDirectory::new(&text_of(server, load, trial))
}

fn text_of(server: &Greeter, load: &str, trial: &str) -> String {
    let address = server.url.trim_start_matches("http://");
    format!(
        "question = \"?\"\n[load]\nconnections = 2\nrequests = 40\n{load}\n\
         [[trial]]\nname = \"greeter\"\nready-within = \"2s\"\n\
         command = \"{{floodmark}} delay --listen={{host}}:{{port}} --to={address} --by=0s\"\n{trial}\n"
    )
}

const SAY_HELLO: &str = "grpc = \"helloworld.Greeter/SayHello\"";

/// The message `{"name": "x"}`, with its prefix.
const NAME_X: &[u8] = b"\0\0\0\0\x03\x0a\x01x";

#[test]
fn measures_servers_that_describe_their_methods() {
    let server = Greeter::start(&["v1"]);
    let load = format!("{SAY_HELLO}\nstreams = 4\nbody = '{{\"name\": \"x\"}}'");
    let fail = "[[trial]]\nname = \"fail\"\ncommand = \"COMMAND\"\n\
                [trial.load]\ngrpc = \"helloworld.Greeter/Fail\"\nexpect = [\"grpc-status=NOT_FOUND\"]";
    let lab = experiment(
        &server,
        &load,
        "[place]\nprocesses = 2\nagents = \"local:2\"",
    );
    let written = std::fs::read_to_string(lab.0.path().join("e.toml")).unwrap();
    let command = written.split("command = \"").nth(1).unwrap();
    let command = command.split('"').next().unwrap();
    lab.write(&format!("{written}{}", fail.replace("COMMAND", command)));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    for (run, (trial, status)) in record.runs.iter().zip([
        ("greeter", GrpcStatus::Ok),
        ("fail", GrpcStatus::NotFound),
        ("greeter", GrpcStatus::Ok),
        ("fail", GrpcStatus::NotFound),
    ]) {
        assert_eq!(run.trial.as_deref(), Some(trial));
        assert_eq!(run.requests.ok, 40, "{printed}");
        assert_eq!(run.requests.grpc_statuses, [(status, 40)].into());
        assert_eq!(run.workload, run.plan.target.path);
    }
    assert_eq!(record.runs.len(), 4);
    let seen = server.seen.lock().unwrap();
    // Each process also answers one call before its load.
    let calls = seen.calls[&("/helloworld.Greeter/SayHello".to_owned(), NAME_X.to_vec())];
    assert_eq!(calls, 2 * (40 + 1));
}

#[test]
fn reads_descriptions_from_files() {
    let server = Greeter::start(&[]);
    for description in [
        "proto = \"greeter.pb\"",
        "proto = \"greeter.proto\"\nproto-path = [\"imports\"]",
    ] {
        let load = format!("{SAY_HELLO}\n{description}");
        let lab = experiment(&server, &load, "load = { requests = 20 }");
        for name in ["greeter.pb", "greeter.proto", "imports"] {
            std::os::unix::fs::symlink(server.file(name), lab.0.path().join(name)).unwrap();
        }
        let (code, record, printed) = lab.run(&[]);
        assert_eq!(code, 0, "{printed}");
        assert_eq!(record.runs[0].requests.ok, 20);
    }
}

#[test]
fn waits_until_a_server_is_healthy() {
    let server = Greeter::start(&["v1"]);
    server.seen.lock().unwrap().unhealthy_checks = Some(3);
    let (code, record, printed) = experiment(&server, SAY_HELLO, "").run(&[]);
    assert_eq!(code, 0, "{printed}");
    assert_eq!(record.runs[0].requests.ok, 40);
    assert_eq!(server.seen.lock().unwrap().unhealthy_checks, Some(0));

    server.seen.lock().unwrap().unhealthy_checks = Some(u32::MAX);
    let (code, _, printed) = experiment(&server, SAY_HELLO, "").run(&[]);
    assert_eq!(code, 3, "{printed}");
    let words = "the health check returns NOT_SERVING";
    assert!(
        printed.contains("not ready within 2 s") && printed.contains(words),
        "{printed}"
    );
}

#[test]
fn explains_which_calls_are_impossible() {
    let server = Greeter::start(&["v1"]);
    let set = format!("proto = \"{}\"\n", server.file("greeter.pb"));
    let method = |name: &str| format!("grpc = \"helloworld.{name}\"\n");
    // Errors found before any process starts, each in one line.
    for (load, trial, words) in [
        (
            "grpc = \"SayHello\"".to_owned(),
            "",
            &["e.toml:5: grpc: ", "write package.Service/Method"][..],
        ),
        (
            format!("{SAY_HELLO}\nexpect = [\"grpc-status=NO\"]"),
            "",
            &["e.toml:6: expect: ", "not a gRPC status"],
        ),
        (
            set.clone(),
            "",
            &["e.toml:7: load: `proto` needs `grpc`; add grpc = "],
        ),
        (
            SAY_HELLO.to_owned(),
            "workload = \"hello\"",
            &["e.toml:6: `workload` conflicts with `grpc`"],
        ),
        (
            format!("{SAY_HELLO}\nhttp = \"1.1\""),
            "",
            &["e.toml:7: load: `http` 1.1: gRPC needs HTTP/2"],
        ),
        (
            format!("{SAY_HELLO}\nproto = \"no.proto\""),
            "",
            &[
                "e.toml:7: load: `proto` ",
                "no.proto: ",
                "name a readable file",
            ],
        ),
        (
            format!("{SAY_HELLO}\nproto = \"{}\"", server.file("greeter.proto")),
            "",
            &[
                "common/place.proto",
                "add the directory of the import: proto-path = [\"DIR\"]",
            ],
        ),
        (
            method("Greter/SayHello") + &set,
            "",
            &[
                "`grpc`: unknown service",
                "did you mean \"helloworld.Greeter\"?",
            ],
        ),
        (
            method("Greeter/Watch") + &set,
            "",
            &[
                "`grpc`: helloworld.Greeter/Watch is a server streaming method",
                "only unary",
            ],
        ),
        (
            method("Greeter/SayHello") + &set + "body = '{\"nme\": 1}'",
            "",
            &[
                "`body` of helloworld.Greeter/SayHello",
                "did you mean \"name\"?",
            ],
        ),
    ] {
        let output = finish(experiment(&server, &load, trial).start(&[]));
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{load}: {printed}");
        assert_eq!(printed.lines().count(), 1, "{load}: {printed}");
        for word in words {
            assert!(printed.contains(word), "{load} lacks {word:?}: {printed}");
        }
    }
    // Errors found after the server has described its methods.
    for (load, words) in [
        (method("Greeter/SayHelo"), "did you mean \"SayHello\"?"),
        (
            method("Greeter/Chat"),
            "is a bidirectional streaming method",
        ),
        (
            format!("{SAY_HELLO}\nbody = '{{\"age\": \"x\"}}'"),
            "field \"age\": expected int32",
        ),
        (
            method("Greeter/Fail"),
            "unexpected response: helloworld.Greeter/Fail: NOT_FOUND: \"no such <user>\"; correct `body`, or \
             accept the status with expect = [\"grpc-status=NOT_FOUND\"]",
        ),
        (
            format!("{SAY_HELLO}\nexpect = [\"grpc-status=5\"]"),
            "the gRPC status is OK, which `expect` does not accept",
        ),
    ] {
        let (code, record, printed) = experiment(&server, &load, "").run(&[]);
        assert_eq!(code, 3, "{load}: {printed}");
        assert!(
            record.runs.is_empty() && printed.contains(words),
            "{load}: {printed}"
        );
    }
}

#[test]
fn resumes_only_the_same_calls() {
    let server = Greeter::start(&["v1"]);
    // The rate makes each load last 2 s.
    let load = |name: &str| format!("{SAY_HELLO}\nrate = 20\nbody = '{{\"name\": \"{name}\"}}'");
    let places = "[place]\nprocesses = 3";
    let lab = experiment(&server, &load("x"), places);
    let mut child = lab.start(&["--quiet"]);
    crate::support::wait_for("the second run", || {
        (lab.count("run_began") >= 2).then_some(())
    });
    crate::support::signal(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    lab.write(&text_of(&server, &load("y"), places));
    let (code, record, printed) = lab.ended(lab.begin("--resume", &[]));
    assert_eq!(code, 3, "{printed}");
    let words = "the message of helloworld.Greeter/SayHello differs from the resumed result";
    assert!(printed.contains(words), "{printed}");
    let completed = record.runs.len();
    lab.write(&text_of(&server, &load("x"), places));
    let (code, record, printed) = lab.ended(lab.begin("--resume", &[]));
    assert_eq!(code, 0, "{printed}");
    assert!(completed < 3 && record.runs.len() == 3, "{printed}");
}
