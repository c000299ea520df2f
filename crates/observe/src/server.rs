//! Finds the processes of the server under test or of a store without sending requests to them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use floodmark_record::metric::Role;
use floodmark_record::target::Address;

use crate::Root;
use crate::listener::{self, Listeners, find, find_unix};

/// Returns the PIDs of a role's initial processes. Each error message starts with `name`.
///
/// # Errors
/// The processes are not on this host or can't be inspected. The error is a one-line message for
/// the record.
pub(crate) fn processes(
    root: &Root,
    (role, name): (Role, &str),
    addresses: &[Address],
) -> Result<Vec<u32>, String> {
    let mut pids = BTreeSet::new();
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
    if !pids.is_empty() {
        return Ok(pids.into_iter().collect());
    }
    let or_pass_pid = match role {
        Role::Server => ", or pass --server-pid",
        Role::Client | Role::Store => "",
    };
    Err(match (hidden, addresses.first()) {
        (Some(address), _) => format!(
            "{name}: cannot inspect the process that listens on {address} (it belongs to another user or runs in a \
             container); run floodmark as that user or as root{or_pass_pid}"
        ),
        (None, Some(address)) => format!(
            "{name}: no process on this host listens on {address}, so CPU, memory and threads are not measured; it may \
             run on another host or in another network namespace"
        ),
        (None, None) => format!("{name}: the address is unknown"),
    })
}

/// Returns the addresses of the server that listens on a port. `only` restricts the search to one
/// IP address.
///
/// # Errors
/// No server listens there, or several servers do. The one-line message suggests a fix.
pub fn on_port(root: &Root, port: u16, only: Option<IpAddr>) -> Result<Vec<Address>, NotFound> {
    let mut found = listener::addresses(root, port);
    if let Some(only) = only {
        let target = SocketAddr::new(only, port);
        found.retain(|address| listener::covers(*address, target));
    }
    if found.is_empty() {
        let at = only.map_or_else(String::new, |only| format!(" at {only}"));
        return Err(NotFound::Nobody(format!(
            "no process listens on port {port}{at} in this network namespace; start the server first, or pass \
             --server-pid"
        )));
    }
    let owners: Vec<Listeners> = found.iter().map(|address| find(root, *address)).collect();
    if owners.iter().any(|owner| *owner != owners[0]) {
        let shown: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
        return Err(NotFound::Several(format!(
            "several servers listen on port {port} ({}); select one with --address or --server-pid",
            shown.join(", ")
        )));
    }
    Ok(found.into_iter().map(Address::Ip).collect())
}

/// Reason why no single server was found on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotFound {
    /// No server listens there.
    Nobody(String),
    /// Several servers listen there.
    Several(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: (Role, &str) = (Role::Server, "server");

    #[test]
    fn finds_a_server_by_any_address_or_reports_the_reason() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let unused: std::net::SocketAddr = ([127, 9, 9, 9], local.port()).into();
        let root = Root::host();
        let addresses = [Address::Ip(unused), Address::Ip(local)];
        assert_eq!(
            processes(&root, SERVER, &addresses),
            Ok(vec![std::process::id()])
        );
        let error = processes(&root, SERVER, &addresses[..1]).unwrap_err();
        assert!(error.contains(&unused.to_string()), "{error}");
        assert!(error.contains("another host"), "{error}");
        assert!(processes(&root, SERVER, &[]).is_err());
    }

    #[test]
    fn reports_a_listener_with_a_hidden_owner() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
        let line = "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1\n";
        std::fs::write(folder.path().join("proc/net/tcp"), line).unwrap();
        let address = Address::Ip("127.0.0.1:8080".parse().unwrap());
        let error = processes(
            &Root::at(folder.path()),
            SERVER,
            std::slice::from_ref(&address),
        )
        .unwrap_err();
        assert!(error.contains("--server-pid"), "{error}");
        let store = (Role::Store, "store: bars");
        let error = processes(&Root::at(folder.path()), store, &[address]).unwrap_err();
        assert!(
            error.starts_with("store: bars: cannot inspect the process"),
            "{error}"
        );
        assert!(!error.contains("--server-pid"), "{error}");
    }
}
