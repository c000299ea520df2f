//! Tests for placeholders and literal text in templates.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn render(text: &str, seed: u64, number: u64) -> String {
    let template = RequestTemplate::parse(text.as_bytes(), &TemplateNames::default()).unwrap();
    let mut out = Vec::with_capacity(template.longest());
    let room = out.capacity();
    template.render((seed, number), &mut randomness(seed, number), &mut out);
    assert_eq!(out.capacity(), room, "the buffer did not grow");
    String::from_utf8(out).unwrap()
}

#[test]
fn fills_in_markers() {
    assert_eq!(render("/a/{seq}?b={rand:7-7}", 1, 42), "/a/42?b=7");
    assert_eq!(
        render("{seq}{seq}", 1, u64::MAX),
        u64::MAX.to_string().repeat(2)
    );
    assert_eq!(render("", 1, 1), "");
    assert_eq!(render("{rand:0-0}", 1, 1), "0");
}

#[test]
fn other_braces_are_left_alone() {
    for text in [
        r#"{"a":{"b":[{},{"c":"{}"}]}}"#,
        "query { users { seq uuid rand } }",
        "{ seq }{SEQ}{name}{seq",
        "{{a}}{{}}{",
        "{seq:1}{uuid }{random}{rand}",
    ] {
        assert_eq!(render(text, 1, 5), text);
        assert!(
            !RequestTemplate::parse(text.as_bytes(), &TemplateNames::default())
                .unwrap()
                .varies()
        );
    }
    assert_eq!(render(r#"{"a":{"b":{seq}}}"#, 1, 5), r#"{"a":{"b":5}}"#);
}

#[test]
fn doubled_braces_escape_a_marker() {
    assert_eq!(
        render("{{seq}} {{uuid}} {{rand:1-2}} {{seq} {seq}}", 1, 5),
        "{seq} {uuid} {rand:1-2} {5 5}"
    );
}

#[test]
fn refuses_invalid_ranges() {
    for text in [
        "{rand:}",
        "{rand:5}",
        "{rand:9-1}",
        "{rand:-1-5}",
        "{rand:1-}",
        "{rand:1 - 5}",
        "{rand:1-18446744073709551616}",
        "{rand:1-5",
        "{rand:a-b}",
        "{rand:+1-5}",
        "{{rand:5}}",
    ] {
        let error = RequestTemplate::parse(text.as_bytes(), &TemplateNames::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("such as {rand:1-1000}"), "{text}: {error}");
    }
}

#[test]
fn a_range_includes_both_ends() {
    let seen: HashSet<String> = (0..200).map(|n| render("{rand:1-6}", 3, n)).collect();
    assert_eq!(seen, (1..=6).map(|n| n.to_string()).collect());
    let wide = render("{rand:0-18446744073709551615}", 1, 1);
    assert!(wide.parse::<u64>().is_ok());
}

#[test]
fn uuids_are_of_version_4_and_distinct() {
    let mut seen = HashSet::new();
    for number in 1..=20_000 {
        let text = render("{uuid}{uuid}", 9, number);
        for uuid in [&text[..36], &text[36..]] {
            let groups: Vec<&str> = uuid.split('-').collect();
            let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
            let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            assert!(groups.concat().chars().all(hex), "{uuid}");
            assert!(groups[2].starts_with('4'), "{uuid}");
            assert!(groups[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
            assert!(seen.insert(uuid.to_owned()), "{uuid} twice");
        }
    }
}

proptest! {
    #[test]
    fn rendering_depends_on_seed_and_number_only(seed in any::<u64>(), number in any::<u64>()) {
        let text = "{seq} {uuid} {rand:0-1000000000000}";
        prop_assert_eq!(render(text, seed, number), render(text, seed, number));
        prop_assert_ne!(render("{uuid}", seed, number), render("{uuid}", seed, number ^ 1));
        prop_assert_ne!(render("{uuid}", seed, number), render("{uuid}", seed ^ 1, number));
    }

    #[test]
    fn numbers_stay_in_their_range(a in any::<u64>(), b in any::<u64>(), number in any::<u64>()) {
        let (low, high) = (a.min(b), a.max(b));
        let value: u64 = render(&format!("{{rand:{low}-{high}}}"), 1, number).parse().unwrap();
        prop_assert!((low..=high).contains(&value));
    }

    #[test]
    fn keeps_text_without_markers(text in proptest::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(template) = RequestTemplate::parse(&text, &TemplateNames::default()) && !template.varies() && !text.windows(2).any(|w| w == b"{{") {
            let mut out = Vec::new();
            template.render((1, 1), &mut randomness(1, 1), &mut out);
            prop_assert_eq!(out, text);
        }
    }

    #[test]
    fn parsing_never_panics(text in "[{}a-z0-9:seqrand-]{0,40}") {
        let _ = RequestTemplate::parse(text.as_bytes(), &TemplateNames::default());
    }
}

#[test]
fn renders_keys_only_in_checks() {
    let text = b"/items/{key}?n={seq}&literal={{key}}";
    let plain = RequestTemplate::parse(text, &TemplateNames::default()).unwrap();
    assert!(plain.holds(b'{') && plain.has_seq() && !plain.has_key());
    let template = RequestTemplate::parse(text, &TemplateNames::of_check(5)).unwrap();
    assert!(template.has_seq() && template.has_key());
    for number in 1..50 {
        let mut out = Vec::new();
        template.render((1, number), &mut randomness(1, number), &mut out);
        let key = floodmark_record::operation::key_of(number, 5);
        let expected = format!("/items/{key}?n={number}&literal={{key}}");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn finds_text_in_the_form_of_a_template() {
    for (text, found) in [
        ("{token}", Some("{token}")),
        (
            r#"{"a": "{user-id}", "b": {"c": {seq}}}"#,
            Some("{user-id}"),
        ),
        ("{randint:1-5}", Some("{randint:1-5}")),
        ("{seq} {uuid} {rand:1-5} {key}", None),
        ("{{token}} {{seq}}", None),
        (r#"{"a": {}} {1} { b } {c"#, None),
        ("{", None),
        ("", None),
    ] {
        assert_eq!(literal_template(text.as_bytes(), &[]), found, "{text}");
    }
}

#[test]
fn fills_in_values_of_feeds() {
    let mut feed = crate::testing::feed(
        floodmark_record::feed::RowChoice::InTurn,
        ["id", "user name"],
        &[["1", "{seq}"], ["22", "b"]],
    );
    let mut plan = crate::testing::with_mix(crate::testing::closed_plan(1, 1), &[1, 1]);
    let mix = plan.mix.as_mut().unwrap();
    mix.requests[0].path = "{raw:id}?u={{id}".to_owned();
    mix.requests[0].request.headers = vec![("X-Id".to_owned(), "{user name}-{id}".to_owned())];
    mix.requests[0].request.body = b"{{id}} {id} {other}".to_vec().into();
    mix.feeds.push(feed.clone());
    let error = requests(&plan).unwrap_err().to_string();
    assert!(error.contains("contains a brace"), "{error}");
    plan.mix.as_mut().unwrap().requests[0].path = "{raw:id}?u={seq}".to_owned();
    let all = requests(&plan).unwrap();
    let text = |number| String::from_utf8(all[0].bytes(number)).unwrap();
    assert!(text(1).starts_with("GET 1?u=1 HTTP/1.1\r\n"), "{}", text(1));
    assert!(text(2).contains("X-Id: b-22\r\n") && text(3).contains("X-Id: {seq}-1\r\n"));
    assert!(text(2).ends_with("{id} 22 {other}"), "{}", text(2));
    assert_eq!(text(2), text(4).replace("u=4", "u=2"));
    assert_eq!(
        literal_template(b"{id} {other}", &[feed.clone()]),
        Some("{other}")
    );
    let mut closing = plan.clone();
    let mix = closing.mix.as_mut().unwrap();
    mix.requests[0].request.headers = vec![("connection".to_owned(), "{id}".to_owned())];
    assert_eq!(
        requests(&closing).unwrap_err().fault,
        InvalidRequest::VaryingConnection
    );
    feed.values = floodmark_record::body::RequestBody::default();
    plan.mix.as_mut().unwrap().feeds = vec![feed];
    let error = requests(&plan).unwrap_err().to_string();
    assert!(error.contains("values of feed.csv"), "{error}");
}
