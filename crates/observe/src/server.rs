//! Which processes are the server under load, found without asking it anything.

use std::net::{IpAddr, SocketAddr};

use floodmark_record::target::Address;

use crate::Root;
use crate::listener::{self, Listeners, find, find_unix};

/// The server's first processes.
///
/// # Errors
/// It is not on this machine or may not be looked at: one line for the record.
pub fn processes(root: &Root, addresses: &[Address]) -> Result<Vec<u32>, String> {
    let mut pids: Vec<u32> = Vec::new();
    let mut hidden = None;
    for address in addresses {
        let found = match address {
            Address::Ip(ip) => find(root, *ip),
            Address::Unix(path) => find_unix(root, path),
        };
        match found {
            Listeners::Processes(found) => pids.extend(found),
            Listeners::Hidden => hidden = hidden.or(Some(address)),
            Listeners::Nobody => {}
        }
    }
    pids.sort_unstable();
    pids.dedup();
    if !pids.is_empty() {
        return Ok(pids);
    }
    Err(match (hidden, addresses.first()) {
        (Some(address), _) => format!(
            "server: the process that listens on {address} may not be looked at (another user's, or in a container); run \
             floodmark as that user or as root, or name it with --server-pid"
        ),
        (None, Some(address)) => format!(
            "server: no process here listens on {address}, so its CPU, memory and threads are not known (it is on another \
             machine, or in another network namespace)"
        ),
        (None, None) => "server: it has no address".to_owned(),
    })
}

/// Where a server listens on a port of this machine, found by the port alone, or at one address of it.
///
/// # Errors
/// Nobody listens there, or several servers do, each at an address of its own: one line with its mend.
pub fn on_port(root: &Root, port: u16, only: Option<IpAddr>) -> Result<Vec<Address>, NotFound> {
    let mut found = listener::addresses(root, port);
    if let Some(only) = only {
        let target = SocketAddr::new(only, port);
        found.retain(|address| listener::covers(*address, target));
    }
    if found.is_empty() {
        let at = only.map_or_else(String::new, |only| format!(" at {only}"));
        return Err(NotFound::Nobody(format!(
            "nothing listens on port {port}{at} here (or in another network namespace); start the server first, or name its \
             process with --server-pid"
        )));
    }
    let owners: Vec<Listeners> = found.iter().map(|address| find(root, *address)).collect();
    if owners.iter().any(|owner| *owner != owners[0]) {
        let shown: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
        return Err(NotFound::Several(format!(
            "several servers listen on port {port} ({}); name one with --address or --server-pid",
            shown.join(", ")
        )));
    }
    Ok(found.into_iter().map(Address::Ip).collect())
}

/// Why no server was found by its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotFound {
    /// There is none.
    Nobody(String),
    /// There are several to choose from.
    Several(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_by_any_of_its_addresses_or_said_why_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let elsewhere: std::net::SocketAddr = ([127, 9, 9, 9], local.port()).into();
        let root = Root::host();
        let addresses = [Address::Ip(elsewhere), Address::Ip(local)];
        assert_eq!(processes(&root, &addresses), Ok(vec![std::process::id()]));
        let error = processes(&root, &addresses[..1]).unwrap_err();
        assert!(error.contains(&elsewhere.to_string()), "{error}");
        assert!(error.contains("another machine"), "{error}");
        assert!(processes(&root, &[]).is_err());
    }

    #[test]
    fn a_listener_whose_owner_is_hidden_is_said_to_be() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
        let line = "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1\n";
        std::fs::write(folder.path().join("proc/net/tcp"), line).unwrap();
        let address = Address::Ip("127.0.0.1:8080".parse().unwrap());
        let error = processes(&Root::at(folder.path()), &[address]).unwrap_err();
        assert!(error.contains("--server-pid"), "{error}");
    }
}
