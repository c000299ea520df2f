//! `cargo xtask browser`: checks report pages in Debian's Chromium.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command;
use crate::error::TaskError;
use crate::tools::{self, CHROMIUM, NODE, NPM};
use crate::workspace::Workspace;

/// Address of the server.
const ADDRESS: &str = "127.0.0.1:18473";

/// Name of each checked page and the command that creates it. `URL` stands for the server's URL.
const PAGES: [(&str, &str); 8] = [
    ("closed", "load URL --quiet -d 4s --json closed.json"),
    ("open", "load URL --quiet -r 3k -d 4s --json open.json"),
    ("first", "load URL --quiet -d 1s --json first.json"),
    ("second", "load URL --quiet -d 1s --json second.json"),
    ("third", "load URL --quiet -d 1s --json third.json"),
    (
        "capacity",
        "capacity URL --quiet --slo p99<5ms --budget 15s",
    ),
    ("comparison", "compare closed.json open.json"),
    ("trend", "trend first.json second.json third.json"),
];

/// Generates report pages from real results and checks them in Chromium.
pub fn run(workspace: &Workspace) -> Result<(), TaskError> {
    tools::provide(&[CHROMIUM, NODE, NPM])?;
    let floodmark = workspace.build_release("floodmark")?;
    let directory = workspace.target.join("browser");
    fs::create_dir_all(&directory).map_err(TaskError::file(&directory))?;
    for file in ["package.json", "package-lock.json", "check.mjs"] {
        let source = workspace.root.join("dev/xtask/browser").join(file);
        fs::copy(&source, directory.join(file)).map_err(TaskError::file(&source))?;
    }
    command::run(command::words("npm ci --silent").current_dir(&directory))?;
    let mut serve = Command::new(&floodmark);
    serve.args(["serve", "hello", "--listen", ADDRESS]);
    let server = serve.stdout(Stdio::piped()).spawn();
    let mut server = server.map_err(TaskError::start(&serve))?;
    // The server prints its address when it is ready.
    let output = server.stdout.take().map(BufReader::new);
    output.and_then(|output| output.lines().next());
    let pages = PAGES
        .into_iter()
        .map(|(name, line)| page(&floodmark, &directory, name, line));
    let pages = pages.collect::<Result<Vec<PathBuf>, TaskError>>();
    // The server has no state that it must save.
    let _ = server.kill().and_then(|()| server.wait());
    let pages = pages?;
    let mut check = Command::new("node");
    check.arg("check.mjs").args(pages).current_dir(&directory);
    command::run(&mut check).map(drop)
}

/// Runs a command and returns its page.
fn page(floodmark: &Path, directory: &Path, name: &str, line: &str) -> Result<PathBuf, TaskError> {
    let page = directory.join(format!("{name}.html"));
    if page.exists() {
        fs::remove_file(&page).map_err(TaskError::file(&page))?;
    }
    let line = line.replace("URL", &format!("http://{ADDRESS}/"));
    let mut command = Command::new(floodmark);
    command.args(line.split(' ')).arg("--html").arg(&page);
    command.current_dir(directory);
    // A busy host makes a load invalid, which does not change the page's structure.
    let _ = command::run(&mut command);
    if page.exists() {
        Ok(page)
    } else {
        Err(TaskError::found(format!(
            "no page: {}",
            command::line(&command)
        )))
    }
}
