//! A Slurm cluster with two nodes on one machine.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::net::{Ipv4Addr, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::check_launcher;
use super::daemons::{Daemons, ReservedPort};
use crate::support::{finish, succeeds, text};

/// A running Slurm cluster with the nodes `n1` and `n2`, each configured with 4 CPUs. It listens
/// only on 127.0.0.1. Dropping it ends its tasks.
pub struct SlurmCluster {
    daemons: Daemons,
}

impl SlurmCluster {
    /// Starts the cluster. Returns `None` if the host name is not an alias of 127.0.0.1, because
    /// Slurm's programs listen on the address of the host name.
    pub fn start() -> Option<Self> {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim();
        let mut addresses = (host, 0).to_socket_addrs().into_iter().flatten();
        if !addresses.any(|address| address.ip() == Ipv4Addr::LOCALHOST) {
            println!("skipped: the host name {host} does not resolve to 127.0.0.1");
            return None;
        }
        let mut daemons = Daemons::new();
        start_munged(&mut daemons);
        let [controller, n1, n2] = [(); 3].map(|()| ReservedPort::new());
        let directory = daemons.path("");
        let config = daemons.path("slurm.conf");
        let content = configuration(host, &directory, [&controller, &n1, &n2]);
        fs::write(&config, content).unwrap();
        let daemon = |name, arguments: &[&str]| {
            let mut command = Command::new(format!("/usr/sbin/{name}"));
            command.args(arguments).env("SLURM_CONF", &config);
            command
        };
        daemons.start(daemon("slurmctld", &["-D"]), || controller.is_open());
        for node in ["n1", "n2"] {
            let slurmd = daemon("slurmd", &["-D", "-N", node]);
            daemons.start(slurmd, || is_idle(&config, node));
        }
        Some(SlurmCluster { daemons })
    }

    /// Returns the environment variables that Slurm's commands need.
    pub fn environment(&self) -> [(&'static str, PathBuf); 1] {
        [("SLURM_CONF", self.daemons.path("slurm.conf"))]
    }
}

/// Starts the daemon that authenticates Slurm's messages.
fn start_munged(daemons: &mut Daemons) {
    let mut key = [0; 128];
    let mut random = File::open("/dev/urandom").unwrap();
    random.read_exact(&mut key).unwrap();
    let path = |name| daemons.path(name);
    fs::write(path("munge.key"), key).unwrap();
    fs::set_permissions(path("munge.key"), Permissions::from_mode(0o600)).unwrap();
    let mut munged = Command::new("/usr/sbin/munged");
    // Without --force, munged rejects a directory that other users cannot access.
    munged.args(["--foreground", "--force"]);
    for (flag, name) in [
        ("--key-file", "munge.key"),
        ("--seed-file", "munge.seed"),
        ("--pid-file", "munge.pid"),
        ("--socket", "munge.socket"),
    ] {
        munged.arg(flag).arg(path(name));
    }
    let socket = path("munge.socket");
    daemons.start(munged, || UnixStream::connect(&socket).is_ok());
}

/// Returns the configuration file of a cluster whose daemons run as this user.
fn configuration(host: &str, directory: &Path, ports: [&ReservedPort; 3]) -> String {
    let directory = directory.to_str().unwrap();
    let user = fs::metadata("/proc/self").unwrap().uid();
    let [controller, n1, n2] = ports.map(|port| port.number);
    // config_overrides: allow nodes with more CPUs than the host has.
    format!(
        "ClusterName=floodmark
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={directory}munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={directory}state
SlurmdSpoolDir={directory}%n
SlurmctldPidFile={directory}slurmctld.pid
SlurmdPidFile={directory}%n.pid
SlurmdParameters=config_overrides
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=n1 NodeAddr=127.0.0.1 Port={n1} CPUs=4
NodeName=n2 NodeAddr=127.0.0.1 Port={n2} CPUs=4
PartitionName=all Nodes=n1,n2 Default=YES
"
    )
}

/// Returns whether a node is registered and waits for tasks. The flag --states=idle also selects
/// nodes that are not registered.
fn is_idle(config: &Path, node: &str) -> bool {
    let mut sinfo = Command::new("sinfo");
    sinfo.args(["--noheader", "--format=%T", "--nodes", node]);
    let output = sinfo.env("SLURM_CONF", config).output().unwrap();
    succeeds(&output);
    text(&output.stdout).trim() == "idle"
}

#[test]
#[cfg_attr(
    not(all(installed = "slurmctld", installed = "slurmd")),
    ignore = "slurmctld or slurmd is not installed"
)]
fn srun_relays_bytes_and_ends_tasks() {
    let Some(cluster) = SlurmCluster::start() else {
        return;
    };
    let environment = cluster.environment();
    let srun = |script: &str| {
        let mut command = Command::new("srun");
        command.args(["--nodes=1", "--ntasks=1", "sh", "-c", script]);
        command.envs(environment.clone());
        command
    };
    check_launcher(&srun, || drop(cluster));
}

#[test]
#[cfg_attr(
    not(all(installed = "slurmctld", installed = "slurmd")),
    ignore = "slurmctld or slurmd is not installed"
)]
fn an_allocation_runs_steps_at_the_same_time() {
    let Some(cluster) = SlurmCluster::start() else {
        return;
    };
    // Each step creates a file and waits for the file of the other step. Without --exact, the first
    // step takes all CPUs of the node, so the second step does not start before the first one has
    // ended.
    let step = |own, other| {
        let script = format!("touch {own}; until [ -e {other} ]; do sleep 0.01; done");
        format!("srun --nodes=1 --ntasks=1 --exact sh -c '{script}'")
    };
    let steps = format!("{} & {}; wait", step("a", "b"), step("b", "a"));
    let mut salloc = Command::new("salloc");
    salloc.args(["--nodes=1", "--ntasks=2", "sh", "-c", &steps]);
    salloc.current_dir(cluster.daemons.path(""));
    salloc.envs(cluster.environment());
    let salloc = salloc.stdin(Stdio::null()).stderr(Stdio::piped());
    succeeds(&finish(salloc.spawn().unwrap()));
}
