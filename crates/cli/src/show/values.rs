//! The first values of an array's bytes as JSON numbers.

use batchweave_core::tgb::Dtype;
use serde_json::Value;

/// Returns up to `limit` values; `None` for the half-precision types, which JSON can't represent.
pub(super) fn first(dtype: Dtype, data: &[u8], limit: usize) -> Option<Vec<Value>> {
    let value = |b: &[u8]| match dtype {
        Dtype::BOOL => b.first().map(|&x| Value::from(x != 0)),
        Dtype::U8 => of(b, |x| u8::from_le_bytes(x).into()),
        Dtype::I8 => of(b, |x| i8::from_le_bytes(x).into()),
        Dtype::U16 => of(b, |x| u16::from_le_bytes(x).into()),
        Dtype::I16 => of(b, |x| i16::from_le_bytes(x).into()),
        Dtype::U32 => of(b, |x| u32::from_le_bytes(x).into()),
        Dtype::I32 => of(b, |x| i32::from_le_bytes(x).into()),
        Dtype::U64 => of(b, |x| u64::from_le_bytes(x).into()),
        Dtype::I64 => of(b, |x| i64::from_le_bytes(x).into()),
        Dtype::F32 => of(b, |x| f32::from_le_bytes(x).into()),
        Dtype::F64 => of(b, |x| f64::from_le_bytes(x).into()),
        Dtype::F16 | Dtype::BF16 => None,
    };
    data.chunks_exact(dtype.bytes() as usize)
        .take(limit)
        .map(value)
        .collect()
}

fn of<const N: usize>(bytes: &[u8], value: impl FnOnce([u8; N]) -> Value) -> Option<Value> {
    bytes.first_chunk().map(|chunk| value(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_little_endian_and_no_more_than_asked() {
        let json = |dtype, data: &[u8], limit| Value::from(first(dtype, data, limit)).to_string();
        assert_eq!(json(Dtype::U16, &[1, 0, 0, 1, 9, 9], 2), "[1,256]");
        assert_eq!(json(Dtype::I8, &[255, 1], 9), "[-1,1]");
        assert_eq!(json(Dtype::F32, &1.5_f32.to_le_bytes(), 9), "[1.5]");
        assert_eq!(json(Dtype::BOOL, &[1, 0], 9), "[true,false]");
        assert_eq!(first(Dtype::BF16, &[0, 0], 9), None);
    }
}
