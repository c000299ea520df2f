use super::*;
use crate::fixture;
use crate::terminal::tests::{drawn, drawn_tables};

fn summarized(run: &Run, width: usize) -> String {
    let mut blocks = Blocks::default();
    add_agents(&mut blocks, run);
    let style = crate::Style {
        color: false,
        width,
    };
    crate::terminal::draw(&blocks, style)
}

#[test]
fn a_few_agents_have_a_row_each() {
    insta::assert_snapshot!("wide", summarized(&fixture::sent_by_agents(4), 100));
    insta::assert_snapshot!("narrow", summarized(&fixture::sent_by_agents(4), 60));
}

#[test]
fn many_agents_have_a_line_and_those_with_faults_a_row() {
    insta::assert_snapshot!("many", summarized(&fixture::sent_by_agents(64), 100));
    let mut valid = fixture::sent_by_agents(9);
    valid.agents.retain(is_valid);
    valid.agents.extend(valid.agents.clone());
    let text = summarized(&valid, 200);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains("not valid"), "{text}");
}

#[test]
fn several_attempts_have_a_line_each() {
    let attempts = [1, 2].map(|attempt| Run {
        attempt,
        ..fixture::sent_by_agents(2)
    });
    let style = crate::Style {
        color: false,
        width: 200,
    };
    let record = fixture::record(attempts.to_vec());
    let text = crate::terminal::summary(&record, None, crate::terminal::Extent::Full, style);
    let lines: Vec<&str> = text.lines().filter(|of| of.starts_with("agents")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[1].starts_with("agents       attempt 2: 2 agents, 40,000/s to 40,100/s each"));
}

#[test]
fn a_run_without_agents_shows_none() {
    assert_eq!(summarized(&fixture::closed(), 100), "");
    assert_eq!(drawn(agents_line(&fixture::closed()), 100), "");
}

#[test]
fn a_part_of_the_run_is_distinguished_from_the_whole() {
    let mut run = fixture::sent_by_agents(2);
    assert!(!drawn_tables(agents_table(&run), 100).contains("whole measurement"));
    run.window.from_s = 3.0;
    assert!(drawn_tables(agents_table(&run), 100).contains("whole measurement"));
}

#[test]
fn only_a_long_table_is_collapsed() {
    let collapsed = |n| agents_table(&fixture::sent_by_agents(n)).unwrap().collapsed;
    assert_eq!(collapsed(MAX_OPEN), None);
    assert!(
        collapsed(MAX_OPEN + 1)
            .unwrap()
            .starts_with(&glue("17 agents"))
    );
}
