//! Exit codes, all of them.

use std::fmt;

/// How floodmark ends. Where several apply the first in this order wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// 130: interrupted; what was taken is saved.
    Interrupted,
    /// 5: floodmark itself failed.
    Failed,
    /// 2: wrong usage or file.
    Usage,
    /// 3: the server could not be reached, did not start or died.
    Server,
    /// 4: the result is invalid, or `bound` under `--strict`.
    Invalid,
    /// 1: a threshold or check failed.
    Check,
    /// 0: fine.
    Fine,
}

impl Exit {
    /// The number the shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Interrupted => 130,
            Exit::Failed => 5,
            Exit::Usage => 2,
            Exit::Server => 3,
            Exit::Invalid => 4,
            Exit::Check => 1,
            Exit::Fine => 0,
        }
    }
}

/// An ending other than fine, with the line that says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The code.
    pub exit: Exit,
    /// Place and mend, one line.
    pub message: String,
}

impl Ending {
    /// Wrong usage.
    pub fn usage(message: impl fmt::Display) -> Self {
        Ending {
            exit: Exit::Usage,
            message: message.to_string(),
        }
    }

    /// The server is at fault.
    pub fn server(message: impl fmt::Display) -> Self {
        Ending {
            exit: Exit::Server,
            message: message.to_string(),
        }
    }

    /// floodmark is at fault.
    pub fn failed(message: impl fmt::Display) -> Self {
        Ending {
            exit: Exit::Failed,
            message: message.to_string(),
        }
    }
}

/// The exit codes as they stand in the help.
pub const HELP: &str = "\
Exit codes:
  0    fine
  1    a threshold (--fail-if) or check failed
  2    wrong usage or file
  3    the server could not be reached, did not start or died
  4    the result is invalid (with --strict also: bound)
  5    floodmark itself failed
  130  interrupted; what was taken is saved
Where several apply: 130, 5, 2, 3, 4, 1 in that order.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_in_the_documented_order_wins() {
        let mut all = [
            Exit::Fine,
            Exit::Check,
            Exit::Invalid,
            Exit::Server,
            Exit::Usage,
            Exit::Failed,
            Exit::Interrupted,
        ];
        all.sort_unstable();
        assert_eq!(all.map(Exit::code), [130, 5, 2, 3, 4, 1, 0]);
    }
}
