//! The thread that draws the live view and reads keys.

use std::io::{self, PipeReader, PipeWriter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use floodmark_record::units::Rate;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdin;

use crate::draw::{Page, Theme};
use crate::screen::{Screen, has_keys, restore_terminal};
use crate::state::LiveState;

/// Minimum time between two drawings.
const INTERVAL: Duration = Duration::from_millis(250);

/// State that the drawing thread shares with other threads.
struct Shared {
    state: Mutex<LiveState>,
    /// Whether the state has changed since the last drawing.
    is_changed: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, LiveState> {
        // A panic while drawing leaves the state intact.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A live view on the terminal. Dropping it restores the terminal and prints the messages that were
/// written to stderr in the meantime.
pub struct LiveView {
    shared: Arc<Shared>,
    /// Closing the pipe ends the thread.
    wake: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl LiveView {
    /// Shows the view on the terminal to which stderr is connected. The key `q` sets `stop`. With
    /// `rates`, the keys `+` and `-` send the new rate of a load whose rate is adjustable. `color`
    /// says whether colors and emphasis are used.
    ///
    /// # Errors
    /// stderr is not a terminal, this process is not in the terminal's foreground, or the thread
    /// cannot be started.
    pub fn open(
        stop: Arc<AtomicBool>,
        rates: Option<Sender<Rate>>,
        color: bool,
    ) -> io::Result<Self> {
        restore_on_panic();
        let screen = Screen::open()?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            is_changed: AtomicBool::new(true),
        });
        let (reader, wake) = io::pipe()?;
        let drawer = Drawer {
            shared: Arc::clone(&shared),
            screen,
            stop,
            rates,
            theme: Theme { color },
            messages: Vec::new(),
            has_keys: has_keys(),
            is_paused: false,
            drawn: None,
        };
        let thread = std::thread::Builder::new()
            .name("live view".to_owned())
            .spawn(move || drawer.run(&reader))?;
        Ok(LiveView {
            shared,
            wake: Some(wake),
            thread: Some(thread),
        })
    }

    /// Changes what the view shows. The change is drawn within 250 ms.
    pub fn update(&self, change: impl FnOnce(&mut LiveState)) {
        change(&mut self.shared.state());
        self.shared.is_changed.store(true, Ordering::Relaxed);
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic has already been printed.
            let _ = thread.join();
        }
    }
}

/// Makes a panic restore the terminal before the panic's message is printed.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_terminal();
            previous(panic);
        }));
    });
}

/// Draws the view on a separate thread.
struct Drawer {
    shared: Arc<Shared>,
    screen: Screen,
    stop: Arc<AtomicBool>,
    /// Sends the rates that the user sets.
    rates: Option<Sender<Rate>>,
    theme: Theme,
    messages: Vec<String>,
    has_keys: bool,
    is_paused: bool,
    /// Time of the last drawing.
    drawn: Option<Instant>,
}

impl Drawer {
    /// Draws until the writing end of `wake` is closed.
    fn run(mut self, wake: &PipeReader) {
        loop {
            self.refresh();
            let mut sources = vec![PollFd::new(wake, PollFlags::IN)];
            let input = stdin();
            if self.has_keys {
                sources.push(PollFd::new(&input, PollFlags::IN));
            }
            let timeout = Timespec::try_from(self.wait()).ok();
            // A signal only wakes up the thread early.
            let _ = poll(&mut sources, timeout.as_ref());
            if !sources[0].revents().is_empty() {
                return;
            }
            if sources
                .get(1)
                .is_some_and(|keys| !keys.revents().is_empty())
            {
                self.read_keys();
            }
        }
    }

    /// Returns the time until the next drawing may start, or the interval if it may start now.
    fn wait(&self) -> Duration {
        let since = self.drawn.map_or(INTERVAL, |drawn| drawn.elapsed());
        match INTERVAL.saturating_sub(since) {
            Duration::ZERO => INTERVAL,
            rest => rest,
        }
    }

    /// Draws the view if it has changed and the last drawing is old enough.
    fn refresh(&mut self) {
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < INTERVAL) {
            return;
        }
        let mut is_changed = self.screen.is_resized();
        if let Some(messages) = self.screen.new_messages() {
            self.messages = messages;
            is_changed = true;
        }
        if self.stop.load(Ordering::Relaxed) {
            let mut state = self.shared.state();
            is_changed |= !std::mem::replace(&mut state.is_ending, true);
        }
        is_changed |= self.shared.is_changed.load(Ordering::Relaxed) && !self.is_paused;
        if is_changed {
            self.draw();
        }
    }

    fn draw(&mut self) {
        self.shared.is_changed.store(false, Ordering::Relaxed);
        self.screen.draw(|area, buffer| {
            // Lock the state only while drawing into the buffer, not while writing to the terminal.
            let page = Page {
                state: &self.shared.state(),
                messages: &self.messages,
                has_keys: self.has_keys,
                has_rate_keys: self.rates.is_some(),
                is_paused: self.is_paused,
                theme: self.theme,
            };
            page.draw(area, buffer);
        });
        self.drawn = Some(Instant::now());
    }

    /// Reads the pressed keys. Stops reading if stdin is closed.
    fn read_keys(&mut self) {
        let mut keys = [0; 64];
        let read = rustix::io::read(stdin(), &mut keys).unwrap_or(0);
        self.has_keys = read > 0;
        for key in &keys[..read] {
            match key {
                b'q' | b'Q' => self.stop.store(true, Ordering::Relaxed),
                b'p' | b'P' => {
                    self.is_paused = !self.is_paused;
                    self.draw();
                }
                // The plus sign needs Shift on many keyboards; its key alone sends an equals sign.
                b'+' | b'=' => self.change_rate(1),
                b'-' => self.change_rate(-1),
                _ => {}
            }
        }
    }

    /// Raises or lowers the rate of the load by a number of steps.
    fn change_rate(&self, steps: i32) {
        let Some(rates) = &self.rates else {
            return;
        };
        let mut state = self.shared.state();
        if let Some(rate) = state.run.as_mut().and_then(|run| run.change_rate(steps)) {
            // Sending fails only if the load has ended.
            let _ = rates.send(rate);
            self.shared.is_changed.store(true, Ordering::Relaxed);
        }
    }
}
