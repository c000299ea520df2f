//! What one load thread counts and times, second by second.
//!
//! A thread owns its slice of the current second and hands it over when the second is over; empty
//! slices come back, so nothing is allocated while load runs. Were none back in time, because the gatherer or who
//! reads its rows is stuck, the current slice takes the next second in too: no figure is lost and no memory grows.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender};

use floodmark_record::events::Phase;
use floodmark_record::{Outcome, TimeKind};

use crate::clock::Ns;
use crate::group_times::GroupTimes;
use crate::message::Message;
use crate::mix::Pick;
use crate::rows::Rows;
use crate::slice::Slice;
use crate::sums::Sums;

/// One request and its moments, ns on the worker's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moments {
    /// Which request of the plan it is.
    pub pick: Pick,
    /// When it should have been sent.
    pub intended: Ns,
    /// When a connection was there for it, less what floodmark itself delayed in opening it.
    pub free: Ns,
    /// When it was handed to the kernel.
    pub sent: Ns,
    /// When the first byte of its answer was read.
    pub first: Ns,
}

/// One thread's recorder.
pub struct Recorder {
    live: Box<Slice>,
    out: SyncSender<Message>,
    back: Receiver<Box<Slice>>,
    /// Rows of the measurement.
    measured: Rows,
    /// Rows of the current phase.
    rows: Rows,
    phase_start: Ns,
    row_end: Ns,
    deadline: Ns,
    window_end: Ns,
    open: u64,
    peak_open: u64,
    total_connects: u64,
    errors: BTreeMap<String, u64>,
    unawaited: BTreeMap<String, u64>,
    group_times: GroupTimes,
}

impl Recorder {
    /// A recorder that hands full slices to `out` and takes empty ones from `back`, for a measurement in rows `measured`; it has
    /// as many groups as `first`.
    #[must_use]
    pub fn new(
        first: Box<Slice>,
        out: SyncSender<Message>,
        back: Receiver<Box<Slice>>,
        deadline: Ns,
        measured: Rows,
    ) -> Self {
        Recorder {
            group_times: GroupTimes::new(first.groups.len()),
            live: first,
            rows: measured.clone(),
            measured,
            out,
            back,
            phase_start: 0,
            row_end: Ns::MAX,
            deadline,
            window_end: Ns::MAX,
            open: 0,
            peak_open: 0,
            total_connects: 0,
            errors: BTreeMap::new(),
            unawaited: BTreeMap::new(),
        }
    }

    /// Begins a phase at `start`; answers after `window_end` no longer count towards throughput.
    pub fn begin(&mut self, phase: Phase, start: Ns, window_end: Option<Ns>) {
        self.phase_start = start;
        self.rows = match phase {
            Phase::Warmup => Rows::default(),
            Phase::Measure => self.measured.clone(),
        };
        self.row_end = start + self.rows.bounds(0).1;
        self.window_end = window_end.unwrap_or(Ns::MAX);
        self.live.phase = phase;
        self.live.index = 0;
    }

    /// Ends the phase, handing over what there is.
    pub fn end(&mut self, now: Ns) {
        self.tick(now);
        self.row_end = Ns::MAX;
        // No request is out any more, so there is time to wait for an empty slice.
        if let Ok(empty) = self.back.recv() {
            self.hand_over(empty);
        }
    }

    /// When the current second ends.
    #[must_use]
    pub fn row_end(&self) -> Ns {
        self.row_end
    }

    /// Moves on to the second that `now` lies in.
    #[inline]
    pub fn tick(&mut self, now: Ns) {
        if now >= self.row_end {
            self.turn_over(now);
        }
    }

    #[cold]
    fn turn_over(&mut self, now: Ns) {
        let index = self.rows.at(now - self.phase_start);
        self.row_end = self.phase_start + self.rows.bounds(index).1;
        if let Ok(empty) = self.back.try_recv() {
            self.hand_over(empty);
            self.live.index = index;
        }
    }

    /// Sends the live slice off; `empty` takes its place.
    fn hand_over(&mut self, empty: Box<Slice>) {
        self.live.open = self.open;
        let full = std::mem::replace(&mut self.live, empty);
        self.live.phase = full.phase;
        // The gatherer outlives the threads; were it gone, there would be nobody to tell.
        let _ = self.out.send(Message::Slice(full));
    }

    /// Counts what is counted of all requests and of each group.
    #[inline]
    fn count(&mut self, group: u32, add: impl Fn(&mut Sums)) {
        add(&mut self.live.all);
        if let Some(sums) = self.live.groups.get_mut(group as usize) {
            add(sums);
        }
    }

    /// The time of `n` requests of a group has come.
    pub fn intended(&mut self, group: u32, n: u64) {
        self.count(group, |sums| sums.counts.intended += n);
    }

    /// A request has been handed to the kernel.
    #[inline]
    pub fn sent(&mut self, moments: &Moments, bytes: usize) {
        let group = moments.pick.group;
        self.count(group, |sums| {
            sums.counts.sent += 1;
            sums.bytes_sent += bytes as u64;
        });
        let free = moments.free.max(moments.intended);
        self.time_of(group, TimeKind::Blocked, free - moments.intended);
        self.time_of(group, TimeKind::Lateness, moments.sent.saturating_sub(free));
    }

    /// A request is sent a second time, on another connection.
    pub fn resent(&mut self, group: u32, bytes: usize) {
        self.count(group, |sums| {
            sums.counts.reconnects += 1;
            sums.bytes_sent += bytes as u64;
        });
    }

    /// Bytes came on a connection whose latest request is of a group.
    #[inline]
    pub fn received(&mut self, group: u32, bytes: usize) {
        self.count(group, |sums| sums.bytes_received += bytes as u64);
    }

    /// A whole answer came.
    #[inline]
    pub fn answered(&mut self, moments: &Moments, done: Ns, status: u16, outcome: Outcome) {
        self.tick(done);
        let group = moments.pick.group;
        self.count(group, |sums| {
            if let Some(n) = sums.statuses.get_mut(usize::from(status)) {
                *n += 1;
            }
        });
        if outcome != Outcome::Ok {
            return self.failed(moments, done, outcome);
        }
        let response = done - moments.intended;
        let good = u64::from(response <= self.deadline);
        let in_window = u64::from(done <= self.window_end);
        self.count(group, |sums| {
            sums.counts.ok += 1;
            sums.good += good;
            sums.ok_in_window += in_window;
            sums.good_in_window += in_window * good;
        });
        self.time_of(group, TimeKind::Response, response);
        self.time_of(group, TimeKind::Service, done - moments.sent);
        let first_byte = moments.first.saturating_sub(moments.sent);
        self.time_of(group, TimeKind::FirstByte, first_byte);
    }

    /// A request that was sent ended otherwise than ok.
    pub fn failed(&mut self, moments: &Moments, done: Ns, outcome: Outcome) {
        self.tick(done);
        let group = moments.pick.group;
        self.count(group, |sums| sums.counts.add(outcome));
        let kind = if outcome == Outcome::TimedOut {
            TimeKind::Censored
        } else {
            TimeKind::Error
        };
        self.time_of(group, kind, done.saturating_sub(moments.intended));
    }

    /// No connection could be opened for a request of a group.
    pub fn connect_failed(&mut self, group: u32, intended: Ns, now: Ns) {
        self.tick(now);
        self.count(group, |sums| sums.counts.connect_failed += 1);
        self.time_of(group, TimeKind::Error, now.saturating_sub(intended));
    }

    /// Requests of a group that were still to be sent are given up.
    pub fn unsent(&mut self, group: u32, n: u64) {
        self.count(group, |sums| sums.counts.unsent += n);
    }

    /// A request of a group that is out is no longer awaited.
    pub fn in_flight_at_end(&mut self, group: u32) {
        self.count(group, |sums| sums.counts.in_flight_at_end += 1);
    }

    /// A connection stands.
    #[inline]
    pub fn connected(&mut self) {
        self.live.connects += 1;
        self.total_connects += 1;
        self.open += 1;
        self.peak_open = self.peak_open.max(self.open);
    }

    /// A connection was closed.
    pub fn disconnected(&mut self) {
        self.open -= 1;
    }

    /// Connections that stand.
    #[must_use]
    pub fn open_connections(&self) -> u64 {
        self.open
    }

    /// Something went wrong that has a name.
    #[cold]
    pub fn error(&mut self, name: &str) {
        count_name(&mut self.errors, name);
    }

    /// What was counted by that name last was the opening of a connection that no request waited for.
    #[cold]
    pub fn unawaited(&mut self, name: &str) {
        count_name(&mut self.unawaited, name);
    }

    /// Named errors of connections that no request waited for; they are among all.
    #[must_use]
    pub fn unawaited_errors(&self) -> &BTreeMap<String, u64> {
        &self.unawaited
    }

    /// Named errors, connections opened in all, most open at once.
    #[must_use]
    pub fn totals(&self) -> (BTreeMap<String, u64>, u64, u64) {
        (self.errors.clone(), self.total_connects, self.peak_open)
    }

    /// Times of the groups over the measurement.
    #[must_use]
    pub fn group_times(&self) -> &GroupTimes {
        &self.group_times
    }

    /// A time of a connection was taken.
    #[inline]
    pub fn time(&mut self, kind: TimeKind, ns: Ns) {
        self.live.times[kind as usize].record(ns);
    }

    /// A time of a request of a group was taken.
    #[inline]
    fn time_of(&mut self, group: u32, kind: TimeKind, ns: Ns) {
        self.live.times[kind as usize].record(ns);
        if self.live.phase == Phase::Measure {
            self.group_times.record(group, kind, ns);
        }
    }
}

/// Counts a name, of which there are few: only its first time allocates.
fn count_name(names: &mut BTreeMap<String, u64>, name: &str) {
    match names.get_mut(name) {
        Some(n) => *n += 1,
        None => {
            names.insert(name.to_owned(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::ROW_NS;
    use std::sync::mpsc::{channel, sync_channel};

    #[test]
    fn without_an_empty_slice_the_current_one_takes_the_next_second_in() {
        let (out, messages) = sync_channel(10);
        let (give_back, back) = channel();
        let first = Box::new(Slice::new(0, 0));
        let mut recorder = Recorder::new(first, out, back, ROW_NS, Rows::default());
        recorder.begin(Phase::Measure, 0, None);
        for second in 0..4 {
            recorder.tick(second * ROW_NS);
            recorder.intended(0, 1);
            if second == 2 {
                give_back.send(Box::new(Slice::new(0, 0))).unwrap();
            }
        }
        give_back.send(Box::new(Slice::new(0, 0))).unwrap();
        recorder.end(3 * ROW_NS + 1);
        let slices: Vec<_> = messages
            .try_iter()
            .filter_map(|message| match message {
                Message::Slice(slice) => Some((slice.index, slice.all.counts.intended)),
                _ => None,
            })
            .collect();
        assert_eq!(slices, [(0, 3), (3, 1)]);
    }
}
