//! One array as `numpy.save` writes it: a magic number, a small header, the items.

use batchweave_core::tgb::Dtype;

use super::wrong;
use crate::packing::ArraySpec;
use crate::sources::Reason;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Returns the items of the array in `file`, which must fit `spec`.
pub(super) fn array(spec: &ArraySpec, mut file: Vec<u8>) -> Result<Vec<u8>, Reason> {
    let begin = check(spec, &file)?;
    // Moved within the buffer rather than copied, because the array may be large.
    file.drain(..begin);
    Ok(file)
}

/// Checks the header. Returns the offset of the items.
fn check(spec: &ArraySpec, file: &[u8]) -> Result<usize, Reason> {
    let broken = |detail: &str| wrong(&spec.name, format!("is not readable as .npy: {detail}"));
    let (header, data) = split(file).ok_or_else(|| broken("no such header"))?;
    let descr = quoted(header, "descr").ok_or_else(|| broken("no simple type"))?;
    let shape = shape(header).ok_or_else(|| broken("no shape"))?;
    if dtype(descr) != Some(spec.dtype) {
        let wanted = spec.dtype.name();
        return Err(wrong(
            &spec.name,
            format!("has items of type {descr}, not {wanted}"),
        ));
    }
    let columns_first = after(header, "fortran_order").is_some_and(|rest| rest.starts_with("True"));
    if columns_first && shape.len() > 1 {
        return Err(wrong(
            &spec.name,
            "is in Fortran order; save numpy.ascontiguousarray of it",
        ));
    }
    // A single number counts as an array of one item.
    let inner = shape.get(1..).unwrap_or_default();
    if inner != spec.shape {
        let wanted = &spec.shape;
        return Err(wrong(
            &spec.name,
            format!("has the shape {shape:?}, not [any, then {wanted:?}]"),
        ));
    }
    let items = shape.iter().try_fold(1_u64, |n, &d| n.checked_mul(d));
    let bytes = items.and_then(|n| n.checked_mul(spec.dtype.bytes()));
    if bytes != Some(data.len() as u64) {
        let found = data.len();
        return Err(wrong(
            &spec.name,
            format!("has {found} bytes of data, not those of the shape {shape:?}"),
        ));
    }
    Ok(file.len() - data.len())
}

/// Returns the text of the header and the bytes after it.
fn split(file: &[u8]) -> Option<(&str, &[u8])> {
    let rest = file.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_at_checked(2)?;
    let (length, rest) = if version[0] == 1 {
        let (length, rest) = rest.split_first_chunk::<2>()?;
        (u32::from(u16::from_le_bytes(*length)), rest)
    } else {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        (u32::from_le_bytes(*length), rest)
    };
    let (header, data) = rest.split_at_checked(length as usize)?;
    Some((std::str::from_utf8(header).ok()?, data))
}

/// Returns the text after the key in the header, a Python dictionary.
fn after<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

fn quoted<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let rest = after(header, key)?.strip_prefix('\'')?;
    rest.split_once('\'').map(|(text, _)| text)
}

fn shape(header: &str) -> Option<Vec<u64>> {
    let rest = after(header, "shape")?.strip_prefix('(')?;
    let (numbers, _) = rest.split_once(')')?;
    let numbers = numbers.split(',').map(str::trim).filter(|n| !n.is_empty());
    numbers.map(|n| n.parse().ok()).collect()
}

fn dtype(descr: &str) -> Option<Dtype> {
    Some(match descr {
        "|b1" => Dtype::BOOL,
        "|u1" => Dtype::U8,
        "|i1" => Dtype::I8,
        "<u2" => Dtype::U16,
        "<i2" => Dtype::I16,
        "<f2" => Dtype::F16,
        "<u4" => Dtype::U32,
        "<i4" => Dtype::I32,
        "<f4" => Dtype::F32,
        "<u8" => Dtype::U64,
        "<i8" => Dtype::I64,
        "<f8" => Dtype::F64,
        _ => return None,
    })
}
