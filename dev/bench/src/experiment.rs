//! Writes experiments and their external clients to a directory, and runs the experiments.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark_record::{Record, Run};

use crate::bench::{Bench, Failure, read, write};

/// Directory with the systems that are used only to measure floodmark, relative to the repository's
/// root.
const SYSTEMS: &str = "dev/bench/systems";

/// Directories of external clients, relative to the repository's root. The first directory takes
/// precedence.
const CLIENTS: [&str; 2] = ["dev/bench/clients", "clients"];

/// An experiment to be written and run.
pub struct Setup {
    /// Question that the experiment answers.
    pub question: &'static str,
    /// Sections other than trials.
    pub sections: String,
    /// Trials in order.
    pub trials: Vec<TrialSetup>,
}

/// A trial of an experiment.
pub struct TrialSetup {
    /// Name of the trial, and of the external client if there is one.
    pub name: String,
    /// Manifest lines of the trial, without the name and the client.
    pub lines: String,
    /// External client; `None` if floodmark sends the load.
    pub client: Option<ClientSetup>,
}

/// An external client.
pub struct ClientSetup {
    /// `client.toml` without the client's name.
    pub manifest: String,
    /// Directory with the client's scripts.
    pub scripts: Option<PathBuf>,
}

impl Setup {
    /// Writes the experiment and its clients to a new `directory`, runs it and returns the record.
    /// The result is in `directory/result`.
    ///
    /// # Errors
    /// A file cannot be written, the experiment takes longer than `limit`, or there is no record.
    pub fn run(
        &self,
        bench: &Bench,
        directory: &Path,
        flags: &[&str],
        limit: Duration,
    ) -> Result<Record, Failure> {
        fs::create_dir_all(directory)?;
        symlink(bench.root.join(SYSTEMS), directory.join("systems"))?;
        let mut text = format!("question = {:?}\n{}\n", self.question, self.sections);
        for trial in &self.trials {
            let name = &trial.name;
            writeln!(text, "[[trial]]\nname = {name:?}\n{}", trial.lines)?;
            if let Some(client) = &trial.client {
                writeln!(text, "client = {name:?}")?;
                let clients = directory.join("clients").join(name);
                fs::create_dir_all(&clients)?;
                for script in client.scripts.iter().flat_map(fs::read_dir).flatten() {
                    let script = script?;
                    fs::copy(script.path(), clients.join(script.file_name()))?;
                }
                let manifest = format!("name = {name:?}\n{}", client.manifest);
                write(&clients.join("client.toml"), &manifest)?;
            }
        }
        let file = directory.join("experiment.toml");
        write(&file, &text)?;
        bench.experiment(&file, flags, &directory.join("result"), limit)
    }
}

/// A load for a server with one thread: nginx, or the native server for HTTP/2 without TLS. nginx
/// 1.22 cannot serve both HTTP versions on one port without TLS. The native server can, so loads
/// over both versions have the same server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NginxLoad {
    /// Name on the pages.
    pub name: &'static str,
    /// Load threads.
    pub threads: u32,
    /// Whether each request uses a fresh connection.
    pub fresh: bool,
    /// Whether connections use TLS.
    pub tls: bool,
    /// Requests per second; `None` for the closed model.
    pub rate: Option<u64>,
    /// Streams per connection; `None` for HTTP/1.1.
    pub streams: Option<u32>,
}

/// Kept connections.
pub const KEPT: NginxLoad = NginxLoad {
    name: "kept",
    threads: 1,
    fresh: false,
    tls: false,
    rate: None,
    streams: None,
};
/// One connection per request.
pub const FRESH: NginxLoad = NginxLoad {
    name: "fresh",
    fresh: true,
    ..KEPT
};
/// HTTPS on kept connections.
pub const HTTPS: NginxLoad = NginxLoad {
    name: "HTTPS kept",
    tls: true,
    ..KEPT
};

impl NginxLoad {
    /// Returns the keys of the section `[load]`.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = vec![format!("threads = {}", self.threads)];
        keys.extend(self.fresh.then(|| "fresh = true".to_owned()));
        keys.extend(self.rate.map(|rate| format!("rate = {rate}")));
        keys
    }

    /// Returns the manifest lines for the server.
    pub fn server(&self) -> String {
        let system = match (self.tls, self.streams) {
            (true, _) => "nginx-tls",
            (false, None) => "nginx",
            (false, Some(_)) => "native",
        };
        format!("system = {system:?}\nworkload = \"hello\"\nsetting = {{ threads = 1 }}")
    }

    /// Returns the named external client for this load, or `None` if the client cannot send the
    /// load. `replacements` contains placeholders in the manifest, each with its value.
    ///
    /// # Errors
    /// There is no client with this name, or its manifest cannot be read.
    pub fn client(
        &self,
        bench: &Bench,
        name: &str,
        replacements: &[(&str, &str)],
    ) -> Result<Option<ClientSetup>, Failure> {
        let directories = CLIENTS.map(|directory| bench.root.join(directory).join(name));
        let directory = directories.into_iter().find(|directory| directory.is_dir());
        let directory = directory
            .ok_or_else(|| format!("client {name}: not found in {}", CLIENTS.join(" or ")))?;
        let manifest = read(&directory.join("client.toml"))?;
        if self.streams.is_some() && !manifest.contains("{http}") {
            return Ok(None);
        }
        let manifest = manifest.replace(&format!("name = {name:?}\n"), "");
        let mut manifest = manifest.replace("{http}", &self.http_flags(name));
        if self.tls {
            manifest = manifest.replace("{url}", "https://{host}:{port}{path}");
        }
        for (from, to) in replacements {
            manifest = manifest.replace(from, to);
        }
        let section = match (self.rate, self.fresh) {
            (Some(_), _) => "\n[rate]\n",
            (None, true) => "\n[fresh]\n",
            (None, false) => "\n[kept]\n",
        };
        Ok(manifest.contains(section).then_some(ClientSetup {
            manifest,
            scripts: Some(directory),
        }))
    }

    /// Returns a client's flags for this load's HTTP version.
    fn http_flags(&self, client: &str) -> String {
        match (client, self.streams) {
            ("h2load", None) => "--h1".to_owned(),
            ("h2load", Some(streams)) => format!("-m{streams}"),
            ("oha", Some(streams)) => format!("--http2 -p{streams}"),
            ("floodmark", Some(streams)) => format!("--http 2 --streams {streams}"),
            _ => String::new(),
        }
    }

    /// Returns floodmark as an external client for this load, started by a wrapper command.
    pub fn floodmark(
        &self,
        bench: &Bench,
        backend: &str,
        wrapper: &str,
    ) -> Result<Option<ClientSetup>, Failure> {
        let rate = self.rate.unwrap_or_default().to_string();
        let replacements = [
            ("{backend}", backend),
            ("{wrapper}", wrapper),
            ("{rate}", &rate),
            ("{flags}", if self.tls { "--insecure" } else { "" }),
        ];
        self.client(bench, "floodmark", &replacements)
    }
}

/// Returns `run` as recorded by the floodmark process that was its external client. That process
/// printed the record to its log, which is in `result`.
pub fn own_run(result: &Path, run: &Run) -> Option<Run> {
    let text = read(&result.join(&run.client.tool.as_ref()?.log)).ok()?;
    let record = text.get(text.find('{')?..=text.rfind('}')?)?;
    let record: Record = serde_json::from_str(record).ok()?;
    record.runs.into_iter().next()
}
