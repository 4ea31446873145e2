//! Layouts: the stored form, what the reference reader makes of it, each rule broken once.

use proptest::prelude::*;

use super::*;

fn mixed() -> Layout {
    let arrays = [
        ("segment_ids", Dtype::U8, vec![2, 3]),
        ("tokens", Dtype::U16, vec![2, 3]),
        ("weights", Dtype::F32, vec![2]),
        ("loss_mask", Dtype::U8, vec![2, 3]),
        ("empty", Dtype::I64, vec![0]),
    ];
    Layout::new(arrays).unwrap()
}

/// A safetensors file with this JSON and `data` bytes behind it.
fn file(json: &str, data: usize) -> Vec<u8> {
    let mut out = (json.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(json.as_bytes());
    out.resize(out.len() + data, 7);
    out
}

#[test]
fn the_standard_layout_is_as_the_format_page_shows() {
    let layout = Layout::tokens(Dtype::U16, 4, 129).unwrap();
    let json = r#"{"tokens":{"dtype":"U16","shape":[4,129],"data_offsets":[0,1032]}}"#;
    let header = layout.header();
    assert_eq!(header.len(), 128);
    assert_eq!(header[..8], 120_u64.to_le_bytes());
    assert_eq!(&header[8..8 + json.len()], json.as_bytes());
    assert!(header[8 + json.len()..].iter().all(|&b| b == b' '));
    assert_eq!(
        (layout.payload_len(), layout.arrays()[0].offset),
        (128 + 1032, 128)
    );
}

#[test]
fn arrays_are_sorted_by_item_size_then_name_and_aligned() {
    let layout = mixed();
    let names: Vec<_> = layout.arrays().iter().map(|a| a.name.as_str()).collect();
    assert_eq!(
        names,
        ["empty", "weights", "tokens", "loss_mask", "segment_ids"]
    );
    assert_eq!(layout.arrays()[0].offset % ALIGN_BYTES, 0);
    assert!(
        layout
            .arrays()
            .iter()
            .all(|a| a.offset % a.dtype.bytes() == 0)
    );
}

#[test]
fn the_reference_reader_agrees() {
    let layout = mixed();
    let data: [(&str, &[u8]); 5] = [
        ("tokens", &[1; 12]),
        ("loss_mask", &[2; 6]),
        ("segment_ids", &[3; 6]),
        ("weights", &[4; 8]),
        ("empty", &[]),
    ];
    let payload = layout.encode(&data).unwrap();
    assert_eq!(payload.len() as u64, layout.payload_len());
    let read = SafeTensors::deserialize(&payload).unwrap();
    for (name, bytes) in data {
        assert_eq!(read.tensor(name).unwrap().data(), bytes, "{name}");
        let array = layout.array(name).unwrap();
        assert_eq!(
            &payload[array.offset as usize..][..array.bytes as usize],
            bytes,
            "{name}"
        );
    }
    assert_eq!(Layout::parse(&payload).unwrap(), layout);
}

#[test]
fn tokens_are_stored_little_endian_or_refused() {
    let layout = Layout::tokens(Dtype::U16, 1, 2).unwrap();
    let payload = layout.encode_tokens(&[1, 65535]).unwrap();
    assert_eq!(payload[128..], [1, 0, 0xff, 0xff]);
    let wide = Layout::tokens(Dtype::U32, 1, 1).unwrap();
    assert_eq!(wide.encode_tokens(&[65536]).unwrap()[128..], [0, 0, 1, 0]);
    let error = layout.encode_tokens(&[1, 65536]).unwrap_err();
    assert_eq!(
        error,
        LayoutError::Token {
            token: 65536,
            dtype: Dtype::U16
        }
    );
    let error = layout.encode_tokens(&[1]).unwrap_err();
    assert_eq!(
        error,
        LayoutError::Data {
            name: "tokens".into(),
            expected: 4,
            found: 2
        }
    );
}

#[test]
fn wrong_layouts_are_refused() {
    let one = |name: &str, shape: Vec<u64>| Layout::new([(name.to_owned(), Dtype::U32, shape)]);
    assert_eq!(Layout::new::<&str>([]), Err(LayoutError::Empty));
    assert_eq!(
        one("__metadata__", vec![1]),
        Err(LayoutError::Name("__metadata__".into()))
    );
    assert_eq!(one("", vec![1]), Err(LayoutError::Name(String::new())));
    assert_eq!(one("a", vec![u64::MAX, 2]), Err(LayoutError::TooLarge));
    assert_eq!(one("a", vec![OBJECT_BYTES_MAX]), Err(LayoutError::TooLarge));
    assert_eq!(one(&"a".repeat(65536), vec![1]), Err(LayoutError::TooLarge));
    let twice = [("a", Dtype::U8, vec![1]), ("a", Dtype::U32, vec![1])];
    assert_eq!(Layout::new(twice), Err(LayoutError::Duplicate("a".into())));
    let error = mixed().encode(&[("other", &[1, 2])]).unwrap_err();
    assert_eq!(
        error,
        LayoutError::Data {
            name: "other".into(),
            expected: 0,
            found: 2
        }
    );
}

#[test]
fn payloads_in_another_form_are_refused() {
    let good = Layout::tokens(Dtype::U8, 1, 8)
        .unwrap()
        .encode(&[("tokens", &[9; 8])])
        .unwrap();
    let text = String::from_utf8(good[8..128].to_vec()).unwrap();
    assert!(Layout::parse(&good).is_ok());
    let unreadable = |bytes: &[u8]| matches!(Layout::parse(bytes), Err(LayoutError::Unreadable(_)));
    assert!(unreadable(b"") && unreadable(&good[..7]) && unreadable(&good[..good.len() - 1]));
    assert!(unreadable(&[&good[..], &[0]].concat()));
    assert!(unreadable(&file("{", 0)));
    assert_eq!(Layout::parse(&file("{}", 0)), Err(LayoutError::Empty));
    assert_eq!(Layout::parse(&[0xff; 64]), Err(LayoutError::TooLarge));
    // Well-formed for every reader of safetensors, but another header.
    let meta = text.replacen('{', r#"{"__metadata__":{"a":"b"},"#, 1);
    for other in [
        text.trim_end().to_owned(),
        meta,
        text.replacen(':', ": ", 1),
    ] {
        assert_eq!(
            Layout::parse(&file(&other, 8)),
            Err(LayoutError::NotCanonical),
            "{other}"
        );
    }
    let other = text.replace("U8", "F8_E4M3");
    let error = Layout::parse(&file(&other, 8)).unwrap_err();
    assert!(matches!(&error, LayoutError::Dtype { .. }), "{error}");
    assert!(
        error.to_string().contains("F8_E4M3") && error.to_string().contains("BF16"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn layouts_round_trip(
        arrays in prop::collection::btree_map("[a-zé\"\\\\ ]{1,8}", (0..Dtype::ALL.len(), prop::collection::vec(0..6_u64, 0..4)), 1..6),
    ) {
        let arrays = arrays.into_iter().map(|(name, (dtype, shape))| (name, Dtype::ALL[dtype], shape));
        let layout = Layout::new(arrays).unwrap();
        let data: Vec<(String, Vec<u8>)> =
            layout.arrays().iter().rev().map(|a| (a.name.clone(), vec![0xa5; a.bytes as usize])).collect();
        let data: Vec<_> = data.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect();
        let payload = layout.encode(&data).unwrap();
        prop_assert_eq!(layout.header().len() as u64 % ALIGN_BYTES, 0);
        prop_assert_eq!(Layout::parse(&payload), Ok(layout));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..128_usize, byte in any::<u8>()) {
        let _ = Layout::parse(&bytes);
        let _ = Layout::parse(&file(&String::from_utf8_lossy(&bytes), 3));
        let mut payload = Layout::tokens(Dtype::U8, 1, 8).unwrap().encode(&[("tokens", &[9; 8])]).unwrap();
        payload[at] = byte;
        let _ = Layout::parse(&payload);
    }
}
