//! gRPC calls to a server built on the crate `h2`.

use floodmark_record::grpc::GrpcStatus;
use floodmark_record::plan::Http;

use crate::support::grpc::Greeter;
use crate::support::{Load, code, load, run, text};

const SAY_HELLO: &str = "helloworld.Greeter/SayHello";

/// Calls a method 200 times, with additional arguments.
fn call(server: &Greeter, method: &str, arguments: &[&str]) -> Load {
    let all = [
        &["--grpc", method, "-n", "200", "-c", "2", "--streams", "4"],
        arguments,
    ]
    .concat();
    load(&server.url, &all)
}

#[test]
fn calls_methods_that_files_describe() {
    let server = Greeter::start(&[]);
    let imports = server.file("imports");
    let body = r#"{"name": "x", "place": {"city": "y"}}"#;
    for description in [
        &[
            "--proto",
            &server.file("greeter.proto"),
            "--proto-path",
            &imports,
        ][..],
        &["--proto", &server.file("greeter.pb")],
    ] {
        server.seen.lock().unwrap().calls.clear();
        let arguments = [description, &["-b", body, "-H", "x-user: a"]].concat();
        let load = call(&server, SAY_HELLO, &arguments);
        load.ends_with(0);
        let run = load.run();
        assert_eq!((run.requests.intended, run.requests.ok), (200, 200));
        assert_eq!(run.requests.grpc_statuses, [(GrpcStatus::Ok, 200)].into());
        assert!(matches!(run.plan.http, Http::V2(of) if !of.ping) && run.plan.request.is_grpc);
        assert_eq!(run.plan.target.path, "/helloworld.Greeter/SayHello");
        assert_eq!(run.plan.target.url, format!("{}/{SAY_HELLO}", server.url));
        let seen = server.seen.lock().unwrap();
        let message = b"\0\0\0\0\x08\x0a\x01x\x1a\x03\x0a\x01y".to_vec();
        let calls = [((format!("/{SAY_HELLO}"), message), 200)];
        assert_eq!(seen.calls, calls.into());
        assert_eq!(format!("http://{}", seen.authority), server.url);
        for (name, value) in [
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("grpc-timeout", "5S"),
            ("x-user", "a"),
        ] {
            assert_eq!(seen.headers[name], value);
        }
        assert!(
            seen.headers["user-agent"]
                .to_str()
                .unwrap()
                .starts_with("floodmark/")
        );
    }
}

#[test]
fn asks_the_server_for_descriptions() {
    for versions in [&["v1", "v1alpha"][..], &["v1alpha"]] {
        let server = Greeter::start(versions);
        let load = call(&server, SAY_HELLO, &["--timeout", "1500ms"]);
        load.ends_with(0);
        assert_eq!(load.counts().ok, 200);
        let seen = server.seen.lock().unwrap();
        assert_eq!(seen.headers["grpc-timeout"], "1500m");
        let empty = (format!("/{SAY_HELLO}"), vec![0; 5]);
        assert_eq!(seen.calls, [(empty, 200)].into(), "without a body: {{}}");
    }
}

#[test]
fn counts_statuses_by_name() {
    let server = Greeter::start(&["v1"]);
    let method = "helloworld.Greeter/Fail";
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("requests.csv");
    let load = call(&server, method, &["--request-log", log.to_str().unwrap()]);
    assert_eq!(load.counts().wrong, 200);
    let lines = std::fs::read_to_string(log).unwrap();
    let mut lines = lines.lines();
    assert!(
        lines
            .next()
            .unwrap()
            .ends_with(",outcome,bytes,grpc_status")
    );
    assert_eq!(
        lines.filter(|line| line.ends_with(",NOT_FOUND")).count(),
        200
    );
    assert_eq!(
        load.counts().grpc_statuses,
        [(GrpcStatus::NotFound, 200)].into()
    );
    let response = &load.run().not_ok_responses[0];
    assert_eq!(response.status.grpc, Some(GrpcStatus::NotFound));
    assert_eq!(response.body, "no such <user>");
    let accepted = call(&server, method, &["--expect", "grpc-status=NOT_FOUND"]);
    accepted.ends_with(0);
    assert_eq!(accepted.counts().ok, 200);

    let output = run(&["load", &server.url, "--grpc", method, "-n", "20", "-c", "1"]);
    let printed = text(&output.stdout);
    for words in ["gRPC status ", "NOT_FOUND × 20", "no such <user>"] {
        assert!(printed.contains(words), "lacks {words}: {printed}");
    }
    assert!(!printed.contains("curl"), "{printed}");
}

#[test]
fn mixes_call_several_methods() {
    let server = Greeter::start(&["v1"]);
    let mix = server.write(
        "mix.toml",
        r#"
        [[request]]
        name = "hello"
        weight = 3
        grpc = "helloworld.Greeter/SayHello"
        body = '{"name": "{{seq}}"}'
        headers = ["x-number: {seq}"]

        [[request]]
        name = "fail"
        grpc = "helloworld.Greeter/Fail"
        proto = "greeter.pb"
        expect = ["grpc-status=5"]

        [[request]]
        name = "second"
        weight = 4
        grpc = "helloworld.Greeter/SayHello"
        "#,
    );
    let load = load(
        &server.url,
        &["--mix", &mix, "--http", "2", "-n", "800", "-c", "2"],
    );
    load.ends_with(0);
    assert_eq!(load.counts().ok, 800);
    let [hello, fail, second] = &load.run().groups[..] else {
        panic!("{:?}", load.run().groups);
    };
    assert_eq!(hello.requests.grpc_statuses, [(GrpcStatus::Ok, 300)].into());
    assert_eq!(
        fail.requests.grpc_statuses,
        [(GrpcStatus::NotFound, 100)].into()
    );
    assert_eq!(second.requests.ok, 400);
    let seen = server.seen.lock().unwrap();
    // One request for the service, and one for the file that it imports.
    assert_eq!(seen.questions, 2);
    let message = b"\0\0\0\0\x07\x0a\x05{seq}".to_vec();
    assert_eq!(seen.calls[&(format!("/{SAY_HELLO}"), message)], 300);
}

/// Expects one line on stderr that contains all words, and exit code 2.
fn refused(arguments: &[&str], words: &[&str]) {
    let output = run(&[&["load"], arguments].concat());
    let printed = text(&output.stderr);
    assert_eq!(code(&output), 2, "{arguments:?}: {printed}");
    assert_eq!(printed.lines().count(), 1, "{arguments:?}: {printed}");
    for word in words {
        assert!(
            printed.contains(word),
            "{arguments:?} lacks {word:?}: {printed}"
        );
    }
}

#[test]
fn explains_which_calls_are_impossible() {
    let server = Greeter::start(&["v1"]);
    let url = server.url.as_str();
    let call = |method: &str, body: &str, words: &[&str]| {
        refused(&[url, "--grpc", method, "-b", body], words);
    };
    call(
        "helloworld.Greeter/Watch",
        "{}",
        &["is a server streaming method", "only unary"],
    );
    call(
        "helloworld.Greeter/Chat",
        "{}",
        &["is a bidirectional streaming method"],
    );
    call(
        "helloworld.Greter/SayHello",
        "{}",
        &["unknown service", "did you mean \"helloworld.Greeter\"?"],
    );
    call(
        "other.Shop/Buy",
        "{}",
        &["unknown service", "expected helloworld.Greeter"],
    );
    call(
        "helloworld.Greeter/SayHelo",
        "{}",
        &["has no method \"SayHelo\"", "did you mean \"SayHello\"?"],
    );
    call(
        "helloworld.Greeter/Buy",
        "{}",
        &["has no method", "expected SayHello, Fail, Watch, Chat"],
    );
    call(
        SAY_HELLO,
        "name=x",
        &["not valid JSON", "write a JSON object"],
    );
    call(
        SAY_HELLO,
        r#"{"nme": "x"}"#,
        &["no field \"nme\"", "did you mean \"name\"?"],
    );
    call(
        SAY_HELLO,
        r#"{"age": "old"}"#,
        &["field \"age\"", "expected int32"],
    );
    call(
        SAY_HELLO,
        r#"{"place": {"city": 5}}"#,
        &["field \"place.city\"", "expected string"],
    );
}

#[test]
fn explains_which_descriptions_are_missing() {
    let server = Greeter::start(&[]);
    let url = server.url.as_str();
    let call = |arguments: &[&str], words: &[&str]| {
        refused(&[&[url, "--grpc", SAY_HELLO], arguments].concat(), words);
    };
    call(&[], &["does not support reflection", "add --proto FILE"]);
    let proto = server.file("greeter.proto");
    call(
        &["--proto", &proto],
        &["greeter.proto:4:", "common/place.proto", "--proto-path DIR"],
    );
    call(
        &["--proto", "missing.proto"],
        &["--proto missing.proto", "name a readable file"],
    );
    let wrong = server.write(
        "wrong.proto",
        "syntax = \"proto3\";\nmessage A { int33 b = 1; }",
    );
    call(&["--proto", &wrong], &["wrong.proto:2:", "int33"]);
    let no_set = server.write("no_set.pb", "syntax");
    call(
        &["--proto", &no_set],
        &["no_set.pb", "protoc --include_imports -o"],
    );
    let absent = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let absent = format!("http://{absent}");
    refused(
        &[&absent, "--grpc", SAY_HELLO],
        &["reflection", "onnection refused", "add --proto FILE"],
    );
}

#[test]
fn refuses_settings_that_conflict_with_grpc() {
    let server = Greeter::start(&["v1"]);
    let url = server.url.as_str();
    let call = |arguments: &[&str], words: &[&str]| {
        refused(&[&[url, "--grpc", SAY_HELLO], arguments].concat(), words);
    };
    call(
        &["--http", "1.1"],
        &["--http 1.1", "gRPC needs HTTP/2", "use --http 2"],
    );
    call(
        &["--http", "auto"],
        &["HTTP/1.1", "gRPC needs HTTP/2", "use --http 2"],
    );
    call(&["--check", "sequence"], &["--check conflicts with --grpc"]);
    call(
        &["--expect", "json:$.a=1"],
        &["--expect", "grpc-status=0 or contains:TEXT"],
    );
    call(
        &["-H", "Content-Type: application/json"],
        &["gRPC requires application/grpc"],
    );
    refused(
        &[&format!("{url}/api"), "--grpc", SAY_HELLO],
        &["has a path", "name only the server"],
    );
    refused(
        &[url, "--expect", "grpc-status=0"],
        &["--expect", "needs a gRPC method"],
    );

    let mix = |text: &str, words: &[&str]| {
        let text = format!("[[request]]\nname = \"a\"\n{text}\n");
        let path = server.write("wrong.toml", &text);
        refused(&[url, "--http", "2", "--mix", &path], words);
    };
    let grpc = "grpc = \"helloworld.Greeter/SayHello\"\n";
    mix(
        "proto = \"greeter.pb\"",
        &["wrong.toml:3", "`proto` needs `grpc`"],
    );
    mix(
        &format!("{grpc}path = \"/\""),
        &["wrong.toml:4", "`path` conflicts with `grpc`"],
    );
    mix(
        "grpc = \"SayHello\"",
        &["wrong.toml:3", "write package.Service/Method"],
    );
    mix(
        &format!("{grpc}body = '{{\"name\": \"{{seq}}\"}}'"),
        &["wrong.toml:4", "do not support templates"],
    );
    mix(
        &format!("{grpc}body = '{{\"nme\": 1}}'"),
        &["wrong.toml:3", "`body`", "did you mean \"name\"?"],
    );
    mix(
        &format!("{grpc}expect = [\"json={{}}\"]"),
        &[
            "wrong.toml:4",
            "expect: responses to gRPC calls are not JSON",
        ],
    );
    let path = server.write("plain.toml", &format!("[[request]]\nname = \"a\"\n{grpc}"));
    refused(
        &[url, "--mix", &path],
        &["plain.toml:3", "needs HTTP/2; add --http 2"],
    );
}
