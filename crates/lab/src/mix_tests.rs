//! Mix files: what is read of them, and what is said of bad ones.

use super::*;

fn read(text: &str, common: &Common) -> Result<MixFile, FileError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mix.toml");
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("order.json"), b"{\"id\": {seq}}\n").unwrap();
    MixFile::read(&path, common).map_err(|error| FileError {
        // The folder's name is no matter.
        place: error.place.rsplit('/').next().unwrap().to_owned(),
        what: error
            .what
            .replace(&format!("{}/", folder.path().display()), ""),
    })
}

fn error(text: &str) -> String {
    read(text, &Common::default()).unwrap_err().to_string()
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
fn a_whole_mix() {
    let file = read(SHOP, &Common::default()).unwrap();
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
    assert_eq!(order.request.body, b"{\"id\": {seq}}\n");
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
        (line(1, "path"), line(1, "body"), line(2, "templates")),
        ("12".into(), "8".into(), "22".into())
    );
}

#[test]
fn what_the_command_line_gives_is_for_all_that_do_not_say_otherwise() {
    let common = Common {
        headers: vec![
            ("x-id".to_owned(), "1".to_owned()),
            ("Authorization".to_owned(), "x".to_owned()),
        ],
        expect: vec![Expect::Status(204)],
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
fn errors_name_the_line_and_the_mend() {
    let request = "[[request]]\nname = \"a\"\npath = \"/\"\n";
    let with = |line: &str| error(&format!("{request}{line}"));
    let cases = [
        (error(""), "mix.toml:1: no request; write [[request]]"),
        (
            error("\n[[requests]]\n"),
            "mix.toml:2: unknown key \"requests\" outside of a [[request]]; did you mean \"request\"?",
        ),
        (
            error("[request]\nname = \"a\"\n"),
            "mix.toml:1: expected [[request]], in double brackets",
        ),
        (error("request = [1]"), "mix.toml:1: expected [[request]]"),
        (
            with("wieght = 3"),
            "mix.toml:4: unknown key \"wieght\"; did you mean \"weight\"?",
        ),
        (
            with("body_file = \"x\""),
            "mix.toml:4: unknown key \"body_file\"; did you mean \"body-file\"?",
        ),
        (
            with("colour = 3"),
            "mix.toml:4: unknown key \"colour\"; expected name, weight, method",
        ),
        (
            with("weight = 0"),
            "mix.toml:4: weight: expected a whole number from 1 to",
        ),
        (
            with("weight = 1.5"),
            "mix.toml:4: weight: expected a whole number from 1 to",
        ),
        (with("weight = -1"), "mix.toml:4: weight: expected"),
        (with("weight = \"3\""), "mix.toml:4: weight: expected"),
        (
            with("method = 1"),
            "mix.toml:4: method: expected a text, like method = \"PUT\"",
        ),
        (
            with("headers = \"A: b\""),
            "mix.toml:4: headers: expected a list of texts, like headers = [\"Accept: text/html\"]",
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
            "mix.toml:4: expect: expected a list of texts",
        ),
        (
            with("templates = \"no\""),
            "mix.toml:4: templates: expected true or false",
        ),
        (
            with("body = \"x\"\nbody-file = \"order.json\""),
            "mix.toml:5: there is a body already",
        ),
        (
            with("body-file = \"missing\""),
            "mix.toml:4: body-file missing: No such file",
        ),
        (with("body = \"x"), "mix.toml:4: not TOML: "),
        (with("name = \"b\""), "mix.toml:4: not TOML: duplicate key"),
        (
            with(&format!("\n{request}")),
            "mix.toml:6: the name \"a\" is also that of the request in line 1",
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
fn weights_are_divided_by_what_they_share_and_bounded() {
    let of = |weights: &[u32]| {
        let tables = weights.iter().enumerate().map(|(i, weight)| {
            format!("[[request]]\nname = \"r{i}\"\npath = \"/\"\nweight = {weight}\n")
        });
        read(&tables.collect::<String>(), &Common::default())
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
        of(&[1; MOST_REQUESTS]).unwrap().mix.requests.len(),
        MOST_REQUESTS
    );
    let error = of(&[1; MOST_REQUESTS + 1]).unwrap_err().to_string();
    assert!(
        error.starts_with("mix.toml:257: more than 64 requests"),
        "{error}"
    );
}

#[test]
fn the_readmes_example_is_a_mix() {
    let readme = include_str!("../../../README.md");
    let example = readme.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let mix = read(example, &Common::default()).unwrap().mix;
    assert_eq!(mix.requests.len(), 2);
}

#[test]
fn files_that_cannot_be_read() {
    let missing = MixFile::read(Path::new("/nowhere/mix.toml"), &Common::default());
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .starts_with("/nowhere/mix.toml: No such file")
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mix.toml");
    std::fs::write(&path, b"# a\n# \xff\n").unwrap();
    let error = MixFile::read(&path, &Common::default()).unwrap_err();
    assert!(
        error.place.ends_with(":2") && error.what.contains("UTF-8"),
        "{error}"
    );
    assert!(MixFile::read(folder.path(), &Common::default()).is_err());
    let endless = MixFile::read(Path::new("/dev/zero"), &Common::default()).unwrap_err();
    assert!(endless.what.contains("67108864"), "{endless}");
}
