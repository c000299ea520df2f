//! The input of a load process.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::body::{LongBodies, RequestBody};
use crate::plan::Plan;
use crate::tls::TlsCredentials;
use crate::units::Rate;

/// First line of a worker's stdin, as JSON. A replay's timetable follows as bytes.
///
/// Later lines are [`WorkerCommand`]s. The end of stdin also ends the run immediately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerInput {
    /// The plan.
    pub plan: Plan,
    /// Number (`{seq}`) of the first request. All numbers in earlier attempts are smaller.
    pub first_number: u64,
    /// File for the responses that a check needs.
    pub answers_file: Option<PathBuf>,
    /// Log of single requests; `None` without one.
    #[serde(default)]
    pub request_log: Option<RequestLogInput>,
    /// The certificates to trust and to send. Not part of the plan, which is recorded.
    #[serde(default)]
    pub credentials: TlsCredentials,
    /// Whether the run continues while no connection can be opened to a server that was reached
    /// before. Otherwise, such a run ends after 2 s.
    #[serde(default)]
    pub outlasts_server: bool,
    /// This worker's share of a load that several agents send; `None` for the whole load.
    pub share: Option<AgentShare>,
    /// Whether an agent sends its share even if its host provides too few ports or open files
    /// (`--anyway`).
    #[serde(default)]
    pub anyway: bool,
    /// The second server of an alternating load; `None` for an ordinary load.
    pub other: Option<OtherSide>,
}

/// A line on a worker's stdin after its input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WorkerCommand {
    /// End the run immediately.
    Stop,
    /// Change the rate of the measurement. The new rate takes effect at the next whole second.
    Rate(Rate),
}

/// First word of a line that changes the rate. The new rate per second follows.
const RATE: &str = "rate ";

impl WorkerCommand {
    /// Reads the output of [`Display`]. Returns `None` if the line is not a command.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        match line.trim() {
            "stop" => Some(WorkerCommand::Stop),
            line => {
                let per_s = line.strip_prefix(RATE)?.parse().ok()?;
                Rate::new(per_s).map(WorkerCommand::Rate)
            }
        }
    }
}

impl Display for WorkerCommand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            WorkerCommand::Stop => writeln!(f, "stop"),
            WorkerCommand::Rate(rate) => writeln!(f, "{RATE}{}", rate.per_s()),
        }
    }
}

/// A log of single requests (`--request-log`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestLogInput {
    /// File to which lines are appended.
    pub file: PathBuf,
    /// Share of the requests to log, from 0 to 1.
    pub share: f64,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

/// The second server of an alternating load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherSide {
    /// Plan for this server, with the same load as the first plan.
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

/// The JSON form, in which long bodies and credentials are separate from the plan.
#[derive(Serialize, Deserialize)]
struct InputLine {
    #[serde(flatten)]
    input: WorkerInput,
    /// Long bodies of all plans.
    #[serde(default)]
    bodies: LongBodies,
    /// Values of the `Authorization` headers of all plans.
    #[serde(default)]
    authorizations: Vec<Option<String>>,
}

impl WorkerInput {
    /// Returns the input of a worker that sends the whole load to one server and writes no file of
    /// responses.
    #[must_use]
    pub fn new(plan: Plan, first_number: u64, credentials: TlsCredentials) -> Self {
        WorkerInput {
            plan,
            first_number,
            answers_file: None,
            request_log: None,
            credentials,
            outlasts_server: false,
            share: None,
            anyway: false,
            other: None,
        }
    }

    /// Returns the input as JSON.
    ///
    /// # Errors
    /// The path of the file for responses is not UTF-8.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let (mut input, mut bodies) = (self.clone(), LongBodies::new());
        input.bodies().for_each(|body| body.save(&mut bodies));
        let authorizations = input
            .plans()
            .map(|plan| plan.target.credentials.as_mut()?.take());
        let authorizations = authorizations.collect();
        serde_json::to_vec(&InputLine {
            input,
            bodies,
            authorizations,
        })
    }

    /// Reads the output of [`WorkerInput::to_json`].
    ///
    /// # Errors
    /// The text is not valid JSON for an input.
    pub fn from_json(text: &[u8]) -> serde_json::Result<Self> {
        let InputLine {
            mut input,
            bodies,
            authorizations,
        } = serde_json::from_slice(text)?;
        input.bodies().for_each(|body| body.restore(&bodies));
        for (plan, authorization) in input.plans().zip(authorizations) {
            if let Some(credentials) = &mut plan.target.credentials {
                credentials.restore(authorization);
            }
        }
        Ok(input)
    }

    /// Drops the bytes of long bodies, which are not needed after the requests have been encoded.
    pub fn forget_bodies(&mut self) {
        self.bodies().for_each(RequestBody::forget);
    }

    /// Returns the plans for both servers.
    fn plans(&mut self) -> impl Iterator<Item = &mut Plan> {
        let other = self.other.iter_mut().map(|other| &mut other.plan);
        std::iter::once(&mut self.plan).chain(other)
    }

    /// Returns the bodies of all requests to both servers, and the values of feeds.
    fn bodies(&mut self) -> impl Iterator<Item = &mut RequestBody> {
        self.plans().flat_map(|plan| {
            let (requests, feeds) = (plan.mix.iter_mut())
                .map(|mix| (&mut mix.requests, &mut mix.feeds))
                .unzip::<_, _, Vec<_>, Vec<_>>();
            let requests = requests.into_iter().flatten();
            let bodies = requests
                .map(|request| &mut request.request)
                .chain([&mut plan.request])
                .map(|request| &mut request.body);
            bodies.chain(feeds.into_iter().flatten().map(|feed| &mut feed.values))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::body::MAX_RECORDED;
    use crate::credentials::Credentials;

    #[test]
    fn reads_the_commands_that_it_writes() {
        let rate = Rate::new(1_331.25).unwrap();
        for command in [WorkerCommand::Stop, WorkerCommand::Rate(rate)] {
            assert_eq!(WorkerCommand::parse(&command.to_string()), Some(command));
        }
        for line in ["", "go", "rate", "rate 0", "rate inf", "rate -1"] {
            assert_eq!(WorkerCommand::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_worker_gets_long_bodies_and_credentials() {
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let mut plan = Plan::of(address.into());
        plan.target.credentials = Some(Credentials::new(b"me", b"s3cret"));
        plan.request.body = vec![7; MAX_RECORDED + 1].into();
        let other = OtherSide {
            plan: plan.clone(),
            mean_turn: Duration::from_millis(5),
        };
        let input = WorkerInput {
            plan,
            first_number: 1,
            answers_file: None,
            request_log: None,
            credentials: TlsCredentials::default(),
            outlasts_server: true,
            share: Some(AgentShare { index: 1, count: 4 }),
            anyway: true,
            other: Some(other),
        };
        let mut read = WorkerInput::from_json(&input.to_json().unwrap()).unwrap();
        assert_eq!(
            read.plan.request.body.bytes(),
            input.plan.request.body.bytes()
        );
        read.forget_bodies();
        assert_eq!(read.plan.request.body.bytes(), None);
        assert_eq!(read, input);
    }
}
