//! `floodmark completions` and `floodmark man`: files generated from the definitions of all
//! commands and flags.

use std::fs;
use std::path::PathBuf;

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

/// Prints a completion script. `floodmark` defines all commands and flags.
pub fn completions(args: &CompletionsArgs, floodmark: &mut clap::Command) -> Result<(), Ending> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, floodmark, "floodmark", &mut script);
    out::print(&String::from_utf8_lossy(&script))
}

/// Write a manual page per command to a directory, such as ~/.local/share/man/man1.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ManArgs {
    /// Directory for the pages; created if missing
    directory: PathBuf,
}

/// Writes the manual pages. `floodmark` defines all commands and flags.
pub fn man(args: &ManArgs, floodmark: clap::Command) -> Result<(), Ending> {
    let directory = &args.directory;
    let written =
        fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(floodmark, directory));
    written.map_err(|error| {
        Ending::usage(format!(
            "{}: {error}; name a writable directory",
            directory.display()
        ))
    })
}
