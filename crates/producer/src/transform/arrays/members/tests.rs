//! Files of samples that become arrays, and those that are refused.

use super::super::sample;
use super::super::tests::{npy, owned, spec, unit};
use super::*;
use crate::sources::{Unit, UnitKind};

fn arrays(specs: &[ArraySpec], files: &[&[u8]]) -> Result<Option<Vec<Vec<u8>>>, String> {
    let cells = files
        .iter()
        .map(|file| Cell::Bytes(file.to_vec().into()))
        .collect();
    let unit = Unit {
        kind: UnitKind::Sample,
        cells,
        ..unit(b"key")
    };
    owned(sample(specs, unit))
}

fn from(spec: ArraySpec, from: &str) -> ArraySpec {
    ArraySpec {
        from: from.to_owned(),
        ..spec
    }
}

#[test]
fn files_of_a_webdataset_become_arrays_by_their_extension() {
    let specs = [
        spec("jpg", Dtype::U8, &[]),
        spec("cls", Dtype::I64, &[]),
        from(spec("box", Dtype::F32, &[4]), "box.json"),
        from(spec("score", Dtype::F64, &[]), "score.json"),
        spec("json", Dtype::U8, &[]),
        from(spec("points", Dtype::I16, &[2]), "points.npy"),
        from(spec("class", Dtype::U8, &[]), "id"),
        spec("mask.bin", Dtype::U8, &[2]),
    ];
    let points = npy("<i2", "False", "(2, 2)", &[1, 0, 2, 0, 3, 0, 4, 0]);
    let files: [&[u8]; 8] = [
        b"\xff\xd8",
        b" -12\n",
        b"[[1, 2.5,\n 3, 4]]",
        b"0.25",
        b"{\"a\": 1}",
        &points,
        b"200",
        b"abcd",
    ];
    let floats = |floats: &[f32]| floats.iter().flat_map(|n| n.to_le_bytes()).collect();
    let expected: Vec<Vec<u8>> = vec![
        b"\xff\xd8".to_vec(),
        (-12_i64).to_le_bytes().to_vec(),
        floats(&[1., 2.5, 3., 4.]),
        0.25_f64.to_le_bytes().to_vec(),
        b"{\"a\": 1}".to_vec(),
        vec![1, 0, 2, 0, 3, 0, 4, 0],
        vec![200],
        b"abcd".to_vec(),
    ];
    assert_eq!(arrays(&specs, &files).unwrap(), Some(expected));
}

#[test]
fn files_of_a_webdataset_that_do_not_fit_are_named() {
    let short = npy("<i2", "False", "(2, 2)", &[1]);
    let other = npy("<f4", "False", "(1, 2)", &[0; 8]);
    for (spec, file, expected) in [
        (
            spec("jpg", Dtype::F32, &[]),
            &b"abcd"[..],
            "array \"jpg\" is F32, and its files hold bytes, which are U8",
        ),
        (
            spec("bin", Dtype::U8, &[3]),
            b"abcd",
            "has 4 bytes, which are not whole items of 3 bytes",
        ),
        (
            spec("cls", Dtype::I64, &[]),
            b"7.5",
            "holds \"7.5\", which is not a whole number of I64",
        ),
        (spec("cls", Dtype::U8, &[]), b"256", "\"256\", which is not"),
        (spec("id", Dtype::I64, &[]), b"", "\"\", which is not"),
        (spec("cls", Dtype::I8, &[2]), b"1", "not whole items of 2"),
        (spec("json", Dtype::F32, &[]), b"{", "is not JSON: "),
        (
            spec("json", Dtype::F32, &[]),
            b"\"x\"",
            "holds \"x\", which",
        ),
        (spec("npy", Dtype::I16, &[2]), &short, "has 1 bytes of data"),
        (spec("npy", Dtype::I16, &[2]), &other, "of type <f4"),
        (spec("npy", Dtype::F32, &[3]), &other, "the shape [1, 2]"),
    ] {
        let why = arrays(&[spec], &[file]).unwrap_err();
        assert!(
            why.contains(expected) && why.ends_with("or packing.arrays"),
            "{why}"
        );
    }
}
