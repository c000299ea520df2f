//! `floodmark man`: writes the manual pages.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::exit::{Ending, HELP};

/// Write a manual page per command to a folder, such as ~/.local/share/man/man1.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ManArgs {
    /// Folder for the pages; created if missing
    folder: PathBuf,
}

/// Runs the command. `floodmark` is the definition of all flags.
pub fn run(args: &ManArgs, floodmark: clap::Command) -> Result<(), Ending> {
    let folder = &args.folder;
    let written =
        fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(floodmark, folder));
    written.map_err(|error| {
        Ending::usage(format!(
            "{}: {error}; name a writable folder",
            folder.display()
        ))
    })
}
