//! What another machine's `floodmark observe` gave to a run, in one sentence.

use floodmark_record::elsewhere::{Elsewhere, Method};
use floodmark_record::units::show_ns;

use crate::page::glue;

/// The server's machine, and how its clock was put together with the load's.
pub(crate) fn sentence(there: &Elsewhere) -> String {
    let aligned = &there.aligned;
    let error = glue(&show_ns(aligned.error_ms * 1e6));
    let by = match aligned.method {
        Method::SameClock => "it has the load's clock",
        Method::WallClocks => "the clocks by the kernels' word (NTP)",
        Method::Load => "the clocks by the load, which shows in both sides' CPU",
    };
    let cpus = match there.environment.cpus {
        1 => glue("1 CPU"),
        n => glue(&format!("{n} CPUs")),
    };
    let but = match &aligned.but {
        Some(but) => format!("; {but}"),
        None => String::new(),
    };
    format!("the server on its own machine ({cpus}), by floodmark observe; {by}, to ± {error}{but}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::elsewhere::Aligned;
    use floodmark_record::run::Environment;

    #[test]
    fn the_error_of_the_clocks_is_said() {
        let mut there = Elsewhere {
            environment: Environment {
                cpus: 8,
                ..Environment::default()
            },
            aligned: Aligned {
                method: Method::WallClocks,
                offset_ms: -1e6,
                error_ms: 12.34,
                correlation: None,
                but: None,
            },
            from_ms: 0,
            to_ms: 1,
            watcher_cpu_s: 0.0,
        };
        let said = crate::plain::line(&sentence(&there)).replace('\u{a0}', " ");
        assert_eq!(
            said,
            "the server on its own machine (8 CPUs), by floodmark observe; the clocks by the kernels' word (NTP), to ± 12.3 ms"
        );
        there.aligned.but = Some("something spoke against it".to_owned());
        assert!(sentence(&there).ends_with("; something spoke against it"));
    }
}
