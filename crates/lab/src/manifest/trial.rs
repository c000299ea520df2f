//! Reads trials and sweeps. A trial defines a server and its load. A sweep consists of one trial
//! per combination of knob values.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use floodmark_plan::spec::BodySource;
use floodmark_plan::toml_file::{Located, LocatedMap, TomlFile};
use floodmark_plan::values::{Count, Delay, MAX_NAME, Name, PositiveDuration, ScalarText, is_name};
use floodmark_plan::{FileError, LoadSpec, Origin, PlanSpec, did_you_mean};
use floodmark_record::experiment::{Sweep, SweepPoint};
use floodmark_record::plan::Expect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::client::Client;
use super::files::{ManifestCache, directory_of};
use super::place::{TrialPlace, TrialPlacement};
use super::program::{CommandWords, Knob, ManifestPackage, Program, ReadyPath, Start, UrlScheme};
use super::system::{SERVER_PLACEHOLDERS, Store, StoreSection, StoreSource, System, TrialStore};
use super::workload::{Workload, WorkloadRequest};

/// Path to request if a trial has neither a workload nor `ready`.
const ROOT: &str = "/";

/// A `[[trial]]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct TrialSection {
    /// Name of the trial in tables. Default: the system's name.
    pub name: Option<Located<Name>>,
    /// Name of the system. Its directory is systems/NAME, next to the experiments directory.
    system: Option<Located<Name>>,
    /// Workload to request. Optional for a trial with `command`, and for a system without
    /// workloads. Without a workload, the trial requests the path of `ready`, or calls the method
    /// that the load sets with `grpc`.
    workload: Option<Located<Workload>>,
    /// Values of the server's knobs, such as { threads = 2 }.
    setting: Option<Located<LocatedMap<ScalarText>>>,
    /// Knobs to vary, such as { threads = [8, 32, 100] }. Each value, or each combination of the
    /// values of several knobs, becomes a trial. The first knob is the axis of the curve.
    pub sweep: Option<Located<SweepSection>>,
    /// Database of the system. { name = "postgresql" } starts a database for the trial. { url =
    /// "127.0.0.1:5432" } uses a running database. In the system's command, {store} stands for the
    /// address of the database.
    store: Option<Located<StoreSection>>,
    /// External client that sends the load instead of floodmark. Its directory is clients/NAME,
    /// next to the experiments directory.
    client: Option<Located<Name>>,
    /// Settings that override the experiment's load.
    load: Option<LoadSpec>,
    /// Settings that override the experiment's place.
    place: Option<TrialPlace>,
    /// One-way latency that floodmark's proxy adds between the client and the server. With 0s, the
    /// proxy adds no delay and serves as a baseline. Default: no proxy.
    delay: Option<Delay>,
    /// Command that starts your own server instead of a system. It runs in the experiment's
    /// directory without a shell. {host} and {port} stand for the address and port to listen on.
    /// {store} stands for the address of the trial's store.
    command: Option<Located<CommandWords>>,
    /// Request that returns a status from 200 to 399 once the server is ready. Requires `command`.
    /// Default: a GET of the workload's path, or GET / without a workload. With `grpc`, the default
    /// is a health check (grpc.health.v1), which a server without a health service also passes.
    ready: Option<Located<ReadyPath>>,
    /// Scheme of the server's URLs: "http" or "https". The certificates for https are set in `load`.
    /// Requires `command`. Default: "http".
    scheme: Option<Located<UrlScheme>>,
    /// Maximum time until the server is ready. Requires `command`. Default: 30s.
    ready_within: Option<Located<PositiveDuration>>,
    /// Port that the server listens on. Requires `command`. Default: a free port. The command gets
    /// this port from {port}.
    port: Option<Located<Count<1, 65535>>>,
    /// Settings of your own server that `setting`, `sweep` and floodmark tune can change, such as
    /// { threads = { low = 1, high = 200 } }. Requires `command`. {name} in the command stands for
    /// the value of the setting with this name.
    knobs: Option<Located<LocatedMap<Knob>>>,
}

/// One server, and its settings and load.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Name of the trial.
    pub name: String,
    /// Position of the trial in its file, as `file:line`.
    pub place: String,
    /// The server. The user's own server is a system without workloads.
    pub server: Arc<System>,
    /// Fixed port of the user's own server; `None` for a free port.
    pub port: Option<u16>,
    /// The workload; `None` if the load only requests [`Trial::path`].
    pub workload: Option<Workload>,
    /// Path of the requests.
    pub path: String,
    /// Path of the readiness check; `None` for a gRPC health check.
    pub ready: Option<String>,
    /// Values of the system's knobs.
    pub setting: BTreeMap<String, String>,
    /// The load.
    pub load: LoadSpec,
    /// Placement of the client, the server and the store.
    pub at: TrialPlacement,
    /// The external client; `None` if floodmark sends the load.
    pub client: Option<Arc<Client>>,
}

impl Trial {
    /// Returns the request that checks the server's response.
    #[must_use]
    pub fn request(&self) -> WorkloadRequest<'_> {
        match self.workload {
            Some(workload) => workload.request(),
            None => WorkloadRequest::get(&self.path),
        }
    }

    /// Returns the settings for the trial's plan. By default, a client with its own CPUs has one
    /// thread per CPU.
    #[must_use]
    pub fn spec(&self, client_cpus: Option<u32>) -> PlanSpec {
        let mut spec = PlanSpec {
            origin: Origin::File,
            load: self.load.clone(),
            agents: self.at.agents.as_ref().map(|place| place.count),
            ..PlanSpec::default()
        };
        spec.load.threads = spec.load.threads.or(client_cpus.map(u64::from));
        if self.client.is_some() {
            return spec;
        }
        if spec.load.grpc.is_some() {
            return spec;
        }
        let request = self.request();
        spec.method = Some(request.method.to_owned());
        if !request.body.is_empty() {
            spec.load.body = Some(BodySource::Text(request.body.to_owned()));
            spec.headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        }
        if self.workload.is_some() {
            spec.load.expect = vec![Expect::Status(200)];
        }
        spec
    }

    /// Returns the URL of the load on the server with this host and port. Its path is the external
    /// client's fixed path, or [`Trial::path`]. The URL of gRPC calls has the path `/`.
    #[must_use]
    pub fn url(&self, server: impl Display) -> String {
        let client = self.client.as_ref();
        let own = client.and_then(|client| client.manifest.path.as_deref());
        let path = match &self.load.grpc {
            Some(_) => ROOT,
            None => own.unwrap_or(&self.path),
        };
        format!("{}://{server}{path}", self.server.start.scheme)
    }
}

/// State that is kept while an experiment's trials are being read.
pub(super) struct TrialReader<'a> {
    pub file: &'a TomlFile,
    pub load: LoadSpec,
    pub placement: TrialPlacement,
    pub systems: ManifestCache<System>,
    pub stores: ManifestCache<Store>,
    pub clients: ManifestCache<Client>,
}

impl TrialReader<'_> {
    /// Reads a trial, and its system, store and client.
    pub(super) fn trial(&mut self, section: &Located<TrialSection>) -> Result<Trial, FileError> {
        self.refuse_conflicts(section)?;
        let file = self.file;
        let workload = section.workload.as_ref().map(|workload| **workload);
        let mut load = self.load.clone();
        if let Some(own) = &section.load {
            load.override_with(own);
        }
        load.relative_to(&directory_of(file.path()));
        let refuse = |what: String| Err(file.error(&section.span(), what));
        if load.grpc.is_some() && workload.is_some() {
            return refuse(
                "`workload` conflicts with `grpc` in the load; remove one of them".into(),
            );
        }
        let of_grpc = ["proto", "proto-path", "body", "expect"];
        if load.grpc.is_none()
            && let Some(key) = load.given().find(|key| of_grpc.contains(key))
        {
            return refuse(format!(
                "load: `{key}` needs `grpc`; add grpc = \"package.Service/Method\", or remove `{key}`"
            ));
        }
        let client = match &section.client {
            Some(name) => {
                let client = self.clients.get(file, name)?;
                client
                    .command(&load)
                    .and_then(|_| check_request(&client, workload))
                    .map_err(|what| file.error(&name.span(), what))?;
                Some(client)
            }
            None => None,
        };
        let client_name = client.as_ref().map(|client| &client.package.name);
        let name = section.name.as_ref().map(|name| &name.0).or(client_name);
        let server = match (&section.system, &section.command) {
            (Some(name), _) => {
                let system = self.systems.get(file, name)?;
                self.check_workload(&system, section, load.grpc.is_some())?;
                system
            }
            (None, Some(command)) => Arc::new(self.own_server(section, command, name)?),
            (None, None) => {
                let what = "the trial has no server; write system = \"native\", or command = \"…\" for your own server";
                return Err(file.error(&section.span(), what));
            }
        };
        let mut placement = self.placement.clone();
        if let Some(own) = &section.place {
            let (cpus, sysctls) = (own.cpus.as_ref(), own.sysctls.as_ref());
            placement.override_with(file, own.hosts, cpus, sysctls, own.agents.as_ref())?;
        }
        if client.is_some() && placement.agents.is_some() {
            let what =
                "an external client cannot be divided among agents; remove `client` or `agents`";
            return Err(file.error(&section.span(), what));
        }
        if client.is_some() && server.start.scheme == UrlScheme::Https {
            let what = "external clients send plain HTTP; remove `client`, or use a server with scheme = \"http\"";
            return Err(file.error(&section.span(), what));
        }
        placement.delay = section.delay.as_ref().map(|delay| delay.0);
        let store = section.store.as_ref();
        placement.store = store.map(|store| self.trial_store(store)).transpose()?;
        let ready = server.start.ready.as_ref().map(|ready| ready.0.as_str());
        let path = match (&load.grpc, workload) {
            (Some(method), _) => method.path(),
            (None, Some(workload)) => workload.path().to_owned(),
            (None, None) => ready.unwrap_or(ROOT).to_owned(),
        };
        let ready = match load.grpc {
            Some(_) => ready,
            None => Some(ready.unwrap_or(&path)),
        };
        Ok(Trial {
            name: name.unwrap_or(&server.name).clone(),
            place: file.place(&section.span()),
            setting: self.setting(section.setting.as_ref(), &server)?,
            workload,
            ready: ready.map(str::to_owned),
            path,
            load,
            at: placement,
            port: section.port.as_ref().map(|port| port.0 as u16),
            server,
            client,
        })
    }

    fn refuse_conflicts(&self, section: &TrialSection) -> Result<(), FileError> {
        let conflict = match &section.command {
            None => {
                let own_server_keys = [
                    ("ready", span(&section.ready)),
                    ("scheme", span(&section.scheme)),
                    ("ready-within", span(&section.ready_within)),
                    ("port", span(&section.port)),
                    ("knobs", span(&section.knobs)),
                ];
                own_server_keys.into_iter().find_map(|(key, span)| {
                    let what = format!("`{key}` requires your own server; add command = \"…\"");
                    Some((span?, what))
                })
            }
            Some(command) if section.system.is_some() => {
                let what = "`command` conflicts with `system`; remove one of them";
                Some((command.span(), what.to_owned()))
            }
            Some(_) if section.knobs.is_some() => None,
            Some(_) => {
                let without_knobs = [
                    (
                        "setting",
                        "write the value into the command",
                        span(&section.setting),
                    ),
                    ("sweep", "write one trial per value", span(&section.sweep)),
                ];
                without_knobs.into_iter().find_map(|(key, fix, span)| {
                    let what = format!("{key}: the server has no knobs; {fix}, or add knobs = …");
                    Some((span?, what))
                })
            }
        };
        conflict.map_or(Ok(()), |(span, what)| Err(self.file.error(&span, what)))
    }

    /// Returns the user's own server as a system. Without `name`, the server is named after its
    /// program.
    fn own_server(
        &self,
        section: &TrialSection,
        command: &Located<CommandWords>,
        name: Option<&String>,
    ) -> Result<System, FileError> {
        let invalid = |what| self.file.error(&command.span(), what);
        if section.port.is_none() && !command.uses("port") {
            let what = "command: unknown port; pass the port with {port}, or add port = …";
            return Err(invalid(what));
        }
        if section.store.is_none() && command.uses("store") {
            let what =
                "command: {store} needs store = …, such as store = { url = \"127.0.0.1:5432\" }";
            return Err(invalid(what));
        }
        let program = Path::new(&command[0]).file_name().unwrap_or_default();
        let program = program.to_string_lossy();
        let program = Some(&*program).filter(|program| is_name(program));
        let name = name.map(String::as_str).or(program);
        let name = name.ok_or_else(|| invalid("the trial has no name; write name = \"…\""))?;
        let directory = directory_of(self.file.path());
        let package = ManifestPackage {
            name: name.to_owned(),
            directory: directory.canonicalize().unwrap_or(directory),
            needs: Vec::new(),
            build: None,
        };
        let start = Start {
            command: command.clone(),
            files: Vec::new(),
            ready: section.ready.clone().map(Located::into_inner),
            scheme: section
                .scheme
                .as_ref()
                .map(|scheme| **scheme)
                .unwrap_or_default(),
            ready_within: section.ready_within.clone().map(Located::into_inner),
            stop_within: None,
        };
        let knobs = section.knobs.clone().map(Located::into_inner);
        let knobs = knobs.unwrap_or_default();
        for (name, knob) in &knobs {
            if !command.uses(name) {
                let what =
                    format!("the knob \"{name}\" has no effect; add {{{name}}} to the command");
                return Err(self.file.error(&knob.span(), what));
            }
        }
        Ok(System {
            program: Program::new(self.file, package, start, knobs, &SERVER_PLACEHOLDERS)?,
            workloads: Vec::new(),
            runtime: None,
            errors: Vec::new(),
        })
    }

    fn trial_store(&mut self, section: &Located<StoreSection>) -> Result<TrialStore, FileError> {
        let file = self.file;
        let from = match (&section.name, &section.url) {
            (Some(_), Some(url)) => {
                let what = "`url` conflicts with `name`; remove one of them";
                return Err(file.error(&url.span(), what));
            }
            (None, None) => {
                let what = "`store` has neither `name` nor `url`; write name = \"postgresql\", or url = \"127.0.0.1:5432\" for a running store";
                return Err(file.error(&section.span(), what));
            }
            (Some(name), None) => {
                let store = self.stores.get(file, name)?;
                let setting = self.setting(section.setting.as_ref(), &store)?;
                StoreSource::Started { store, setting }
            }
            (None, Some(url)) => {
                if let Some(setting) = &section.setting {
                    let what = "`setting` conflicts with `url`, which names a running store; replace `url` with `name`";
                    return Err(file.error(&setting.span(), what));
                }
                let port = url.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
                if port.is_none_or(|port: u16| port == 0) {
                    let what = format!(
                        "url: expected host and port, like url = \"127.0.0.1:5432\", not \"{}\"",
                        url.as_str()
                    );
                    return Err(file.error(&url.span(), what));
                }
                StoreSource::Running(url.to_string())
            }
        };
        Ok(TrialStore {
            from,
            delay: section.delay.as_ref().map(|delay| delay.0),
        })
    }

    fn check_workload(
        &self,
        system: &System,
        section: &Located<TrialSection>,
        is_grpc: bool,
    ) -> Result<(), FileError> {
        let offered = || system.workloads.iter().map(|workload| workload.name());
        let name = &system.name;
        let (span, what) = match &section.workload {
            Some(workload) if system.workloads.contains(workload) => return Ok(()),
            Some(workload) => {
                let fix = if system.workloads.is_empty() {
                    "remove workload".to_owned()
                } else {
                    did_you_mean(workload.name(), offered())
                };
                let what = format!("workload: {name} does not serve {}; {fix}", **workload);
                (workload.span(), what)
            }
            None if system.workloads.is_empty() || is_grpc => return Ok(()),
            None => {
                let all = offered().collect::<Vec<_>>().join(", ");
                (
                    section.span(),
                    format!("workload is missing; {name} serves {all}"),
                )
            }
        };
        Err(self.file.error(&span, what))
    }

    /// Checks and returns the values of a program's knobs.
    fn setting(
        &self,
        section: Option<&Located<LocatedMap<ScalarText>>>,
        program: &Program,
    ) -> Result<BTreeMap<String, String>, FileError> {
        let mut setting = BTreeMap::new();
        for (name, value) in section.into_iter().flat_map(|section| section.iter()) {
            program
                .check(name, &value.0)
                .map_err(|what| self.file.error(&value.span(), format!("setting: {what}")))?;
            setting.insert(name.clone(), value.0.clone());
        }
        Ok(setting)
    }
}

fn span<T>(value: &Option<Located<T>>) -> Option<Range<usize>> {
    value.as_ref().map(Located::span)
}

/// Checks that a client can send a workload's request.
fn check_request(client: &Client, workload: Option<Workload>) -> Result<(), String> {
    match (client.manifest.path.as_deref(), workload) {
        (None, Some(workload)) if workload.request().method != "GET" => Err(format!(
            "client {} sends only GET requests, but {workload} requires {}; use floodmark, or a client with a script, like wrk-scoring",
            client.package.name,
            workload.request()
        )),
        (Some(path), Some(workload)) if path != workload.path() => Err(format!(
            "client {} requests {path}, but {workload} requires {}; remove workload",
            client.package.name,
            workload.path()
        )),
        _ => Ok(()),
    }
}

/// Checks a trial name that contains knob values.
pub(super) fn check_trial_name(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!(
        "the trial name \"{name}\" is invalid: names have up to {MAX_NAME} letters, digits, \"-\", \"_\" or \".\"; \
         give the trial a shorter name"
    ))
}

/// Maximum number of trials in one sweep.
const MAX_TRIALS: usize = 100;

/// The key `sweep`: knobs and their lists of values.
pub(super) type SweepSection = LocatedMap<Vec<ScalarText>>;

/// Expands a trial into the trials of its sweep.
pub(super) fn spread(
    file: &TomlFile,
    section: &Located<SweepSection>,
    trial: Trial,
) -> Result<(Vec<Trial>, Sweep), FileError> {
    let invalid = |what: String| file.error(&section.span(), format!("sweep: {what}"));
    let mut lists: Vec<(&String, &Located<Vec<ScalarText>>)> = section.iter().collect();
    // Restore the file's order, because the first knob is the axis of the curve.
    lists.sort_by_key(|(_, values)| values.span().start);
    if lists.is_empty() {
        return Err(invalid(
            "no knobs; add knobs with lists of values, such as { threads = [8, 32] }".to_owned(),
        ));
    }
    let mut all: Vec<BTreeMap<String, String>> = vec![BTreeMap::new()];
    // Vary the first knob fastest, so that adjacent rows of the table are adjacent on the curve.
    for (knob, values) in lists.iter().rev() {
        let invalid = |what: String| file.error(&values.span(), format!("sweep: {what}"));
        let values: Vec<&String> = values.iter().map(|value| &value.0).collect();
        if trial.setting.contains_key(*knob) {
            return Err(invalid(format!(
                "`{knob}` is in both `sweep` and `setting`; remove one of them"
            )));
        }
        for (i, value) in values.iter().enumerate() {
            trial.server.check(knob, value).map_err(invalid)?;
            if values[..i].contains(value) {
                return Err(invalid(format!("{knob}: duplicate value {value}")));
            }
        }
        if values.is_empty() {
            return Err(invalid(format!("`{knob}` has no values")));
        }
        if all.len() * values.len() > MAX_TRIALS {
            return Err(invalid(format!(
                "more than {MAX_TRIALS} trials; remove some values"
            )));
        }
        let combined = all.iter().flat_map(|before| {
            values.iter().map(|value| {
                let mut setting = before.clone();
                setting.insert((*knob).clone(), (*value).clone());
                setting
            })
        });
        all = combined.collect();
    }
    let knobs: Vec<String> = lists.iter().map(|(knob, _)| (*knob).clone()).collect();
    let mut trials = Vec::new();
    let mut points = Vec::new();
    for values in all {
        let suffix: String = knobs
            .iter()
            .map(|knob| format!("-{knob}-{}", values[knob]))
            .collect();
        let name = format!("{}{suffix}", trial.name);
        check_trial_name(&name).map_err(invalid)?;
        let mut one = trial.clone();
        one.setting.extend(values.clone());
        one.name.clone_from(&name);
        trials.push(one);
        points.push(SweepPoint {
            trial: name,
            values,
        });
    }
    let sweep = Sweep {
        name: trial.name,
        knobs,
        points,
    };
    Ok((trials, sweep))
}
