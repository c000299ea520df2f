//! The input of a load process.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::body::{LongBodies, RequestBody};
use crate::plan::Plan;
use crate::tls::TrustAnchor;

/// First line of a worker's stdin, as JSON. A replay's timetable follows as bytes.
///
/// A later `stop` line, or the end of stdin, ends the run immediately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "InputForm", into = "InputForm")]
pub struct WorkerInput {
    /// The plan.
    pub plan: Plan,
    /// Number (`{seq}`) of the first request. All numbers in earlier attempts are smaller.
    pub first_number: u64,
    /// File for the responses that a check needs.
    pub answers_file: Option<PathBuf>,
    /// The certificate authorities to trust.
    pub anchors: Vec<TrustAnchor>,
    /// Whether the run continues while no connection can be opened to a server that was reached
    /// before. Otherwise, such a run ends after 2 s.
    pub outlasts_server: bool,
    /// This worker's share of a load that several agents send; `None` for the whole load.
    pub share: Option<AgentShare>,
    /// Whether an agent sends its share even if its host has too few ports or open files
    /// (`--anyway`).
    pub anyway: bool,
    /// The second server of an alternating load; `None` for an ordinary load.
    pub other: Option<OtherSide>,
}

/// The second server of an alternating load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherSide {
    /// Plan for this server, with the load of the first plan.
    pub plan: Plan,
    /// Mean planned length of a turn.
    pub mean_turn: Duration,
}

/// An agent's share of a load. All agents have equal shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentShare {
    /// Index of the agent, from 0.
    pub index: u32,
    /// Number of agents.
    pub count: u32,
}

impl AgentShare {
    /// The share of a worker that sends the whole load.
    pub const WHOLE: AgentShare = AgentShare { index: 0, count: 1 };
}

/// The JSON form, in which long bodies are separate from the plan.
#[derive(Serialize, Deserialize)]
struct InputForm {
    plan: Plan,
    first_number: u64,
    answers_file: Option<PathBuf>,
    #[serde(default)]
    anchors: Vec<TrustAnchor>,
    #[serde(default)]
    bodies: LongBodies,
    #[serde(default)]
    outlasts_server: bool,
    #[serde(default)]
    share: Option<AgentShare>,
    #[serde(default)]
    anyway: bool,
    #[serde(default)]
    other: Option<OtherSide>,
}

impl WorkerInput {
    /// Drops the bytes of long bodies, which are no longer needed after encoding the requests.
    pub fn forget_bodies(&mut self) {
        plans(&mut self.plan, &mut self.other)
            .flat_map(bodies)
            .for_each(RequestBody::forget);
    }
}

/// Returns the plans of both servers.
fn plans<'a>(
    plan: &'a mut Plan,
    other: &'a mut Option<OtherSide>,
) -> impl Iterator<Item = &'a mut Plan> {
    let other = other.iter_mut().map(|other| &mut other.plan);
    std::iter::once(plan).chain(other)
}

/// Returns the bodies of all requests.
fn bodies(plan: &mut Plan) -> impl Iterator<Item = &mut RequestBody> {
    let mix = plan.mix.iter_mut().flat_map(|mix| &mut mix.requests);
    let mix = mix.map(|request| &mut request.request);
    mix.chain([&mut plan.request])
        .map(|request| &mut request.body)
}

impl From<InputForm> for WorkerInput {
    fn from(mut form: InputForm) -> Self {
        plans(&mut form.plan, &mut form.other)
            .flat_map(bodies)
            .for_each(|body| body.restore(&form.bodies));
        WorkerInput {
            plan: form.plan,
            first_number: form.first_number,
            answers_file: form.answers_file,
            anchors: form.anchors,
            outlasts_server: form.outlasts_server,
            share: form.share,
            anyway: form.anyway,
            other: form.other,
        }
    }
}

impl From<WorkerInput> for InputForm {
    fn from(mut input: WorkerInput) -> Self {
        let mut long = LongBodies::new();
        plans(&mut input.plan, &mut input.other)
            .flat_map(bodies)
            .for_each(|body| body.save(&mut long));
        InputForm {
            plan: input.plan,
            first_number: input.first_number,
            answers_file: input.answers_file,
            anchors: input.anchors,
            outlasts_server: input.outlasts_server,
            share: input.share,
            anyway: input.anyway,
            other: input.other,
            bodies: long,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::body::MAX_RECORDED;

    #[test]
    fn a_worker_gets_long_bodies_whole() {
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let mut plan = Plan::of(address.into());
        plan.request.body = vec![7; MAX_RECORDED + 1].into();
        let other = OtherSide {
            plan: plan.clone(),
            mean_turn: Duration::from_millis(5),
        };
        let input = WorkerInput {
            plan,
            first_number: 1,
            answers_file: None,
            anchors: Vec::new(),
            outlasts_server: true,
            share: Some(AgentShare { index: 1, count: 4 }),
            anyway: true,
            other: Some(other),
        };
        let json = serde_json::to_string(&input).unwrap();
        let mut read: WorkerInput = serde_json::from_str(&json).unwrap();
        assert_eq!(
            read.plan.request.body.bytes(),
            input.plan.request.body.bytes()
        );
        read.forget_bodies();
        assert_eq!(read.plan.request.body.bytes(), None);
        assert_eq!(read, input);
    }
}
