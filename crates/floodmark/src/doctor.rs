//! `floodmark doctor`: checks this host.

use std::time::Duration;

use clap::Args;
use floodmark_diagnose::doctor::checkup;
use floodmark_host::ProcessPlacement;
use floodmark_observe::{Root, system_check::facts};
use floodmark_record::host::Level;

use crate::exit::{Ending, HELP, stop_on_signals};
use crate::out;
use floodmark_workers::{AgentCheck, AgentsPlace, AgentsSetting, checked_agents};

/// Time spent sampling the host for other load.
pub const SAMPLE: Duration = Duration::from_secs(1);

/// Check this host for problems that distort measurements, and print commands to fix them.
///
/// Samples the host for one second and changes nothing. With --agents, checks the host of each
/// agent instead, and compares its version and its clock with this host's.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct DoctorArgs {
    /// Print facts and findings as JSON
    #[arg(long)]
    pub json: bool,

    /// Check these agents, as in load --agents [default: this host]
    #[arg(long, value_name = "WHERE", conflicts_with = "json")]
    pub agents: Option<AgentsPlace>,
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> Result<(), Ending> {
    if let Some(place) = &args.agents {
        return check_agents(place);
    }
    let checkup = checkup(facts(&Root::host(), SAMPLE));
    if args.json {
        out::print(&out::json(&checkup)?)
    } else {
        out::show(false, |style| {
            floodmark_report::terminal::doctor(&checkup.findings, style)
        })
    }
}

/// Checks each agent and its host.
fn check_agents(place: &AgentsPlace) -> Result<(), Ending> {
    let setting = AgentsSetting {
        min_agents: place.count,
        place: place.clone(),
        copy: false,
        anyway: false,
        side: &ProcessPlacement::default(),
    };
    let stop = stop_on_signals()?;
    let mut prepared = setting.prepare(&stop).map_err(Ending::internal)?;
    let launches = std::mem::take(&mut prepared.launches);
    let checks = checked_agents(launches, env!("CARGO_PKG_VERSION"), &stop);
    drop(prepared);
    out::show(false, |style| {
        let text = checks.iter().map(|check| match &check.outcome {
            Err(_) => String::new(),
            Ok(agent) => {
                let head = check.to_string();
                let head = floodmark_report::plain::line(&head);
                let findings = agent.checkup.findings.iter();
                let findings = Vec::from_iter(
                    findings
                        .filter(|finding| finding.level <= Level::Note)
                        .cloned(),
                );
                let findings = floodmark_report::terminal::doctor(&findings, style);
                format!("{head}\n{findings}\n")
            }
        });
        text.collect()
    })?;
    let failed = checks.iter().filter(|check| check.outcome.is_err());
    let failed: Vec<String> = failed.map(AgentCheck::to_string).collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Ending::internal(failed.join("; ")))
    }
}
