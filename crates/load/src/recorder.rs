//! Records the counts and times of one load thread, in parts of 100 ms.
//!
//! A thread owns its slice for the current part, and passes the slice to the gatherer when the part
//! ends. The gatherer returns empty slices to the thread, so the thread does not allocate
//! memory under load.
//!
//! If the gatherer or the reader of its rows is stuck, no empty slice is available. The current
//! slice then also covers the next parts, with separate counts for each part but combined times. No
//! data is lost, each response counts in its own second, and memory does not grow. A thread waits
//! for an empty slice only after 100 parts (10 s without steps). This wait is recorded as a stall,
//! and delays the response to a stop request.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender};

use floodmark_record::events::Phase;
use floodmark_record::grpc::ResponseStatus;
use floodmark_record::plan::Plan;
use floodmark_record::{Outcome, TimeKind};

use crate::clock::Ns;
use crate::mix::Pick;
use crate::rows::Rows;
use crate::slice::{GroupTimes, Message, RequestSums, Slice};

/// A request and its timestamps, in ns on the worker's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moments {
    /// The request.
    pub pick: Pick,
    /// Scheduled time.
    pub intended: Ns,
    /// Time at which a connection was available, minus floodmark's own delay in opening the
    /// connection. If the request was sent again, this time is later by the time from its first
    /// send until its last.
    pub free: Ns,
    /// Reason for the time from `intended` until `free`.
    pub blocked_by: BlockedBy,
    /// Time at which the request was passed to the kernel; 0 if it waits to be sent.
    pub sent: Ns,
    /// Time of the previous send; 0 if the request is not sent again.
    pub sent_before: Ns,
    /// Time at which the first byte of the response was read.
    pub first: Ns,
}

impl Moments {
    /// Returns the timestamps of a request that a connection can take at its intended time.
    pub fn unblocked(pick: Pick, intended: Ns) -> Self {
        Moments {
            pick,
            intended,
            free: intended,
            ..Moments::default()
        }
    }

    /// Returns the time of the latest send; 0 if the request was never sent.
    pub fn last_sent(&self) -> Ns {
        if self.sent == 0 {
            self.sent_before
        } else {
            self.sent
        }
    }

    /// Prepares a request to be sent again, or for the first time if its previous connection ended
    /// before it was sent.
    pub fn unsend(&mut self) {
        self.sent_before = self.last_sent();
        (self.sent, self.first) = (0, 0);
    }

    /// Stores the time at which a request was sent again. The time since the previous send counts
    /// as blocked, and the lateness stays the same.
    pub fn resend(&mut self, now: Ns) {
        let lateness = self
            .sent_before
            .saturating_sub(self.free.max(self.intended));
        self.free = now - lateness;
        self.blocked_by = BlockedBy::Retried;
        self.sent = now;
    }
}

/// Reason why a request was blocked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BlockedBy {
    /// It waited for a connection to be established.
    #[default]
    Connecting,
    /// All connections and streams that the plan allows were in use, or too much output was unsent.
    OwnLimit,
    /// The server allows fewer streams on a connection than the plan.
    ServerLimit,
    /// It was sent again.
    Retried,
}

impl BlockedBy {
    fn kind(self) -> TimeKind {
        match self {
            BlockedBy::Connecting => TimeKind::BlockedConnecting,
            BlockedBy::OwnLimit => TimeKind::BlockedOwnLimit,
            BlockedBy::ServerLimit => TimeKind::BlockedServerLimit,
            BlockedBy::Retried => TimeKind::BlockedRetried,
        }
    }
}

/// The recorder of one thread.
pub struct Recorder {
    live: Box<Slice>,
    out: SyncSender<Message>,
    back: Receiver<Box<Slice>>,
    /// Rows of the measurement.
    measured: Rows,
    /// Parts of the rows of the current phase.
    parts: Rows,
    phase_start: Ns,
    /// Time at which the current part ends.
    pub part_end: Ns,
    deadline: Ns,
    window_end: Ns,
    /// Number of open connections.
    pub open: u64,
    /// Maximum number of connections that were open at the same time.
    pub peak_open: u64,
    /// Number of connections opened.
    pub total_connects: u64,
    /// Number of connections whose first request timed out or was in flight at the end.
    pub silent: u64,
    /// Number of errors by name.
    pub errors: BTreeMap<&'static str, u64>,
    /// Number of errors by name on connections that no request was waiting for.
    pub unawaited: BTreeMap<&'static str, u64>,
    /// Histograms of each group's times, without the warm-up.
    pub group_times: GroupTimes,
}

impl Recorder {
    /// Creates the recorder for one load thread. Its first slice is `first`.
    /// The recorder sends full slices to `out` and receives empty slices from `back`. It has the
    /// same number of groups as `first`.
    pub fn new(
        plan: &Plan,
        first: Slice,
        out: SyncSender<Message>,
        back: Receiver<Box<Slice>>,
    ) -> Self {
        let measured = Rows::of(plan);
        Recorder {
            group_times: GroupTimes::new(first.groups.len()),
            live: Box::new(first),
            parts: measured.parts(),
            measured,
            out,
            back,
            phase_start: 0,
            part_end: Ns::MAX,
            deadline: plan.deadline.as_nanos() as Ns,
            window_end: Ns::MAX,
            open: 0,
            peak_open: 0,
            total_connects: 0,
            silent: 0,
            errors: BTreeMap::new(),
            unawaited: BTreeMap::new(),
        }
    }

    /// Starts a phase at `start`. Responses after `window_end` do not count towards throughput.
    pub fn begin(&mut self, phase: Phase, start: Ns, window_end: Option<Ns>) {
        self.phase_start = start;
        self.parts = self.measured.in_phase(phase).parts();
        self.part_end = start + self.parts.bounds(0).1;
        self.window_end = window_end.unwrap_or(Ns::MAX);
        self.live.phase = phase;
        self.live.index = 0;
    }

    /// Ends the phase and passes on the current slice.
    pub fn end(&mut self, now: Ns) {
        self.tick(now);
        self.part_end = Ns::MAX;
        // No request is in flight, so waiting for an empty slice delays no request.
        if let Ok(empty) = self.back.recv() {
            self.hand_over(empty);
        }
    }

    /// Advances to the part that contains `now`.
    #[inline]
    pub fn tick(&mut self, now: Ns) {
        if now >= self.part_end {
            self.turn_over(now);
        }
    }

    #[cold]
    fn turn_over(&mut self, now: Ns) {
        let index = self.parts.at(now - self.phase_start);
        self.part_end = self.phase_start + self.parts.bounds(index).1;
        if let Ok(empty) = self.back.try_recv() {
            self.hand_over(empty);
            self.live.index = index;
        } else if !self.live.start_part(index)
            && let Ok(empty) = self.back.recv()
        {
            self.hand_over(empty);
            self.live.index = index;
        }
    }

    /// Sends the current slice and replaces it with `empty`.
    fn hand_over(&mut self, empty: Box<Slice>) {
        self.live.open = self.open;
        let full = std::mem::replace(&mut self.live, empty);
        self.live.phase = full.phase;
        // Sending fails only after the receiver is dropped. The message is then not needed.
        let _ = self.out.send(Message::Slice(full));
    }

    /// Updates the sums for all requests and the sums for one group.
    #[inline]
    fn count(&mut self, group: u32, add: impl Fn(&mut RequestSums)) {
        add(&mut self.live.all);
        if let Some(sums) = self.live.groups.get_mut(group as usize) {
            add(sums);
        }
    }

    /// Records that `n` requests in a group became due.
    pub fn intended(&mut self, group: u32, n: u64) {
        self.count(group, |sums| sums.row.counts.intended += n);
    }

    /// Records that a request was passed to the kernel.
    #[inline]
    pub fn sent(&mut self, group: u32, bytes: usize) {
        self.count(group, |sums| {
            sums.row.counts.sent += 1;
            sums.row.bytes_sent += bytes as u64;
        });
    }

    /// Records the times until a request that has ended was sent. They are known only at the end,
    /// because the request may have been sent again.
    #[inline]
    fn waited(&mut self, moments: &Moments) {
        let group = moments.pick.group;
        let free = moments.free.max(moments.intended);
        let blocked = free - moments.intended;
        self.time_of(group, TimeKind::Blocked, blocked);
        if blocked > 0 {
            self.time_of(group, moments.blocked_by.kind(), blocked);
        }
        let lateness = moments.last_sent().saturating_sub(free);
        self.time_of(group, TimeKind::Lateness, lateness);
    }

    /// Records that a request was sent again on another connection.
    pub fn resent(&mut self, group: u32, bytes: usize) {
        self.count(group, |sums| {
            sums.row.counts.reconnects += 1;
            sums.row.bytes_sent += bytes as u64;
        });
    }

    /// Records sent bytes that no request's length includes, such as control frames and the rest of
    /// a long body. They count towards no group.
    pub fn sent_bytes(&mut self, bytes: usize) {
        self.live.all.row.bytes_sent += bytes as u64;
    }

    /// Records bytes received on a connection. `group` is the group of the connection's latest
    /// request.
    #[inline]
    pub fn received(&mut self, group: u32, bytes: usize) {
        self.count(group, |sums| sums.row.bytes_received += bytes as u64);
    }

    /// Records a complete response.
    #[inline]
    pub fn responded(
        &mut self,
        moments: &Moments,
        done: Ns,
        status: ResponseStatus,
        outcome: Outcome,
    ) {
        self.tick(done);
        let group = moments.pick.group;
        self.count(group, |sums| {
            if let Some(n) = sums.statuses.get_mut(usize::from(status.http)) {
                *n += 1;
            }
            if let Some(grpc) = status.grpc {
                sums.grpc_statuses[grpc as usize] += 1;
            }
        });
        if outcome != Outcome::Ok {
            return self.failed(moments, done, outcome);
        }
        self.waited(moments);
        let response = done - moments.intended;
        let good = u64::from(response <= self.deadline);
        let in_window = u64::from(done <= self.window_end);
        self.count(group, |sums| {
            sums.row.counts.ok += 1;
            sums.row.good += good;
            sums.row.ok_in_window += in_window;
            sums.row.good_in_window += in_window * good;
        });
        self.time_of(group, TimeKind::Response, response);
        self.time_of(group, TimeKind::Service, done - moments.sent);
        let first_byte = moments.first.saturating_sub(moments.sent);
        self.time_of(group, TimeKind::FirstByte, first_byte);
    }

    /// Records a sent request whose outcome is not ok.
    pub fn failed(&mut self, moments: &Moments, done: Ns, outcome: Outcome) {
        self.tick(done);
        let group = moments.pick.group;
        self.count(group, |sums| sums.row.counts.add(outcome));
        self.waited(moments);
        let kind = if outcome == Outcome::TimedOut {
            TimeKind::Censored
        } else {
            TimeKind::Error
        };
        self.time_of(group, kind, done.saturating_sub(moments.intended));
    }

    /// Records that no connection could be opened for a request in a group.
    pub fn connect_failed(&mut self, group: u32, intended: Ns, now: Ns) {
        self.tick(now);
        self.count(group, |sums| sums.row.counts.connect_failed += 1);
        self.time_of(group, TimeKind::Error, now.saturating_sub(intended));
    }

    /// Records that `n` requests in a group were dropped before they were sent.
    pub fn unsent(&mut self, group: u32, n: u64) {
        self.count(group, |sums| sums.row.counts.unsent += n);
    }

    /// Records that a request is still in flight at the end.
    pub fn in_flight_at_end(&mut self, moments: &Moments, end: Ns) {
        let group = moments.pick.group;
        self.count(group, |sums| sums.row.counts.in_flight_at_end += 1);
        self.waited(moments);
        let age = end.saturating_sub(moments.intended);
        self.time_of(group, TimeKind::InFlight, age);
    }

    /// Records that a connection was opened.
    #[inline]
    pub fn connected(&mut self) {
        self.live.connects += 1;
        self.total_connects += 1;
        self.open += 1;
        self.peak_open = self.peak_open.max(self.open);
    }

    /// Records that a connection was closed.
    pub fn disconnected(&mut self) {
        self.open -= 1;
    }

    /// Counts an error by name. Only a new name allocates memory.
    #[cold]
    pub fn error(&mut self, name: &'static str) {
        *self.errors.entry(name).or_default() += 1;
    }

    /// Records that the last error with this name occurred on a connection that no request was
    /// waiting for, or only a request that had already been sent.
    #[cold]
    pub fn error_unawaited(&mut self, name: &'static str) {
        *self.unawaited.entry(name).or_default() += 1;
    }

    /// Records a time of a connection.
    #[inline]
    pub fn time(&mut self, kind: TimeKind, ns: Ns) {
        self.live.times[kind as usize].record(ns);
    }

    /// Records a time for a request in a group.
    #[inline]
    pub fn time_of(&mut self, group: u32, kind: TimeKind, ns: Ns) {
        self.live.times[kind as usize].record(ns);
        if self.live.phase == Phase::Measure {
            self.group_times.record(group, kind, ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::PART_NS;
    use crate::slice::MOST_EARLIER;
    use crate::testing::closed_plan;
    use floodmark_record::events::GroupRow;
    use std::sync::mpsc::{channel, sync_channel};
    use std::time::Duration;

    #[test]
    fn a_slice_without_a_spare_counts_each_part_separately() {
        let (out, messages) = sync_channel(10);
        let (give_back, back) = channel();
        let mut recorder = Recorder::new(&closed_plan(1, 1), Slice::new(0, 1), out, back);
        recorder.begin(Phase::Measure, 0, None);
        for part in 0..4 {
            recorder.tick(part * PART_NS);
            recorder.intended(0, part + 1);
            if part == 2 {
                give_back.send(Box::new(Slice::new(0, 1))).unwrap();
            }
        }
        give_back.send(Box::new(Slice::new(0, 1))).unwrap();
        recorder.end(3 * PART_NS + 1);
        let counts = |all: &GroupRow, groups: &[GroupRow]| {
            assert_eq!(all.counts.intended, groups[0].counts.intended);
            all.counts.intended
        };
        let slices: Vec<_> = messages
            .try_iter()
            .filter_map(|message| match message {
                Message::Slice(slice) => {
                    let mut parts = slice.earlier().to_vec();
                    parts.push(slice.sums());
                    let parts = parts.iter();
                    let parts = parts.map(|part| (part.index, counts(&part.all, &part.groups)));
                    Some(parts.collect::<Vec<_>>())
                }
                _ => None,
            })
            .collect();
        assert_eq!(slices, [vec![(0, 1), (1, 2), (2, 3)], vec![(3, 4)]]);
    }

    #[test]
    fn a_thread_waits_for_a_spare_only_after_the_maximum_number_of_parts() {
        let (out, messages) = sync_channel(10);
        let (give_back, back) = channel();
        let mut recorder = Recorder::new(&closed_plan(1, 1), Slice::new(0, 0), out, back);
        recorder.begin(Phase::Measure, 0, None);
        let most = MOST_EARLIER as u64;
        for part in 0..=most {
            recorder.tick(part * PART_NS);
        }
        let waiting = std::thread::spawn(move || {
            recorder.tick((most + 1) * PART_NS);
        });
        assert!(messages.recv_timeout(Duration::from_millis(100)).is_err());
        give_back.send(Box::new(Slice::new(0, 0))).unwrap();
        waiting.join().unwrap();
        let Message::Slice(slice) = messages.recv().unwrap() else {
            panic!("the message is not a slice");
        };
        assert_eq!((slice.index, slice.earlier().len()), (most, MOST_EARLIER));
    }
}
