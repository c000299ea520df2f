//! The Kubernetes Job that runs agents, and the states of its pods. kubectl finds the cluster and
//! authenticates, as in the user's shell.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use floodmark_host::Stop;
use serde_json::{Value, json};

use crate::command::{output, user_command};

/// Environment variable with the kubectl command and its options, such as a context. The default is
/// `kubectl`.
const KUBECTL: &str = "FLOODMARK_KUBECTL";

/// The manifest, with the placeholders `COUNT` and `IMAGE`.
const MANIFEST: &str = include_str!("job.yaml");

/// Name of the container in the manifest that runs the agent.
const CONTAINER: &str = "floodmark";

/// A Job that runs agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobSource {
    /// The built-in manifest with this container image.
    Image(String),
    /// The user's own manifest, in YAML or JSON.
    File(PathBuf),
}

/// Returns the name of the container image that this version of floodmark uses by default.
pub(crate) fn default_image() -> String {
    format!("floodmark:{}", env!("CARGO_PKG_VERSION"))
}

impl JobSource {
    /// Parses the path of a manifest or the name of an image.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let extension = Path::new(text).extension().and_then(|text| text.to_str());
        match extension {
            Some("yaml" | "yml" | "json") => Ok(JobSource::File(text.into())),
            _ if is_image(text) => Ok(JobSource::Image(text.to_owned())),
            _ => Err(format!(
                "invalid image \"{text}\"; expected an image, or a manifest file whose name ends in .yaml, .yml or .json"
            )),
        }
    }
}

/// Returns whether `text` can be the name of a container image.
pub(crate) fn is_image(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_allowed)
}

/// Interval between checks of the pods' states.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Returns a kubectl command.
pub(crate) fn kubectl(arguments: &[&str]) -> Command {
    let mut command = user_command(KUBECTL, "kubectl");
    command.args(arguments);
    command
}

/// Runs a kubectl command with `input` on its stdin. Returns its stdout.
///
/// # Errors
/// kubectl cannot be started, or it fails. The error contains its messages in one line.
pub(crate) fn kubectl_output(command: Command, input: &[u8]) -> Result<Vec<u8>, String> {
    output(command, input).map_err(|messages| format!("kubectl: {}", without_log(&messages)))
}

/// Joins messages into one line. Leaves out the lines of kubectl's own log, such as `E1127
/// 14:17:47.5 …`, unless there are no other lines.
fn without_log(messages: &str) -> String {
    let is_log = |line: &str| {
        let mut characters = line.chars();
        matches!(characters.next(), Some('E' | 'W' | 'I'))
            && characters.take(4).filter(char::is_ascii_digit).count() == 4
    };
    let lines = Vec::from_iter(messages.lines().filter(|line| !is_log(line)));
    if lines.is_empty() {
        messages.replace('\n', "; ")
    } else {
        lines.join("; ")
    }
}

/// Returns the manifest of a Job with `count` agents.
pub(crate) fn manifest(count: u32, image: &str) -> String {
    let manifest = MANIFEST.replace("COUNT", &count.to_string());
    // A JSON string is also a YAML string.
    manifest.replace("IMAGE", &Value::from(image).to_string())
}

/// A Job in the cluster. It is deleted when this value is dropped.
#[derive(Debug)]
pub(crate) struct AgentJob {
    /// Type and name, as in `job.batch/floodmark-agents-x7k2p`.
    name: String,
    /// Namespace in the manifest; `None` for the current context's namespace.
    namespace: Option<String>,
    count: u32,
}

impl AgentJob {
    /// Creates a Job with `count` agents.
    ///
    /// # Errors
    /// The manifest is invalid, or the cluster refuses the Job.
    pub(crate) fn create(source: &JobSource, count: u32) -> Result<Self, String> {
        let text = match source {
            JobSource::Image(image) => manifest(count, image).into_bytes(),
            JobSource::File(path) => {
                fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?
            }
        };
        let parse = [
            "create",
            "--dry-run=client",
            // The cluster validates the Job when it is created.
            "--validate=false",
            "--output=json",
            "--filename=-",
        ];
        let json = kubectl_output(kubectl(&parse), &text)?;
        let mut job: Value = serde_json::from_slice(&json)
            .map_err(|error| format!("kubectl returned invalid JSON: {error}"))?;
        prepare(&mut job, count).map_err(|what| match source {
            JobSource::File(path) => format!("{}: {what}", path.display()),
            JobSource::Image(_) => what,
        })?;
        let create = ["create", "--output=name", "--filename=-"];
        let name = kubectl_output(kubectl(&create), job.to_string().as_bytes())?;
        let namespace = job["metadata"]["namespace"].as_str();
        Ok(AgentJob {
            namespace: namespace.map(str::to_owned),
            name: String::from_utf8_lossy(&name).trim().to_owned(),
            count,
        })
    }

    /// Returns a kubectl command for the Job's namespace.
    fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = kubectl(arguments);
        if let Some(namespace) = &self.namespace {
            command.arg(format!("--namespace={namespace}"));
        }
        command
    }

    /// Waits until every pod is running or has failed, or until fewer than `needed` pods can still
    /// run. Returns the command that connects to each pod, or why its agent cannot be used.
    pub(crate) fn commands(
        &self,
        needed: u32,
        timeout: Duration,
        stop: &Stop,
    ) -> Vec<Result<Command, String>> {
        let begin = Instant::now();
        loop {
            let states = match self.states() {
                Ok(states) => states,
                Err(why) => vec![PodState::Failed(why); self.count as usize],
            };
            let count = |is: fn(&PodState) -> bool| states.iter().filter(|state| is(state)).count();
            let starting = count(|state| matches!(state, PodState::Starting(_)));
            let failed = count(|state| matches!(state, PodState::Failed(_)));
            let hopeless = failed + needed as usize > self.count as usize;
            let is_late = begin.elapsed() > timeout;
            if starting == 0 || hopeless || is_late || stop.is_set() {
                let limit_s = timeout.as_secs();
                let commands = states.into_iter().map(|state| match state {
                    PodState::Running(pod) => Ok(self.attach(&pod)),
                    PodState::Failed(why) => Err(why),
                    PodState::Starting(why) if is_late => {
                        Err(format!("did not start within {limit_s} s: {why}"))
                    }
                    PodState::Starting(why) => Err(format!("has not started: {why}")),
                });
                return commands.collect();
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the command that connects stdin and stdout to a pod's agent.
    fn attach(&self, pod: &str) -> Command {
        self.kubectl(&[
            "attach",
            "--stdin",
            "--quiet",
            pod,
            "--container",
            CONTAINER,
        ])
    }

    fn states(&self) -> Result<Vec<PodState>, String> {
        let name = self.name.rsplit('/').next().unwrap_or_default();
        let selector = format!("--selector=job-name={name}");
        let get = ["get", "pods", &selector, "--output=json"];
        let pods = kubectl_output(self.kubectl(&get), b"")?;
        pod_states(&pods, self.count, CONTAINER)
    }
}

impl Drop for AgentJob {
    fn drop(&mut self) {
        let delete = ["delete", &self.name, "--wait=false", "--ignore-not-found"];
        // A failed deletion does no harm: the pods exit when their connections close, and the
        // cluster removes the Job 60 s later.
        let _ = kubectl_output(self.kubectl(&delete), b"");
    }
}

/// Makes the name of the Job unique, and sets its number of pods.
fn prepare(job: &mut Value, count: u32) -> Result<(), String> {
    if job["kind"] != "Job" {
        return Err("is not a Job; start from the manifest that --dry-run prints".to_owned());
    }
    let containers = job["spec"]["template"]["spec"]["containers"].as_array();
    let mut names = containers.into_iter().flatten().map(|one| &one["name"]);
    if !names.any(|name| name == CONTAINER) {
        return Err(format!("the Job has no container named {CONTAINER}"));
    }
    let name = job["metadata"]["name"]
        .as_str()
        .unwrap_or("floodmark-agents");
    job["metadata"]["generateName"] = json!(format!("{name}-"));
    if let Some(metadata) = job["metadata"].as_object_mut() {
        metadata.remove("name");
    }
    job["spec"]["completionMode"] = json!("Indexed");
    job["spec"]["completions"] = json!(count);
    job["spec"]["parallelism"] = json!(count);
    Ok(())
}

/// Reasons for which a container usually keeps waiting until the user changes something.
const FATAL_REASONS: [&str; 7] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// Annotation that contains a pod's index in the Job.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The state of an agent's pod.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PodState {
    /// Not running yet. Contains what the pod is waiting for.
    Starting(String),
    /// The container is running. Contains the pod's name.
    Running(String),
    /// The pod cannot start, or it has ended. Contains the reason.
    Failed(String),
}

/// Parses kubectl's list of pods (JSON). Returns the state of the pod for each index from 0 to
/// `count` - 1.
fn pod_states(json: &[u8], count: u32, container: &str) -> Result<Vec<PodState>, String> {
    let list: Value = serde_json::from_slice(json)
        .map_err(|error| format!("kubectl returned an invalid list of pods: {error}"))?;
    let pods = list["items"].as_array();
    let pods = pods.ok_or("kubectl returned an invalid list of pods: `items` is not an array")?;
    let state = |index: u32| {
        let index = index.to_string();
        let mut pods = pods.iter();
        match pods.find(|pod| pod["metadata"]["annotations"][INDEX] == *index) {
            Some(pod) => pod_state(pod, container),
            None => PodState::Starting("the agent's pod has not been created".to_owned()),
        }
    };
    Ok((0..count).map(state).collect())
}

fn pod_state(pod: &Value, container: &str) -> PodState {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, status) = (text(&pod["metadata"]["name"]), &pod["status"]);
    // Appends the reason and the message, on one line.
    let explained = |why: &str, more: &Value| {
        let parts = [&more["reason"], &more["message"]].map(text);
        let parts = parts.iter().filter(|part| !part.is_empty());
        let parts = parts.map(|part| format!(": {}", part.trim().replace('\n', "; ")));
        format!("pod {name} {why}{}", parts.collect::<String>())
    };
    let containers = status["containerStatuses"].as_array();
    let mut containers = containers.into_iter().flatten();
    let state = containers.find(|one| one["name"] == container);
    let state = state.map_or(&Value::Null, |one| &one["state"]);
    let (ended, waiting) = (&state["terminated"], &state["waiting"]);
    if !ended.is_null() {
        let why = format!("ended with exit code {}", ended["exitCode"]);
        PodState::Failed(explained(&why, ended))
    } else if status["phase"] == "Failed" || status["phase"] == "Succeeded" {
        PodState::Failed(explained("has ended", status))
    } else if !state["running"].is_null() {
        PodState::Running(name)
    } else if FATAL_REASONS.contains(&text(&waiting["reason"]).as_str()) {
        PodState::Failed(explained("cannot start", waiting))
    } else if !waiting.is_null() {
        PodState::Starting(explained("is starting", waiting))
    } else {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let unmet = conditions.find(|one| !text(&one["message"]).is_empty());
        PodState::Starting(explained("is pending", unmet.unwrap_or(&Value::Null)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_count_and_image() {
        let manifest = manifest(4, "registry.example.com/floodmark:\"1\"");
        assert!(manifest.contains("  completions: 4 "), "{manifest}");
        assert!(manifest.contains("  parallelism: 4\n"), "{manifest}");
        let image = r#"image: "registry.example.com/floodmark:\"1\"""#;
        assert!(manifest.contains(image), "{manifest}");
    }

    #[test]
    fn messages_leave_out_the_log() {
        let log = "E1127 14:17:47.5 4732 memcache.go:265] refused";
        let messages = format!("{log}\n{log}\nThe connection was refused\ncheck the port");
        let line = "The connection was refused; check the port";
        assert_eq!(without_log(&messages), line);
        assert_eq!(without_log(log), log);
        assert_eq!(without_log("Error: x"), "Error: x");
    }

    #[test]
    fn prepares_a_job() {
        let containers = json!([{"name": "sidecar"}, {"name": "floodmark"}]);
        let mut job = json!({
            "kind": "Job",
            "metadata": {"name": "a", "labels": {}},
            "spec": {"template": {"spec": {"containers": containers}}},
        });
        prepare(&mut job, 3).unwrap();
        let metadata = json!({"generateName": "a-", "labels": {}});
        assert_eq!(job["metadata"], metadata);
        assert_eq!(job["spec"]["completions"], 3);
        assert_eq!(job["spec"]["parallelism"], 3);
        assert_eq!(job["spec"]["completionMode"], "Indexed");

        job["spec"]["template"]["spec"]["containers"] = json!([{"name": "other"}]);
        assert!(prepare(&mut job, 3).unwrap_err().contains("no container"));
        job["kind"] = json!("Pod");
        assert!(prepare(&mut job, 3).unwrap_err().contains("not a Job"));
    }

    fn pod(index: &str, status: Value) -> Value {
        json!({
            "metadata": {"name": format!("job-{index}-abc"), "annotations": {INDEX: index}},
            "status": status,
        })
    }

    fn container(state: Value) -> Value {
        json!({
            "phase": "Running",
            "containerStatuses": [
                {"name": "sidecar", "state": {"running": {}}},
                {"name": "floodmark", "state": state},
            ],
        })
    }

    fn states(pods: &[Value], count: u32) -> Vec<PodState> {
        let list = json!({"items": pods}).to_string();
        pod_states(list.as_bytes(), count, "floodmark").unwrap()
    }

    #[test]
    fn orders_pods_by_index() {
        let pods = [
            pod("2", container(json!({"running": {"startedAt": "now"}}))),
            pod("0", container(json!({"running": {}}))),
        ];
        let expected = [
            PodState::Running("job-0-abc".to_owned()),
            PodState::Starting("the agent's pod has not been created".to_owned()),
            PodState::Running("job-2-abc".to_owned()),
        ];
        assert_eq!(states(&pods, 3), expected);
    }

    #[test]
    fn explains_why_a_pod_does_not_run() {
        use PodState::{Failed, Starting};
        let pending = json!({"phase": "Pending", "conditions": [
            {"type": "Initialized"},
            {"reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."},
        ]});
        let waiting = |reason: &str, message: &str| {
            container(json!({"waiting": {"reason": reason, "message": message}}))
        };
        let terminated = json!({"exitCode": 1, "reason": "Error", "message": "no memory\nended\n"});
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on disk"});
        for (status, expected) in [
            (
                pending,
                Starting("pod job-0-abc is pending: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.".to_owned()),
            ),
            (json!({}), Starting("pod job-0-abc is pending".to_owned())),
            (
                waiting("ContainerCreating", ""),
                Starting("pod job-0-abc is starting: ContainerCreating".to_owned()),
            ),
            (
                waiting("ImagePullBackOff", "Back-off pulling image \"x\""),
                Failed("pod job-0-abc cannot start: ImagePullBackOff: Back-off pulling image \"x\"".to_owned()),
            ),
            (
                container(json!({"terminated": terminated})),
                Failed("pod job-0-abc ended with exit code 1: Error: no memory; ended".to_owned()),
            ),
            (evicted, Failed("pod job-0-abc has ended: Evicted: low on disk".to_owned())),
        ] {
            assert_eq!(states(&[pod("0", status)], 1), [expected]);
        }
    }

    #[test]
    fn other_output_is_an_error() {
        assert!(pod_states(b"No resources found", 1, "floodmark").is_err());
    }
}
