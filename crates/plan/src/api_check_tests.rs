//! Tests of check files.

use super::*;
use crate::spec::LoadSpec;

fn read(text: &str) -> Result<CheckFile, FileError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("check.toml");
    std::fs::write(&path, text).unwrap();
    let defaults = PlanSpec {
        headers: vec![("Authorization".to_owned(), "Bearer x".to_owned())],
        ..PlanSpec::default()
    };
    CheckFile::read(&path, &defaults).map_err(|error| FileError {
        // Remove the temporary directory's path from the message.
        place: error.place.rsplit('/').next().unwrap().to_owned(),
        what: error.what,
    })
}

const REGISTER: &str = r#"
kind = "register"
keys = 100
[write]
method = "PUT"
path = "/items/{key}"
headers = ["Content-Type: application/json"]
body = '{"value": {seq}}'
weight = 2
[read]
path = "/items/{key}"
value = "/value"
weight = 6
"#;

const SET: &str = r#"
kind = "set"
write = { path = "/items", body = '{"name": "{seq}"}' }
readback = { path = "/items?page={page}", items = "/data", value = "/name" }
"#;

const COUNTER: &str = r#"
kind = "counter"
write = { path = "/counter", value = "" }
"#;

#[test]
fn reads_a_register() {
    let file = read(REGISTER).unwrap();
    assert_eq!(
        (file.check.kind, file.check.keys),
        (ApiCheckKind::Register, 100)
    );
    assert_eq!(
        file.check.read_value.as_ref().unwrap().to_string(),
        "/value"
    );
    assert_eq!(
        (&file.check.write_value, &file.check.readback),
        (&None, &None)
    );
    assert_eq!(file.mix.file, "check.toml");
    let [write, read] = &file.mix.requests[..] else {
        panic!("{:?}", file.mix);
    };
    assert_eq!((write.name.as_str(), write.weight), ("write", 1));
    assert_eq!((read.name.as_str(), read.weight), ("read", 3));
    assert_eq!(
        (write.request.method.as_str(), read.request.method.as_str()),
        ("PUT", "GET")
    );
    assert_eq!(write.request.headers.len(), 2);
    assert_eq!(
        read.request.headers,
        [("Authorization".to_owned(), "Bearer x".to_owned())]
    );
    assert!(write.templates && read.templates);
    assert_eq!(
        file.check.value_places,
        ["check.toml:12: read.value \"/value\""]
    );
    assert!(file.place(0, RequestPart::Body).ends_with("check.toml:8"));
    assert!(file.place(1, RequestPart::Path).ends_with("check.toml:11"));
    assert!(file.place(1, RequestPart::Body).ends_with("check.toml:10"));
}

#[test]
fn reads_a_set_and_a_counter() {
    let set = read(SET).unwrap();
    let readback = set.check.readback.unwrap();
    assert_eq!((set.check.kind, set.check.keys), (ApiCheckKind::Set, 1));
    assert_eq!(
        set.check.value_places,
        ["check.toml:4: readback.value \"/name\""]
    );
    assert_eq!(readback.path, "/items?page={page}");
    assert_eq!(
        (readback.items.to_string(), readback.value.to_string()),
        ("/data".to_owned(), "/name".to_owned())
    );
    assert_eq!(readback.headers.len(), 1);
    assert_eq!(set.mix.requests[0].request.method, "POST");
    let counter = read(COUNTER).unwrap();
    assert_eq!(counter.check.write_value, Some(JsonPointer::default()));
    assert_eq!(counter.mix.requests.len(), 1);
}

#[test]
fn explains_each_error() {
    let register = |from: &str, to: &str| REGISTER.replace(from, to);
    for (text, expected) in [
        (register("register", "regster"), "check.toml:2: kind: unknown value \"regster\"; did you mean \"register\"?"),
        (register("keys = 100", "keys = 0"), "check.toml:3: keys: expected an integer from 1 to 1000000, such as 1 or \"1k\", not 0"),
        (register("keys", "key"), "check.toml:3: unknown key \"key\"; did you mean \"keys\"?"),
        (register("value =", "valeu ="), "check.toml:12: unknown key \"valeu\" in [read]; did you mean \"value\"?"),
        (register("\"/value\"", "\"value\""), "check.toml:12: \"value\" is not a JSON pointer; start with a slash, such as \"/data/value\""),
        (register("{seq}", "1"), "check.toml:4: write: the request has no {seq}; write {seq} where the API takes the value"),
        (register("path = \"/items/{key}\"\nvalue", "path = \"/items\"\nvalue"), "check.toml:10: read: the request has no {key}, but keys is 100; write {key} into the path or body, or remove keys"),
        (register("weight = 2", "weight = 0"), "check.toml:9: weight: expected an integer from 1 to 1000000, not 0"),
        (register("weight = 2", "weight = 20002"), "check.toml:4: weight: the weights add up to 10,004 after division by their greatest common divisor; reduce the sum to at most 10,000"),
        (register("\"Content-Type: application/json\"", "\"x\""), "check.toml:7: headers: \"x\" has no colon; write 'Name: value'"),
        (SET.replace("readback", "read-back"), "check.toml:4: unknown key \"read-back\"; did you mean \"readback\"?"),
        ("kind = \"set\"\nwrite = { path = \"/{seq}\" }".to_owned(), "check.toml:1: `readback` is missing; add readback = { path = \"/items\", value = \"/name\" }"),
        (format!("{SET}read = {{ path = \"/\" }}"), "check.toml:5: read: a set check does not use this key; remove it"),
        ("kind = \"counter\"\nwrite = { path = \"/\" }".to_owned(), "check.toml:1: a counter check needs a value; add read = { path = \"/counter\" }, or add `value` to `write`"),
        ("kind = \"register\"\nwrite = { path = \"/{seq}\" }".to_owned(), "check.toml:1: `read` is missing; add read = { path = \"/items/{key}\" }"),
        ("kind = \"register\"\nread = { path = \"/\" }\nwrite = { path = \"/{seq}\", value = \"\" }".to_owned(), "check.toml:3: value in [write]: a register check does not use this key; remove it"),
        ("kind = \"register\"".to_owned(), "check.toml:1: write is missing"),
    ] {
        let error = read(&text).map(|file| file.check).unwrap_err().to_string();
        assert_eq!(error, expected);
    }
}

#[test]
fn names_checks() {
    assert_eq!("sequence".parse(), Ok(CheckKind::Sequence));
    assert_eq!("a/b.toml".parse(), Ok(CheckKind::File("a/b.toml".into())));
    let error = |text: &str| text.parse::<CheckKind>().unwrap_err();
    assert_eq!(
        error("sequnce"),
        "unknown check \"sequnce\"; did you mean \"sequence\"?"
    );
    assert!(error("register").contains("a file that ends in .toml"));
    let load = |directory: &str| LoadSpec {
        check: Some(CheckKind::File(format!("{directory}set.toml").into())),
        proto: Some(format!("{directory}a.proto").into()),
        proto_path: vec![format!("{directory}imports").into()],
        cert: Some(format!("{directory}client.pem").into()),
        ..LoadSpec::default()
    };
    let mut relative = load("");
    relative.relative_to(Path::new("experiments"));
    assert_eq!(relative, load("experiments/"));
}
