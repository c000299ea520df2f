use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Fields = Vec<(String, String)>;

fn fields(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder.decode(block, |name, value| fields.push((text(name), text(value))))?;
    Ok(fields)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

/// A block, its fields, and the size of the dynamic table afterwards.
type Sample<'a> = (&'a str, &'a [(&'a str, &'a str)], usize);

/// Decodes consecutive blocks.
fn check(table_bytes: u32, blocks: &[Sample<'_>]) {
    let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES, 1000);
    decoder.table.set_max_size(table_bytes as usize).unwrap();
    for (block, expected, size) in blocks {
        let decoded = fields(&mut decoder, &bytes(block)).unwrap();
        let decoded: Vec<_> = decoded.iter().map(|(n, v)| (&**n, &**v)).collect();
        assert_eq!(decoded, *expected);
        assert_eq!(decoder.table.size(), *size);
    }
}

#[test]
fn decodes_rfc_7541_appendix_c2() {
    let block = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    check(4096, &[(block, &[("custom-key", "custom-header")], 55)]);
    let block = "040c 2f73 616d 706c 652f 7061 7468";
    check(4096, &[(block, &[(":path", "/sample/path")], 0)]);
    let block = "1008 7061 7373 776f 7264 0673 6563 7265 74";
    check(4096, &[(block, &[("password", "secret")], 0)]);
    check(4096, &[("82", &[(":method", "GET")], 0)]);
}

/// Requests without Huffman coding (C.3) and with it (C.4).
#[test]
fn decodes_rfc_7541_appendices_c3_and_c4() {
    let start = |scheme, path| {
        [
            (":method", "GET"),
            (":scheme", scheme),
            (":path", path),
            (":authority", "www.example.com"),
        ]
    };
    let first = start("http", "/");
    let second = [&first[..], &[("cache-control", "no-cache")]].concat();
    let third = [
        &start("https", "/index.html")[..],
        &[("custom-key", "custom-value")],
    ]
    .concat();
    for blocks in [
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ] {
        check(
            4096,
            &[
                (blocks[0], &first, 57),
                (blocks[1], &second, 110),
                (blocks[2], &third, 164),
            ],
        );
    }
}

/// Responses with evictions, without Huffman coding (C.5) and with it (C.6).
#[test]
fn decodes_rfc_7541_appendices_c5_and_c6() {
    let response = |status, date| {
        [
            (":status", status),
            ("cache-control", "private"),
            ("date", date),
            ("location", "https://www.example.com"),
        ]
    };
    let first = response("302", "Mon, 21 Oct 2013 20:13:21 GMT");
    let second = response("307", "Mon, 21 Oct 2013 20:13:21 GMT");
    let cookie = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    let more = [("content-encoding", "gzip"), ("set-cookie", cookie)];
    let third = [&response("200", "Mon, 21 Oct 2013 20:13:22 GMT")[..], &more].concat();
    for blocks in [
        [
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 \
             2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 \
             6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d \
             54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 \
             5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e \
             3d31",
        ],
        [
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
             2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab \
             77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f \
             9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ],
    ] {
        check(
            256,
            &[
                (blocks[0], &first, 222),
                (blocks[1], &second, 222),
                (blocks[2], &third, 215),
            ],
        );
    }
}

#[test]
fn rejects_each_kind_of_invalid_block() {
    use HpackError::*;
    for (block, expected) in [
        ("80", InvalidIndex),
        ("be", InvalidIndex),
        ("ff", Truncated),
        ("ff ff ff ff ff 7f", IntegerOverflow),
        ("7e 00", InvalidIndex),
        ("40", Truncated),
        ("40 05 61", Truncated),
        ("00 01 61", Truncated),
        ("00 81 ff 00", HuffmanPadding),
        ("00 01 61 84 ff ff ff ff", EndOfString),
        ("3f e2 1f", TableTooLarge),
        ("82 20", MisplacedSizeUpdate),
    ] {
        let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES, 1000);
        assert_eq!(
            fields(&mut decoder, &bytes(block)),
            Err(expected),
            "{block}"
        );
    }
    let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES, 1000);
    assert_eq!(fields(&mut decoder, &bytes("3f e1 1f 20")), Ok(Vec::new()));
}

#[test]
fn a_smaller_table_must_be_acknowledged() {
    let insert = bytes("40 01 61 01 62");
    let mut decoder = Decoder::new(0, 1000);
    let result = fields(&mut decoder, &insert);
    assert_eq!(result, Err(HpackError::MissingSizeUpdate));
    let mut decoder = Decoder::new(0, 1000);
    let field = Ok(vec![("a".to_owned(), "b".to_owned())]);
    let updated = [&[0x20], &insert[..]].concat();
    assert_eq!(fields(&mut decoder, &updated), field);
    assert_eq!(fields(&mut decoder, &insert), field);
    assert_eq!(fields(&mut decoder, &[0xbe]), Err(HpackError::InvalidIndex));
}

/// A larger table takes effect only when the encoder says so.
#[test]
fn a_larger_table_starts_with_the_default_size() {
    let mut decoder = Decoder::new(2 * DEFAULT_TABLE_BYTES, 1 << 20);
    let mut block = b"\x40\x01a".to_vec();
    integer::encode(4096, 7, 0, &mut block);
    block.extend([b'b'; 4096]);
    fields(&mut decoder, &block).unwrap();
    assert_eq!(decoder.table.size(), 0);
    let mut update = Vec::new();
    integer::encode(2 * 4096, 5, 0x20, &mut update);
    fields(&mut decoder, &[update, block].concat()).unwrap();
    assert_eq!(decoder.table.size(), 4096 + 1 + ENTRY_OVERHEAD);
}

/// Both plain and Huffman-encoded strings count, and a small block can refer to large entries.
#[test]
fn decoded_fields_are_bounded() {
    let value = "x".repeat(100);
    let plain = [&b"\x40\x01a\x64"[..], value.as_bytes()].concat();
    let coded = huffman::tests::encode(value.as_bytes());
    let coded = [&b"\x40\x01a"[..], &[0x80 | coded.len() as u8], &coded].concat();
    for block in [plain, coded] {
        let size = 100 + 1 + ENTRY_OVERHEAD;
        let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES, size - 1);
        let result = fields(&mut decoder, &block);
        assert_eq!(result, Err(HpackError::ListTooLarge));
        let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES, 2 * size);
        assert_eq!(fields(&mut decoder, &block).unwrap().len(), 1);
        assert_eq!(fields(&mut decoder, &[0xbe; 2]).unwrap().len(), 2);
        let result = fields(&mut decoder, &[0xbe; 3]);
        assert_eq!(result, Err(HpackError::ListTooLarge));
        // A literal field whose name is in the dynamic table.
        let result = fields(&mut decoder, b"\xbe\xbe\x7e\0");
        assert_eq!(result, Err(HpackError::ListTooLarge));
    }
}

/// An encoder with a table in its simplest form: a list of strings.
fn encode(
    list: &mut Vec<(Vec<u8>, Vec<u8>)>,
    table_bytes: usize,
    field: &(Vec<u8>, Vec<u8>),
    form: u8,
    block: &mut Vec<u8>,
) {
    let index = |at: usize| at + 1 + STATIC.len();
    if let Some(at) = list.iter().position(|entry| entry == field) {
        return integer::encode(index(at), 7, 0x80, block);
    }
    let same_name = list.iter().position(|entry| entry.0 == field.0);
    let name = same_name.map_or(0, index);
    let (bits, pattern) = if form & 1 == 0 { (6, 0x40) } else { (4, 0x10) };
    integer::encode(name, bits, pattern, block);
    let mut string = |text: &[u8]| {
        let coded = huffman::tests::encode(text);
        let (text, pattern) = if form & 2 == 0 {
            (text, 0)
        } else {
            (&coded[..], 0x80)
        };
        integer::encode(text.len(), 7, pattern, block);
        block.extend_from_slice(text);
    };
    if name == 0 {
        string(&field.0);
    }
    string(&field.1);
    if form & 1 == 0 {
        list.insert(0, field.clone());
        let size = |list: &[(Vec<u8>, Vec<u8>)]| -> usize {
            list.iter()
                .map(|(name, value)| name.len() + value.len() + ENTRY_OVERHEAD)
                .sum()
        };
        if size(&list[..1]) > table_bytes {
            list.clear();
        }
        while size(list) > table_bytes {
            list.pop();
        }
    }
}

proptest! {
    #[test]
    fn decodes_what_an_encoder_encodes(
        table_bytes in 0usize..400,
        blocks in vec(vec((vec(b'a'..=b'c', 0..4), vec(any::<u8>(), 0..40), any::<u8>()), 0..8), 1..12),
    ) {
        let mut decoder = Decoder::new(table_bytes as u32, 1 << 16);
        let capacity = decoder.scratch.capacity();
        let mut list = Vec::new();
        for (i, block) in blocks.iter().enumerate() {
            let mut encoded = Vec::new();
            if i == 0 {
                integer::encode(table_bytes, 5, 0x20, &mut encoded);
            }
            let expected: Vec<_> = block.iter().map(|(name, value, _)| (name.clone(), value.clone())).collect();
            for (field, (_, _, form)) in expected.iter().zip(block) {
                encode(&mut list, table_bytes, field, *form, &mut encoded);
            }
            let mut decoded = Vec::new();
            let result = decoder.decode(&encoded, |name, value| decoded.push((name.to_vec(), value.to_vec())));
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(decoded, expected);
        }
        prop_assert_eq!(decoder.scratch.capacity(), capacity);
    }
}
