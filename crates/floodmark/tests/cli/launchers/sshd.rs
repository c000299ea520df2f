//! An OpenSSH server with its own keys.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::check_launcher;
use super::daemons::{DIRECTORY, Daemons, ReservedPort};
use crate::support::succeeds;

/// A running OpenSSH server on 127.0.0.1. The client's configuration maps the host names `agent-1`
/// to `agent-4` to this server. Dropping it ends its sessions.
pub struct SshServer {
    daemons: Daemons,
}

impl SshServer {
    pub fn start() -> Self {
        let mut daemons = Daemons::new();
        let port = ReservedPort::new();
        let path = |name: &str| daemons.path(name).to_str().unwrap().to_owned();
        for key in ["host_key", "user_key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]);
            succeeds(&keygen.output().unwrap());
        }
        let host_key = fs::read_to_string(path("host_key.pub")).unwrap();
        let number = port.number;
        let known_host = format!("[127.0.0.1]:{number} {host_key}");
        fs::write(path("known_hosts"), known_host).unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_floodmark")).parent().unwrap();
        // With StrictModes, sshd would reject keys in a directory below /tmp.
        let server = format!(
            "ListenAddress 127.0.0.1:{number}\nHostKey {}\nAuthorizedKeysFile {}\n\
            AuthenticationMethods publickey\nStrictModes no\nUsePAM no\nPidFile none\n\
            MaxStartups 100\nAcceptEnv XDG_CACHE_HOME\nSetEnv {DIRECTORY}={} PATH={}:/usr/bin:/bin\n",
            path("host_key"),
            path("user_key.pub"),
            path(""),
            programs.to_str().unwrap(),
        );
        fs::write(path("sshd_config"), server).unwrap();
        let client = ["agent-1", "agent-2", "agent-3", "agent-4"].map(|host| {
            format!(
                "Host {host}\nHostName 127.0.0.1\nPort {number}\nIdentityFile {}\n\
                IdentitiesOnly yes\nUserKnownHostsFile {}\nSetEnv XDG_CACHE_HOME={}\n",
                path("user_key"),
                path("known_hosts"),
                path(&format!("cache-{host}")),
            )
        });
        let client = client.concat();
        fs::write(path("ssh_config"), client).unwrap();
        provide_empty_directory();
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.args(["-D", "-e", "-f", &path("sshd_config")]);
        daemons.start(sshd, || port.is_open());
        SshServer { daemons }
    }

    /// Returns the path of the server's directory, as set in the environment of its sessions.
    pub fn directory(&self) -> String {
        self.daemons.path("").to_str().unwrap().to_owned()
    }

    /// Returns the cache directory that sessions on a host use.
    pub fn cache(&self, host: &str) -> PathBuf {
        self.daemons.path(&format!("cache-{host}"))
    }

    /// Returns the ssh command with the flag that selects the configuration.
    pub fn ssh_command(&self) -> String {
        let config = self.daemons.path("ssh_config");
        format!("ssh -F {}", config.display())
    }
}

/// Creates the directory that Debian's sshd requires if it runs as root. Debian's service creates
/// the same directory.
fn provide_empty_directory() {
    let directory = Path::new("/run/sshd");
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root && !directory.exists() {
        fs::create_dir_all(directory).unwrap();
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
#[cfg_attr(not(installed = "sshd"), ignore = "sshd is not installed")]
fn ssh_relays_bytes_and_ends_tasks() {
    let server = SshServer::start();
    let ssh = server.ssh_command();
    let launch = |script: &str| {
        let mut words = ssh.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).args(["agent-1", script]);
        command
    };
    check_launcher(&launch, || drop(server));
}
