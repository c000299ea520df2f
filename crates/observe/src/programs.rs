//! Distinguishes programs whose processes have the same name.

use crate::Root;
use crate::thread_groups::group_of;

/// Programs whose processes have the same name, such as a server and a log reader that both run in
/// Python.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// Name of the process, and the start of its command line.
    known: Vec<(String, Vec<u8>)>,
}

impl Programs {
    /// Returns 1 for the first program with this process name, 2 for the second program, and so on.
    pub(crate) fn number(&mut self, root: &Root, pid: u32, name: &str) -> usize {
        let line = std::fs::read(root.path(format!("/proc/{pid}/cmdline"))).unwrap_or_default();
        // The groups of threads have no trailing number: `python` and `python3` are one name.
        let name = group_of(name, false, 1).into_owned();
        let program = (name, start_of_command(&line));
        let same_name = self.known.iter().filter(|known| known.0 == program.0);
        let at = same_name.clone().position(|known| *known == program);
        let number = at.unwrap_or_else(|| same_name.count()) + 1;
        if at.is_none() {
            self.known.push(program);
        }
        number
    }
}

/// Returns the part of a command line that identifies a program: the first two arguments, the text
/// before the colon of a process title such as `nginx: worker process`, or another process title
/// without its digits, such as `unicorn worker[]` for `unicorn worker[1]`.
fn start_of_command(line: &[u8]) -> Vec<u8> {
    let mut arguments = line.split(|byte| *byte == 0);
    let first = arguments.next().unwrap_or_default();
    if let Some(title) = first.windows(2).position(|part| part == b": ") {
        return first[..title].to_vec();
    }
    if first.contains(&b' ') {
        let title = first.iter().filter(|byte| !byte.is_ascii_digit());
        return title.copied().collect();
    }
    [first, arguments.next().unwrap_or_default()].join(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifies_programs_by_the_start_of_their_command_line() {
        for (line, start) in [
            (
                &b"python3\0server.py\08080\0"[..],
                &b"python3\0server.py"[..],
            ),
            (b"nginx: worker process", b"nginx"),
            (
                b"postgres: bench bench 127.0.0.1(4321) idle\0\0",
                b"postgres",
            ),
            (
                b"unicorn worker[12] -c unicorn.conf.rb",
                b"unicorn worker[] -c unicorn.conf.rb",
            ),
            (b"node\0", b"node\0"),
            (b"", b"\0"),
        ] {
            assert_eq!(start_of_command(line), start);
        }
    }
}
