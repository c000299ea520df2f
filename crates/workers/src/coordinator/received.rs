//! Handles messages from agents.

use std::time::Instant;

use floodmark_record::Event;
use floodmark_record::agent_lines::AgentLine;
use floodmark_record::events::Connecting;

use super::{
    AgentsEvent, CONNECTING_INTERVAL, Coordinator, EXCHANGES, lacks_backend, other_version,
};
use crate::agent::AgentState;
use crate::agent_process::FromAgent;

impl Coordinator<'_, '_> {
    /// Handles a message from an agent.
    pub(super) fn take(&mut self, number: usize, from: FromAgent) {
        let agent = &mut self.agents[number];
        if agent.is_lost() {
            return;
        }
        match from {
            FromAgent::Message(message) => agent.keep_message(message),
            FromAgent::Closed if agent.state == AgentState::Ended => agent.is_closed = true,
            FromAgent::Closed => agent.output_ended(None),
            FromAgent::Fault(fault) => agent.output_ended(Some(fault)),
            FromAgent::Line(line, at_ns) => {
                agent.heard = Instant::now();
                self.take_line(number, line, at_ns);
            }
        }
    }

    fn take_line(&mut self, number: usize, line: AgentLine, at_ns: i64) {
        let agent = &mut self.agents[number];
        match line {
            AgentLine::Hello(hello) if agent.state == AgentState::Starting => {
                let other = other_version(&hello, self.version)
                    .or_else(|| lacks_backend(&hello, self.input.plan.backend));
                agent.hello = Some(hello);
                agent.state = AgentState::Greeted;
                match other {
                    Some(why) => self.lose(number, &why),
                    None => agent.ping(),
                }
            }
            AgentLine::Hello(_) | AgentLine::Checkup(_) => {
                self.lose(number, "sent an unexpected line");
            }
            AgentLine::Refused(why) => {
                self.lose(number, &why);
                if self.failure.is_none() {
                    self.fail();
                }
            }
            AgentLine::Pong { sent_ns, agent_ns } => {
                agent.clock.add(sent_ns, agent_ns, at_ns);
                if agent.clock.count() < EXCHANGES {
                    agent.ping();
                }
            }
            AgentLine::Waiting => {
                agent.state = AgentState::Waiting;
                let events = self.merger.phase_ended(number);
                self.emit(events);
            }
            AgentLine::Began { agent_ns, clock_ns } => {
                agent.began_ns = Some((agent_ns, clock_ns));
            }
            AgentLine::Responses(bytes) => self.keep(number, &bytes),
            AgentLine::Event(event) => self.take_event(number, *event),
        }
    }

    fn keep(&mut self, number: usize, bytes: &[u8]) {
        if let (Some(file), None) = (&self.input.answers_file, &self.unkept) {
            let kept = self.agents[number].keep(number, bytes, file);
            self.unkept = kept.err().map(|error| error.to_string());
        }
    }

    fn take_event(&mut self, number: usize, event: Event) {
        (self.on_event)(AgentsEvent::Of(number, &event));
        let agent = &mut self.agents[number];
        match event {
            Event::Ready(ready) => agent.ready = Some(ready),
            Event::Connecting(progress) => {
                agent.connecting = progress;
                self.report_connecting();
            }
            Event::Began { phase, .. } => {
                let at_ns = self.start_ns.map_or(0, |ns| ns - self.origin_ns);
                if self.began != Some(phase) {
                    self.began = Some(phase);
                    let at_ns = at_ns.unsigned_abs();
                    self.emit([Event::Began { phase, at_ns }]);
                }
            }
            Event::End(end) => {
                agent.state = AgentState::Ended;
                agent.line = end.scored.as_ref().and_then(|scored| scored.line);
                let mut events = self.merger.take(number, Event::End(end));
                events.extend(self.merger.phase_ended(number));
                self.emit(events);
            }
            event => {
                let events = self.merger.take(number, event);
                self.emit(events);
            }
        }
    }

    fn report_connecting(&mut self) {
        if (self.connecting).is_some_and(|since| since.elapsed() < CONNECTING_INTERVAL) {
            return;
        }
        self.connecting = Some(Instant::now());
        let sum = |of: fn(&Connecting) -> u64| self.live().map(|agent| of(&agent.connecting)).sum();
        let progress = Connecting {
            standing: sum(|of| of.standing),
            failed: sum(|of| of.failed),
            of: sum(|of| of.of),
        };
        self.emit([Event::Connecting(progress)]);
    }
}
