//! Agents that ssh and Slurm start, with real daemons on loopback.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use floodmark_record::run::Run;
use floodmark_truth::Scenario;

use super::{processes, program, start_as};
use crate::launchers::daemons::DIRECTORY;
use crate::launchers::slurm::SlurmCluster;
use crate::launchers::sshd::SshServer;
use crate::support::{Load, Serve, code, finish, floodmark, signal, text, truth, wait_for};

/// Makes floodmark use a server's ssh configuration.
fn use_ssh(server: &SshServer) -> impl FnOnce(&mut Command) {
    let ssh = server.ssh_command();
    move |command| {
        command.env("FLOODMARK_SSH", ssh);
    }
}

/// Returns the agents that a server's sessions run.
fn agents_of(server: &SshServer) -> Vec<u32> {
    let variable = format!("{DIRECTORY}={}", server.directory());
    let mut agents = processes(&variable, "floodmark\0worker\0--agent");
    // Each agent has a guard.
    let guards = processes(&variable, "--guard");
    agents.retain(|pid| !guards.contains(pid));
    agents
}

/// Checks that the agents sent 2,000 requests.
fn sent_all(load: &Load, agents: &[&str]) {
    load.ends_with(0);
    assert_eq!(load.counts().ok, 2000);
    assert_eq!(
        load.run().checks[0].held,
        Some(true),
        "{:?}",
        load.run().checks
    );
    let names = Vec::from_iter(load.run().agents.iter().map(|agent| agent.name.as_str()));
    assert_eq!(names, agents);
    let sent = load.run().agents.iter().map(|agent| agent.requests.sent);
    assert_eq!(sent.sum::<u64>(), 2000);
}

const SEQUENCE: [&str; 6] = ["-n", "2000", "-c", "4", "--check", "sequence"];

#[test]
#[cfg_attr(not(installed = "sshd"), ignore = "sshd is not installed")]
fn ssh_starts_agents_and_observers() {
    let sshd = SshServer::start();
    let server = Serve::start(&["dispatcher"]);
    let url = format!("{}/dispatcher", server.url);
    let arguments = [&SEQUENCE[..], &["--observe", "ssh:agent-3"]].concat();
    let load = start_as(
        &url,
        "ssh:agent-1,agent-2,agent-1",
        &arguments,
        use_ssh(&sshd),
    )
    .end();
    sent_all(&load, &["agent-1", "agent-2", "agent-1-2"]);
    assert_eq!(agents_of(&sshd), Vec::<u32>::new());
    let run: &Run = load.run();
    assert!(run.remote.is_some(), "{:?}", run.missing);

    let mut doctor = floodmark(&["doctor", "--agents", "ssh:agent-1,agent-2"]);
    use_ssh(&sshd)(&mut doctor);
    let output = finish(doctor.spawn().unwrap());
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("agent agent-2 on "), "{printed}");
}

#[test]
#[cfg_attr(not(installed = "sshd"), ignore = "sshd is not installed")]
fn agents_end_with_their_connection() {
    let sshd = SshServer::start();
    let (_server, url) = truth(Scenario::default());
    let arguments = ["-r", "200", "-d", "20s"];
    for kills_agent in [true, false] {
        let started = start_as(&url, "ssh:agent-1,agent-2", &arguments, use_ssh(&sshd));
        started.load.wait_for_a_second();
        let victims = if kills_agent {
            agents_of(&sshd)
        } else {
            started.processes("ssh\0-F")
        };
        signal(victims[0], libc::SIGKILL);
        let load = started.end();
        load.ends_with(5);
        assert!(load.stderr().contains("ended early"), "{}", load.stderr());
        assert!(load.counts().ok > 100);
        wait_for("the agents' end", || {
            agents_of(&sshd).is_empty().then_some(())
        });
    }
}

#[test]
#[cfg_attr(not(installed = "sshd"), ignore = "sshd is not installed")]
fn a_stopped_agent_does_not_outlive_its_connection() {
    let sshd = SshServer::start();
    let (_server, url) = truth(Scenario::default());
    let arguments = ["-r", "200", "-d", "30s"];
    let started = start_as(&url, "ssh:agent-1,agent-2", &arguments, use_ssh(&sshd));
    started.load.wait_for_a_second();
    signal(agents_of(&sshd)[0], libc::SIGSTOP);
    let load = started.end();
    load.ends_with(5);
    assert!(
        load.stderr().contains("sent nothing for 5 s"),
        "{}",
        load.stderr()
    );
    wait_for("the agents' end", || {
        agents_of(&sshd).is_empty().then_some(())
    });
}

#[test]
#[cfg_attr(not(installed = "sshd"), ignore = "sshd is not installed")]
fn the_program_is_copied_once_and_checked() {
    let sshd = SshServer::start();
    let server = Serve::start(&["dispatcher"]);
    let url = format!("{}/dispatcher", server.url);
    let arguments = [&SEQUENCE[..], &["--copy"]].concat();
    let copy = || {
        let agents = sshd.cache("agent-1").join("floodmark/agents");
        let directory = fs::read_dir(agents).unwrap().next().unwrap().unwrap();
        let files = Vec::from_iter(fs::read_dir(directory.path()).unwrap().map(Result::unwrap));
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].path()
    };
    let mut inode = None;
    for damaged in [false, false, true] {
        if damaged {
            fs::write(copy(), "no program").unwrap();
        }
        let load = start_as(&url, "ssh:agent-1,agent-1", &arguments, use_ssh(&sshd)).end();
        sent_all(&load, &["agent-1", "agent-1-2"]);
        assert_eq!(agents_of(&sshd), Vec::<u32>::new());
        assert_eq!(fs::read(copy()).unwrap(), fs::read(program()).unwrap());
        let now = fs::metadata(copy()).unwrap().ino();
        let earlier = inode.replace(now).unwrap_or(now);
        assert_eq!(earlier == now, !damaged);
    }
}

#[test]
#[cfg_attr(not(installed = "sshd"), ignore = "sshd is not installed")]
fn a_host_without_space_or_program_is_named() {
    let sshd = SshServer::start();
    let (_server, url) = truth(Scenario::default());
    let full = sshd.cache("agent-4");
    fs::create_dir_all(&full).unwrap();
    let mount = |arguments: &[&str]| {
        let mut mount = Command::new("mount");
        mount
            .args(arguments)
            .arg(&full)
            .output()
            .unwrap()
            .status
            .success()
    };
    if !mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"]) {
        println!("skipped: only root can mount a small file system");
        return;
    }
    let arguments = ["-n", "100", "-c", "4", "--copy"];
    let hosts = "ssh:agent-1,agent-2,agent-3,agent-4";
    let load = start_as(&url, hosts, &arguments, use_ssh(&sshd)).end();
    Command::new("umount").arg(&full).status().unwrap();
    load.ends_with(5);
    let printed = load.stderr();
    assert!(
        printed.contains("agent agent-4: cannot copy floodmark to the host"),
        "{printed}"
    );
    assert!(printed.contains("No space left on device"), "{printed}");

    let arguments = ["-n", "100", "-c", "4"];
    let load = start_as(&url, "ssh:agent-1,no-such-host", &arguments, use_ssh(&sshd)).end();
    load.ends_with(5);
    let printed = load.stderr();
    assert!(printed.contains("agent no-such-host"), "{printed}");
}

#[test]
#[cfg_attr(
    not(all(installed = "slurmctld", installed = "slurmd")),
    ignore = "slurmctld or slurmd is not installed"
)]
fn slurm_starts_agents() {
    let Some(cluster) = SlurmCluster::start() else {
        return;
    };
    let server = Serve::start(&["dispatcher"]);
    let url = format!("{}/dispatcher", server.url);
    let load = start_as(&url, "slurm:2", &SEQUENCE, |command| {
        command.envs(cluster.environment());
    });
    let load = load.end();
    sent_all(&load, &["slurm-1", "slurm-2"]);

    let (_server, url) = truth(Scenario::default());
    let started = start_as(&url, "slurm:2", &["-r", "200", "-d", "20s"], |command| {
        command.envs(cluster.environment());
    });
    started.load.wait_for_a_second();
    // The command line of srun contains the agent's, so exclude the srun processes.
    let launchers = started.processes("srun\0");
    let mut agents = started.processes("worker\0--agent");
    agents.retain(|pid| !launchers.contains(pid));
    signal(agents[0], libc::SIGKILL);
    let load = started.end();
    load.ends_with(5);
    assert!(load.counts().ok > 100);
}
