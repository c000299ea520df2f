//! `floodmark init`: writes starter manifests with comments.

use std::path::Path;

use clap::{Args, Subcommand};
use floodmark_lab::manifest::{Template, write_template};

use crate::exit::{Ending, HELP};
use crate::out;

/// Write a commented starter manifest to the current directory.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct InitArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write systems/NAME/system.toml: how to build, start and probe a server
    System {
        /// Name of the system and of its directory
        #[arg(default_value = "my-server")]
        name: String,
    },
    /// Write experiments/NAME.toml: which servers to load, how and how often
    Experiment {
        /// Name of the experiment and of its file
        #[arg(default_value = "my-experiment")]
        name: String,
    },
    /// Write experiments/NAME.toml with a gate, which fails if a candidate is slower than a
    /// baseline
    Gate {
        /// Name of the experiment and of its file
        #[arg(default_value = "gate")]
        name: String,
    },
}

/// Runs the command.
pub fn run(args: &InitArgs) -> Result<(), Ending> {
    let (template, name) = match &args.what {
        What::System { name } => (Template::System, name),
        What::Experiment { name } => (Template::Experiment, name),
        What::Gate { name } => (Template::Gate, name),
    };
    let path = write_template(template, Path::new(""), name).map_err(Ending::usage)?;
    let next = match template {
        Template::System => format!("refer to it in an experiment as system = \"{name}\""),
        Template::Experiment | Template::Gate => format!("run it with: floodmark run {name}"),
    };
    out::print(&format!("wrote {}; {next}\n", path.display()))
}
