//! Commands on a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::{code, finish, floodmark, text, wait_for};

/// A command whose stdin, stdout and stderr are a pseudo-terminal, which is also its controlling
/// terminal.
pub struct OnTerminal {
    child: Child,
    /// The end of the terminal that the test uses.
    ours: File,
    output: Arc<Mutex<Output>>,
    reader: JoinHandle<()>,
    /// Keeps the terminal open until its modes have been checked.
    theirs: OwnedFd,
    modes: libc::termios,
}

/// What a command has written to its terminal.
struct Output {
    bytes: Vec<u8>,
    screen: vt100::Parser,
}

/// Settings of a terminal.
pub struct TerminalSetup {
    pub columns: u16,
    pub rows: u16,
    /// Whether `NO_COLOR` is set.
    pub no_color: bool,
}

impl Default for TerminalSetup {
    fn default() -> Self {
        TerminalSetup {
            columns: 100,
            rows: 30,
            no_color: false,
        }
    }
}

impl OnTerminal {
    pub fn start(arguments: &[&str], setup: &TerminalSetup) -> Self {
        OnTerminal::spawn(floodmark(arguments), setup)
    }

    pub fn spawn(mut command: Command, setup: &TerminalSetup) -> Self {
        let (ours, theirs) = open(setup);
        let end = || Stdio::from(theirs.try_clone().unwrap());
        command
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end());
        if setup.no_color {
            command.env("NO_COLOR", "1");
        }
        // SAFETY: these calls are safe between fork and exec (signal-safety(7)).
        unsafe {
            command.pre_exec(|| {
                // The tests may run under nohup, which makes them ignore SIGHUP.
                let is_set = libc::signal(libc::SIGHUP, libc::SIG_DFL) != libc::SIG_ERR
                    && libc::setsid() >= 0
                    && libc::ioctl(0, libc::TIOCSCTTY, 0) >= 0;
                if is_set {
                    Ok(())
                } else {
                    Err(std::io::Error::last_os_error())
                }
            });
        }
        let modes = modes(&ours);
        let child = command.spawn().unwrap();
        let output = Arc::new(Mutex::new(Output {
            bytes: Vec::new(),
            screen: vt100::Parser::new(cells(setup.rows), cells(setup.columns), 0),
        }));
        let (mut written, all) = (ours.try_clone().unwrap(), Arc::clone(&output));
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails with EIO after the other end is closed.
            while let Ok(n @ 1..) = written.read(&mut buffer) {
                let mut all = all.lock().unwrap();
                all.bytes.extend_from_slice(&buffer[..n]);
                all.screen.process(&buffer[..n]);
            }
        });
        OnTerminal {
            child,
            ours,
            output,
            reader,
            theirs,
            modes,
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Types keys. Ctrl-C is `\x03`.
    pub fn keys(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        let mut output = self.output.lock().unwrap();
        output.screen.set_size(cells(rows), cells(columns));
        drop(output);
        let size = size(columns, rows);
        // SAFETY: the pointer is valid.
        let done = unsafe { libc::ioctl(self.ours.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(done, 0);
    }

    /// Returns everything that was written to the terminal so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap().bytes).into_owned()
    }

    /// Waits until the screen shows `words`. Searching [`OnTerminal::shown`] would miss words,
    /// because the view does not write characters that have not changed.
    pub fn wait_for(&self, words: &str) {
        wait_for(words, || {
            let output = self.output.lock().unwrap();
            let screen = output.screen.screen().contents();
            screen.contains(words).then_some(())
        });
    }

    /// Waits for the command to end. Checks that it has restored the terminal's modes. Returns the
    /// exit code and everything that was written to the terminal.
    pub fn end(self) -> (i32, String) {
        let output = finish(self.child);
        let modes = modes(&self.ours);
        assert_eq!(modes.c_lflag, self.modes.c_lflag);
        assert_eq!(modes.c_iflag, self.modes.c_iflag);
        assert_eq!(modes.c_cc, self.modes.c_cc);
        drop(self.theirs);
        self.reader.join().unwrap();
        let shown = text(&self.output.lock().unwrap().bytes);
        (code(&output), shown)
    }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

fn size(columns: u16, rows: u16) -> libc::winsize {
    libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn open(setup: &TerminalSetup) -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let size = size(setup.columns, setup.rows);
    // SAFETY: the call sets both descriptors. Name and settings may be null (openpty(3)).
    let made = unsafe {
        libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    assert_eq!(made, 0);
    // Otherwise, children of other tests would keep the terminal open.
    for end in [ours, theirs] {
        // SAFETY: the descriptor is open.
        let set = unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
        assert_eq!(set, 0);
    }
    // SAFETY: both descriptors are new and have no other owner.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

fn modes(terminal: &File) -> libc::termios {
    // SAFETY: all-zero bytes are a valid value, which the call overwrites.
    unsafe {
        let mut modes = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut modes), 0);
        modes
    }
}
