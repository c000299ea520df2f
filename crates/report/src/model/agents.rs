//! The agents that sent a load.

use floodmark_record::run::{AgentRun, Run, Status};

use super::document::{Blocks, ColumnCell, Detail, Emphasis, Span, Table, TextLine, plain, shown};
use super::figures::{
    NOT_MEASURED, count_of, cpu_per_request, extremes, glue, median, microseconds, optional,
    per_second, rate,
};
use super::process_use;
use super::run::{is_whole, status_word};

/// Maximum number of agents in the summary. A longer list is summarized in one line.
const MAX_SHOWN: usize = 8;

/// Maximum number of agents in a table that is open on the page.
const MAX_OPEN: usize = 16;

/// Adds the agents to the summary of a run.
pub(crate) fn add(blocks: &mut Blocks, run: &Run) {
    if run.agents.len() <= MAX_SHOWN {
        blocks.tables(table(run));
        return;
    }
    blocks.lines(line(run));
    let faulty: Vec<&AgentRun> = run.agents.iter().filter(|of| !is_valid(of)).collect();
    if !faulty.is_empty() {
        blocks.tables([of_agents(run, faulty).limited(MAX_SHOWN)]);
    }
}

/// Returns the table of all agents, or `None` for a run without agents. A long table is collapsed
/// on the page.
pub(crate) fn table(run: &Run) -> Option<Table> {
    let mut table = of_agents(run, &run.agents);
    if run.agents.len() > MAX_OPEN {
        table.collapsed = summary(run);
    }
    (!run.agents.is_empty()).then_some(table)
}

/// Returns the range of the agents' figures in one line, or `None` for a run without agents.
pub(crate) fn line(run: &Run) -> Option<TextLine> {
    let faulty = run.agents.iter().filter(|of| !is_valid(of)).count();
    let mut spans = vec![plain(summary(run)?)];
    if faulty > 0 {
        spans[0].text.push(';');
        let not_valid = glue(&format!("{faulty} not valid"));
        spans.push(Emphasis::Warn.span(not_valid));
    }
    Some(TextLine::new("agents", spans))
}

fn is_valid(agent: &AgentRun) -> bool {
    agent.validity.status == Status::Valid
}

/// Returns text such as `64 agents, 900 to 1,100/s each (median 1,000/s); largest skew +5.00 s,
/// largest clock error ± 120 µs`.
fn summary(run: &Run) -> Option<String> {
    let agents = &run.agents;
    let per_s: Vec<f64> = agents.iter().filter_map(|of| of.throughput_per_s).collect();
    let throughput = match (extremes(&per_s), median(per_s.iter().copied().map(Some))) {
        (Some((least, most)), Some(median)) => format!(
            ", {} to {} each (median {})",
            rate(least),
            rate(most),
            rate(median)
        ),
        _ => String::new(),
    };
    let skews = agents.iter().filter_map(|of| of.skew_us);
    let skew = skews.max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let bounds = agents.iter().filter_map(|of| of.bound_us);
    let bound = bounds.max_by(f64::total_cmp);
    let clocks = skew.zip(bound).map(|(skew, bound)| {
        let skew = glue(&signed(skew));
        let bound = glue(&format!("± {}", microseconds(bound)));
        format!("; largest skew {skew}, largest clock error {bound}")
    });
    let count = count_of(agents.len() as u64, "agent");
    let clocks = clocks.unwrap_or_default();
    (!agents.is_empty()).then(|| format!("{count}{throughput}{clocks}"))
}

fn of_agents<'a>(run: &Run, agents: impl IntoIterator<Item = &'a AgentRun>) -> Table {
    let rows = agents.into_iter().map(|of| (of.name.clone(), cells(of)));
    let scope = if is_whole(run) {
        ""
    } else {
        "figures of the whole measurement; "
    };
    let note = format!("{scope}skew: the agent's clock minus the coordinator's, ± maximum error");
    Table::of(rows, &note).captioned("agent")
}

fn cells(agent: &AgentRun) -> Vec<ColumnCell> {
    let missing = || NOT_MEASURED.to_owned();
    let busy = process_use::busy_range(&agent.client.threads).unwrap_or_else(missing);
    let cpu = cpu_per_request(agent.client.cpu_us_per_request).unwrap_or_else(missing);
    let host = Some(agent.host.clone()).filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(missing);
    let per_s = optional(agent.throughput_per_s, per_second);
    let skew = agent.skew_us.zip(agent.bound_us);
    let skew = skew.map_or_else(missing, |(skew, bound)| {
        format!("{} ± {}", signed(skew), microseconds(bound))
    });
    vec![
        shown("host", host).at(Detail::Roomy),
        shown("ok/s", per_s),
        shown("threads busy", busy),
        shown("CPU/request", cpu).at(Detail::Page),
        shown("skew", skew),
        shown("validity", validity(agent)),
    ]
}

fn validity(agent: &AgentRun) -> Span {
    match (&agent.lost, agent.validity.status) {
        (Some(_), _) if agent.cpus == 0 => Emphasis::Warn.span("not started"),
        (Some(_), _) => Emphasis::Bad.span("lost"),
        (None, status) => status_word(status),
    }
}

/// Formats a time in microseconds with its sign: `+5.00 s`.
fn signed(us: f64) -> String {
    let sign = if us < 0.0 { '−' } else { '+' };
    format!("{sign}{}", microseconds(us.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::terminal::tests::{drawn, drawn_tables};

    fn summarized(run: &Run, width: usize) -> String {
        let mut blocks = Blocks::default();
        add(&mut blocks, run);
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
        let text = crate::terminal::summary(&record, None, style);
        let lines: Vec<&str> = text.lines().filter(|of| of.starts_with("agents")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines[1].starts_with("agents       attempt 2: 2 agents, 40,000/s to 40,100/s each")
        );
    }

    #[test]
    fn a_run_without_agents_shows_none() {
        assert_eq!(summarized(&fixture::closed(), 100), "");
        assert_eq!(drawn(line(&fixture::closed()), 100), "");
    }

    #[test]
    fn a_part_of_the_run_is_distinguished_from_the_whole() {
        let mut run = fixture::sent_by_agents(2);
        assert!(!drawn_tables(table(&run), 100).contains("whole measurement"));
        run.window.from_s = 3.0;
        assert!(drawn_tables(table(&run), 100).contains("whole measurement"));
    }

    #[test]
    fn only_a_long_table_is_collapsed() {
        let collapsed = |n| table(&fixture::sent_by_agents(n)).unwrap().collapsed;
        assert_eq!(collapsed(MAX_OPEN), None);
        assert!(
            collapsed(MAX_OPEN + 1)
                .unwrap()
                .starts_with(&glue("17 agents"))
        );
    }
}
