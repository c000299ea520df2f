//! Controls the terminal: the alternate screen, the keys and the messages. Also restores the
//! terminal's original state.
//!
//! While the view is shown, stderr is redirected to a file in memory, so that messages from this
//! process and its children do not disturb the view. Restoring the terminal copies these messages
//! to it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::Errno;
use rustix::stdio::{dup2_stderr, stderr, stdin};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr,
    tcgetpgrp, tcgetwinsize, tcsetattr,
};

/// Shows the alternate screen, hides the cursor and clears the screen.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";

/// Resets the style, shows the cursor and the normal screen.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// Maximum number of bytes that the view reads from the end of the messages.
const LAST_MESSAGES: u64 = 4096;

/// The terminal of this process, and its original state.
struct Console {
    /// The terminal, originally stderr.
    terminal: OwnedFd,
    original: Termios,
    /// Messages written to stderr while the view is shown.
    messages: OwnedFd,
    /// Whether the view is shown.
    is_taken: AtomicBool,
}

/// Set by the first view and never changed afterwards, so a signal handler can read it.
static CONSOLE: OnceLock<Console> = OnceLock::new();

impl Console {
    fn open() -> io::Result<Self> {
        let terminal = rustix::io::fcntl_dupfd_cloexec(stderr(), 3)?;
        let messages = rustix::fs::memfd_create("messages", MemfdFlags::CLOEXEC)?;
        // Children write to the same file.
        rustix::fs::fcntl_setfl(&messages, OFlags::APPEND)?;
        Ok(Console {
            original: tcgetattr(&terminal)?,
            terminal,
            messages,
            is_taken: AtomicBool::new(false),
        })
    }

    /// Writes all bytes; stops at the first error other than EINTR. Async-signal-safe.
    fn write(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match rustix::io::write(&self.terminal, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Turns off echo and line editing. Ctrl-C still sends SIGINT. Ctrl-Z, Ctrl-\ and Ctrl-S are
    /// disabled, because they would suspend or end the process, or freeze the output, while the
    /// view is shown.
    fn set_modes(&self) -> io::Result<()> {
        let mut modes = self.original.clone();
        modes.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
        modes.input_modes -= InputModes::IXON;
        for off in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
            modes.special_codes[off] = 0;
        }
        tcsetattr(&self.terminal, OptionalActions::Now, &modes)?;
        Ok(())
    }
}

/// Restores the terminal, and prints the messages that were written while the view was shown. Does
/// nothing if no view is shown. Safe in signal handlers.
pub fn restore_terminal() {
    let Some(console) = CONSOLE.get() else {
        return;
    };
    if !console.is_taken.swap(false, Ordering::SeqCst) {
        return;
    }
    console.write(LEAVE);
    let _ = tcsetattr(&console.terminal, OptionalActions::Now, &console.original);
    let _ = dup2_stderr(&console.terminal);
    let mut buffer = [0; 1024];
    let mut at = 0;
    while let Ok(read @ 1..) = rustix::io::pread(&console.messages, &mut buffer, at) {
        console.write(&buffer[..read]);
        at += read as u64;
    }
}

/// Returns whether stdin is a terminal, so that keys can be read.
pub(crate) fn has_keys() -> bool {
    isatty(stdin())
}

/// The alternate screen. Dropping it restores the terminal.
pub(crate) struct Screen {
    console: &'static Console,
    /// What the terminal shows.
    shown: Buffer,
    /// Total length of the messages when they were last read, in bytes.
    read_length: u64,
}

impl Screen {
    /// Takes over the terminal to which stderr is connected.
    ///
    /// # Errors
    /// stderr is not a terminal, this process is not in the terminal's foreground, or another
    /// screen is open.
    pub(crate) fn open() -> io::Result<Self> {
        // Ignore an error: tcgetpgrp(3) fails if the terminal is not this process's controlling
        // terminal.
        let foreground = tcgetpgrp(stderr());
        if foreground.is_ok_and(|group| group != rustix::process::getpgrp()) {
            return Err(io::Error::other("this process runs in the background"));
        }
        let console = match CONSOLE.get() {
            Some(console) => console,
            None => {
                let console = Console::open()?;
                CONSOLE.get_or_init(|| console)
            }
        };
        rustix::fs::ftruncate(&console.messages, 0)?;
        if console.is_taken.swap(true, Ordering::SeqCst) {
            return Err(io::Error::other("the terminal is already in use"));
        }
        let screen = Screen {
            console,
            shown: Buffer::empty(Rect::ZERO),
            read_length: 0,
        };
        console.set_modes()?;
        dup2_stderr(&console.messages)?;
        console.write(ENTER);
        Ok(screen)
    }

    /// Returns the size of the terminal, or an empty area if the terminal is closed.
    fn area(&self) -> Rect {
        tcgetwinsize(&self.console.terminal)
            .map_or(Rect::ZERO, |size| Rect::new(0, 0, size.ws_col, size.ws_row))
    }

    /// Returns whether the size of the terminal has changed since the last drawing.
    pub(crate) fn is_resized(&self) -> bool {
        self.area() != self.shown.area
    }

    /// Returns the last messages if there are new ones.
    pub(crate) fn new_messages(&mut self) -> Option<Vec<String>> {
        let length = rustix::fs::fstat(&self.console.messages).ok()?.st_size as u64;
        if length == self.read_length {
            return None;
        }
        self.read_length = length;
        let mut bytes = vec![0; LAST_MESSAGES.min(length) as usize];
        let from = length - bytes.len() as u64;
        let read = rustix::io::pread(&self.console.messages, &mut bytes, from).ok()?;
        let text = String::from_utf8_lossy(&bytes[..read]);
        let whole = text.lines().skip(usize::from(from > 0));
        Some(
            whole
                .map(|line| floodmark_report::plain::line(line).into_owned())
                .collect(),
        )
    }

    /// Draws what has changed. Writes nothing if the terminal has already been restored.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) {
        let area = self.area();
        let mut bytes = Vec::new();
        if area != self.shown.area {
            bytes.extend_from_slice(b"\x1b[2J");
            self.shown = Buffer::empty(area);
        }
        let mut next = Buffer::empty(area);
        draw(area, &mut next);
        encode(&self.shown.diff(&next), &mut bytes);
        self.shown = next;
        if self.console.is_taken.load(Ordering::SeqCst) {
            self.console.write(&bytes);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Appends the escape sequences that draw the changed cells.
fn encode(cells: &[(u16, u16, &Cell)], bytes: &mut Vec<u8>) {
    let mut expected = None;
    let mut style = (Color::Reset, Modifier::empty());
    for (x, y, cell) in cells {
        if expected != Some((*x, *y)) {
            bytes.extend_from_slice(format!("\x1b[{};{}H", y + 1, x + 1).as_bytes());
        }
        expected = Some((x + 1, *y));
        let next = (cell.fg, cell.modifier);
        if next != style {
            bytes.extend_from_slice(b"\x1b[0m");
            let colors = [
                (Color::Red, 31),
                (Color::Green, 32),
                (Color::Yellow, 33),
                (Color::Cyan, 36),
            ];
            let modifiers = [(Modifier::BOLD, 1), (Modifier::DIM, 2)];
            let colors = colors.into_iter().filter(|(color, _)| *color == next.0);
            let modifiers = modifiers.into_iter().filter(|(on, _)| next.1.contains(*on));
            for code in colors
                .map(|(_, code)| code)
                .chain(modifiers.map(|(_, code)| code))
            {
                bytes.extend_from_slice(format!("\x1b[{code}m").as_bytes());
            }
            style = next;
        }
        bytes.extend_from_slice(cell.symbol().as_bytes());
    }
    if style != (Color::Reset, Modifier::empty()) {
        bytes.extend_from_slice(b"\x1b[0m");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::Style;

    #[test]
    fn writes_only_changed_cells_and_resets_the_style() {
        let area = Rect::new(0, 0, 12, 2);
        let mut before = Buffer::empty(area);
        before.set_string(0, 0, "same 1", Style::new());
        let mut after = before.clone();
        after.set_string(
            5,
            0,
            "2",
            Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        );
        after.set_string(2, 1, "ab", Style::new());
        let mut bytes = Vec::new();
        encode(&before.diff(&after), &mut bytes);
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "\x1b[1;6H\x1b[0m\x1b[31m\x1b[1m2\x1b[2;3H\x1b[0mab"
        );
    }
}
