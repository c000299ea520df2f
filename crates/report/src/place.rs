//! Where client and server of runs were, in words.

use floodmark_record::Record;
use floodmark_record::place::{Hosts, Place, Side, Store};

use crate::figures::{count_of, seconds};

/// One line for each kind of place that a record's runs had, with its trials where there are several kinds.
pub(crate) fn lines(record: &Record) -> Vec<String> {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for run in &record.runs {
        let said = run
            .place
            .as_ref()
            .map_or_else(|| "on all CPUs of this machine".to_owned(), describe);
        let trial = run.trial.as_deref().unwrap_or(&run.system);
        match kinds.iter_mut().find(|(other, _)| *other == said) {
            Some((_, trials)) if trials.contains(&trial) => {}
            Some((_, trials)) => trials.push(trial),
            None => kinds.push((said, vec![trial])),
        }
    }
    match &kinds[..] {
        [] => Vec::new(),
        [_] if record.runs.iter().all(|run| run.place.is_none()) => Vec::new(),
        [(said, _)] => vec![said.clone()],
        _ => kinds
            .iter()
            .map(|(said, trials)| format!("{}: {said}", trials.join(", ")))
            .collect(),
    }
}

/// `client on CPU 0, server on CPUs 1-3`.
fn describe(place: &Place) -> String {
    let between = match place.hosts {
        Hosts::Shared => "",
        Hosts::Separate => "as on two machines, in network namespaces joined by a veth pair: ",
    };
    let delay = match place.delay_s {
        None => String::new(),
        Some(0.0) => "; through floodmark's proxy, without a delay".to_owned(),
        Some(s) => format!(
            "; each byte {} later, either way, through floodmark's proxy",
            seconds(s)
        ),
    };
    let store = place.store.as_ref().map_or_else(String::new, behind);
    format!(
        "{between}{}, {}{store}{delay}",
        side("client", &place.client),
        side("server", &place.server)
    )
}

/// `, store postgresql, a round trip to it 20 ms longer through floodmark's proxy`.
fn behind(store: &Store) -> String {
    let setting: Vec<String> = store
        .setting
        .iter()
        .map(|(knob, value)| format!("{knob} = {value}"))
        .collect();
    let setting = match setting.is_empty() {
        true => String::new(),
        false => format!(" with {}", setting.join(", ")),
    };
    let there = match store.started {
        true => "",
        false => ", which was there already",
    };
    let delay = match store.delay_s {
        None => String::new(),
        Some(0.0) => " through floodmark's proxy, without a delay".to_owned(),
        Some(s) => format!(
            ", a round trip to it {} longer through floodmark's proxy",
            seconds(s)
        ),
    };
    format!(", store {}{setting}{there}{delay}", store.name)
}

fn side(name: &str, side: &Side) -> String {
    let on = match &side.cpus {
        Some(cpus) if side.cpu_count == 1 => format!("{name} on CPU {cpus}"),
        Some(cpus) => format!("{name} on CPUs {cpus}"),
        None => format!("{name} on all {}", count_of(side.cpu_count.into(), "CPU")),
    };
    let settings: Vec<String> = side
        .sysctls
        .iter()
        .map(|(setting, value)| format!("{setting} = {value}"))
        .collect();
    match settings.is_empty() {
        true => on,
        false => format!("{on} with {}", settings.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn kept(cpus: &str, cpu_count: u32) -> Side {
        Side {
            cpus: Some(cpus.to_owned()),
            cpu_count,
            address: None,
            sysctls: Default::default(),
        }
    }

    #[test]
    fn nothing_is_said_where_nothing_was_asked_for() {
        let mut record = fixture::record(vec![fixture::closed(), fixture::closed()]);
        assert_eq!(lines(&record), [""; 0]);
        let place = Place {
            hosts: Hosts::Shared,
            client: kept("0", 1),
            server: kept("1-3", 3),
            delay_s: None,
            store: None,
        };
        record.runs[0].place = Some(place.clone());
        record.runs[0].trial = Some("kept".to_owned());
        record.runs[1].trial = Some("free".to_owned());
        assert_eq!(
            lines(&record),
            [
                "kept: client on CPU 0, server on CPUs 1-3",
                "free: on all CPUs of this machine"
            ]
        );
        let mut apart = place.clone();
        apart.hosts = Hosts::Separate;
        apart.client.sysctls = [("net.a".to_owned(), "1 2".to_owned())].into();
        assert_eq!(
            describe(&apart),
            "as on two machines, in network namespaces joined by a veth pair: client on CPU 0 with net.a = 1 2, server on CPUs 1-3"
        );
        apart.client.sysctls.clear();
        for (delay_s, said) in [
            (
                0.0,
                "server on CPUs 1-3; through floodmark's proxy, without a delay",
            ),
            (
                0.02,
                "; each byte 20 ms later, either way, through floodmark's proxy",
            ),
        ] {
            apart.delay_s = Some(delay_s);
            assert!(describe(&apart).ends_with(said), "{}", describe(&apart));
        }
        let mut store = Store {
            name: "cassandra".to_owned(),
            started: true,
            setting: [("heap".to_owned(), "512m".to_owned())].into(),
            delay_s: Some(0.02),
        };
        let mut behind = place.clone();
        behind.store = Some(store.clone());
        assert_eq!(
            describe(&behind),
            "client on CPU 0, server on CPUs 1-3, store cassandra with heap = 512m, a round trip to it 20 ms longer through floodmark's proxy"
        );
        (store.started, store.delay_s) = (false, None);
        store.setting.clear();
        behind.store = Some(store);
        assert!(describe(&behind).ends_with(", store cassandra, which was there already"));
        record.runs[1].place = Some(place);
        assert_eq!(lines(&record), ["client on CPU 0, server on CPUs 1-3"]);
    }
}
