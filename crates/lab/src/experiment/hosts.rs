//! The hosts on which the client and the server of a trial run.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use floodmark_host::{Cpus, ProcessPlacement, namespace};
use floodmark_record::run::{HostLayout, Placement, RolePlacement, StorePlacement};

use crate::manifest::{PlacementSpec, StoreSource, TrialPlacement, TrialStore};

/// Hosts of a trial's client and server. The network namespaces last until this value is dropped
/// and the trial's processes have exited.
#[derive(Debug)]
pub struct TrialHosts {
    /// Host of the client.
    pub client: ProcessPlacement,
    /// Host of the server.
    pub server: ProcessPlacement,
    /// Address on which the server listens.
    pub address: Ipv4Addr,
    /// Placement for the record; `None` if no placement was requested.
    pub place: Option<Placement>,
}

/// Why hosts cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The host does not support the requested placement. The trial is skipped, like a trial for
    /// which a program is not installed.
    #[error("{0}")]
    Unsupported(String),
}

impl TrialHosts {
    /// Creates the hosts of a trial.
    ///
    /// # Errors
    /// A CPU is not allowed, a kernel setting is unknown, or network namespaces are not allowed.
    pub fn create(at: &TrialPlacement) -> Result<Self, PlacementError> {
        let allowed = Cpus::allowed().map_err(|error| {
            PlacementError::Unsupported(format!("cannot read the allowed CPUs: {error}"))
        })?;
        let client = allowed_cpus("client", &at.client, &allowed)?;
        let server = allowed_cpus("server", &at.server, &allowed)?;
        let (client, server) = if at.separate {
            separate_cpus(client, server, &allowed)
        } else {
            (client, server)
        };
        let side = |wish: &PlacementSpec, cpus: &Option<Cpus>, address: Ipv4Addr| RolePlacement {
            cpus: cpus.as_ref().map(Cpus::to_string),
            cpu_count: cpus.as_ref().unwrap_or(&allowed).count(),
            address: at.separate.then(|| address.to_string()),
            sysctls: wish.sysctls.clone(),
        };
        let requested = at.separate
            || at.delay.is_some()
            || at.store.is_some()
            || client.is_some()
            || server.is_some();
        let place = requested.then(|| Placement {
            hosts: if at.separate {
                HostLayout::Separate
            } else {
                HostLayout::Shared
            },
            client: side(&at.client, &client, namespace::CLIENT),
            server: side(&at.server, &server, namespace::SERVER),
            delay_s: at.delay.map(|delay| delay.as_secs_f64()),
            store: at.store.as_ref().map(store_place),
        });
        let (mut networks, mut address) = ((None, None), Ipv4Addr::LOCALHOST);
        if at.separate {
            let pair = namespace::permit().and_then(|()| namespace::pair());
            let (client, server) = pair.map_err(|error| {
                PlacementError::Unsupported(format!(
                    "hosts = \"separate\" needs network namespaces ({error}); {}",
                    namespace_fix(&error)
                ))
            })?;
            (networks, address) = ((Some(client), Some(server)), namespace::SERVER);
        }
        let hosts = TrialHosts {
            client: ProcessPlacement {
                cpus: client,
                network: networks.0,
            },
            server: ProcessPlacement {
                cpus: server,
                network: networks.1,
            },
            address,
            place,
        };
        for (side, wish) in [(&hosts.client, &at.client), (&hosts.server, &at.server)] {
            for (name, value) in &wish.sysctls {
                set_sysctl(side, name, value).map_err(PlacementError::Invalid)?;
            }
        }
        Ok(hosts)
    }
}

/// Returns advice on how to allow network namespaces.
fn namespace_fix(error: &io::Error) -> &'static str {
    match error.kind() {
        // ENOSPC: the limit on namespaces is reached.
        io::ErrorKind::StorageFull => {
            "raise the sysctls user.max_net_namespaces and user.max_user_namespaces"
        }
        _ => "run floodmark as root, or allow user namespaces",
    }
}

/// Returns the requested CPUs of a role after checking that they are allowed.
fn allowed_cpus(
    role: &str,
    wish: &PlacementSpec,
    allowed: &Cpus,
) -> Result<Option<Cpus>, PlacementError> {
    match wish.cpus.as_ref().and_then(|cpus| cpus.beyond(allowed)) {
        None => Ok(wish.cpus.clone()),
        Some(beyond) => Err(PlacementError::Invalid(format!(
            "place: cpus: {role}: CPU {beyond} is not available; choose from {allowed}"
        ))),
    }
}

/// Returns the CPUs of two separate hosts. If only one role requests CPUs, the other role gets the
/// remaining CPUs. If neither role requests CPUs, each role gets half.
fn separate_cpus(
    client: Option<Cpus>,
    server: Option<Cpus>,
    all: &Cpus,
) -> (Option<Cpus>, Option<Cpus>) {
    match (client, server) {
        (None, None) => all.halves().unzip(),
        (Some(client), None) => {
            let rest = all.beyond(&client);
            (Some(client), rest)
        }
        (None, Some(server)) => (all.beyond(&server), Some(server)),
        both => both,
    }
}

/// Returns a store's placement for the record.
fn store_place(behind: &TrialStore) -> StorePlacement {
    StorePlacement {
        name: behind.name().to_owned(),
        started: behind.started().is_some(),
        setting: match &behind.from {
            StoreSource::Started { setting, .. } => setting.clone(),
            StoreSource::Running(_) => Default::default(),
        },
        delay_s: behind.delay.map(|delay| delay.as_secs_f64()),
    }
}

/// Changes a kernel setting in a host's network namespace.
fn set_sysctl(side: &ProcessPlacement, name: &str, value: &str) -> Result<(), String> {
    let file = Path::new("/proc/sys").join(name.replace('.', "/"));
    let written = side.within(|| fs::write(file, value));
    written.and_then(|written| written).map_err(|error| {
        let cause = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                "; network namespaces have no such setting"
            }
            io::ErrorKind::InvalidInput => "; the value is invalid",
            _ => "",
        };
        format!("place: sysctls: {name} = \"{value}\": {error}{cause}")
    })
}
