//! Check files, which describe how to write to and read from an API that is to be checked.
//!
//! ```toml
//! kind = "register"
//! keys = 100
//! write = { method = "PUT", path = "/items/{key}", body = "{seq}" }
//! read = { path = "/items/{key}" }
//! ```

use std::path::Path;

use floodmark_load::request::RequestTemplate;
use floodmark_load::request::{EncodedRequest, RequestPart, TemplateNames, check_request};
use floodmark_record::api_check::{ApiCheck, ApiCheckKind, Readback};
use floodmark_record::body::RequestBody;
use floodmark_record::operation::MAX_KEYS;
use floodmark_record::plan::{Mix, MixRequest, Plan, RequestPlan, Target};
use floodmark_record::pointer::JsonPointer;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::mix::{headers, reduce, span_of, weight};
use crate::spec::{BodySource, CheckKind, Origin, PlanSpec};
use crate::toml_file::{FileError, Located, TomlFile};
use crate::values::Count;

/// Name of the group of requests that write.
const WRITE: &str = "write";

/// Name of the group of requests that read.
const READ: &str = "read";

/// Name of the request that reads back a set.
const READBACK: &str = "readback";

/// A check file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckDocument {
    /// Property to check. `set`: at the end, every acknowledged item is found exactly once, and no
    /// unexpected item is found. `register`: reads and writes of each key are linearizable.
    /// `counter`: each counter counts every acknowledged increment exactly once.
    kind: ApiCheckKind,
    /// Number of keys of a register or counter. In requests, {key} stands for a number from 1 to this
    /// number. Default: 1.
    keys: Option<Located<Count<1, MAX_KEYS>>>,
    /// Request that inserts, writes or increments. {seq} stands for a number that is different in
    /// each request. Sets and registers need {seq} as the value of the item or key.
    write: Located<CheckRequestSection>,
    /// Request that reads the value of a key. Status 404 or JSON null means that the key has no
    /// value. Required for a register.
    read: Option<Located<CheckRequestSection>>,
    /// How to read all items of a set after each attempt.
    readback: Option<Located<ReadbackSection>>,
}

/// `write` or `read`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CheckRequestSection {
    /// HTTP method. Default: `POST` to write, `GET` to read.
    method: Option<Located<String>>,
    /// Path and query, such as "/items/{key}".
    path: Located<String>,
    /// Headers, such as ["Content-Type: application/json"].
    headers: Option<Located<Vec<Located<String>>>>,
    /// Body.
    body: Option<Located<String>>,
    /// Location of the value in the response: a JSON pointer, such as "/data/value". For a read,
    /// the default is "", the whole body. For an increment, this is the location of the counter's
    /// new value; by default, no value is read.
    value: Option<Located<String>>,
    /// Number of times that the request is sent per cycle. Default: 1.
    weight: Option<Located<i64>>,
}

/// `readback`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadbackSection {
    /// Path and query. With {page}, floodmark reads pages 1, 2, … until a page is empty, has
    /// fewer items than the previous page, repeats its body, or has status 404.
    path: Located<String>,
    /// Location of the array of items in the response: a JSON pointer. Default: "", the whole body.
    items: Option<Located<String>>,
    /// Location of the value in each item: a JSON pointer, such as "/name". Default: "", the item
    /// itself.
    value: Option<Located<String>>,
}

/// A check and the file that it was read from.
#[derive(Debug)]
pub struct CheckFile {
    /// The check.
    pub check: ApiCheck,
    /// The write request, and the read request, if any.
    pub mix: Mix,
    file: TomlFile,
    document: CheckDocument,
}

impl CheckFile {
    /// Reads a check file. Each header in `defaults` applies to the requests that do not set this
    /// header.
    ///
    /// # Errors
    /// The file cannot be read or is not a valid check.
    pub fn read(path: &Path, defaults: &PlanSpec) -> Result<Self, FileError> {
        let file = TomlFile::read(path)?;
        let document: CheckDocument = file.parse()?;
        let keys = document.keys.as_ref().map_or(1, |keys| keys.0);
        let requests = document.requests(&file, defaults)?;
        document.refuse_conflicts(&file)?;
        document.refuse_unusable(&file, &requests, keys)?;
        let place = |text: Option<&Located<String>>| pointer(&file, text);
        let read = document.read.as_ref();
        let readback = match &document.readback {
            Some(section) => Some(Readback {
                path: section.path.to_string(),
                headers: headers(&file, None, defaults)?,
                items: place(section.items.as_ref())?.unwrap_or_default(),
                value: place(section.value.as_ref())?.unwrap_or_default(),
            }),
            None => None,
        };
        let mut check = ApiCheck {
            kind: document.kind,
            keys,
            write_value: place(document.write.value.as_ref())?,
            read_value: match read {
                Some(read) => Some(place(read.value.as_ref())?.unwrap_or_default()),
                None => None,
            },
            readback,
            value_places: Vec::new(),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        check.value_places = document.value_places(&check, &file, &name);
        Ok(CheckFile {
            check,
            mix: Mix {
                file: name.into_owned(),
                requests,
                feeds: Vec::new(),
            },
            file,
            document,
        })
    }

    /// Checks the request that reads back a set's items from this target. If the items have several
    /// pages, checks the request for page 1. A file without a readback is valid.
    ///
    /// # Errors
    /// The request is invalid. The message contains the request's position in the file.
    pub fn check_readback(&self, target: &Target) -> Result<(), String> {
        let sections = (&self.check.readback, &self.document.readback);
        let (Some(readback), Some(section)) = sections else {
            return Ok(());
        };
        let request = MixRequest {
            name: READBACK.to_owned(),
            weight: 1,
            path: readback.path.replace("{page}", "1"),
            request: RequestPlan {
                method: "GET".to_owned(),
                headers: readback.headers.clone(),
                body: RequestBody::default(),
                is_grpc: false,
            },
            expect: Vec::new(),
            templates: false,
        };
        check_request(&request, target, self.check.keys)
            .map(drop)
            .map_err(|fault| {
                let place = self.file.place(&section.path.span());
                format!("{place}: the request \"{READBACK}\": {fault}")
            })
    }

    /// Returns the check's write request to this target.
    ///
    /// # Errors
    /// The request is invalid. The message contains the request's position in the file.
    pub fn write_request(&self, target: &Target) -> Result<WriteRequest, String> {
        let request = check_request(&self.mix.requests[0], target, self.check.keys);
        request.map(WriteRequest).map_err(|fault| {
            let place = self.place(0, fault.place);
            format!("{place}: the request \"{WRITE}\": {fault}")
        })
    }

    /// Returns the position of a request or of one of its parts, such as `check.toml:3`.
    pub(crate) fn place(&self, request: usize, part: RequestPart) -> String {
        let section = match (request, &self.document.read) {
            (1, Some(read)) => read,
            _ => &self.document.write,
        };
        let whole = section.span();
        let span = match part {
            RequestPart::Method => span_of(&section.method, &whole),
            RequestPart::Path => section.path.span(),
            RequestPart::Headers => span_of(&section.headers, &whole),
            RequestPart::Body => span_of(&section.body, &whole),
        };
        self.file.place(&span)
    }
}

/// A check's write request.
#[derive(Debug)]
pub struct WriteRequest(EncodedRequest);

impl WriteRequest {
    /// Returns the bytes of the request, with this value for `{seq}`.
    #[must_use]
    pub fn bytes(&self, seq: u64) -> Vec<u8> {
        self.0.bytes(seq)
    }
}

impl CheckDocument {
    /// Returns the write request, and the read request, if any.
    fn requests(&self, file: &TomlFile, defaults: &PlanSpec) -> Result<Vec<MixRequest>, FileError> {
        let write = (WRITE, "POST", &self.write);
        let read = self.read.as_ref().map(|read| (READ, "GET", read));
        let request = |(name, method, section): (&str, &str, &Located<CheckRequestSection>)| {
            Ok(MixRequest {
                name: name.to_owned(),
                weight: weight(file, section.weight.as_ref())?,
                path: section.path.to_string(),
                request: RequestPlan {
                    method: section
                        .method
                        .as_ref()
                        .map_or(method, |given| given)
                        .to_owned(),
                    headers: headers(file, section.headers.as_ref(), defaults)?,
                    body: section
                        .body
                        .as_ref()
                        .map_or_else(Vec::new, |body| body.as_bytes().to_vec())
                        .into(),
                    is_grpc: false,
                },
                expect: Vec::new(),
                templates: true,
            })
        };
        let all = [write].into_iter().chain(read).map(request);
        let mut requests = all.collect::<Result<Vec<_>, FileError>>()?;
        reduce(&mut requests)
            .map_err(|what| file.error(&self.write.span(), format!("weight: {what}")))?;
        Ok(requests)
    }

    /// Returns the locations of the values in a check file, such as
    /// `items.toml:5: read.value "/data"`. `name` is the name of the file.
    fn value_places(&self, check: &ApiCheck, file: &TomlFile, name: &str) -> Vec<String> {
        let place = |section, pointer, value: &Option<Located<String>>, whole| {
            let line = file.line(&span_of(value, &whole));
            format!("{name}:{line}: {section}.value \"{pointer}\"")
        };
        let write = check.write_value.as_ref();
        let write = write.map(|at| place(WRITE, at, &self.write.value, self.write.span()));
        let read = check.read_value.as_ref().zip(self.read.as_ref());
        let read = read.map(|(at, section)| place(READ, at, &section.value, section.span()));
        let readback = check.readback.as_ref().zip(self.readback.as_ref());
        let readback = readback
            .map(|(to, section)| place(READBACK, &to.value, &section.value, section.span()));
        [write, read, readback].into_iter().flatten().collect()
    }

    /// Rejects sections and keys that this kind of check does not use, and files that lack a
    /// required one.
    fn refuse_conflicts(&self, file: &TomlFile) -> Result<(), FileError> {
        let kind = self.kind.name();
        let read = self.read.as_ref().map(Located::span);
        let readback = self.readback.as_ref().map(Located::span);
        let keys = self.keys.as_ref().map(Located::span);
        let value = self.write.value.as_ref().map(Located::span);
        let is_set = self.kind == ApiCheckKind::Set;
        let unused = [
            ("read", &read, is_set),
            ("keys", &keys, is_set),
            ("readback", &readback, !is_set),
            ("value", &value, self.kind != ApiCheckKind::Counter),
        ];
        for (key, span, is_unused) in unused {
            if let Some(span) = span.as_ref().filter(|_| is_unused) {
                let within = if key == "value" { " in [write]" } else { "" };
                let what =
                    format!("{key}{within}: a {kind} check does not use this key; remove it");
                return Err(file.error(span, what));
            }
        }
        let missing = match self.kind {
            ApiCheckKind::Set if readback.is_none() => {
                "`readback` is missing; add readback = { path = \"/items\", value = \"/name\" }"
            }
            ApiCheckKind::Register if read.is_none() => {
                "`read` is missing; add read = { path = \"/items/{key}\" }"
            }
            ApiCheckKind::Counter if read.is_none() && value.is_none() => {
                "a counter check needs a value; add read = { path = \"/counter\" }, or add `value` to `write`"
            }
            _ => return Ok(()),
        };
        Err(file.error_at_start(missing))
    }

    /// Rejects requests that lack a placeholder that the check needs.
    fn refuse_unusable(
        &self,
        file: &TomlFile,
        requests: &[MixRequest],
        keys: u64,
    ) -> Result<(), FileError> {
        let sections = [Some(&self.write), self.read.as_ref()];
        let sections = sections.into_iter().flatten();
        for (request, section) in requests.iter().zip(sections) {
            let templates = templates(request, keys);
            let name = &request.name;
            let is_write = name == WRITE;
            if is_write
                && self.kind != ApiCheckKind::Counter
                && !templates.iter().any(RequestTemplate::has_seq)
            {
                let what = format!(
                    "{name}: the request has no {{seq}}; write {{seq}} where the API takes the value"
                );
                return Err(file.error(&section.span(), what));
            }
            if keys > 1 && !templates.iter().any(RequestTemplate::has_key) {
                let what = format!(
                    "{name}: the request has no {{key}}, but keys is {keys}; write {{key}} into the path or body, or remove keys"
                );
                return Err(file.error(&section.span(), what));
            }
        }
        Ok(())
    }
}

/// Returns the parts of a request that can have placeholders. An invalid part counts as having
/// none; [`crate::mix::longest_request`] reports it.
fn templates(request: &MixRequest, keys: u64) -> Vec<RequestTemplate> {
    let headers = request.request.headers.iter();
    let body = request.request.body.bytes().unwrap_or_default();
    let texts = headers
        .map(|(_, value)| value.as_bytes())
        .chain([request.path.as_bytes(), body]);
    let names = TemplateNames::of_check(keys);
    let parse = |text| RequestTemplate::parse(text, &names).unwrap_or_default();
    texts.map(parse).collect()
}

/// Parses a JSON pointer, if there is one.
fn pointer(
    file: &TomlFile,
    text: Option<&Located<String>>,
) -> Result<Option<JsonPointer>, FileError> {
    text.map(|text| {
        let pointer = JsonPointer::try_from(text.to_string());
        pointer.map_err(|error| file.error(&text.span(), error))
    })
    .transpose()
}

/// Reads the check file of a plan, if any. The plan already has its target.
///
/// # Errors
/// The file is invalid, or the plan has settings that conflict with it.
pub(crate) fn of_spec(spec: &PlanSpec, plan: &Plan) -> Result<Option<CheckFile>, String> {
    let Some(CheckKind::File(path)) = &spec.load.check else {
        return Ok(None);
    };
    let name = spec.name("check");
    let shown = path.display();
    if spec.origin == Origin::CommandLine {
        let given = [
            ("method", spec.method.is_some()),
            ("body", matches!(spec.load.body, Some(BodySource::Text(_)))),
            (
                "body-file",
                matches!(spec.load.body, Some(BodySource::File(_))),
            ),
            ("expect", !spec.load.expect.is_empty()),
        ];
        if let Some((key, _)) = given.iter().find(|(_, is_given)| *is_given) {
            let key = spec.name(key);
            return Err(format!(
                "{key} conflicts with {name} {shown}, which describes the requests; remove {key}"
            ));
        }
        if plan.target.path != "/" {
            return Err(format!(
                "the URL \"{}\" has a path, but {name} takes the paths from the check file; name only the server, such as http://{}/",
                plan.target.url, plan.target.authority
            ));
        }
    }
    let file = CheckFile::read(path, spec).map_err(|error| format!("{name} {error}"))?;
    if file.check.readback.is_some() && plan.target.address.ip().is_none() {
        return Err(format!(
            "{name} {shown}: reading a set back over a unix socket is not supported; use a TCP address"
        ));
    }
    Ok(Some(file))
}

#[cfg(test)]
#[path = "api_check_tests.rs"]
mod tests;
