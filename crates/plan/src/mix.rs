//! Mix files: several requests with weights.
//!
//! ```toml
//! [[request]]
//! name = "search"
//! weight = 3
//! path = "/search?q={rand:1-1000}"
//! ```

use std::ops::Range;
use std::path::{Path, PathBuf};

use floodmark_load::request::{
    PlanRequests, RequestPart, RequestTemplate, TemplateNames, literal_template,
};
use floodmark_record::Plan;
use floodmark_record::feed::{Feed, FeedColumn, RowChoice};
use floodmark_record::plan::{
    Expect, Http, Length, MAX_REQUESTS, Mix, MixRequest, Model, RequestPlan, Target, parse_header,
};
use floodmark_record::units::show_count;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::feed::{self, ColumnUse};
use crate::grpc::{CallEncoder, MethodName, check_expectations};
use crate::input;
use crate::spec::{Origin, PlanSpec};
use crate::toml_file::{FileError, Located, TomlFile};

/// Maximum length of a cycle: the sum of the weights divided by their greatest common divisor. Each
/// load thread stores one byte per request in a cycle.
pub const MAX_CYCLE: u64 = 10_000;

/// Maximum length of a request's name, in characters. The limit keeps tables narrow.
const MAX_NAME: usize = 20;

/// Maximum size of the values of all feeds, in bytes.
const MAX_FEED_VALUES: u64 = 128 << 20;

/// Maximum weight of a request.
const MAX_WEIGHT: u32 = 1_000_000;

/// A mix and the file that it was read from.
#[derive(Debug)]
pub struct MixFile {
    /// The mix.
    pub mix: Mix,
    file: TomlFile,
    entries: Vec<Located<MixEntry>>,
}

/// A mix file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MixDocument {
    #[serde(default)]
    request: Vec<Located<MixEntry>>,
    #[serde(default)]
    feed: Vec<Located<FeedEntry>>,
}

/// One `[[feed]]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FeedEntry {
    file: Option<Located<String>>,
    take: Option<RowChoice>,
}

/// One `[[request]]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct MixEntry {
    name: Option<Located<String>>,
    weight: Option<Located<i64>>,
    method: Option<Located<String>>,
    path: Option<Located<String>>,
    headers: Option<Located<Vec<Located<String>>>>,
    body: Option<Located<String>>,
    body_file: Option<Located<String>>,
    /// gRPC method to call, such as "helloworld.Greeter/SayHello", instead of a path. The body is
    /// JSON.
    grpc: Option<Located<String>>,
    /// `.proto` file or descriptor set that describes the method. Default: ask the server.
    proto: Option<Located<String>>,
    expect: Option<Vec<Located<String>>>,
    templates: Option<bool>,
}

impl MixFile {
    /// Reads a mix file. Relative paths in the file are relative to the file's directory. Each
    /// header in `defaults` applies to the requests that do not set this header, and the conditions
    /// in `defaults` apply to the requests that do not set `expect`. `http` is the HTTP version.
    ///
    /// # Errors
    /// The file cannot be read or is not a valid mix.
    pub fn read(path: &Path, defaults: &PlanSpec, http: Http) -> Result<Self, FileError> {
        let file = TomlFile::read(path)?;
        let document: MixDocument = file.parse()?;
        let entries = document.request;
        let Some(first) = entries.first() else {
            return Err(file.error_at_start(
                "no requests; add at least one [[request]] with a name and a path",
            ));
        };
        if let Some(excess) = entries.get(MAX_REQUESTS) {
            let what = format!(
                "more than {MAX_REQUESTS} requests; remove some, or take paths from a [[feed]]: path = \"{{raw:path}}\""
            );
            return Err(file.error(&excess.span(), what));
        }
        let mut requests: Vec<MixRequest> = Vec::new();
        for entry in &entries {
            let request = entry.request(&file, &entry.span(), defaults)?;
            if let Some(before) = requests.iter().position(|r| r.name == request.name) {
                let what = format!(
                    "name: \"{}\" is already used on line {}; choose another name",
                    request.name,
                    file.line(&entries[before].span())
                );
                return Err(file.error(&span_of(&entry.name, &entry.span()), what));
            }
            requests.push(request);
        }
        reduce(&mut requests).map_err(|what| file.error(&first.span(), what))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let feeds = read_feeds(&file, &document.feed, &requests, http)?;
        Ok(MixFile {
            mix: Mix {
                file: name.into_owned(),
                requests,
                feeds,
            },
            file,
            entries,
        })
    }

    /// Replaces the JSON bodies of gRPC calls with messages.
    ///
    /// # Errors
    /// A method cannot be called, or a body does not match its method.
    fn encode_calls(
        &mut self,
        http: Http,
        defaults: &PlanSpec,
        calls: &CallEncoder<'_>,
    ) -> Result<(), FileError> {
        let calls = CallEncoder {
            origin: Origin::File,
            ..*calls
        };
        let Mix {
            requests, feeds, ..
        } = &mut self.mix;
        for (entry, of) in self.entries.iter().zip(requests) {
            let Some(method) = entry.grpc(&self.file)? else {
                continue;
            };
            let whole = entry.span();
            let place = span_of(&entry.grpc, &whole);
            if http == Http::V1 {
                let what = "`grpc` needs HTTP/2; add --http 2";
                return Err(self.file.error(&place, what));
            }
            let own = entry.proto(&self.file);
            let proto = own.as_deref().or(defaults.load.proto.as_deref());
            let mut request = of.request.clone();
            if of.templates {
                let body = span_of(&entry.body, &span_of(&entry.body_file, &whole));
                let json = without_templates(request.body.bytes().unwrap_or_default(), feeds);
                let json = json.map_err(|what| self.file.error(&body, what))?;
                request.body = json.into();
            }
            let encoded = calls.encode(&method, proto, request);
            of.request = encoded.map_err(|what| self.file.error(&place, what))?;
        }
        Ok(())
    }

    /// Returns the position of a request or of one of its parts, such as `mix.toml:12`.
    pub(crate) fn place(&self, request: usize, part: RequestPart) -> String {
        let Some(entry) = self.entries.get(request) else {
            return self.file.path().display().to_string();
        };
        let whole = entry.span();
        let span = match part {
            RequestPart::Method => span_of(&entry.method, &whole),
            RequestPart::Path => span_of(&entry.path, &whole),
            RequestPart::Headers => span_of(&entry.headers, &whole),
            RequestPart::Body => span_of(&entry.body, &span_of(&entry.body_file, &whole)),
        };
        self.file.place(&span)
    }
}

/// Reads the data files of a mix.
fn read_feeds(
    file: &TomlFile,
    entries: &[Located<FeedEntry>],
    requests: &[MixRequest],
    http: Http,
) -> Result<Vec<Feed>, FileError> {
    let mut feeds: Vec<Feed> = Vec::new();
    let mut values = 0;
    for entry in entries {
        let Some(name) = &entry.file else {
            let what = "feed without a file; add file = \"users.csv\"";
            return Err(file.error(&entry.span(), what));
        };
        let directory = file.path().parent().unwrap_or(Path::new(""));
        let path = directory.join(name.as_str());
        let take = entry.take.unwrap_or_default();
        let feed = feed::read(&path, take, |column| column_use(column, requests, http))
            .map_err(|error| file.error(&name.span(), format!("file {error}")))?;
        for column in &feed.columns {
            let is_same = |other: &FeedColumn| other.name == column.name;
            if let Some(other) = feeds.iter().find(|feed| feed.columns.iter().any(is_same)) {
                let what = format!(
                    "file: {} and {} both have a column \"{}\"; rename one",
                    other.file, feed.file, column.name
                );
                return Err(file.error(&name.span(), what));
            }
        }
        values += feed.values.len();
        if values > MAX_FEED_VALUES {
            let what = format!(
                "file: the values of all feeds take more than {} MiB; remove rows, or use fewer columns",
                MAX_FEED_VALUES >> 20
            );
            return Err(file.error(&name.span(), what));
        }
        feeds.push(feed);
    }
    Ok(feeds)
}

/// Returns the body of a gRPC call, in which double braces become single braces.
///
/// # Errors
/// The body has templates. The length of a message would depend on their values.
fn without_templates(body: &[u8], feeds: &[Feed]) -> Result<Vec<u8>, String> {
    let template = RequestTemplate::parse(body, &TemplateNames::default());
    let template = template.map_err(|error| format!("body: {error}"))?;
    let columns = feeds.iter().flat_map(|feed| &feed.columns);
    let is_used = |column: &FeedColumn| has_column(body, &column.name);
    match template.as_literal() {
        Some(text) if !columns.into_iter().any(is_used) => Ok(text.to_vec()),
        _ => Err(
            "body: gRPC calls do not support templates such as {seq}; write constant values, \
             or several requests"
                .to_owned(),
        ),
    }
}

/// Returns whether a text contains a column's placeholder.
fn has_column(text: &[u8], name: &str) -> bool {
    let is_in = |part: String| text.windows(part.len()).any(|at| at == part.as_bytes());
    is_in(format!("{{{name}}}")) || is_in(format!("{{raw:{name}}}"))
}

/// Returns whether a value with placeholders contains only columns.
fn has_only_columns(value: &str) -> bool {
    value
        .trim()
        .split('{')
        .all(|part| match part.split_once('}') {
            Some((name, text)) => text.is_empty() && !feed::is_template(name),
            None => part.is_empty(),
        })
}

/// Returns how requests use a column.
fn column_use(name: &str, requests: &[MixRequest], http: Http) -> ColumnUse {
    let (own, raw) = (format!("{{{name}}}"), format!("{{raw:{name}}}"));
    let mut found = ColumnUse::default();
    for request in requests.iter().filter(|request| request.templates) {
        let is_in = |text: &[u8]| has_column(text, name);
        found.encoded |= request.path.contains(&own);
        found.raw_in_path |= request.path.contains(&raw);
        found.starts_path |= request.path.starts_with(&raw);
        for (header, value) in &request.request.headers {
            let is_used = is_in(value.as_bytes());
            found.in_header |= is_used;
            if http != Http::V1 && header.eq_ignore_ascii_case("host") {
                found.in_authority |= is_used;
                found.fills_authority |= is_used && has_only_columns(value);
            }
        }
        found.in_body |= is_in(request.request.body.bytes().unwrap_or_default());
    }
    found
}

/// Rejects a load with more requests than feeds have unique rows, if the number of
/// requests is known.
pub(crate) fn check_rows(spec: &PlanSpec, plan: &Plan) -> Result<(), String> {
    let Some(rows) = plan.unique_rows() else {
        return Ok(());
    };
    let (warmup, measured) = match &plan.model {
        Model::Closed { length } => match length {
            Length::Requests(n) => (0.0, *n as f64),
            Length::Duration(_) | Length::Earlier { .. } => return Ok(()),
        },
        Model::Open { schedule, .. } => {
            let first_per_s = schedule.first_per_s().unwrap_or(0.0);
            let measured = schedule.rate_per_s() * schedule.window_s();
            (first_per_s * plan.warmup.as_secs_f64(), measured)
        }
    };
    let planned = (warmup + measured) * f64::from(spec.load.attempt_count());
    if planned.floor() as u64 <= rows {
        return Ok(());
    }
    Err(format!(
        "{}: a feed with take = \"unique\" has only {} rows, but {} requests are planned; add rows, \
         send fewer requests, or set take = \"in-turn\"",
        spec.name("mix"),
        show_count(rows),
        show_count(planned as u64)
    ))
}

/// Returns the position of a value, or `fallback` if the value is missing.
pub(crate) fn span_of<T>(value: &Option<Located<T>>, fallback: &Range<usize>) -> Range<usize> {
    value
        .as_ref()
        .map_or_else(|| fallback.clone(), Located::span)
}

/// Divides the weights by their greatest common divisor.
///
/// # Errors
/// The sum of the weights is too large.
pub(crate) fn reduce(requests: &mut [MixRequest]) -> Result<(), String> {
    fn greatest_common_divisor(a: u32, b: u32) -> u32 {
        if b == 0 {
            a
        } else {
            greatest_common_divisor(b, a % b)
        }
    }
    let weights = requests.iter().map(|r| r.weight);
    let divisor = weights.fold(0, greatest_common_divisor).max(1);
    requests.iter_mut().for_each(|r| r.weight /= divisor);
    match requests.iter().map(|r| u64::from(r.weight)).sum() {
        0..=MAX_CYCLE => Ok(()),
        length => Err(format!(
            "the weights add up to {} after division by their greatest common divisor; reduce the sum to at most {}",
            show_count(length),
            show_count(MAX_CYCLE)
        )),
    }
}

impl MixEntry {
    fn request(
        &self,
        file: &TomlFile,
        whole: &Range<usize>,
        defaults: &PlanSpec,
    ) -> Result<MixRequest, FileError> {
        let name = self.name(file, whole)?;
        let grpc = self.grpc(file)?;
        let path = match (&grpc, &self.path) {
            (Some(method), _) => method.path(),
            (None, Some(path)) => path.to_string(),
            (None, None) => {
                let what = format!("the request \"{name}\" has no path; write path = \"/\"");
                return Err(file.error(whole, what));
            }
        };
        let body = self.body(file)?;
        let method = match &self.method {
            Some(method) => method,
            None if body.is_some() => "POST",
            None => "GET",
        };
        let headers = headers(file, self.headers.as_ref(), defaults)?;
        let parse = |text: &Located<String>| {
            text.parse::<Expect>()
                .map_err(|what| file.error(&text.span(), format!("expect: {what}")))
        };
        let expect = match &self.expect {
            Some(all) => all.iter().map(parse).collect::<Result<_, _>>()?,
            None => defaults.load.expect.clone(),
        };
        check_expectations(&expect, grpc.is_some()).map_err(|why| {
            let first = self.expect.iter().flatten().next();
            let span = first.map_or_else(|| whole.clone(), Located::span);
            file.error(&span, format!("expect: {why}"))
        })?;
        Ok(MixRequest {
            name: name.to_owned(),
            weight: weight(file, self.weight.as_ref())?,
            path,
            request: RequestPlan {
                method: method.to_owned(),
                headers,
                body: body.unwrap_or_default().into(),
                is_grpc: grpc.is_some(),
            },
            expect,
            templates: self.templates.unwrap_or(true),
        })
    }

    fn name(&self, file: &TomlFile, whole: &Range<usize>) -> Result<&str, FileError> {
        let Some(name) = &self.name else {
            return Err(file.error(whole, "a request has no name; write name = \"search\""));
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
            let name_text: &str = name;
            let what = format!(
                "name: expected up to {MAX_NAME} letters, digits, \"-\", \"_\" or \".\", not \"{name_text}\""
            );
            return Err(file.error(&name.span(), what));
        }
        Ok(name)
    }

    /// Returns the gRPC method, if the request calls one.
    fn grpc(&self, file: &TomlFile) -> Result<Option<MethodName>, FileError> {
        let Some(name) = &self.grpc else {
            return match &self.proto {
                Some(proto) => {
                    let what = "`proto` needs `grpc`; add grpc = \"package.Service/Method\"";
                    Err(file.error(&proto.span(), what))
                }
                None => Ok(None),
            };
        };
        let conflicts = [("path", &self.path), ("method", &self.method)];
        for (key, value) in conflicts {
            if let Some(value) = value {
                let what = format!("`{key}` conflicts with `grpc`; remove one of them");
                return Err(file.error(&value.span(), what));
            }
        }
        let method = name.parse().map(Some);
        method.map_err(|why: String| file.error(&name.span(), format!("grpc: {why}")))
    }

    /// Returns the path of the file that describes the gRPC method.
    fn proto(&self, file: &TomlFile) -> Option<PathBuf> {
        let directory = file.path().parent().unwrap_or(Path::new(""));
        Some(directory.join(self.proto.as_ref()?.as_str()))
    }

    fn body(&self, file: &TomlFile) -> Result<Option<Vec<u8>>, FileError> {
        match (&self.body, &self.body_file) {
            (Some(_), Some(path)) => Err(file.error(
                &path.span(),
                "`body-file` conflicts with `body`; remove one of them",
            )),
            (Some(text), None) => Ok(Some(text.as_bytes().to_vec())),
            (None, None) => Ok(None),
            (None, Some(name)) => {
                let directory = file.path().parent().unwrap_or(Path::new(""));
                let path = directory.join(name.as_str());
                let bytes = input::read(&path).map_err(|what| {
                    let what = format!("body-file {}: {what}", path.display());
                    file.error(&name.span(), what)
                })?;
                Ok(Some(bytes))
            }
        }
    }
}

/// Returns the headers of a request, followed by the default headers that the request does not set.
pub(crate) fn headers(
    file: &TomlFile,
    own: Option<&Located<Vec<Located<String>>>>,
    defaults: &PlanSpec,
) -> Result<Vec<(String, String)>, FileError> {
    let parse = |text: &Located<String>| {
        parse_header(text).map_err(|what| file.error(&text.span(), format!("headers: {what}")))
    };
    let own = own.into_iter().flat_map(|headers| headers.iter());
    let mut headers = own.map(parse).collect::<Result<Vec<_>, _>>()?;
    let own = headers.len();
    for (name, value) in &defaults.headers {
        let is_own = |(n, _): &(String, String)| n.eq_ignore_ascii_case(name);
        if !headers[..own].iter().any(is_own) {
            headers.push((name.clone(), value.clone()));
        }
    }
    Ok(headers)
}

/// Returns the weight of a request, which is 1 by default.
pub(crate) fn weight(file: &TomlFile, weight: Option<&Located<i64>>) -> Result<u32, FileError> {
    let Some(weight) = weight else {
        return Ok(1);
    };
    match u32::try_from(**weight) {
        Ok(n @ 1..=MAX_WEIGHT) => Ok(n),
        _ => {
            let what = format!(
                "weight: expected an integer from 1 to {MAX_WEIGHT}, not {}",
                **weight
            );
            Err(file.error(&weight.span(), what))
        }
    }
}

/// Reads the mix file of a plan, if any.
pub(crate) fn of_spec(
    spec: &PlanSpec,
    target: &Target,
    http: Http,
    calls: &CallEncoder<'_>,
) -> Result<Option<MixFile>, String> {
    let Some(path) = &spec.mix else {
        return Ok(None);
    };
    if target.path != "/" {
        return Err(format!(
            "the URL \"{}\" has a path, but --mix takes the paths from the mix file; name only the server, such as http://{}/",
            target.url, target.authority
        ));
    }
    let read = MixFile::read(path, spec, http).and_then(|mut file| {
        file.encode_calls(http, spec, calls)?;
        Ok(Some(file))
    });
    read.map_err(|e| format!("{} {e}", spec.name("mix")))
}

/// Checks that the plan's requests are valid. Returns the length of the longest request, in bytes.
///
/// `place` returns the position of a part of a request in the file that contains the requests.
pub(crate) fn longest_request(
    plan: &Plan,
    place: impl Fn(usize, RequestPart) -> Option<String>,
) -> Result<usize, String> {
    let fault = match PlanRequests::of(plan) {
        Ok(requests) => return Ok(requests.longest()),
        Err(fault) => fault,
    };
    let name = plan.mix.as_ref().map(|mix| &mix.requests[fault.index].name);
    match place(fault.index, fault.place).zip(name) {
        Some((place, name)) => Err(format!("{place}: the request \"{name}\": {fault}")),
        None => Err(format!("the request: {fault}")),
    }
}

/// Returns a remark for each header and body of a plan's mix that contains text such as `{token}`:
/// text that looks like a template but is sent unchanged. For `place`, see [`longest_request`].
pub(crate) fn literal_templates(
    plan: &Plan,
    place: impl Fn(usize, RequestPart) -> Option<String>,
) -> Vec<String> {
    let feeds: &[Feed] = plan.mix.as_ref().map_or(&[], |mix| &mix.feeds);
    let requests = plan.mix.iter().flat_map(|mix| &mix.requests).enumerate();
    let requests = requests.filter(|(_, request)| request.templates);
    let parts = requests.flat_map(|(index, of)| {
        let headers = of.request.headers.iter().map(|(_, value)| value.as_bytes());
        let headers = headers.map(|text| (RequestPart::Headers, text));
        let body = of.request.body.bytes().filter(|_| !of.request.is_grpc);
        let body = body.map(|text| (RequestPart::Body, text));
        headers
            .chain(body)
            .map(move |(part, text)| (index, part, text))
    });
    let remark = |(index, part, text)| {
        let literal = literal_template(text, feeds)?;
        let place = place(index, part)?;
        Some(format!(
            "{place}: {literal} is sent unchanged; templates are {{seq}}, {{rand:1-1000}}, {{uuid}} and columns of a [[feed]] \
             (templates = false sends all text unchanged)"
        ))
    };
    parts.filter_map(remark).collect()
}

#[cfg(test)]
#[path = "mix_tests.rs"]
mod tests;
