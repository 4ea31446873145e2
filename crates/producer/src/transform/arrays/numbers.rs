//! Numbers in JSON and Parquet, compared with Rust's own parser.

use proptest::prelude::*;

use super::tests::{json_sample, owned, spec, unit};
use super::*;

/// Returns the items that `text` makes in an array of `dtype`.
fn items(dtype: Dtype, text: &str) -> Result<Vec<u8>, String> {
    let arrays = json_sample(&[spec("a", dtype, &[])], &format!("{{\"a\":[{text}]}}"))?;
    Ok(arrays.unwrap().remove(0))
}

/// Fractions as programs and people write them: any digits, with or without an exponent.
fn fraction() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<f64>()
            .prop_filter("JSON has no such number", |n| n.is_finite())
            .prop_map(|n| format!("{n:?}")),
        any::<f64>()
            .prop_filter("JSON has no such number", |n| n.is_finite())
            .prop_map(|n| format!("{n:.20e}")),
        "-?(0|[1-9][0-9]{0,24})\\.[0-9]{1,24}",
        "-?[1-9]\\.[0-9]{0,20}5[eE][+-]?[0-9]{1,2}",
        "-?(0|[1-9][0-9]{0,30})",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 500 } else { 20_000 }))]

    #[test]
    fn fractions_are_the_nearest_doubles_to_the_last_bit(text in fraction()) {
        let n: f64 = text.parse().unwrap();
        prop_assert_eq!(items(Dtype::F64, &text), Ok(n.to_le_bytes().to_vec()));
        let narrow = n as f32;
        match items(Dtype::F32, &text) {
            Ok(data) => {
                prop_assert!(narrow.is_finite(), "{} became {}", text, narrow);
                prop_assert_eq!(data, narrow.to_le_bytes());
            }
            Err(why) => prop_assert!(narrow.is_infinite() && why.contains("is not F32"), "{}", why),
        }
    }

    #[test]
    fn whole_numbers_are_exact_or_refused(n in prop_oneof![
        any::<i128>(), any::<i64>().prop_map(i128::from), any::<u64>().prop_map(i128::from),
        (-300..300_i128), (-40_000..70_000_i128),
    ]) {
        let text = n.to_string();
        let refused = |why: Result<Vec<u8>, String>| why.is_err_and(|why| why.contains("which is not"));
        macro_rules! check {
            ($($type:ty: $dtype:expr),*) => {$(
                match <$type>::try_from(n) {
                    Ok(n) => prop_assert_eq!(items($dtype, &text), Ok(n.to_le_bytes().to_vec())),
                    Err(_) => prop_assert!(refused(items($dtype, &text)), "{} as {:?}", n, $dtype),
                }
            )*};
        }
        check!(i8: Dtype::I8, u8: Dtype::U8, i16: Dtype::I16, u16: Dtype::U16, i32: Dtype::I32,
            u32: Dtype::U32, i64: Dtype::I64, u64: Dtype::U64);
        prop_assert_eq!(items(Dtype::F64, &text), Ok((n as f64).to_le_bytes().to_vec()));
    }
}

#[test]
fn numbers_at_the_edges() {
    for (text, n) in [
        ("-0", -0.0),
        ("-0.0", -0.0),
        ("1E5", 1e5),
        ("5e-324", 5e-324),
        ("1e-400", 0.0),
        ("1.7976931348623157e308", f64::MAX),
        ("9007199254740993", 9_007_199_254_740_992.0),
        ("0.1", 0.1),
        // Texts whose nearest double fast parsers miss by one.
        ("5.960464477539063e-8", 5.960_464_477_539_063e-8),
        ("1.2345678901234567e-5", 1.234_567_890_123_456_7e-5),
        ("9007199254740993.0", 9_007_199_254_740_992.0),
        ("2.2250738585072011e-308", 2.225_073_858_507_201e-308),
    ] {
        let expected: f64 = text.parse().unwrap();
        assert_eq!(expected.to_bits(), f64::to_bits(n), "{text}: the table");
        assert_eq!(
            items(Dtype::F64, text),
            Ok(n.to_le_bytes().to_vec()),
            "{text}"
        );
    }
    assert_eq!(items(Dtype::I64, "-0"), Ok(vec![0; 8]));
    assert_eq!(items(Dtype::U8, "-0"), Ok(vec![0]));
    let text = "9007199254740993,-9223372036854775808";
    let exact = [9_007_199_254_740_993_i64, i64::MIN].map(i64::to_le_bytes);
    assert_eq!(items(Dtype::I64, text), Ok(exact.concat()));
    for (dtype, text, expected) in [
        (Dtype::F32, "1e39", "which is not F32"),
        (Dtype::F32, "-3.5e38", "which is not F32"),
        (Dtype::F64, "1e400", "number out of range"),
        (Dtype::F64, "NaN", "broken JSON"),
        (Dtype::F64, "Infinity", "broken JSON"),
        (Dtype::F64, "-Infinity", "broken JSON"),
        (Dtype::F64, ".5", "broken JSON"),
        (Dtype::F64, "01", "broken JSON"),
        (Dtype::F64, "\"1\"", "which is not F64"),
        (Dtype::I32, "1.5", "holds 1.5, which is not I32"),
        (Dtype::I32, "1.0", "holds 1.0, which is not I32"),
        (Dtype::I32, "1e2", "which is not I32"),
        (Dtype::I64, "9223372036854775808", "which is not I64"),
        (Dtype::U64, "18446744073709551616", "which is not U64"),
        (Dtype::U8, "true", "holds true, which is not U8"),
        (Dtype::BOOL, "2", "holds 2, which is not BOOL"),
    ] {
        let why = items(dtype, text).unwrap_err();
        assert!(why.contains(expected), "{text}: {why}");
    }
}

#[test]
fn columns_hold_numbers_that_fit_the_type() {
    let of = |dtype, numbers: &[f64]| {
        let unit = Unit {
            kind: UnitKind::Row,
            cells: vec![Cell::Floats(numbers.to_vec())],
            ..unit(b"")
        };
        let found = owned(sample(&[spec("a", dtype, &[])], unit));
        found.map(|arrays| arrays.unwrap().remove(0))
    };
    let all = [1.5, -0.0, f64::NEG_INFINITY, f32::MAX.into()];
    let narrow: Vec<u8> = all.iter().flat_map(|n| (*n as f32).to_le_bytes()).collect();
    assert_eq!(of(Dtype::F32, &all), Ok(narrow));
    assert!(of(Dtype::F32, &[f64::NAN]).is_ok());
    for (dtype, n, shown) in [
        (Dtype::F32, 1e39, "holds 1e39, which is not F32"),
        (Dtype::I32, 0.5, "holds 0.5, which is not I32"),
        (Dtype::I32, 1.0, "holds 1.0, which is not I32"),
    ] {
        let why = of(dtype, &[n]).unwrap_err();
        assert!(why.contains(shown), "{why}");
    }
}

#[test]
fn columns_without_sign_keep_their_numbers_or_are_refused() {
    let of = |dtype, cell| {
        let unit = Unit {
            kind: UnitKind::Row,
            cells: vec![cell],
            ..unit(b"")
        };
        let found = owned(sample(&[spec("a", dtype, &[])], unit));
        found.map(|arrays| arrays.unwrap().remove(0))
    };
    let large = || Cell::Unsigned(vec![1 << 63, u64::MAX]);
    let kept = [1 << 63, u64::MAX].map(u64::to_le_bytes).concat();
    assert_eq!(of(Dtype::U64, large()), Ok(kept));
    let rounded = [(1_u64 << 63) as f64, u64::MAX as f64].map(f64::to_le_bytes);
    assert_eq!(of(Dtype::F64, large()), Ok(rounded.concat()));
    let small = of(Dtype::I64, Cell::Unsigned(vec![i64::MAX.cast_unsigned()]));
    assert_eq!(small, Ok(i64::MAX.to_le_bytes().to_vec()));
    for dtype in [Dtype::I64, Dtype::I32, Dtype::U32, Dtype::BOOL] {
        let why = of(dtype, large()).unwrap_err();
        assert!(
            why.contains("\"a\" holds 9223372036854775808, which is not"),
            "{why}"
        );
    }
    let why = of(Dtype::U64, Cell::Ints(vec![-1])).unwrap_err();
    assert!(why.contains("\"a\" holds -1, which is not U64"), "{why}");
}
