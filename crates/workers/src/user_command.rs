//! Commands that an environment variable can override.

use std::env;
use std::process::Command;

/// Returns the command in an environment variable, with its first arguments. Without the variable,
/// returns the program `default`.
pub(crate) fn user_command(variable: &str, default: &str) -> Command {
    let setting = env::var(variable).ok();
    let words = setting.as_deref().and_then(shlex::split);
    let words = words.filter(|words| !words.is_empty());
    let words = words.unwrap_or_else(|| vec![default.to_owned()]);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}
