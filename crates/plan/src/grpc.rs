//! gRPC calls as requests of a plan.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark_grpc::reflection::{self, ReflectionError, Reply};
use floodmark_grpc::{Descriptions, MessageError, Method, MethodError, ProtoError};
use floodmark_load::call::{CallError, CallTarget, call};
use floodmark_load::tls::Tls;
use floodmark_record::grpc::GrpcStatus;
use floodmark_record::plan::{Address, Expect, Http, Plan, RequestPlan, Target};
use floodmark_record::tls::{TlsCredentials, TlsPlan};

pub use floodmark_grpc::MethodName;

use crate::input;
use crate::spec::{HttpVersion, Origin, PlanSpec};
use crate::toml_file::did_you_mean;

/// Headers that gRPC requires, except for the deadline.
pub const REQUIRED_HEADERS: [(&str, &str); 2] =
    [("te", "trailers"), ("content-type", "application/grpc")];

/// Fix for a description that floodmark cannot read.
const FIX_UNSUPPORTED: &str = "use a description in proto2 or proto3 syntax";

/// Minimum timeout of a call that asks the server for descriptions.
const REFLECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Name of the header with the deadline.
const DEADLINE: &str = "grpc-timeout";

/// Encodes calls to a server.
#[derive(Clone, Copy)]
pub(crate) struct CallEncoder<'a> {
    /// Source of the calls, which determines the names of their settings.
    pub origin: Origin,
    /// Directories of imported `.proto` files, and the source of this setting.
    pub proto_path: (Origin, &'a [PathBuf]),
    /// The server.
    pub target: &'a Target,
    /// TLS settings and certificates; `None` for plaintext.
    pub tls: Option<(&'a TlsPlan, &'a TlsCredentials)>,
    /// Deadline of each call.
    pub timeout: Duration,
    /// Descriptions that the server has provided.
    pub described: &'a RefCell<Vec<Descriptions>>,
    /// Whether the server is not running yet. If so, methods that only the server can describe have
    /// empty messages.
    pub is_offline: bool,
}

impl CallEncoder<'_> {
    /// Returns the request for a call. `proto` is a `.proto` file or descriptor set that describes
    /// the method; if it is `None`, the server describes the method. `request` contains the headers
    /// and the JSON body; an empty body stands for `{}`.
    ///
    /// # Errors
    /// No description of the method is available, or the body does not match the method.
    pub fn encode(
        &self,
        name: &MethodName,
        proto: Option<&Path>,
        request: RequestPlan,
    ) -> Result<RequestPlan, String> {
        let headers = self.headers(request.headers)?;
        let json = match request.body.bytes() {
            None | Some([]) => &b"{}"[..],
            Some(json) => json,
        };
        let descriptions = match proto {
            Some(path) => Some(self.read(path)?),
            None if self.is_offline => None,
            None => Some(self.describe(name, &headers)?),
        };
        let message = match descriptions {
            None => Vec::new(),
            Some(descriptions) => {
                let method = descriptions.method(name);
                self.message(name, &method.map_err(|error| self.unknown(&error))?, json)?
            }
        };
        Ok(RequestPlan {
            method: "POST".to_owned(),
            headers,
            body: message.into(),
            is_grpc: true,
        })
    }

    /// Encodes a message.
    fn message(&self, name: &MethodName, method: &Method, json: &[u8]) -> Result<Vec<u8>, String> {
        method.request(json).map_err(|error| {
            let body = match self.origin {
                Origin::CommandLine => "the body",
                Origin::File => "`body`",
            };
            let fix = match &error {
                MessageError::UnknownField { name, known, .. } => suggest(name, known),
                MessageError::Json(_) => {
                    "write a JSON object, such as {\"name\": \"x\"}".to_owned()
                }
                MessageError::Value { .. } | MessageError::TooLong => "correct it".to_owned(),
            };
            format!("{body} of {name}: {error}; {fix}")
        })
    }

    /// Explains why a method cannot be called.
    fn unknown(&self, error: &MethodError) -> String {
        let grpc = self.origin.name("grpc");
        match error {
            MethodError::UnknownService { name, known } => {
                format!("{grpc}: {error}; {}", suggest(name, known))
            }
            MethodError::UnknownMethod { name, known, .. } => {
                format!("{grpc}: {error}; {}", suggest(name, known))
            }
            MethodError::Streaming { .. } => {
                format!("{grpc}: {error}; floodmark supports only unary methods")
            }
        }
    }

    /// Reads a `.proto` file or a descriptor set.
    fn read(&self, path: &Path) -> Result<Descriptions, String> {
        let place = format!("{} {}", self.origin.name("proto"), path.display());
        let bytes = input::read(path).map_err(|why| format!("{place}: {why}"))?;
        let (origin, directories) = self.proto_path;
        let read = if path.extension().is_some_and(|end| end == "proto") {
            Descriptions::from_proto(path, directories)
        } else {
            Descriptions::from_set(&bytes)
        };
        read.map_err(|error| {
            let fix = match &error {
                ProtoError::MissingImport(_) => {
                    let setting = match origin {
                        Origin::CommandLine => "--proto-path DIR",
                        Origin::File => "proto-path = [\"DIR\"]",
                    };
                    format!("add the directory of the import: {setting}")
                }
                ProtoError::Invalid(_) => "correct the file".to_owned(),
                ProtoError::Unsupported(_) => FIX_UNSUPPORTED.to_owned(),
                ProtoError::NotASet(_) | ProtoError::DescriptorSet(_) => {
                    "use a file whose name ends in .proto, or the output of protoc --include_imports -o"
                        .to_owned()
                }
            };
            format!("{place}: {error}; {fix}")
        })
    }

    /// Asks the server for the description of a method, unless it has already described the
    /// service.
    fn describe(
        &self,
        method: &MethodName,
        headers: &[(String, String)],
    ) -> Result<Descriptions, String> {
        let describes = |of: &&Descriptions| of.has_service(&method.service);
        if let Some(found) = self.described.borrow().iter().find(describes) {
            return Ok(found.clone());
        }
        let new = self.ask(method, headers)?;
        self.described.borrow_mut().push(new.clone());
        Ok(new)
    }

    /// Asks the server for the description of a method.
    fn ask(
        &self,
        method: &MethodName,
        headers: &[(String, String)],
    ) -> Result<Descriptions, String> {
        let is_deadline = |name: &str| name.eq_ignore_ascii_case(DEADLINE);
        let headers = headers.iter().filter(|(name, _)| !is_deadline(name));
        let headers: Vec<(String, String)> = headers.cloned().collect();
        let headers = self.target.authorize(&headers).unwrap_or_default();
        let tls = self
            .tls
            .map(|(plan, credentials)| Tls::new(plan, credentials));
        let tls = tls.transpose().map_err(|error| error.to_string())?;
        let addresses: Vec<Address> = self.target.addresses().collect();
        let target = CallTarget {
            addresses: &addresses,
            tls: tls.as_ref(),
            authority: &self.target.authority,
            headers: &headers,
            timeout: self.timeout.max(REFLECTION_TIMEOUT),
        };
        let described =
            reflection::describe(method, |path, body| match call(&target, path, body) {
                Ok(message) => Ok(Reply::Message(message)),
                Err(CallError::Status(GrpcStatus::Unimplemented, _) | CallError::Http(404)) => {
                    Ok(Reply::Unimplemented)
                }
                Err(CallError::Status(GrpcStatus::NotFound, _)) => Ok(Reply::NotFound),
                Err(error) => Err(error),
            });
        described.map_err(|error| match error {
            ReflectionError::Method(error) => self.unknown(&error),
            error @ ReflectionError::Unsupported(_) => format!(
                "{} {method}: {}: {error}; {FIX_UNSUPPORTED}",
                self.origin.name("grpc"),
                self.target.authority
            ),
            error => format!(
                "{} {method}: {}: {error}; add {}",
                self.origin.name("grpc"),
                self.target.authority,
                self.origin.example("proto", "FILE")
            ),
        })
    }

    /// Adds the headers required by gRPC to the user's headers.
    fn headers(&self, given: Vec<(String, String)>) -> Result<Vec<(String, String)>, String> {
        let find = |name: &str| given.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        if let Some((name, value)) = find("content-type")
            && !value.starts_with("application/grpc")
        {
            return Err(format!(
                "header \"{name}: {value}\": gRPC requires application/grpc; remove the header"
            ));
        }
        let deadline = (DEADLINE, deadline(self.timeout));
        let required = REQUIRED_HEADERS.map(|(name, value)| (name, value.to_owned()));
        let required = required.into_iter().chain([deadline]);
        let missing: Vec<(String, String)> = required
            .filter(|(name, _)| find(name).is_none())
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        Ok([given, missing].concat())
    }
}

/// Suggests the entry of `known` that is nearest to an unknown name.
fn suggest(name: &str, known: &[String]) -> String {
    match known {
        [] => "it has none".to_owned(),
        known => did_you_mean(name, known.iter().map(String::as_str)),
    }
}

/// Formats a timeout as a deadline: at most 8 digits and a unit (`PROTOCOL-HTTP2.md`). Rounds up.
fn deadline(timeout: Duration) -> String {
    const MOST: u128 = 99_999_999;
    let units = [
        ("n", 1),
        ("u", 1_000),
        ("m", 1_000_000),
        ("S", 1_000_000_000),
    ];
    let ns = timeout.as_nanos();
    let is_exact = units
        .iter()
        .rev()
        .find(|(_, unit)| ns.is_multiple_of(*unit) && ns / unit <= MOST);
    let fits = || units.iter().find(|(_, unit)| ns.div_ceil(*unit) <= MOST);
    let (name, unit) = is_exact.or_else(fits).copied().unwrap_or(units[3]);
    format!("{}{name}", ns.div_ceil(unit).min(MOST))
}

/// Rejects settings that conflict with a gRPC call (`--grpc`).
pub(crate) fn refuse_conflicts(spec: &PlanSpec, target: &Target) -> Result<(), String> {
    if spec.load.grpc.is_none() {
        return Ok(());
    }
    let name = spec.name("grpc");
    if target.path != "/" {
        return Err(format!(
            "the URL \"{}\" has a path, but {name} sets it; name only the server, such as http://{}",
            target.url, target.authority
        ));
    }
    if spec.load.http == Some(HttpVersion::V1) {
        let http = spec.name("http");
        return Err(format!(
            "{http} 1.1: gRPC needs HTTP/2; use {http} 2 or remove {http}"
        ));
    }
    if spec.load.check.is_some() {
        let check = spec.name("check");
        return Err(format!(
            "{check} conflicts with {name}, because it reads only JSON and text; remove one of them"
        ));
    }
    Ok(())
}

/// Sets the path of the requests to a method.
pub(crate) fn set_path(target: &mut Target, method: &MethodName) {
    let path = method.path();
    if let Some(server) = target.url.strip_suffix('/') {
        target.url = format!("{server}{path}");
    }
    target.path = path;
}

/// Rejects conditions that a response cannot meet. The message contains no position.
pub(crate) fn check_expectations(expect: &[Expect], is_grpc: bool) -> Result<(), &'static str> {
    for expect in expect {
        match expect {
            Expect::GrpcStatus(_) if !is_grpc => {
                return Err("grpc-status needs a gRPC method; use status=200 for other requests");
            }
            Expect::Status(status) if is_grpc && *status != 200 => {
                return Err("gRPC calls need HTTP status 200; use grpc-status=0");
            }
            Expect::Body(_) | Expect::Json(_) | Expect::JsonAt { .. } | Expect::JsonAbsent(_)
                if is_grpc =>
            {
                return Err(
                    "responses to gRPC calls are not JSON or text; use grpc-status=0 or contains:TEXT",
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Disables PING frames for a plan with gRPC calls. gRPC servers close connections on which clients
/// send them often (`too_many_pings`).
pub(crate) fn disable_ping(plan: &mut Plan) {
    let of_mix = plan.mix.iter().flat_map(|mix| &mix.requests);
    let mut requests = of_mix
        .map(|of| &of.request)
        .chain(std::iter::once(&plan.request));
    if requests.any(|request| request.is_grpc)
        && let Http::V2(settings) = &mut plan.http
    {
        settings.ping = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadSpec;
    use crate::spec::BodySource;

    #[test]
    fn deadlines_have_at_most_8_digits() {
        for (timeout, text) in [
            (Duration::from_secs(5), "5S"),
            (Duration::from_millis(1_500), "1500m"),
            (Duration::from_micros(250), "250u"),
            (Duration::from_nanos(1), "1n"),
            (Duration::new(5, 1), "5000001u"),
            (Duration::from_secs(200_000_000), "99999999S"),
        ] {
            assert_eq!(deadline(timeout), text);
        }
    }

    #[test]
    fn another_method_has_its_own_body_and_conditions() {
        let of = |method: &str| LoadSpec {
            grpc: Some(method.parse().unwrap()),
            ..LoadSpec::default()
        };
        let shared = LoadSpec {
            body: Some(BodySource::Text("{}".to_owned())),
            expect: vec![Expect::Status(200)],
            ..LoadSpec::default()
        };
        let mut load = shared.clone();
        load.override_with(&of("a.A/B"));
        assert_eq!((&load.body, &load.expect), (&shared.body, &shared.expect));
        load.override_with(&of("a.A/C"));
        assert_eq!((load.body, load.expect), (None, Vec::new()));
    }

    #[test]
    fn refuses_conditions_that_no_response_meets() {
        let check = |text: &str, is_grpc| check_expectations(&[text.parse().unwrap()], is_grpc);
        for text in ["grpc-status=0", "contains:a", "regex:a", "status=200"] {
            assert_eq!(check(text, true), Ok(()), "{text}");
        }
        for text in ["body=a", "json={}", "json:$.a=1", "json:$.a=absent"] {
            assert!(check(text, true).is_err(), "{text}");
            assert_eq!(check(text, false), Ok(()), "{text}");
        }
        assert!(check("grpc-status=0", false).is_err());
    }
}
