//! CPU and memory use of client, server and store, and the figures that external clients report.

use floodmark_record::client::ExternalRun;
use floodmark_record::events::ThreadUsage;
use floodmark_record::run::Run;
use floodmark_record::units::{show_bytes, show_count};
use floodmark_record::watch::Server;

use super::document::{TextLine, faint, line, plain};
use super::figures::{count_of, cpu_per_request, duration, extremes, glue, percent, rate};

/// Describes the client's CPU time per request and the busy share of its threads.
pub(crate) fn client(run: &Run) -> TextLine {
    let mut spans = vec![plain(
        match cpu_per_request(run.client.cpu_us_per_request) {
            Some(cpu) => format!("{} CPU per request", glue(&cpu)),
            None => "CPU per request not measured".to_owned(),
        },
    )];
    let loaders = loaders(&run.client.threads);
    if let Some(range) = busy_range(&run.client.threads) {
        let threads = count_of(loaders.len() as u64, "thread");
        spans[0].text.push(';');
        spans.push(plain(format!("{threads}, {range} busy")));
        let waited = loaders
            .iter()
            .map(|t| Some(100.0 * t.run_delay_s? / t.wall_s));
        match waited
            .collect::<Option<Vec<f64>>>()
            .and_then(|waited| extremes(&waited))
        {
            None => spans.push(plain("(run delay: not measured)")),
            // Omit waits of less than 1 %, which explain nothing.
            Some((_, longest)) if longest < 1.0 => {}
            Some((_, longest)) => {
                let most = if loaders.len() > 1 { "up to " } else { "" };
                let text = format!("and {most}{} waiting for a CPU", percent(longest));
                spans.push(plain(text));
            }
        }
    }
    TextLine::new("client", spans)
}

fn loaders(threads: &[ThreadUsage]) -> Vec<&ThreadUsage> {
    let load = |thread: &&ThreadUsage| thread.drives_load && thread.wall_s > 0.0;
    threads.iter().filter(load).collect()
}

/// Returns the range, over the load threads, of the share of time on a CPU, such as
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
    let mut lines = vec![line(
        "CPU time",
        format!("client: {user} user, {system} system"),
    )];
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
        let cpus = |s: f64| format!("{:.2}", s / used.wall_s);
        let cpu = cpu_per_request(used.cpu_us_per_request);
        let mut spans =
            Vec::from_iter(cpu.map(|cpu| plain(format!("{} CPU per request;", glue(&cpu)))));
        spans.push(plain(format!(
            "used {} ({}, {})",
            glue(&format!("{} CPUs", cpus(used.cpu_s))),
            glue(&format!("{} user", cpus(used.user_s))),
            glue(&format!("{} system", cpus(used.system_s)))
        )));
        spans.push(faint(format!("({})", processes(used))));
        Some(TextLine::new(role, spans))
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

/// Returns the CPU time per request of each role over several attempts.
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
        let range = if least == most {
            least
        } else {
            format!("{least} to {most}")
        };
        Some(line(role, format!("{range} CPU per request")))
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
    let per_s = if tool.wall_s > 0.0 {
        format!(" ({})", rate(responses as f64 / tool.wall_s))
    } else {
        String::new()
    };
    Some(format!(
        "{by_client}, {} by the server{per_s}",
        show_count(responses)
    ))
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
