//! `floodmark init`: a commented starting point.

use std::path::Path;

use clap::{Args, Subcommand};
use floodmark_lab::manifest::{Template, write_template};

use crate::exit::{Ending, HELP};
use crate::out;

/// Write a commented starting point for a system or an experiment into this folder.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct InitArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// systems/NAME/system.toml: how a server is built, started and probed
    System {
        /// Name of the system and of its folder
        #[arg(default_value = "my-server")]
        name: String,
    },
    /// experiments/NAME.toml: what is loaded, how and how often
    Experiment {
        /// Name of the experiment and of its file
        #[arg(default_value = "my-experiment")]
        name: String,
    },
}

/// Runs the command.
pub fn run(args: &InitArgs) -> Result<(), Ending> {
    let (template, name) = match &args.what {
        What::System { name } => (Template::System, name),
        What::Experiment { name } => (Template::Experiment, name),
    };
    let path = write_template(template, Path::new(""), name).map_err(Ending::usage)?;
    let next = match template {
        Template::System => format!("an experiment finds it as system = \"{name}\""),
        Template::Experiment => format!("run it with floodmark run {name}"),
    };
    out::print(&format!("wrote {}; {next}\n", path.display()));
    Ok(())
}
