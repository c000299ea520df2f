//! `floodmark completions`: prints completion scripts for shells.

use clap::Args;
use clap_complete::Shell;

use crate::exit::{Ending, HELP};
use crate::out;

/// Print a script that completes commands and flags in a shell.
///
/// For bash: floodmark completions bash > ~/.local/share/bash-completion/completions/floodmark
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct CompletionsArgs {
    /// Shell that reads the script
    shell: Shell,
}

/// Runs the command. `floodmark` is the definition of all flags.
pub fn run(args: &CompletionsArgs, floodmark: &mut clap::Command) -> Result<(), Ending> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, floodmark, "floodmark", &mut script);
    out::print(&String::from_utf8_lossy(&script))
}
