//! The session's events and answers do not depend on how the input is split.

mod common;

use common::h2::{check_hpack, check_session, read};
use floodmark_wire::h2::frame::{self, FrameHeader, Setting, flag, kind};
use floodmark_wire::h2::{ConnectionError, ErrorCode};
use proptest::collection::vec;
use proptest::prelude::*;

/// Generates a frame from a server that may violate the protocol.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![
        8 => (0u32..6).prop_map(|n| 2 * n + 1),
        2 => (6u32..12).prop_map(|n| 2 * n + 1),
        1 => 0u32..30,
    ];
    // Complete heads, interim heads, trailers, and single bytes.
    let block = prop_oneof![
        6 => Just(b"\x88".to_vec()),
        2 => Just(b"\x88\x0f\x0d\x0240".to_vec()),
        2 => Just(b"\x08\x03103".to_vec()),
        2 => Just(b"\x40\x01a\x01b".to_vec()),
        2 => Just(b"\x48\x82\x64\x02\xbe".to_vec()),
        1 => vec(any::<u8>(), 0..8),
    ];
    let part = (0usize..60).prop_map(|length| (0..length).map(|i| i as u8).collect::<Vec<_>>());
    let flags = prop_oneof![
        4 => Just(flag::END_HEADERS),
        2 => Just(flag::END_HEADERS | flag::END_STREAM),
        1 => any::<u8>(),
    ];
    let kinds = prop_oneof![
        6 => Just(kind::HEADERS),
        1 => Just(kind::CONTINUATION),
        1 => any::<u8>(),
    ];
    let encoded = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        out
    };
    prop_oneof![
        6 => (kinds, flags, stream.clone(), block).prop_map(|(kind, flags, stream, block)| {
            let header = FrameHeader { length: block.len() as u32, kind, flags, stream };
            [&header.bytes()[..], &block].concat()
        }),
        6 => (stream.clone(), part, any::<bool>()).prop_map(move |(stream, part, end)| {
            encoded(&|out| frame::data(stream, &part, end, out))
        }),
        1 => any::<[u8; 8]>().prop_map(move |bytes| encoded(&|out| frame::ping(bytes, out))),
        1 => (0u32..100_000).prop_map(move |size| {
            encoded(&|out| frame::settings(&[Setting::InitialWindowSize(size)], out))
        }),
        1 => (stream.clone(), 0u32..100_000).prop_map(move |(stream, bytes)| {
            encoded(&|out| frame::window_update(stream, bytes, out))
        }),
        1 => (stream, 0u32..10).prop_map(move |(stream, code)| {
            encoded(&|out| frame::reset(stream, ErrorCode(code), out))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_events(frames in vec(any_frame(), 0..40)) {
        check_session(&[b"\0\0\0\x04\0\0\0\0\0".to_vec(), frames.concat()].concat());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        check_session(&bytes);
        check_session(&[&b"\0\0\0\x04\0\0\0\0\0"[..], &bytes].concat());
        check_hpack(&bytes);
    }

    /// Streams are opened until their slots are used again. Resets and credit of old streams have no
    /// effect.
    #[test]
    fn reads_responses_on_many_streams(old in vec(any::<prop::sample::Index>(), 40)) {
        let mut input = b"\0\0\0\x04\0\0\0\0\0".to_vec();
        for (i, old) in old.iter().enumerate() {
            frame::headers(2 * i as u32 + 1, true, &mut input, |out| out.push(0x88));
            let old = 2 * old.index(i + 1) as u32 + 1;
            frame::reset(old, ErrorCode::CANCEL, &mut input);
            frame::window_update(old, 1, &mut input);
        }
        let (transcript, result) = read(&input, || usize::MAX);
        prop_assert_eq!(result, Ok::<(), ConnectionError>(()));
        // Six streams are opened at the start, and one after each response.
        prop_assert_eq!(transcript.items.last().map(|item| &**item), Some("opened Ok(91)"));
        check_session(&input);
    }

    /// A response of any size arrives as it was sent. Each frame fits in the half of the window for
    /// which credit may be outstanding.
    #[test]
    fn reads_data_of_any_size(
        parts in vec((vec(any::<u8>(), 1..300), proptest::option::of(0u8..200)), 1..20),
        stream in prop_oneof![Just(1u32), Just(5), Just(11)],
    ) {
        let mut input = b"\0\0\0\x04\0\0\0\0\0".to_vec();
        frame::headers(stream, false, &mut input, |out| out.push(0x88));
        for (part, padding) in &parts {
            let Some(padding) = padding else {
                frame::data(stream, part, false, &mut input);
                continue;
            };
            let payload = [&[*padding], &part[..], &vec![0; usize::from(*padding)]].concat();
            let header = FrameHeader {
                length: payload.len() as u32,
                kind: kind::DATA,
                flags: flag::PADDED,
                stream,
            };
            input.extend(header.bytes());
            input.extend(payload);
        }
        frame::data(stream, b"", true, &mut input);
        let (transcript, result) = read(&input, || usize::MAX);
        prop_assert_eq!(result, Ok::<(), ConnectionError>(()));
        let body: Vec<u8> = parts.into_iter().flat_map(|(part, _)| part).collect();
        let data = format!("data {stream} {body:?}");
        prop_assert!(transcript.items.contains(&data));
        check_session(&input);
    }
}
