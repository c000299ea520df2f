//! `cargo xtask peers`: floodmark beside other load generators on the same server, and all against the truth.

mod ab;
mod bars;
mod closed;
mod fixed_rate;
mod floodmark;
mod h2load;
mod hey;
mod httperf;
mod install;
mod oha;
mod page;
mod peer;
mod stalls;
mod wrk;

use std::process::Command;
use std::time::Duration;

use clap::Args;

use crate::error::Error;
use crate::measuring::child::{self, Interrupt};
use crate::measuring::machine::{Machine, Reading};
use crate::measuring::nginx::{self, Nginx};
use crate::measuring::programs;
use crate::page::{Mode, settle};
use crate::workspace::Workspace;
use peer::{Load, Peer};

/// The page, from the root.
const FILE: &str = "docs/peers.md";
/// Most rounds at the fixed rate: they take longer and differ less. A bar takes five.
const RATE_ROUNDS: usize = 5;
/// How long a program that does nothing may take.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// What to compare, and for how long.
#[derive(Debug, Args)]
pub struct Options {
    /// Rounds; each peer runs once in each.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of each closed run, in seconds.
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Run this peer alone, such as wrk or floodmark (may be repeated). The page is not written then.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// One round of 2 s to try it out. The page is not written then.
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// Build oha where it is not built yet, which takes minutes.
    #[arg(long)]
    with_oha: bool,
}

/// Compares and, after a whole comparison, writes the page.
pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Error> {
    let found = |e: std::io::Error| Error::Found(vec![e.to_string()]);
    let selected = select(&options.only)?;
    let (peers, skipped) = install::provide(workspace, &selected, options.with_oha)?;
    for skipped in &skipped {
        println!("left out: {skipped}");
    }
    let machine = Machine::read(workspace)?;
    let (rounds, seconds) = match options.quick {
        true => (1, 2),
        false => (options.rounds as usize, u64::from(options.seconds)),
    };
    let interrupt = Interrupt::catch().map_err(found)?;
    let before = Reading::now();
    let idle = tempfile::tempdir().map_err(found)?;
    let idle = child::run(
        &mut Command::new("true"),
        idle.path(),
        IDLE_LIMIT,
        &interrupt,
    );
    let folder = tempfile::tempdir().map_err(found)?;
    let server = Nginx::start(folder.path())?;
    let able = |load| {
        let able = peers
            .iter()
            .filter(|ready| ready.peer.words(load).is_some());
        able.collect::<Vec<_>>()
    };
    let mut closed = Vec::new();
    for load in [Load::Kept, Load::Fresh, Load::Https] {
        let able = able(load);
        let taken = closed::rounds(&able, &server, load, (rounds, seconds), &interrupt)?;
        let rows = able.into_iter().zip(taken).collect();
        closed.push(page::Closed { load, rows });
    }
    drop(server);
    let able = able(Load::Rate);
    let truth = fixed_rate::rounds(&able, rounds.min(RATE_ROUNDS), &interrupt)?;
    let page = page::Page {
        command: shown(options),
        machine: &machine,
        elsewhere: Reading::now().since(before, machine.cpus),
        nginx: programs::debian_version(nginx::PROGRAM.0),
        peers: &peers,
        skipped: &skipped,
        seconds,
        idle_bytes: idle.map_err(found)?.peak_bytes,
        closed,
        rate: able.into_iter().zip(truth).collect(),
    };
    let page = page.markdown();
    println!("\n{page}");
    if options.quick || !options.only.is_empty() {
        println!("{FILE} is left as it is: it takes a whole comparison");
        return Ok(());
    }
    settle(workspace, FILE, &page, Mode::Write, "cargo xtask peers")
}

/// All peers, or those that are named; `floodmark` names all of its rows.
fn select(only: &[String]) -> Result<Vec<Peer>, Error> {
    let all = floodmark::PEERS.into_iter().chain([
        wrk::PEER,
        ab::PEER,
        hey::PEER,
        h2load::PEER,
        httperf::PEER,
        oha::PEER,
    ]);
    let all: Vec<Peer> = all.collect();
    let names = |name: &str, peer: &Peer| peer.name == name || peer.program == name;
    if let Some(name) = only.iter().find(|name| !all.iter().any(|p| names(name, p))) {
        let known: Vec<&str> = all.iter().map(|peer| peer.name).collect();
        return Err(Error::Found(vec![format!(
            "no peer is called `{name}`; there are {}",
            known.join(", ")
        )]));
    }
    let chosen = |peer: &Peer| only.is_empty() || only.iter().any(|name| names(name, peer));
    Ok(all.into_iter().filter(chosen).collect())
}

/// The command as it would be typed again.
fn shown(options: &Options) -> String {
    match options.quick {
        true => "cargo xtask peers --quick".to_owned(),
        false => format!(
            "cargo xtask peers --rounds {} --seconds {}",
            options.rounds, options.seconds
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_rows_and_a_wrong_name_is_refused() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
            select(&names).map(|peers| peers.iter().map(|p| p.name).collect::<Vec<_>>())
        };
        assert_eq!(
            of(&["floodmark"]).unwrap(),
            ["floodmark/epoll", "floodmark/uring"]
        );
        assert_eq!(
            of(&["wrk", "floodmark/epoll"]).unwrap(),
            ["floodmark/epoll", "wrk"]
        );
        assert_eq!(of(&[]).unwrap().len(), 8);
        assert!(of(&["wrk2"]).unwrap_err().to_string().contains("`wrk2`"));
    }
}
