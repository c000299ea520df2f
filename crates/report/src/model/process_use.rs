//! CPU and memory use of the client, the agents, the server and the store, and the figures that
//! external clients report.

use floodmark_record::client::ExternalRun;
use floodmark_record::events::ThreadUsage;
use floodmark_record::run::{AgentRun, Run, Status};
use floodmark_record::units::{show_bytes, show_count};
use floodmark_record::watch::Server;

use super::document::{
    Blocks, ColumnCell, Detail, Emphasis, Span, Table, TextLine, faint, line, plain, shown,
};
use super::figures::{
    NOT_MEASURED, count_of, cpu_per_request, duration, extremes, glue, median, microseconds,
    optional, per_second, percent, rate,
};
use super::run::{is_whole, status_word};

/// Describes the client's CPU time per request and the busy share of its threads.
pub(crate) fn client(run: &Run) -> TextLine {
    let cpu = match cpu_per_request(run.client.cpu_us_per_request) {
        Some(cpu) => format!("{} CPU per request", glue(&cpu)),
        None => "CPU per request not measured".to_owned(),
    };
    let mut spans = vec![plain(cpu)];
    let loaders = loaders(&run.client.threads);
    if let Some(range) = busy_range(&run.client.threads) {
        let threads = count_of(loaders.len() as u64, "thread");
        spans[0].text.push(';');
        spans.push(plain(format!("{threads}, {range} busy")));
        let waited = loaders
            .iter()
            .map(|t| Some(100.0 * t.run_delay_s? / t.wall_s));
        let waited: Option<Vec<f64>> = waited.collect();
        let most = if loaders.len() > 1 { "up to " } else { "" };
        spans.extend(match waited.and_then(|waited| extremes(&waited)) {
            None => Some(plain("(run delay: not measured)")),
            // Omit waits of less than 1 %, which explain nothing.
            Some((_, longest)) if longest < 1.0 => None,
            Some((_, longest)) => {
                let longest = percent(longest);
                Some(plain(format!("and {most}{longest} waiting for a CPU")))
            }
        });
    }
    TextLine::new("client", spans)
}

fn loaders(threads: &[ThreadUsage]) -> Vec<&ThreadUsage> {
    let load = |thread: &&ThreadUsage| thread.drives_load && thread.wall_s > 0.0;
    threads.iter().filter(load).collect()
}

/// Returns the smallest and largest share of time that a load thread spent on a CPU:
/// `40 % to 81 %`. Returns `None` if it was not measured.
pub(crate) fn busy_range(threads: &[ThreadUsage]) -> Option<String> {
    let loaders = loaders(threads);
    let busy = |thread: &&ThreadUsage| 100.0 * (thread.user_s + thread.system_s) / thread.wall_s;
    let busy: Vec<f64> = loaders.iter().map(busy).collect();
    let (least, most) = extremes(&busy)?;
    Some(match busy.as_slice() {
        [one] => percent(*one),
        _ => format!("{} to {}", percent(least), percent(most)),
    })
}

/// Returns the client's CPU time, peak memory and connections. External clients do not report
/// connections.
pub(crate) fn totals(run: &Run) -> Vec<TextLine> {
    let client = &run.client;
    let (user, system) = (duration(client.user_s), duration(client.system_s));
    let cpu = format!("client: {user} user, {system} system");
    let mut lines = vec![line("CPU time", cpu)];
    let memory = client.peak_rss_bytes.map(show_bytes);
    lines.extend(memory.map(|peak| line("memory", format!("client: peak {}", glue(&peak)))));
    if client.tool.is_none() {
        let opened = show_count(run.connections.opened);
        let peak = run.connections.peak.map(show_count);
        let peak = peak.map(|peak| format!(", at most {peak} at once"));
        let text = format!("{opened} opened{}", peak.unwrap_or_default());
        lines.push(line("connections", text));
    }
    lines
}

/// Returns the CPU and memory use of the monitored server and store.
pub(crate) fn servers(run: &Run) -> Vec<TextLine> {
    let roles = [("server", &run.server), ("store", &run.store)];
    let monitored = roles.into_iter().filter_map(|(role, used)| {
        let used = used.as_ref().filter(|used| used.wall_s > 0.0)?;
        let cpus = |s: f64, of| glue(&format!("{:.2} {of}", s / used.wall_s));
        let cpu = cpu_per_request(used.cpu_us_per_request);
        let cpu = cpu.map(|cpu| plain(format!("{} CPU per request;", glue(&cpu))));
        let all = cpus(used.cpu_s, "CPUs");
        let (user, system) = (cpus(used.user_s, "user"), cpus(used.system_s, "system"));
        let used_cpus = plain(format!("used {all} ({user}, {system})"));
        let processes = faint(format!("({})", processes(used)));
        let spans = cpu.into_iter().chain([used_cpus, processes]);
        Some(TextLine::new(role, spans.collect::<Vec<_>>()))
    });
    monitored.collect()
}

/// Returns text such as `nginx, 3 processes, peak memory 24.0 MB`.
fn processes(used: &Server) -> String {
    let seen = &used.seen;
    let which = match (seen.processes, seen.pids.first()) {
        (0 | 1, Some(pid)) => glue(&format!(" {pid}")),
        (0 | 1, None) => String::new(),
        (n, _) => format!(", {}", count_of(n, "process")),
    };
    let memory = glue(&show_bytes(seen.peak_rss_bytes));
    format!("{}{which}, peak memory {memory}", glue(&seen.name))
}

/// For each role, returns the range of the CPU time per request across several attempts.
pub(crate) fn ranges(runs: &[Run]) -> Vec<TextLine> {
    type Cpu = fn(&Run) -> Option<f64>;
    let roles: [(&str, Cpu); 3] = [
        ("client", |run| run.client.cpu_us_per_request),
        ("server", |run| run.server.as_ref()?.cpu_us_per_request),
        ("store", |run| run.store.as_ref()?.cpu_us_per_request),
    ];
    let line = |(role, cpu): (&str, Cpu)| {
        let all: Vec<f64> = runs.iter().filter_map(cpu).filter(|us| *us > 0.0).collect();
        let (least, most) = extremes(&all)?;
        let (least, most) = (cpu_per_request(Some(least))?, cpu_per_request(Some(most))?);
        let most = (least != most).then(|| format!(" to {most}"));
        let most = most.unwrap_or_default();
        Some(line(role, format!("{least}{most} CPU per request")))
    };
    roles.into_iter().filter_map(line).collect()
}

/// Returns the mean number of CPUs that the processes of a role used.
pub(crate) fn cpus(used: Option<&Server>) -> Option<f64> {
    let used = used.filter(|used| used.wall_s > 0.0)?;
    Some(used.cpu_s / used.wall_s)
}

/// Returns the name and the record of a run's external client.
pub(crate) fn external(run: &Run) -> Option<(&str, &ExternalRun)> {
    run.client.name.as_deref().zip(run.client.tool.as_ref())
}

/// Returns the command line of an external client, quoted for a shell.
pub(crate) fn command(tool: &ExternalRun) -> String {
    let words = tool.command.iter().map(String::as_str);
    shlex::try_join(words).unwrap_or_else(|_| tool.command.join(" "))
}

/// Returns the version of an external client, or the client's name if the version is unknown.
pub(crate) fn version<'a>(name: &'a str, tool: &'a ExternalRun) -> &'a str {
    tool.version.as_deref().unwrap_or(name)
}

/// Describes the responses counted by an external client and by the server. Returns `None` if the
/// server does not count responses.
pub(crate) fn counted(name: &str, tool: &ExternalRun) -> Option<String> {
    let responses = tool.counter.as_ref()?.answers();
    let by_client = match tool.said.answers {
        Some(n) => format!("{} counted by {name}", count_of(n, "response")),
        None => format!("responses not counted by {name}"),
    };
    let per_s = (tool.wall_s > 0.0).then(|| rate(responses as f64 / tool.wall_s));
    let per_s = per_s.map(|per_s| format!(" ({per_s})")).unwrap_or_default();
    let responses = show_count(responses);
    Some(format!("{by_client}, {responses} by the server{per_s}"))
}

/// Describes the external client of a run and the counts that the client reports.
pub(crate) fn external_client(run: &Run) -> Vec<TextLine> {
    let Some((name, tool)) = external(run) else {
        return Vec::new();
    };
    let how = faint(format!("– {}", command(tool)));
    let mut lines = vec![TextLine::new("client", [plain(version(name, tool)), how])];
    lines.extend(counted(name, tool).map(|counted| line("counted", counted)));
    lines
}

/// Maximum number of agents that the summary lists. If there are more, one line describes all of
/// them, and only agents that are not valid are listed.
const MAX_SHOWN: usize = 8;

/// Maximum number of agents in a table that the page shows expanded.
const MAX_OPEN: usize = 16;

/// Adds the agents to the summary of a run.
pub(crate) fn add_agents(blocks: &mut Blocks, run: &Run) {
    if run.agents.len() <= MAX_SHOWN {
        blocks.tables(agents_table(run));
        return;
    }
    blocks.lines(agents_line(run));
    let faulty: Vec<&AgentRun> = run.agents.iter().filter(|of| !is_valid(of)).collect();
    if !faulty.is_empty() {
        blocks.tables([of_agents(run, faulty).limited(MAX_SHOWN)]);
    }
}

/// Returns the table of all agents, or `None` for a run without agents. A long table is collapsed
/// on the page.
pub(crate) fn agents_table(run: &Run) -> Option<Table> {
    let mut table = of_agents(run, &run.agents);
    if run.agents.len() > MAX_OPEN {
        table.collapsed = summary(run);
    }
    (!run.agents.is_empty()).then_some(table)
}

/// Returns the range of the agents' figures in one line, or `None` for a run without agents.
pub(crate) fn agents_line(run: &Run) -> Option<TextLine> {
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
    let median = median(per_s.iter().copied().map(Some));
    let throughput = extremes(&per_s).zip(median).map(|((least, most), median)| {
        let [least, most, median] = [least, most, median].map(rate);
        format!(", {least} to {most} each (median {median})")
    });
    let throughput = throughput.unwrap_or_default();
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
    let rows = agents
        .into_iter()
        .map(|of| (of.name.clone(), agent_cells(of)));
    let scope = if is_whole(run) {
        ""
    } else {
        "figures of the whole measurement; "
    };
    let note = format!("{scope}skew: the agent's clock minus the coordinator's, ± maximum error");
    Table::of(rows, &note).captioned("agent")
}

fn agent_cells(agent: &AgentRun) -> Vec<ColumnCell> {
    let missing = || NOT_MEASURED.to_owned();
    let busy = busy_range(&agent.client.threads).unwrap_or_else(missing);
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
    use floodmark_record::client::{Counter, PrintedFigures};

    use super::*;
    use crate::fixture;
    use crate::terminal::tests::drawn;

    #[test]
    fn shows_cpu_per_request_and_in_total() {
        let mut run = fixture::watched();
        assert_eq!(
            drawn(servers(&run), 200),
            "server       14.2 µs CPU per request; used 1.15 CPUs (0.40 user, 0.75 system) (nginx, 3 processes, peak memory 24.0 MB)\n"
        );
        if let Some(server) = &mut run.server {
            server.cpu_us_per_request = None;
            server.seen.processes = 1;
        }
        assert_eq!(
            drawn(servers(&run), 200),
            "server       used 1.15 CPUs (0.40 user, 0.75 system) (nginx 4711, peak memory 24.0 MB)\n"
        );
        run.server = None;
        assert_eq!(servers(&run), []);
    }

    #[test]
    fn the_store_has_a_line_below_the_server() {
        let drawn = drawn(servers(&fixture::with_store()), 200);
        let lines: Vec<&str> = drawn.lines().collect();
        assert!(lines[0].starts_with("server "), "{drawn}");
        assert_eq!(
            lines[1],
            "store        3.40 µs CPU per request; used 0.28 CPUs (0.20 user, 0.08 system) (postgres, 9 processes, peak memory 61.0 MB)"
        );
    }

    #[test]
    fn shows_what_an_external_client_counted() {
        let mut run = fixture::closed();
        run.client.name = Some("curl-loop".to_owned());
        run.client.tool = Some(ExternalRun {
            version: None,
            command: vec!["sh".to_owned(), "a b.sh".to_owned()],
            wall_s: 10.0,
            said: PrintedFigures {
                answers: Some(5_230),
                ..PrintedFigures::default()
            },
            counter: Some(Counter {
                before: 4,
                after: 5_246,
                readings: 9,
            }),
            ..ExternalRun::default()
        });
        let lines = external_client(&run)
            .into_iter()
            .map(|line| line.of("native"));
        assert_eq!(
            drawn(lines, 100),
            "client       native: curl-loop – sh 'a b.sh'\n\
             counted      native: 5,230 responses counted by curl-loop, 5,232 by the server (523/s)\n"
        );
    }
}

#[cfg(test)]
#[path = "agents_tests.rs"]
mod agents_tests;
