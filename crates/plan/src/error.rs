//! Errors in planning a load.

/// Error from planning a load. The one-line message has the form `place: problem; fix`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A setting, a file or a combination of them is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The server's host name does not resolve, or the server's unix socket does not exist.
    #[error("{0}")]
    Unreachable(String),
}

impl PlanError {
    /// Returns an [`Invalid`](PlanError::Invalid) error.
    pub fn invalid(message: impl Into<String>) -> Self {
        PlanError::Invalid(message.into())
    }
}
