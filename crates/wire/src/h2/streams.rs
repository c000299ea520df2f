//! State of the streams, which decides whether a frame is legal (RFC 9113 section 5.1).

use super::error::ConnectionError;
use super::frame::MAX_31_BITS;

/// State of a stream that a request opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum StreamState {
    /// The final response head has not arrived.
    Head,
    /// The head has arrived, and the body or the trailers have not ended.
    Body,
    /// The server ended the stream. Frames other than RST_STREAM and WINDOW_UPDATE are errors.
    #[default]
    Ended,
    /// The client ended the stream, or the server will not process it. Frames that are still in
    /// transit are ignored.
    Abandoned,
}

impl StreamState {
    fn is_open(self) -> bool {
        matches!(self, Self::Head | Self::Body)
    }
}

/// A stream that a request opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stream {
    pub id: u32,
    /// Changed by [`Streams::close`] when the stream closes.
    pub state: StreamState,
    /// Number of 1xx responses so far.
    pub interim: u8,
    /// Whether the request uses the method HEAD, so its response has no body.
    pub to_head_request: bool,
    /// Whether the body of the request is incomplete.
    pub is_sending: bool,
    /// Bytes that flow control still allows the client to send. Negative after SETTINGS reduced
    /// the initial window (section 6.9.2).
    pub send_window: i64,
    /// Bytes of DATA frames for which the server has no new credit yet.
    pub received: u32,
    /// Bytes of the body that must still arrive, if the length is known.
    pub body_left: Option<u64>,
}

/// Streams by identifier.
///
/// The identifier determines the slot. If the slot of the next identifier holds an open stream,
/// the identifier is skipped, which closes it (section 5.1.1). A closed stream is remembered until
/// its slot is needed.
#[derive(Debug)]
pub(super) struct Streams {
    slots: Box<[Stream]>,
    open: u32,
    /// The lowest identifier that was neither used nor skipped.
    pub(super) next: u32,
}

impl Streams {
    /// Creates slots for at least twice `max_open` streams. `first` is the first identifier.
    pub fn new(max_open: u32, first: u32) -> Self {
        let slots = (2 * max_open as usize).next_power_of_two();
        Streams {
            slots: vec![Stream::default(); slots].into(),
            open: 0,
            next: first,
        }
    }

    /// Returns the number of open streams.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Opens a stream with the next identifier. Fewer than `max_open` streams must be open.
    /// Returns `None` if no identifier is left.
    pub fn start(&mut self, stream: Stream) -> Option<u32> {
        loop {
            let id = self.next;
            if id > MAX_31_BITS {
                return None;
            }
            self.next += 2;
            let slot = self.slot(id);
            if !slot.state.is_open() {
                *slot = Stream { id, ..stream };
                self.open += 1;
                return Some(id);
            }
        }
    }

    /// Returns the stream with this identifier, or `None` if the stream is closed and forgotten.
    ///
    /// # Errors
    /// The stream was never opened.
    pub fn get(&mut self, id: u32) -> Result<Option<&mut Stream>, ConnectionError> {
        if id.is_multiple_of(2) || id >= self.next {
            return Err(ConnectionError::IdleStream);
        }
        let slot = self.slot(id);
        Ok((slot.id == id).then_some(slot))
    }

    /// Returns the open stream with this identifier, if any.
    pub fn get_open(&mut self, id: u32) -> Option<&mut Stream> {
        let slot = self.slot(id);
        (slot.id == id && slot.state.is_open()).then_some(slot)
    }

    /// Closes an open stream and returns its previous state.
    pub fn close(&mut self, id: u32, state: StreamState) -> Option<Stream> {
        let stream = self.get_open(id)?;
        let before = *stream;
        stream.state = state;
        self.open -= 1;
        Some(before)
    }

    /// Closes the open streams above an identifier.
    pub fn abandon_above(&mut self, last: u32) {
        if self.open == 0 {
            return;
        }
        for slot in &mut self.slots {
            if slot.id > last && slot.state.is_open() {
                slot.state = StreamState::Abandoned;
                self.open -= 1;
            }
        }
    }

    /// Adds to the send windows of all open streams.
    ///
    /// # Errors
    /// A window overflows.
    pub fn add_send_window(&mut self, bytes: i64) -> Result<(), ConnectionError> {
        if bytes == 0 || self.open == 0 {
            return Ok(());
        }
        for slot in &mut self.slots {
            if slot.state.is_open() {
                add_window(&mut slot.send_window, bytes)?;
            }
        }
        Ok(())
    }

    fn slot(&mut self, id: u32) -> &mut Stream {
        let mask = self.slots.len() - 1;
        &mut self.slots[(id / 2) as usize & mask]
    }
}

/// Adds bytes to a flow-control window.
///
/// # Errors
/// The window exceeds 2^31 - 1 bytes (section 6.9.1).
pub(super) fn add_window(window: &mut i64, bytes: i64) -> Result<(), ConnectionError> {
    *window += bytes;
    if *window > i64::from(MAX_31_BITS) {
        return Err(ConnectionError::WindowOverflow);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Stream = Stream {
        id: 0,
        state: StreamState::Head,
        interim: 0,
        to_head_request: false,
        is_sending: false,
        send_window: 100,
        received: 0,
        body_left: None,
    };

    #[test]
    fn skips_identifiers_of_slots_in_use() {
        let mut streams = Streams::new(2, 1);
        assert_eq!(streams.slots.len(), 4);
        let first = streams.start(OPEN).unwrap();
        assert_eq!(first, 1);
        let mut ids = Vec::new();
        for _ in 0..6 {
            let id = streams.start(OPEN).unwrap();
            ids.push(id);
            streams.close(id, StreamState::Ended);
        }
        assert_eq!(ids, [3, 5, 7, 11, 13, 15]);
        assert_eq!(streams.open(), 1);
        assert!(streams.get(1).unwrap().is_some());
        assert!(streams.get(3).unwrap().is_none(), "11 replaced it");
        assert!(streams.get(9).unwrap().is_none(), "skipped");
        assert!(streams.get_open(15).is_none());
        assert_eq!(streams.get(15).unwrap().unwrap().state, StreamState::Ended);
        for idle in [0, 2, 17] {
            assert!(streams.get(idle).is_err());
        }
    }

    #[test]
    fn identifiers_end_at_31_bits() {
        let mut streams = Streams::new(1, MAX_31_BITS);
        assert_eq!(streams.start(OPEN), Some(MAX_31_BITS));
        streams.close(MAX_31_BITS, StreamState::Ended);
        assert_eq!(streams.start(OPEN), None);
        assert_eq!(streams.open(), 0);
    }

    #[test]
    fn closing_twice_has_no_effect() {
        let mut streams = Streams::new(4, 1);
        for _ in 0..3 {
            streams.start(OPEN).unwrap();
        }
        streams.abandon_above(3);
        assert_eq!(streams.open(), 2);
        assert!(streams.close(5, StreamState::Ended).is_none());
        assert_eq!(streams.open(), 2);
        let state = streams.get(5).unwrap().unwrap().state;
        assert_eq!(state, StreamState::Abandoned);
    }

    #[test]
    fn windows_of_open_streams_change_together() {
        let mut streams = Streams::new(2, 1);
        streams.start(OPEN).unwrap();
        streams.add_send_window(-150).unwrap();
        assert_eq!(streams.get_open(1).unwrap().send_window, -50);
        let most = i64::from(MAX_31_BITS) + 50;
        assert_eq!(streams.add_send_window(most), Ok(()));
        let error = Err(ConnectionError::WindowOverflow);
        assert_eq!(streams.add_send_window(1), error);
    }
}
