//! Tests that error messages about manifests contain the line and the fix.

use super::tests::{EXPERIMENT, Lab, SYSTEM};

#[test]
fn names_line_and_fix_of_errors_in_experiments() {
    for (from, to, said) in [
        (
            "[load]",
            "[laod]",
            "e.toml:2: unknown key \"laod\"; did you mean \"load\"?",
        ),
        (
            "connections = \"1k\"",
            "conections = 1",
            "e.toml:3: unknown key \"conections\" in [load]; did you mean \"connections\"?",
        ),
        (
            "server.py --port {port}",
            "server.py --port {port} --db {store}",
            "e.toml:15: command: {store} needs store = …",
        ),
        (
            "\"2s\"",
            "2",
            "e.toml:4: duration: expected a duration above 0 with a unit, such as \"10s\", not 2",
        ),
        (
            "\"2s\"",
            "\"2\"",
            "e.toml:4: duration: expected a duration above 0 with a unit, such as \"10s\", not \"2\"",
        ),
        ("\"2s\"", "\"0s\"", "e.toml:4: duration: expected"),
        (
            "rate = 2500",
            "rate = -1",
            "e.toml:5: rate: expected a rate per second above 0",
        ),
        (
            "rate = 2500",
            "fresh = 1",
            "e.toml:5: fresh: invalid type: integer `1`, expected a boolean",
        ),
        (
            "\"shared\"",
            "\"shard\"",
            "e.toml:7: hosts: unknown value \"shard\"; did you mean \"shared\"?",
        ),
        (
            "\"shared\"",
            "\"sep\"",
            "e.toml:7: hosts: unknown value \"sep\"; did you mean \"separate\"?",
        ),
        (
            "\"shared\"",
            "\"s\"",
            "e.toml:7: hosts: unknown value \"s\"; expected shared, separate",
        ),
        (
            "rate = 2500",
            "fresh = \"True\"",
            "e.toml:5: fresh: unknown value \"True\"; did you mean fresh = true, without quotes?",
        ),
        (
            "rate = 2500",
            "warmup = \"atuo\"",
            "e.toml:5: warmup: unknown value \"atuo\"; did you mean \"auto\"?",
        ),
        (
            "rate = 2500",
            "warmup = \"5\"",
            "e.toml:5: warmup: expected \"auto\" or a duration with a unit",
        ),
        (
            "rate = 2500",
            "http = 1",
            "e.toml:5: http: expected \"1.1\", \"2\" or \"auto\", not 1",
        ),
        (
            "rate = 2500",
            "streams = 0",
            "e.toml:5: streams: expected an integer from 1 to 1000",
        ),
        (
            "rate = 2500",
            "h2-window = \"1k\"",
            "e.toml:5: h2-window: expected a size from 4KiB to 64MiB",
        ),
        (
            "rate = 2500",
            "grpc = \"a.B\"",
            "e.toml:5: grpc: \"a.B\" is not the name of a gRPC method; write package.Service/Method",
        ),
        (
            "rate = 2500",
            "expect = [\"grpc-status=NONE\"]",
            "e.toml:5: expect: \"NONE\" is not a gRPC status",
        ),
        (
            "rate = 2500",
            "body = \"{}\"",
            "e.toml:9: load: `body` needs `grpc`; add grpc = \"package.Service/Method\", or remove `body`",
        ),
        (
            "rate = 2500",
            "grpc = \"a.B/C\"",
            "e.toml:9: `workload` conflicts with `grpc` in the load; remove one of them",
        ),
        (
            "processes = 3",
            "processes = 0",
            "e.toml:8: processes: expected an integer from 1 to 1000",
        ),
        (
            "system = \"one\"",
            "system = \"on\"",
            "e.toml:10: unknown system \"on\"; did you mean \"one\"?",
        ),
        (
            "workload = \"hello\"\n",
            "",
            "e.toml:9: workload is missing; one serves hello",
        ),
        (
            "workload = \"hello\"",
            "workload = \"json\"",
            "e.toml:11: workload: one does not serve json; expected hello",
        ),
        (
            "threads = 2",
            "threds = 2",
            "e.toml:12: setting: one has no knob \"threds\"; did you mean \"threads\"?",
        ),
        (
            "threads = 2",
            "threads = 5",
            "e.toml:12: setting: threads: expected an integer from 1 to 4, not \"5\"",
        ),
        (
            "threads = 2",
            "journal = \"fiel\"",
            "e.toml:12: setting: journal: unknown value \"fiel\"; did you mean \"file\"?",
        ),
        (
            "name = \"mine\"",
            "name = \"../x\"",
            "e.toml:14: name: expected a name",
        ),
        (
            "name = \"mine\"",
            "name = \"one\"",
            "e.toml:14: the trial at ",
        ),
        (
            "{port}",
            "{prot}",
            "e.toml:15: command: unknown placeholder {prot}; did you mean \"port\"?",
        ),
        (
            "server.py --port",
            "'server.py",
            "e.toml:15: command: the command",
        ),
        (
            "\"GET /up\"",
            "\"up\"",
            "e.toml:16: ready: expected a method and a path",
        ),
        (
            "port = 8000",
            "port = 80000",
            "e.toml:17: port: expected an integer from 1 to 65535",
        ),
        (
            "ratio = [\"one\", \"mine\"]",
            "ratio = [\"one\", \"mne\"]",
            "e.toml:21: ratio: unknown trial \"mne\"; did you mean \"mine\"?",
        ),
        (
            "check = \"violated\"",
            "check = \"broken\"",
            "e.toml:25: check: unknown value \"broken\"; expected held, violated",
        ),
        ("[[trial]]\nname", "[trial]\nname", "not TOML"),
    ] {
        assert!(EXPERIMENT.contains(from), "{from}");
        let text = EXPERIMENT.replacen(from, to, 1);
        let error = Lab::new(SYSTEM, &text).read().unwrap_err();
        assert!(error.contains(said), "{from} → {to}: {error}");
    }
    let none = Lab::new(SYSTEM, "question = \"?\"").read().unwrap_err();
    assert!(none.contains("trial is missing"), "{none}");
    let no_port = EXPERIMENT
        .replace(" --port {port}", "")
        .replace("port = 8000\n", "");
    let error = Lab::new(SYSTEM, &no_port).read().unwrap_err();
    assert!(error.contains("unknown port; pass the port"), "{error}");
}

#[test]
fn names_line_and_fix_of_errors_in_systems() {
    for (from, to, said) in [
        (
            "name = \"one\"",
            "name = \"two\"",
            "system.toml:1: name: \"two\" must match the directory name, \"one\"",
        ),
        (
            "[\"hello\"]",
            "[\"helo\"]",
            "system.toml:2: workloads: unknown workload \"helo\"; did you mean \"hello\"?",
        ),
        (
            "[\"hello\"]",
            "[\"hello\"]\nneeds = [\"java >= new\"]",
            "system.toml:3: needs: \"java >= new\" is not a valid requirement",
        ),
        (
            "{journal}",
            "{jornal}",
            "system.toml:4: command: unknown placeholder {jornal}; did you mean \"journal\"?",
        ),
        (
            "[start]",
            "[start]\nfiles = [\"none.conf\"]",
            "is not a file in the manifest's directory",
        ),
        (
            "[start]",
            "[build]\ncommand = \"make\"\ninputs = [\"src\"]\n[start]",
            "src does not exist",
        ),
        (
            "default = \"none\", ",
            "",
            "the knob \"journal\" has no default",
        ),
        (
            "journal =",
            "port = { default = 1 }\njournal =",
            "the knob \"port\" has the name of a placeholder",
        ),
    ] {
        assert!(SYSTEM.contains(from), "{from}");
        let text = SYSTEM.replacen(from, to, 1);
        let error = Lab::new(&text, EXPERIMENT).read().unwrap_err();
        assert!(error.contains(said), "{from} → {to}: {error}");
    }
}
