//! Values that become arrays, and values that are refused.

use super::*;
use crate::sources::Place;

pub(super) fn spec(name: &str, dtype: Dtype, shape: &[u64]) -> ArraySpec {
    ArraySpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
        from: String::new(),
        image: None,
        path: false,
        shortest: None,
        base64: name == "coded",
    }
}

pub(super) fn unit(raw: &[u8]) -> Unit {
    Unit {
        place: Place::default(),
        kind: UnitKind::Json,
        raw: Ok(raw.to_vec().into()),
        cells: Vec::new(),
    }
}

pub(super) fn json_sample(specs: &[ArraySpec], line: &str) -> Result<Option<Vec<Vec<u8>>>, String> {
    owned(sample(specs, unit(line.as_bytes())))
}

/// Returns the bytes of each array, or the text of the reason.
pub(super) fn owned(
    made: Result<Option<Vec<Bytes>>, Reason>,
) -> Result<Option<Vec<Vec<u8>>>, String> {
    let owned = |arrays: Vec<Bytes>| arrays.iter().map(|array| array.to_vec()).collect();
    made.map(|arrays| arrays.map(owned))
        .map_err(|why| why.to_string())
}

#[test]
fn json_values_become_items() {
    let specs = [
        spec("action", Dtype::F32, &[2]),
        spec("coded", Dtype::U16, &[]),
        spec("text", Dtype::U8, &[]),
        spec("done", Dtype::BOOL, &[]),
    ];
    let line =
        r#"{"action":[[1,2.5],[-3,0]],"coded":"AQACAA==","text":"h\u00e9","done":true,"more":{}}"#;
    let arrays = json_sample(&specs, line).unwrap().unwrap();
    let floats: Vec<u8> = [1_f32, 2.5, -3., 0.]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    assert_eq!(
        arrays,
        [floats, vec![1, 0, 2, 0], "hé".as_bytes().to_vec(), vec![1]]
    );
    assert_eq!(json_sample(&specs, "  ").unwrap(), None);
}

#[test]
fn values_that_do_not_fit_are_named() {
    for (dtype, shape, value, expected) in [
        (
            Dtype::U8,
            &[][..],
            "[256]",
            "array \"a\" holds 256, which is not U8",
        ),
        (Dtype::I32, &[], "[1.5]", "holds 1.5, which is not I32"),
        (
            Dtype::F32,
            &[2],
            "[[1,2,3]]",
            "holds [1,2,3], which is not F32 of an item of shape [2]",
        ),
        (Dtype::F32, &[2], "[1,2]", "holds 1, which"),
        (Dtype::F16, &[], "[1]", "is not F16"),
        (Dtype::U64, &[], "[-1]", "is not U64"),
        (Dtype::F32, &[2], "7", "is not a list of a F32[2]"),
        (Dtype::U8, &[], "null", "holds null"),
    ] {
        let why =
            json_sample(&[spec("a", dtype, shape)], &format!("{{\"a\":{value}}}")).unwrap_err();
        assert!(
            why.contains(expected) && why.ends_with("or packing.arrays"),
            "{why}"
        );
    }
    let why = json_sample(&[spec("coded", Dtype::U16, &[])], r#"{"coded":"AQAC"}"#).unwrap_err();
    assert!(
        why.contains("has 3 bytes, which are not whole items of 2 bytes"),
        "{why}"
    );
    let why = json_sample(&[spec("b", Dtype::U16, &[])], r#"{"a":1}"#).unwrap_err();
    assert!(why.contains("array \"b\" is missing"), "{why}");
    assert!(json_sample(&[], "{").unwrap_err().contains("broken JSON"));
}

pub(super) fn npy(descr: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend_from_slice(&(header.len() as u16).to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(data);
    file
}

#[test]
fn a_numpy_file_is_one_sample() {
    let specs = [spec("x", Dtype::I16, &[2])];
    let take = |file: &[u8]| {
        let unit = Unit {
            kind: UnitKind::Array,
            ..unit(file)
        };
        let found = sample(&specs, unit);
        found.map_err(|why| why.to_string())
    };
    let data = [1, 0, 2, 0, 3, 0, 4, 0];
    let file = npy("<i2", "False", "(2, 2)", &data);
    assert_eq!(take(&file).unwrap().unwrap(), [data.to_vec()]);
    for (file, expected) in [
        (
            npy("<i4", "False", "(2, 2)", &data),
            "has items of type <i4, not I16",
        ),
        (npy(">i2", "False", "(2, 2)", &data), "type >i2"),
        (npy("<i2", "True", "(2, 2)", &data), "Fortran order"),
        (npy("<i2", "False", "(2, 3)", &data), "has the shape [2, 3]"),
        (npy("<i2", "False", "(3, 2)", &data), "has 8 bytes of data"),
        (b"PK\x03\x04".to_vec(), "no such header"),
        (file[..9].to_vec(), "no such header"),
    ] {
        let why = take(&file).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}
