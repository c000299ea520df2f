//! The CPU of the server and of the store behind it beside the client's, a line each.

use floodmark_record::run::Run;
use floodmark_record::units::{show_bytes, show_count, show_ns};
use floodmark_record::watch::Server;

use crate::page::{Page, faint, glue, plain};

/// What the processes of the server used, and those of the store where there is one; nothing where they were not watched, which is
/// among what was not read.
pub(crate) fn draw(page: &mut Page, run: &Run) {
    draw_side(page, "server", run.server.as_ref());
    draw_side(page, "store", run.store.as_ref());
}

fn draw_side(page: &mut Page, name: &str, side: Option<&Server>) {
    let Some(side) = side.filter(|side| side.wall_s > 0.0) else {
        return;
    };
    let mut spans = Vec::new();
    if let Some(us) = side.cpu_us_per_request {
        let cpu = show_ns(us * 1e3);
        spans.push(plain(format!("{} CPU per request;", glue(&cpu))));
    }
    spans.push(plain(used(side)));
    spans.push(faint(format!("({})", whose(side))));
    page.entry(name, &spans);
}

/// `used 1.15 CPUs (0.40 user, 0.75 system)`.
fn used(server: &Server) -> String {
    let cpus = |s: f64| format!("{:.2}", s / server.wall_s);
    format!(
        "used {} ({}, {})",
        glue(&format!("{} CPUs", cpus(server.cpu_s))),
        glue(&format!("{} user", cpus(server.user_s))),
        glue(&format!("{} system", cpus(server.system_s)))
    )
}

/// `nginx, 3 processes, at most 24.0 MB`.
fn whose(server: &Server) -> String {
    let seen = &server.seen;
    let processes = match seen.processes {
        0 | 1 => seen
            .pids
            .first()
            .map_or_else(String::new, |pid| glue(&format!(" {pid}"))),
        n => format!(", {}", glue(&format!("{} processes", show_count(n)))),
    };
    let memory = glue(&show_bytes(seen.peak_rss_bytes));
    format!("{}{processes}, at most {memory}", glue(&seen.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::style::Style;

    fn drawn(run: &Run) -> String {
        let mut page = Page::new(Style {
            colour: false,
            width: 200,
        });
        draw(&mut page, run);
        page.finish().replace('\u{a0}', " ")
    }

    #[test]
    fn cpu_by_request_and_in_all() {
        let mut run = fixture::watched();
        assert_eq!(
            drawn(&run).trim_end(),
            "server       14.2 µs CPU per request; used 1.15 CPUs (0.40 user, 0.75 system) (nginx, 3 processes, at most 24.0 MB)"
        );
        if let Some(server) = &mut run.server {
            server.cpu_us_per_request = None;
            server.seen.processes = 1;
        }
        assert_eq!(
            drawn(&run).trim_end(),
            "server       used 1.15 CPUs (0.40 user, 0.75 system) (nginx 4711, at most 24.0 MB)"
        );
        run.server = None;
        assert_eq!(drawn(&run), "");
    }

    #[test]
    fn the_store_has_a_line_below_the_server() {
        let drawn = drawn(&fixture::with_store());
        let lines: Vec<&str> = drawn.trim_end().lines().collect();
        assert!(lines[0].starts_with("server "), "{drawn}");
        assert_eq!(
            lines[1],
            "store        3.40 µs CPU per request; used 0.28 CPUs (0.20 user, 0.08 system) (postgres, 9 processes, at most 61.0 MB)"
        );
    }
}
