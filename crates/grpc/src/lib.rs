//! Describes gRPC methods and encodes their requests.
//!
//! [`Descriptions`] come from `.proto` files, from a descriptor set, or from a server
//! ([`reflection`]). A [`Method`] encodes JSON as a message with its prefix. [`health`] contains the
//! messages of health checks.
//!
//! Invariants: this crate reads no files except `.proto` files, and connects to no server.

mod descriptions;
pub mod health;
mod message;
pub mod reflection;

pub use descriptions::{
    Descriptions, Method, MethodError, MethodName, ProtoError, UnsupportedDescription,
};
pub use message::MessageError;
