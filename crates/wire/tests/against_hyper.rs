//! Compares the reader with hyper's client. hyper accepts every input that this reader accepts,
//! with the same status and body.

mod common;

use common::check::{Random, Transcript, read};
use common::mutate::mutate;
use common::responses::sample;
use floodmark_wire::ReadError;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Returns the status and body as read by hyper's client. The connection carries `input` and then
/// closes.
fn hyper_reads(
    runtime: &tokio::runtime::Runtime,
    input: &[u8],
    to_head_request: bool,
) -> Result<(u16, Vec<u8>), hyper::Error> {
    let (client, mut server) = tokio::io::duplex(input.len().max(4096));
    let method = if to_head_request { "HEAD" } else { "GET" };
    let request = hyper::Request::builder()
        .method(method)
        .uri("/")
        .header("host", "test")
        .body(Empty::<Bytes>::new())
        .expect("a legal request");
    let exchange = async move {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(client)).await?;
        let serve = async {
            let mut request = [0; 1024];
            let mut had = 0;
            while !request[..had].ends_with(b"\r\n\r\n") {
                had += server
                    .read(&mut request[had..])
                    .await
                    .expect("hyper writes its request");
            }
            server
                .write_all(input)
                .await
                .expect("the pipe holds the whole input");
            drop(server);
        };
        let response = async {
            let response = sender.send_request(request).await?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await?.to_bytes();
            Ok((status, body.to_vec()))
        };
        // The result of hyper's connection after the response, such as the close, is irrelevant
        // here.
        let (_, (), response) = tokio::join!(connection, serve, response);
        response
    };
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(5), exchange).await })
        .expect("hyper finishes when the connection closes")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}

/// Reads the first response in `input`, and finds the position of its end.
fn first(input: &[u8], to_head_request: bool) -> Transcript {
    let mut transcript = read(input, to_head_request, || usize::MAX);
    if transcript.responses.len() > 1 || !transcript.responses.is_empty() && transcript.end.is_err()
    {
        transcript = read(&input[..transcript.ends[0]], to_head_request, || usize::MAX);
    }
    transcript
}

/// Returns whether this reader deliberately rejects input that hyper accepts.
fn stricter_on_purpose(error: ReadError) -> bool {
    match error {
        // hyper skips empty lines before a head. RFC 9112 section 2.2 allows them only before a
        // request. Before a response, empty lines mean that the previous body exceeded its length,
        // which is a server fault.
        ReadError::NotHttp => true,
        // hyper passes an upgrade to its caller. floodmark's requests never ask for an upgrade.
        ReadError::UnexpectedUpgrade => true,
        // hyper skips any number of 1xx responses.
        ReadError::TooManyInterim => true,
        // hyper gives Transfer-Encoding precedence. RFC 9112 section 6.3 rule 3 warns that such a
        // response may be an attack.
        ReadError::LengthAndTransferEncoding => true,
        // hyper accepts "gzip, chunked" (the body remains compressed) and "chunked, chunked". After
        // other codings, hyper reads until the connection closes. floodmark's requests offer no
        // coding, so a server may use only chunked.
        ReadError::UnsupportedTransferCoding => true,
        // hyper ignores the framing headers of 1xx, 204 and 304 responses, and of responses to
        // HEAD. These headers are invalid nevertheless.
        ReadError::GarbageContentLength
        | ReadError::ConflictingContentLength
        | ReadError::TransferEncodingInHttp10 => true,
        // hyper accepts control characters in chunk extensions, and any number of leading zeros in
        // a chunk size.
        ReadError::GarbageChunkSize | ReadError::ChunkSizeOverflow => true,
        // hyper ends trailers at an empty CR LF line, but reads their content only up to a lone LF
        // and drops the rest. Two readers could therefore disagree about the trailers.
        ReadError::GarbageTrailer => true,
        _ => false,
    }
}

/// Compares both readers on one input.
fn compare(runtime: &tokio::runtime::Runtime, input: &[u8], to_head_request: bool) -> bool {
    let ours = first(input, to_head_request);
    let shown = String::from_utf8_lossy(input);
    if let [(response, body)] = &ours.responses[..] {
        let (status, hyper_body) = hyper_reads(runtime, &input[..ours.ends[0]], to_head_request)
            .unwrap_or_else(|error| {
                panic!("this reader accepts input that hyper rejects ({error:?}): {shown:?}")
            });
        assert_eq!((response.status, body), (status, &hyper_body), "{shown:?}");
        return true;
    }
    if let (Err(error), Ok(theirs)) = (ours.end, hyper_reads(runtime, input, to_head_request)) {
        assert!(
            stricter_on_purpose(error),
            "this reader rejects ({error:?}) input that hyper accepts ({theirs:?}): {shown:?}"
        );
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_on_valid_responses(made in sample(true), to_head_request in any::<bool>()) {
        prop_assert!(compare(&runtime(), &made.wire, to_head_request));
    }

    #[test]
    fn agrees_on_damaged_responses(made in sample(true), seed in any::<u64>(), to_head_request in any::<bool>()) {
        let runtime = runtime();
        let mut random = Random(seed);
        for _ in 0..8 {
            let mut damaged = made.wire.clone();
            mutate(&mut damaged, &mut random);
            compare(&runtime, &damaged, to_head_request);
        }
    }
}
