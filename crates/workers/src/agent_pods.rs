//! The states of the pods of a Job, as kubectl reports them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Reasons for waiting from which a container rarely recovers unless the user changes something.
const FATAL_REASONS: [&str; 7] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// Annotation of a pod with its index in the Job.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The state of an agent's pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Not running yet. Contains what the pod is waiting for.
    Starting(String),
    /// The container is running. Contains the pod's name.
    Running(String),
    /// The pod cannot start, or it has ended. Contains the reason.
    Failed(String),
}

#[derive(Deserialize)]
struct PodList {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: String,
    reason: String,
    message: String,
    conditions: Vec<Explained>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Explained>,
    running: Option<serde_json::Value>,
    terminated: Option<Terminated>,
}

#[derive(Deserialize)]
struct Terminated {
    #[serde(rename = "exitCode")]
    exit_code: i64,
    #[serde(flatten)]
    why: Explained,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Explained {
    reason: String,
    message: String,
}

impl Explained {
    /// Returns the reason and the message in one line.
    fn line(&self) -> String {
        let parts = [&self.reason, &self.message];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let parts = parts.map(|part| part.trim().replace('\n', "; "));
        parts.collect::<Vec<_>>().join(": ")
    }
}

/// Parses kubectl's list of pods (JSON). Returns the state of the pod for each index from 0 to
/// `count` - 1.
pub(crate) fn pod_states(
    json: &[u8],
    count: u32,
    container: &str,
) -> Result<Vec<PodState>, String> {
    let pods: PodList = serde_json::from_slice(json)
        .map_err(|error| format!("kubectl returned an invalid list of pods: {error}"))?;
    let state = |index: u32| {
        let index = index.to_string();
        let of_index = |pod: &&Pod| pod.metadata.annotations.get(INDEX) == Some(&index);
        match pods.items.iter().find(of_index) {
            Some(pod) => pod.state(container),
            None => PodState::Starting("the agent's pod has not been created".to_owned()),
        }
    };
    Ok((0..count).map(state).collect())
}

impl Pod {
    fn state(&self, container: &str) -> PodState {
        let (name, status) = (&self.metadata.name, &self.status);
        let explained = |why: &str, more: &Explained| match more.line() {
            line if line.is_empty() => format!("pod {name} {why}"),
            line => format!("pod {name} {why}: {line}"),
        };
        let mut containers = status.container_statuses.iter();
        let state = containers
            .find(|one| one.name == container)
            .map(|one| &one.state);
        if let Some(Terminated { exit_code, why }) =
            state.and_then(|state| state.terminated.as_ref())
        {
            return PodState::Failed(explained(&format!("ended with exit code {exit_code}"), why));
        }
        if status.phase == "Failed" || status.phase == "Succeeded" {
            let why = Explained {
                reason: status.reason.clone(),
                message: status.message.clone(),
            };
            return PodState::Failed(explained("has ended", &why));
        }
        if state.is_some_and(|state| state.running.is_some()) {
            return PodState::Running(name.clone());
        }
        match state.and_then(|state| state.waiting.as_ref()) {
            Some(why) if FATAL_REASONS.contains(&why.reason.as_str()) => {
                PodState::Failed(explained("cannot start", why))
            }
            Some(why) => PodState::Starting(explained("is starting", why)),
            None => {
                let mut unmet = status.conditions.iter();
                let why = unmet.find(|one| !one.message.is_empty());
                let why = why.map_or_else(
                    || explained("is pending", &Explained::default()),
                    |why| explained("is pending", why),
                );
                PodState::Starting(why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
