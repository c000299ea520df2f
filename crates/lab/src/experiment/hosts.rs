//! The two sides of a trial as they are on this machine: where its load process and its server run.

use std::net::Ipv4Addr;

use floodmark_host::{Cpus, Side};
use floodmark_record::place;

use crate::manifest::{Place, Wish};

/// Client and server of a trial, each where it was asked to be.
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

impl Hosts {
    /// Makes them; what cannot be had in words.
    ///
    /// # Errors
    /// CPUs that floodmark may not use here.
    pub fn of(at: &Place) -> Result<Self, String> {
        let allowed = Cpus::allowed().map_err(|error| format!("place: cpus: {error}"))?;
        let client = checked("client", &at.client, &allowed)?;
        let server = checked("server", &at.server, &allowed)?;
        let said = |cpus: &Option<Cpus>| place::Side {
            cpus: cpus.as_ref().map(Cpus::to_string),
            cpu_count: cpus.as_ref().unwrap_or(&allowed).count(),
        };
        Ok(Hosts {
            address: Ipv4Addr::LOCALHOST,
            client_cpus: client.as_ref().map(Cpus::count),
            server_cpus: server.as_ref().map(Cpus::count),
            place: (client.is_some() || server.is_some()).then(|| place::Place {
                hosts: place::Hosts::Shared,
                client: said(&client),
                server: said(&server),
            }),
            client: Side::on(client),
            server: Side::on(server),
        })
    }
}

/// The CPUs of a side, which must be among those allowed.
fn checked(side: &str, wish: &Wish, allowed: &Cpus) -> Result<Option<Cpus>, String> {
    let Some(cpus) = &wish.cpus else {
        return Ok(None);
    };
    match cpus.beyond(allowed) {
        None => Ok(Some(cpus.clone())),
        Some(beyond) => Err(format!(
            "place: cpus: {side}: floodmark may not use CPU {beyond} here; it may use {allowed}"
        )),
    }
}
