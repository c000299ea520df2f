//! Places where the server is observed, and the commands that start observers there.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::agent_job::{kubectl, kubectl_output};
use crate::place::{default_image, is_image};
use crate::ssh;

/// The form of a pod.
const POD_FORM: &str = "expected kubernetes:pod/NAME, optionally with /CONTAINER and :IMAGE";

/// Where to observe the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObserverPlace {
    /// A host, reached through ssh.
    Ssh(String),
    /// A pod of the Kubernetes cluster of the current context. The observer runs in a new ephemeral
    /// container, which stays in the pod's status after it has ended.
    Pod {
        /// Name of the pod.
        pod: String,
        /// Container whose processes are visible to the observer; `None` for the pod's first one.
        container: Option<String>,
        /// Image of the ephemeral container.
        image: String,
    },
    /// The words of a command that runs `floodmark observe --out - --pings`. `{port}` is replaced.
    Command(Vec<String>),
}

impl FromStr for ObserverPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let forms = "expected ssh:HOST, kubernetes:pod/NAME, or command:TEMPLATE";
        match text.split_once(':') {
            Some(("ssh", host)) => {
                if ssh::is_host(host) {
                    Ok(ObserverPlace::Ssh(host.to_owned()))
                } else {
                    Err(format!(
                        "invalid host \"{host}\"; a host must not be empty, start with \"-\" or contain spaces"
                    ))
                }
            }
            Some(("kubernetes", pod)) => {
                let (pod, image) = match pod.split_once(':') {
                    Some((pod, image)) => (pod, image.to_owned()),
                    None => (pod, default_image()),
                };
                let names = pod.strip_prefix("pod/").unwrap_or_default();
                let (pod, container) = match names.split_once('/') {
                    Some((pod, container)) => (pod, Some(container)),
                    None => (names, None),
                };
                let is_named = [Some(pod), container].into_iter().flatten().all(is_object);
                if is_named && is_image(&image) {
                    Ok(ObserverPlace::Pod {
                        pod: pod.to_owned(),
                        container: container.map(str::to_owned),
                        image,
                    })
                } else {
                    Err(format!("invalid pod or image in \"{text}\"; {POD_FORM}"))
                }
            }
            Some(("command", template)) => match shlex::split(template) {
                Some(words) if !words.is_empty() => Ok(ObserverPlace::Command(words)),
                _ => Err(format!("\"{template}\" is not a command; check its quotes")),
            },
            _ => Err(format!("unknown place \"{text}\"; {forms}")),
        }
    }
}

impl fmt::Display for ObserverPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObserverPlace::Ssh(host) => write!(f, "ssh:{host}"),
            ObserverPlace::Pod {
                pod,
                container,
                image,
            } => {
                write!(f, "kubernetes:pod/{pod}")?;
                if let Some(container) = container {
                    write!(f, "/{container}")?;
                }
                write!(f, ":{image}")
            }
            ObserverPlace::Command(words) => {
                let command = shlex::try_join(words.iter().map(String::as_str));
                write!(f, "command:{}", command.unwrap_or_default())
            }
        }
    }
}

/// Returns whether `text` can be the name of a pod or container.
fn is_object(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_allowed)
}

/// Part of the ephemeral container's specification. Only root with this capability can read the open
/// files of other users' processes.
const DEBUG_PROFILE: &str = r#"{"securityContext": {
  "runAsUser": 0, "runAsNonRoot": false, "capabilities": {"add": ["SYS_PTRACE"]}}}"#;

/// A file that is removed when this value is dropped.
pub(crate) struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // A file that cannot be removed does no harm.
        let _ = fs::remove_file(&self.0);
    }
}

impl ObserverPlace {
    /// Returns the command that starts the observer, and a file next to `file` that it reads.
    pub(crate) fn command(
        &self,
        port: u16,
        file: &Path,
    ) -> Result<(Command, Option<TemporaryFile>), String> {
        let port = port.to_string();
        let arguments = [
            "observe", "--port", &port, "--out", "-", "--pings", "--quiet",
        ];
        match self {
            ObserverPlace::Ssh(host) => {
                let script = ssh::on_path(&arguments.join(" "));
                Ok((ssh::command(host, &script), None))
            }
            ObserverPlace::Pod {
                pod,
                container,
                image,
            } => {
                let first = [
                    "get",
                    "pod",
                    pod,
                    "--output=jsonpath={.spec.containers[0].name}",
                ];
                let container = match container {
                    Some(container) => container.clone(),
                    None => {
                        String::from_utf8_lossy(&kubectl_output(kubectl(&first), b"")?).into_owned()
                    }
                };
                let profile = TemporaryFile(file.with_extension("profile.json"));
                fs::write(&profile.0, DEBUG_PROFILE)
                    .map_err(|error| format!("{}: {error}", profile.0.display()))?;
                let mut command =
                    kubectl(&["debug", pod, "--stdin", "--quiet", "--profile=general"]);
                command.arg("--custom").arg(&profile.0);
                command.args(["--image", image, "--target", &container]);
                command.args(["--image-pull-policy=IfNotPresent", "--arguments-only", "--"]);
                command.args(arguments);
                Ok((command, Some(profile)))
            }
            ObserverPlace::Command(words) => {
                let mut words = words.iter().map(|word| word.replace("{port}", &port));
                let mut command = Command::new(words.next().unwrap_or_default());
                command.args(words);
                Ok((command, None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_shows_each_place() {
        for text in [
            "ssh:root@a",
            "kubernetes:pod/web-0:floodmark:1",
            "kubernetes:pod/web-0/app:registry.example.com:5000/floodmark",
            "command:sh observe.sh '{port}'",
        ] {
            let place: ObserverPlace = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
        }
        let place: ObserverPlace = "kubernetes:pod/web-0".parse().unwrap();
        let expected = format!("kubernetes:pod/web-0:{}", default_image());
        assert_eq!(place.to_string(), expected);
    }

    #[test]
    fn names_what_is_wrong() {
        for text in [
            "kubernetes:web-0",
            "kubernetes:pod/",
            "kubernetes:pod/-x",
            "kubernetes:pod/web-0/",
            "kubernetes:pod/web-0:a b",
        ] {
            let error = text.parse::<ObserverPlace>().unwrap_err();
            assert!(error.contains(POD_FORM), "{text}: {error}");
        }
        assert!("pod/web-0".parse::<ObserverPlace>().is_err());
    }
}
