//! A load generator as this chore drives it: its command lines and how its output is read.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use floodmark_lab::manifest::Client;

/// Connections of every run.
pub const CONNECTIONS: u64 = 100;

/// Where a load generator comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The release build of this workspace.
    Ours,
    /// A Debian package.
    Debian(&'static str),
    /// A pinned version from crates.io.
    Crate(&'static str),
}

/// What a load generator is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Closed model, connections are kept.
    Kept,
    /// Closed model, a connection for each request.
    Fresh,
    /// Closed model, connections are kept, HTTPS.
    Https,
    /// A fixed rate on kept connections, where the peer can.
    Rate,
}

/// A load generator. Command lines are words with the placeholders of [`Setting::fill`].
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// As it is called in tables and by `--only`.
    pub name: &'static str,
    /// The program's file name.
    pub program: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// Words for [`Load::Kept`].
    pub kept: &'static [&'static str],
    /// Words for [`Load::Fresh`].
    pub fresh: &'static [&'static str],
    /// Words for [`Load::Https`]; none where it cannot.
    pub https: Option<&'static [&'static str]>,
    /// Words for [`Load::Rate`]; none where it cannot send at a fixed rate.
    pub rate: Option<&'static [&'static str]>,
    /// Reads what it says of a closed run.
    pub claim: fn(&Output) -> Result<Claim, String>,
    /// Reads the percentiles that it says, or that follow from the samples it wrote.
    pub percentiles: fn(&Output) -> Result<Percentiles, String>,
    /// What a reader must know of its row; empty where nothing.
    pub note: &'static str,
}

/// What a load generator wrote.
#[derive(Debug, Default)]
pub struct Output {
    /// On stdout.
    pub stdout: String,
    /// Into the file of the placeholder `{file}`.
    pub file: String,
}

#[cfg(test)]
impl Output {
    /// With a captured stdout.
    pub fn of(stdout: &str) -> Self {
        Output {
            stdout: stdout.to_owned(),
            file: String::new(),
        }
    }
}

/// What a load generator says of a closed run.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Good answers it counted.
    pub answers: u64,
    /// Its requests per second.
    pub per_s: f64,
    /// Its own figure of CPU per request, µs.
    pub own_cpu_us: Option<f64>,
    /// Failures it reports, in its own words.
    pub failures: Option<String>,
}

/// Percentiles of a run, µs; none where the peer has no such figure.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Percentiles {
    /// The median.
    pub p50: Option<f64>,
    /// The 99th.
    pub p99: Option<f64>,
    /// The 99.9th.
    pub p99_9: Option<f64>,
}

impl Percentiles {
    /// Of samples in µs, by nearest rank. All none of no samples.
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |q: f64| {
            let rank = (q * samples.len() as f64).ceil().max(1.0) as usize;
            samples.get(rank - 1).copied()
        };
        Percentiles {
            p50: at(0.5),
            p99: at(0.99),
            p99_9: at(0.999),
        }
    }
}

impl Load {
    /// The scheme of its URLs.
    pub fn scheme(self) -> &'static str {
        match self {
            Load::Https => "https",
            Load::Kept | Load::Fresh | Load::Rate => "http",
        }
    }
}

impl Peer {
    /// Its words for a load, before they are filled in.
    pub fn words(&self, load: Load) -> Option<&'static [&'static str]> {
        match load {
            Load::Kept => Some(self.kept),
            Load::Fresh => Some(self.fresh),
            Load::Https => self.https,
            Load::Rate => self.rate,
        }
    }

    /// Whether its run is bounded by a number of requests alone, which must be found by a probe.
    pub fn counts(&self, load: Load) -> bool {
        let words = self.words(load).unwrap_or_default();
        words
            .iter()
            .any(|word| word.contains("{requests}") || word.contains("{each}"))
    }

    /// Its command line as it is shown: placeholders in capitals, no path of this machine.
    pub fn shown(&self, load: Load) -> Option<String> {
        let mut command = Command::new(self.program);
        let words = self.words(load)?.iter();
        let url = format!("{}://HOST:PORT/", load.scheme());
        command.args(words.map(|word| capitals(&word.replace("{url}", &url))));
        Some(crate::command::line(&command))
    }
}

/// `http://{host}:{port}/` → `http://HOST:PORT/`.
fn capitals(word: &str) -> String {
    let mut inside = false;
    let mut shown = String::new();
    for c in word.chars() {
        match c {
            '{' => inside = true,
            '}' => inside = false,
            c if inside => shown.extend(c.to_uppercase()),
            c => shown.push(c),
        }
    }
    shown
}

/// What the placeholders of a command line stand for.
#[derive(Debug)]
pub struct Setting<'a> {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The server.
    pub server: SocketAddr,
    /// Length of the run, seconds.
    pub seconds: u64,
    /// Requests in all, where the length cannot be given.
    pub requests: u64,
    /// A folder of this run alone.
    pub folder: &'a Path,
}

impl Setting<'_> {
    /// The file of `{file}`.
    pub fn file(&self) -> PathBuf {
        self.folder.join("file")
    }

    /// Fills one word.
    pub fn fill(&self, word: &str) -> String {
        word.replace("{url}", &format!("{}://{}/", self.scheme, self.server))
            .replace("{host}", &self.server.ip().to_string())
            .replace("{port}", &self.server.port().to_string())
            .replace("{seconds}", &self.seconds.to_string())
            .replace("{requests}", &self.requests.max(1).to_string())
            .replace("{each}", &(self.requests / CONNECTIONS).max(1).to_string())
            .replace("{file}", &self.file().display().to_string())
            .replace("{folder}", &self.folder.join("out").display().to_string())
    }

    /// What was written into the file of `{file}`; nothing where there is none.
    pub fn written(&self) -> String {
        fs::read_to_string(self.file()).unwrap_or_default()
    }
}

/// What a closed run's output says, read as an experiment's client of that name is (`clients/NAME/client.toml`).
pub fn claim_of_client(name: &str, output: &Output) -> Result<Claim, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients");
    let client = Client::read(&folder.join(name)).map_err(|error| error.to_string())?;
    let said = client.figures.read(&output.stdout);
    let said = said.map_err(|what| format!("{name} {what}"))?;
    let (wrong, errors) = (said.wrong.unwrap_or(0), said.errors.unwrap_or(0));
    let failures = wrong > 0 || errors > 0;
    Ok(Claim {
        answers: said.answers.unwrap_or(0).saturating_sub(wrong),
        per_s: said
            .throughput_per_s
            .ok_or_else(|| format!("{name} says no rate"))?,
        own_cpu_us: None,
        failures: failures.then(|| format!("{wrong} not 2xx or 3xx, {errors} failed")),
    })
}

/// The number at the start of a text: `12.5ms` → 12.5. Signs, digits, point and exponent are taken.
pub fn number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || ".-+".contains(c)))
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The number after the first `label` in a text.
pub fn after(text: &str, label: &str) -> Result<f64, String> {
    let (_, rest) = text
        .split_once(label)
        .ok_or_else(|| format!("no `{label}` in its output"))?;
    number(rest).ok_or_else(|| format!("no number after `{label}` in its output"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_filled_and_shown() {
        let setting = Setting {
            scheme: "https",
            server: "127.0.0.1:8080".parse().unwrap(),
            seconds: 5,
            requests: 12_345,
            folder: Path::new("f"),
        };
        assert_eq!(setting.fill("{url}"), "https://127.0.0.1:8080/");
        assert_eq!(setting.fill("--num-calls={each}"), "--num-calls=123");
        assert_eq!(setting.fill("-d{seconds}s"), "-d5s");
        assert_eq!(setting.fill("{file}"), "f/file");
        assert_eq!(capitals("--log-file={file}"), "--log-file=FILE");
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let samples = (1..=1000).rev().map(f64::from).collect();
        let percentiles = Percentiles::of(samples);
        assert_eq!(percentiles.p50, Some(500.0));
        assert_eq!(percentiles.p99, Some(990.0));
        assert_eq!(percentiles.p99_9, Some(999.0));
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
    }

    #[test]
    fn numbers_end_where_the_unit_begins() {
        assert_eq!(number(" 12.5ms"), Some(12.5));
        assert_eq!(number("-3"), Some(-3.0));
        assert_eq!(number("ms"), None);
        assert_eq!(after("a: 1\nb: 2\n", "b:"), Ok(2.0));
        assert!(after("a: 1", "b:").unwrap_err().contains("`b:`"));
    }
}
