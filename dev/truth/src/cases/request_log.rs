//! Reads floodmark's request log (`--request-log`).

use std::io;
use std::path::Path;

/// A request. Times are in ns since the start of the measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    pub number: u64,
    /// Name in the mix; empty without a mix.
    pub request: String,
    pub intended_ns: u64,
    /// Time when a connection was free for the request.
    pub free_ns: u64,
    pub sent_ns: u64,
}

/// Reads all requests, in order of their numbers.
///
/// # Errors
/// The file cannot be read, a column is missing, or a value is invalid.
pub fn read(path: &Path) -> io::Result<Vec<LoggedRequest>> {
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or("").split(',').collect();
    let column = |name: &str| {
        let missing = || io::Error::other(format!("no column {name}"));
        header.iter().position(|n| *n == name).ok_or_else(missing)
    };
    let request = column("request")?;
    let [number, intended, free, sent] =
        ["number", "intended_ns", "free_ns", "sent_ns"].map(column);
    let (number, intended, free, sent) = (number?, intended?, free?, sent?);
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let at = |column: usize| fields.get(column)?.parse().ok();
        Some(LoggedRequest {
            number: at(number)?,
            request: (*fields.get(request)?).to_owned(),
            intended_ns: at(intended)?,
            free_ns: at(free)?,
            sent_ns: at(sent)?,
        })
    };
    let requests = lines
        .map(|line| parse(line).ok_or_else(|| io::Error::other(format!("invalid line: {line}"))));
    let mut requests = requests.collect::<io::Result<Vec<_>>>()?;
    requests.sort_by_key(|request| request.number);
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_columns_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let header = "number,request,sent_ns,free_ns,intended_ns";
        std::fs::write(file.path(), format!("{header}\n2,b,30,20,10\n1,a,3,2,1\n")).unwrap();
        let requests = read(file.path()).unwrap();
        let expected = LoggedRequest {
            number: 2,
            request: "b".to_owned(),
            intended_ns: 10,
            free_ns: 20,
            sent_ns: 30,
        };
        assert_eq!((requests[0].number, &requests[1]), (1, &expected));
        std::fs::write(file.path(), format!("{header}\n2,b,,20,10\n")).unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        assert_eq!(error, "invalid line: 2,b,,20,10");
        std::fs::write(file.path(), "number\n").unwrap();
        assert_eq!(
            read(file.path()).unwrap_err().to_string(),
            "no column request"
        );
    }
}
