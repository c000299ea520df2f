//! The two sides of a trial as they are on this machine: where its load process and its server run.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use floodmark_host::{Cpus, Side, namespace, wire};
use floodmark_record::place;

use crate::manifest::{Behind, From, Place, Wish};

/// Client and server of a trial, each where it was asked to be. Networks that were made for it go with it and its processes.
#[derive(Debug)]
pub struct Hosts {
    /// The load process's.
    pub client: Side,
    /// The server's.
    pub server: Side,
    /// Where the server listens.
    pub address: Ipv4Addr,
    /// How many CPUs the load process has of its own; none where it has none.
    pub client_cpus: Option<u32>,
    /// The same of the server.
    pub server_cpus: Option<u32>,
    /// What the record says of it; none where nothing was asked for.
    pub place: Option<place::Place>,
}

/// Why there are no such hosts here; in words.
#[derive(Debug)]
pub enum Refused {
    /// What was asked for cannot be.
    Wrong(String),
    /// This machine does not let it be: the trial is left out, as with a missing tool.
    Machine(String),
}

impl Hosts {
    /// Makes them.
    ///
    /// # Errors
    /// CPUs that floodmark may not use here, a kernel setting that there is not, or a machine without network namespaces.
    pub fn of(at: &Place) -> Result<Self, Refused> {
        let allowed = Cpus::allowed()
            .map_err(|error| Refused::Machine(format!("its CPUs cannot be read: {error}")))?;
        let client = checked("client", &at.client, &allowed)?;
        let server = checked("server", &at.server, &allowed)?;
        let (client, server) = match at.separate {
            true => apart(client, server, &allowed),
            false => (client, server),
        };
        let asked = at.separate
            || at.delay.is_some()
            || at.store.is_some()
            || client.is_some()
            || server.is_some();
        let place = asked.then(|| place::Place {
            hosts: match at.separate {
                true => place::Hosts::Separate,
                false => place::Hosts::Shared,
            },
            client: said(
                &at.client,
                &client,
                &allowed,
                at.separate.then_some(wire::CLIENT),
            ),
            server: said(
                &at.server,
                &server,
                &allowed,
                at.separate.then_some(wire::SERVER),
            ),
            delay_s: at.delay.map(|delay| delay.as_secs_f64()),
            store: at.store.as_ref().map(behind),
        });
        let (client_cpus, server_cpus) = (
            client.as_ref().map(Cpus::count),
            server.as_ref().map(Cpus::count),
        );
        let (networks, address) = match at.separate {
            true => {
                let (client, server) = namespace::permit()
                    .and_then(|()| wire::pair())
                    .map_err(|error| {
                        Refused::Machine(format!(
                            "hosts = \"separate\" takes network namespaces, which this machine does not allow ({error}); {}",
                            mend(&error)
                        ))
                    })?;
                ((Some(client), Some(server)), wire::SERVER)
            }
            false => ((None, None), Ipv4Addr::LOCALHOST),
        };
        let hosts = Hosts {
            client: Side::on(client, networks.0),
            server: Side::on(server, networks.1),
            address,
            client_cpus,
            server_cpus,
            place,
        };
        for (side, wish) in [(&hosts.client, &at.client), (&hosts.server, &at.server)] {
            for (name, value) in &wish.sysctls {
                set(side, name, value).map_err(Refused::Wrong)?;
            }
        }
        Ok(hosts)
    }
}

/// What allows network namespaces.
fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        // What ENOSPC is called, which here is a limit on namespaces.
        io::ErrorKind::StorageFull => {
            "raise its limit of them: the settings user.max_net_namespaces and user.max_user_namespaces of sysctl"
        }
        _ => "run floodmark as root, or allow user namespaces",
    }
}

/// The CPUs of a side, which must be among those allowed.
fn checked(side: &str, wish: &Wish, allowed: &Cpus) -> Result<Option<Cpus>, Refused> {
    let Some(cpus) = &wish.cpus else {
        return Ok(None);
    };
    match cpus.beyond(allowed) {
        None => Ok(Some(cpus.clone())),
        Some(beyond) => Err(Refused::Wrong(format!(
            "place: cpus: {side}: floodmark may not use CPU {beyond} here; it may use {allowed}"
        ))),
    }
}

/// CPUs of two hosts: those that were asked for, and for a side that has none the rest, so far as there is one.
fn apart(client: Option<Cpus>, server: Option<Cpus>, all: &Cpus) -> (Option<Cpus>, Option<Cpus>) {
    match (client, server) {
        (None, None) => all.halves().map_or((None, None), |(client, server)| {
            (Some(client), Some(server))
        }),
        (Some(client), None) => {
            let rest = all.beyond(&client);
            (Some(client), rest)
        }
        (None, Some(server)) => (all.beyond(&server), Some(server)),
        both => both,
    }
}

/// What the record says of a side.
fn said(wish: &Wish, cpus: &Option<Cpus>, all: &Cpus, address: Option<Ipv4Addr>) -> place::Side {
    place::Side {
        cpus: cpus.as_ref().map(Cpus::to_string),
        cpu_count: cpus.as_ref().unwrap_or(all).count(),
        address: address.map(|address| address.to_string()),
        sysctls: wish.sysctls.clone(),
    }
}

/// What the record says of a store.
fn behind(of: &Behind) -> place::Store {
    place::Store {
        name: of.name().to_owned(),
        started: of.started().is_some(),
        setting: match &of.from {
            From::Started { setting, .. } => setting.clone(),
            From::There(_) => Default::default(),
        },
        delay_s: of.delay.map(|delay| delay.as_secs_f64()),
    }
}

/// Sets a kernel setting of a side's network.
fn set(side: &Side, name: &str, value: &str) -> Result<(), String> {
    let file = Path::new("/proc/sys").join(name.replace('.', "/"));
    side.within(|| fs::write(file, value))
        .and_then(|written| written)
        .map_err(|error| {
            let mend = match error.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => {
                    "; it is not one that each network has for itself"
                }
                std::io::ErrorKind::InvalidInput => "; it does not take this value",
                _ => "",
            };
            format!("place: sysctls: {name} = \"{value}\": {error}{mend}")
        })
}
