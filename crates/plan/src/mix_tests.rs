//! Tests of mix files.

use super::*;
use crate::spec::LoadSpec;

fn read(text: &str, common: &PlanSpec) -> Result<MixFile, FileError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mix.toml");
    std::fs::write(&path, text).unwrap();
    std::fs::write(directory.path().join("order.json"), b"{\"id\": {seq}}\n").unwrap();
    MixFile::read(&path, common, Http::V1).map_err(|error| FileError {
        // Remove the temporary directory's path from the message.
        place: error.place.rsplit('/').next().unwrap().to_owned(),
        what: error
            .what
            .replace(&format!("{}/", directory.path().display()), ""),
    })
}

fn error(text: &str) -> String {
    read(text, &PlanSpec::default()).unwrap_err().to_string()
}

const SHOP: &str = r#"
# A shop.
[[request]]
name = "search"
weight = 60
path = "/search?q={rand:1-9}"

[[request]]
name = "order"
weight = 20
method = "PUT"
path = "/orders/{seq}"
headers = ["Content-Type: application/json", "X-Id: {uuid}"]
body-file = "order.json"
expect = ["status=200", "status=201"]

[[request]]
name = "note"
path = "/notes"
weight = 0x14
body = "{seq}"
templates = false
"#;

#[test]
fn reads_a_mix() {
    let file = read(SHOP, &PlanSpec::default()).unwrap();
    assert_eq!(file.mix.file, "mix.toml");
    let [search, order, note] = &file.mix.requests[..] else {
        panic!("{:?}", file.mix);
    };
    assert_eq!((search.weight, order.weight, note.weight), (3, 1, 1));
    assert_eq!(
        (search.name.as_str(), search.path.as_str()),
        ("search", "/search?q={rand:1-9}")
    );
    assert_eq!(search.request.method, "GET");
    assert!(search.templates && search.expect.is_empty() && search.request.body.is_empty());
    assert_eq!(
        (order.request.method.as_str(), note.request.method.as_str()),
        ("PUT", "POST")
    );
    let body: &[u8] = b"{\"id\": {seq}}\n";
    assert_eq!(order.request.body.bytes(), Some(body));
    assert_eq!(
        order.request.headers[1],
        ("X-Id".to_owned(), "{uuid}".to_owned())
    );
    assert_eq!(order.expect, [Expect::Status(200), Expect::Status(201)]);
    assert!(!note.templates);
    let line = |request, key| {
        file.place(request, key)
            .rsplit(':')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        (
            line(1, RequestPart::Path),
            line(1, RequestPart::Body),
            line(0, RequestPart::Body)
        ),
        ("12".into(), "14".into(), "3".into())
    );
}

#[test]
fn applies_defaults_to_requests_without_their_own_settings() {
    let common = PlanSpec {
        headers: vec![
            ("x-id".to_owned(), "1".to_owned()),
            ("Authorization".to_owned(), "x".to_owned()),
        ],
        load: LoadSpec {
            expect: vec![Expect::Status(204)],
            ..LoadSpec::default()
        },
        ..PlanSpec::default()
    };
    let mix = read(SHOP, &common).unwrap().mix;
    let names = |i: usize| -> Vec<&str> {
        let headers = mix.requests[i].request.headers.iter();
        headers.map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(names(0), ["x-id", "Authorization"]);
    assert_eq!(names(1), ["Content-Type", "X-Id", "Authorization"]);
    assert_eq!(mix.requests[0].expect, [Expect::Status(204)]);
    assert_eq!(mix.requests[1].expect.len(), 2);
}

#[test]
fn names_line_and_fix_of_errors() {
    let request = "[[request]]\nname = \"a\"\npath = \"/\"\n";
    let with = |line: &str| error(&format!("{request}{line}"));
    let cases = [
        (
            error(""),
            "mix.toml:1: no requests; add at least one [[request]]",
        ),
        (
            error("\n[[requests]]\n"),
            "mix.toml:2: unknown key \"requests\"; did you mean \"request\"?",
        ),
        (
            error("[request]\nname = \"a\"\n"),
            "mix.toml:1: request: expected double brackets: [[request]]",
        ),
        (
            error("request = [1]"),
            "mix.toml:1: request: invalid type: integer `1`",
        ),
        (
            with("wieght = 3"),
            "mix.toml:4: unknown key \"wieght\" in [request]; did you mean \"weight\"?",
        ),
        (
            with("body_file = \"x\""),
            "mix.toml:4: unknown key \"body_file\" in [request]; did you mean \"body-file\"?",
        ),
        (
            with("colour = 3"),
            "mix.toml:4: unknown key \"colour\" in [request]; expected ",
        ),
        (
            with("weight = 0"),
            "mix.toml:4: weight: expected an integer from 1 to",
        ),
        (
            with("weight = 1.5"),
            "mix.toml:4: weight: invalid type: floating point",
        ),
        (with("weight = -1"), "mix.toml:4: weight: expected"),
        (
            with("weight = \"3\""),
            "mix.toml:4: weight: invalid type: string",
        ),
        (
            with("method = 1"),
            "mix.toml:4: method: invalid type: integer `1`, expected a string",
        ),
        (
            with("headers = \"A: b\""),
            "mix.toml:4: headers: invalid type: string \"A: b\", expected a sequence",
        ),
        (
            with("headers = [\n  \"A: b\",\n  \"C\",\n]"),
            "mix.toml:6: headers: \"C\" has no colon",
        ),
        (
            with("expect = [\"state=200\"]"),
            "mix.toml:4: expect: unknown expectation \"state\"",
        ),
        (
            with("expect = [200]"),
            "mix.toml:4: expect: invalid type: integer `200`, expected a string",
        ),
        (
            with("templates = \"no\""),
            "mix.toml:4: templates: invalid type: string \"no\", expected a boolean",
        ),
        (
            with("body = \"x\"\nbody-file = \"order.json\""),
            "mix.toml:5: `body-file` conflicts with `body`",
        ),
        (
            with("body-file = \"missing\""),
            "mix.toml:4: body-file missing: No such file",
        ),
        (with("body = \"x"), "mix.toml:4: not TOML: "),
        (with("name = \"b\""), "mix.toml:4: not TOML: duplicate key"),
        (
            with(&format!("\n{request}")),
            "mix.toml:6: name: \"a\" is already used on line 1",
        ),
        (
            error("[[request]]\npath = \"/\"\n"),
            "mix.toml:1: a request has no name",
        ),
        (
            error("\n[[request]]\nname = \"a\"\n"),
            "mix.toml:2: the request \"a\" has no path",
        ),
        (
            error("[[request]]\nname = \"a b\"\n"),
            "mix.toml:2: name: expected up to 20 letters",
        ),
        (
            error("[[request]]\nname = \"\"\n"),
            "mix.toml:2: name: expected",
        ),
    ];
    for (error, expected) in cases {
        assert!(error.starts_with(expected), "{error}\n{expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn reduces_and_limits_weights() {
    let of = |weights: &[u32]| {
        let tables = weights.iter().enumerate().map(|(i, weight)| {
            format!("[[request]]\nname = \"r{i}\"\npath = \"/\"\nweight = {weight}\n")
        });
        read(&tables.collect::<String>(), &PlanSpec::default())
    };
    let weights =
        |file: MixFile| -> Vec<u32> { file.mix.requests.iter().map(|r| r.weight).collect() };
    assert_eq!(weights(of(&[1_000_000, 500_000]).unwrap()), [2, 1]);
    assert_eq!(weights(of(&[9_999, 1]).unwrap()), [9_999, 1]);
    let error = of(&[10_000, 1]).unwrap_err().to_string();
    assert!(
        error.contains("add up to 10,001") && error.contains("at most 10,000"),
        "{error}"
    );
    assert_eq!(
        of(&[1; MAX_REQUESTS]).unwrap().mix.requests.len(),
        MAX_REQUESTS
    );
    let error = of(&[1; MAX_REQUESTS + 1]).unwrap_err().to_string();
    assert!(
        error.starts_with("mix.toml:257: more than 64 requests"),
        "{error}"
    );
}

#[test]
fn reads_the_example_in_the_guide() {
    let guide = include_str!("../../../docs/guide/mixes.md");
    let example = guide.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let mix = read(example, &PlanSpec::default()).unwrap().mix;
    assert_eq!(mix.requests.len(), 2);
}

#[test]
fn refuses_unreadable_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mix.toml");
    let missing = MixFile::read(&path, &PlanSpec::default(), Http::V1);
    assert_eq!(
        missing.unwrap_err().to_string(),
        format!(
            "{}: No such file or directory (os error 2); name a readable file",
            path.display()
        )
    );
    std::fs::write(&path, b"# a\n# \xff\n").unwrap();
    let error = MixFile::read(&path, &PlanSpec::default(), Http::V1).unwrap_err();
    assert!(
        error.place.ends_with(":2") && error.what.contains("UTF-8"),
        "{error}"
    );
    assert!(MixFile::read(directory.path(), &PlanSpec::default(), Http::V1).is_err());
    let endless =
        MixFile::read(Path::new("/dev/zero"), &PlanSpec::default(), Http::V1).unwrap_err();
    assert!(endless.what.contains("67108864"), "{endless}");
}

#[test]
fn recognizes_headers_that_contain_only_columns() {
    for value in ["{a}", " {raw:a} ", "{a}{b}"] {
        assert!(has_only_columns(value), "{value}");
    }
    for value in ["{a}:80", "x{a}", "{a}{seq}", "{a}.{b}"] {
        assert!(!has_only_columns(value), "{value}");
    }
}
