//! The mix of `--mix`: read, and held against the rest of the command line.

use floodmark_lab::MixFile;
use floodmark_lab::did_you_mean;
use floodmark_lab::mix::Common;
use floodmark_load::request::{Place, longest, requests};
use floodmark_record::Plan;
use floodmark_record::plan::Target;

use super::args::LoadArgs;
use crate::exit::Ending;

/// Reads the file, where one is named.
pub fn read(args: &LoadArgs, target: &Target) -> Result<Option<MixFile>, Ending> {
    let Some(path) = &args.mix else {
        let of_group = args
            .fail_if
            .iter()
            .find(|condition| condition.group().is_some());
        return match of_group {
            Some(condition) => Err(Ending::usage(format!(
                "--fail-if '{}': only the requests of a --mix have names; leave out what is before the colon",
                condition.text()
            ))),
            None => Ok(None),
        };
    };
    if target.path != "/" {
        return Err(Ending::usage(format!(
            "the URL \"{}\": with --mix the paths are in the file; write only the server, like http://{}/",
            target.url, target.authority
        )));
    }
    let common = Common {
        headers: args.headers.clone(),
        expect: args.expect.clone(),
    };
    let file = MixFile::read(path, &common).map_err(|e| Ending::usage(format!("--mix {e}")))?;
    let names = || {
        file.mix
            .requests
            .iter()
            .map(|request| request.name.as_str())
    };
    for condition in &args.fail_if {
        if let Some(group) = condition.group()
            && !names().any(|name| name == group)
        {
            return Err(Ending::usage(format!(
                "--fail-if '{}': there is no request \"{group}\" in the mix; {}",
                condition.text(),
                did_you_mean(group, names())
            )));
        }
    }
    Ok(Some(file))
}

/// Checks that the plan's requests can be sent; the length of the longest, bytes.
pub fn longest_request(plan: &Plan, file: Option<&MixFile>) -> Result<usize, Ending> {
    let fault = match requests(plan) {
        Ok(requests) => return Ok(longest(&requests)),
        Err(fault) => fault,
    };
    let Some(file) = file else {
        return Err(Ending::usage(format!("the request: {fault}")));
    };
    let key = match fault.place {
        Place::Method => "method",
        Place::Path => "path",
        Place::Headers => "headers",
        Place::Body => "body",
    };
    let name = &file.mix.requests[fault.index].name;
    Err(Ending::usage(format!(
        "--mix {}: the request \"{name}\": {fault}",
        file.place(fault.index, key)
    )))
}
