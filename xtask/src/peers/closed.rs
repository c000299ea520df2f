//! The closed runs: every peer in every round on the same nginx, the order rotated from round to round.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use super::install::Ready;
use super::peer::{Claim, Load, Output, Setting};
use crate::error::Error;
use crate::measuring::child::{self, Interrupt, Used};
use crate::measuring::nginx::Nginx;

/// Pause before each run, so that closed connections and late work of the last one are gone.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a run may take beyond its length.
const GRACE: Duration = Duration::from_secs(30);
/// Requests of the probe that finds how many requests fill a run.
const PROBE: u64 = 20_000;

/// One run of one peer.
#[derive(Debug, Clone)]
pub struct Sample {
    /// What the peer says.
    pub claim: Claim,
    /// Requests that the server counted.
    pub served: u64,
    /// CPU of all its processes for each request that the server counted, µs.
    pub cpu_us: f64,
    /// Peak memory of its largest process, bytes.
    pub peak_bytes: u64,
}

/// The samples of a peer, one for each round; none where a run failed.
pub type Rounds = Vec<Option<Sample>>;

/// Runs all rounds with peers that know the load; a run that fails is named and leaves a gap. One entry for each peer, in
/// their order.
pub fn rounds(
    peers: &[&Ready],
    server: &Nginx,
    load: Load,
    (rounds, seconds): (usize, u64),
    interrupt: &Interrupt,
) -> Result<Vec<Rounds>, Error> {
    let mut requests = vec![0; peers.len()];
    for (ready, requests) in peers.iter().zip(&mut requests) {
        if ready.peer.counts(load)
            && let Ok(probe) = sample(ready, server, load, seconds, PROBE, interrupt)?
        {
            *requests = (probe.claim.per_s * seconds as f64) as u64;
        }
    }
    let mut samples = vec![Rounds::new(); peers.len()];
    for round in 0..rounds {
        for turn in 0..peers.len() {
            let index = (turn + round) % peers.len();
            let ready = peers[index];
            let taken = sample(ready, server, load, seconds, requests[index], interrupt)?;
            let name = ready.peer.name;
            match &taken {
                Ok(taken) => println!(
                    "round {} {load:?} {name}: {:.0}/s, {:.2} µs CPU per request",
                    round + 1,
                    taken.claim.per_s,
                    taken.cpu_us
                ),
                Err(why) => println!("round {} {load:?} {name} failed: {why}", round + 1),
            }
            samples[index].push(taken.ok());
        }
    }
    Ok(samples)
}

/// Runs a peer once. The outer error ends the chore, the inner one only this run.
fn sample(
    ready: &Ready,
    server: &Nginx,
    load: Load,
    seconds: u64,
    requests: u64,
    interrupt: &Interrupt,
) -> Result<Result<Sample, String>, Error> {
    let before = count(server)?;
    let address = match load {
        Load::Https => server.secure(),
        Load::Kept | Load::Fresh | Load::Rate => server.plain(),
    };
    let (used, output) = match once(ready, load, address, seconds, requests, interrupt)? {
        Ok(run) => run,
        Err(why) => return Ok(Err(why)),
    };
    // The later question is counted too.
    let served = count(server)?.saturating_sub(before + 1);
    Ok((ready.peer.claim)(&output).and_then(|claim| {
        if served == 0 {
            return Err("the server saw no request of it".to_owned());
        }
        Ok(Sample {
            claim,
            served,
            cpu_us: used.cpu_s() * 1e6 / served as f64,
            peak_bytes: used.peak_bytes,
        })
    }))
}

/// Runs a peer once under a load, after a pause, in a folder that is gone afterwards.
pub fn once(
    ready: &Ready,
    load: Load,
    server: SocketAddr,
    seconds: u64,
    requests: u64,
    interrupt: &Interrupt,
) -> Result<Result<(Used, Output), String>, Error> {
    let found = |e: std::io::Error| Error::Found(vec![e.to_string()]);
    interrupt.sleep(PAUSE).map_err(found)?;
    let folder = tempfile::tempdir().map_err(found)?;
    let setting = Setting {
        scheme: load.scheme(),
        server,
        seconds,
        requests,
        folder: folder.path(),
    };
    let mut command = Command::new(&ready.program);
    let words = ready.peer.words(load).unwrap_or_default();
    command.args(words.iter().map(|word| setting.fill(word)));
    let limit = Duration::from_secs(seconds) + GRACE;
    let used = match child::run(&mut command, folder.path(), limit, interrupt) {
        Ok(used) => used,
        Err(why) => {
            interrupt.check().map_err(found)?;
            return Ok(Err(why.to_string()));
        }
    };
    let output = Output {
        stdout: used.stdout.clone(),
        file: setting.written(),
    };
    if !used.status.success() && output.stdout.is_empty() {
        let said = used.stderr.trim().lines().last().unwrap_or("no word");
        return Ok(Err(format!("{}: {said}", used.status)));
    }
    Ok(Ok((used, output)))
}

fn count(server: &Nginx) -> Result<u64, Error> {
    server
        .requests()
        .map_err(|e| Error::Found(vec![format!("nginx went away: {e}")]))
}
