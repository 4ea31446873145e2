//! From a unit to the arrays of a sample, each as the bytes of its items. Pure; runs on the tokenizing threads.
//! `base64`, `npy`, `image` and `members` decode four of the forms; `paths` finds the files that a unit names.

use std::fmt;

use batchweave_core::tgb::Dtype;
use bytes::Bytes;
use serde_json::Value;

use super::json::{is_number, number};
use super::text::BOM;
use crate::packing::ArraySpec;
use crate::sources::{Cell, Reason, Unit, UnitKind};

mod base64;
mod image;
mod members;
mod npy;
pub(crate) mod paths;

/// Returns the arrays of the sample in `unit`, in the order of `specs`; `None` for a blank line.
pub fn sample(specs: &[ArraySpec], unit: Unit) -> Result<Option<Vec<Bytes>>, Reason> {
    let raw = unit.raw?;
    match unit.kind {
        UnitKind::Row => {
            let arrays = specs.iter().zip(unit.cells);
            decoded(
                specs,
                arrays.map(|(spec, cell)| from_cell(spec, cell)).collect(),
            )
        }
        UnitKind::Sample => {
            let arrays = specs.iter().zip(unit.cells);
            decoded(
                specs,
                arrays
                    .map(|(spec, cell)| members::array(spec, cell))
                    .collect(),
            )
        }
        UnitKind::Array => match specs {
            [spec] if spec.image.is_some() => Err(wrong(&spec.name, NO_IMAGE)),
            [spec] => npy::array(spec, raw).map(|data| Some(vec![data])),
            _ => Err(wrong(
                specs.first().map_or("", |spec| &spec.name),
                "is not alone: a .npy file holds one array per sample",
            )),
        },
        UnitKind::Json => json_with(specs, &raw, unit.place.unit == 0, unit.cells),
        UnitKind::Line | UnitKind::Text | UnitKind::Ids => Err(Reason::NotArrays),
    }
}

/// Decodes the images among the arrays of a sample.
fn decoded(
    specs: &[ArraySpec],
    arrays: Result<Vec<Bytes>, Reason>,
) -> Result<Option<Vec<Bytes>>, Reason> {
    let mut arrays = arrays?;
    image::decode(specs, &mut arrays)?;
    Ok(Some(arrays))
}

/// The fault of a value that can't be an encoded image.
const NO_IMAGE: &str =
    "is not an encoded image; JSON has one as a string in base64, with base64 = true";

pub(super) fn wrong(name: &str, detail: impl Into<String>) -> Reason {
    Reason::Array {
        name: name.to_owned(),
        detail: detail.into(),
    }
}

/// Returns the arrays of the JSON object in `raw`; `None` for a blank line.
pub(super) fn json(
    specs: &[ArraySpec],
    raw: &[u8],
    first: bool,
) -> Result<Option<Vec<Bytes>>, Reason> {
    json_with(specs, raw, first, Vec::new())
}

/// Does the same with the bytes of the files that the line names, one for each array with a path.
fn json_with(
    specs: &[ArraySpec],
    raw: &[u8],
    first: bool,
    files: Vec<Cell>,
) -> Result<Option<Vec<Bytes>>, Reason> {
    let line = raw.strip_prefix(BOM).filter(|_| first).unwrap_or(raw);
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let value = super::json::value(line).map_err(|e| Reason::broken_json(&e))?;
    let Value::Object(object) = value else {
        return Err(Reason::NotArrays);
    };
    let mut unused_files = files.into_iter();
    let array = |spec: &ArraySpec| match object.get(spec.source()) {
        Some(_) if spec.path => match unused_files.next() {
            Some(file) => from_cell(spec, file),
            None => Err(wrong(&spec.name, "has no file")),
        },
        None => Err(wrong(&spec.name, "is missing")),
        Some(value) => from_json(spec, value).map(Bytes::from),
    };
    decoded(specs, specs.iter().map(array).collect())
}

/// Returns the items of an array, or its encoded image.
pub(super) fn from_json(spec: &ArraySpec, value: &Value) -> Result<Vec<u8>, Reason> {
    let mut data = Vec::new();
    match value {
        Value::String(text) if spec.base64 => {
            data = base64::decode(text).ok_or_else(|| wrong(&spec.name, "is not base64"))?;
            if spec.image.is_none() {
                check_whole(spec, &data)?;
            }
        }
        _ if spec.image.is_some() => return Err(wrong(&spec.name, NO_IMAGE)),
        Value::String(text)
            if spec.dtype == Dtype::U8 && spec.shape.is_empty() && !is_number(text) =>
        {
            data.extend_from_slice(text.as_bytes());
        }
        Value::Array(items) => {
            for item in items {
                put_json(spec, &spec.shape, item, &mut data)?;
            }
        }
        one if spec.shape.is_empty() => put_json(spec, &[], one, &mut data)?,
        _ => {
            return Err(wrong(
                &spec.name,
                format!("is not a list of {}", spec.text()),
            ));
        }
    }
    Ok(data)
}

/// Appends `value`, which must have the shape `shape`.
fn put_json(
    spec: &ArraySpec,
    shape: &[u64],
    value: &Value,
    data: &mut Vec<u8>,
) -> Result<(), Reason> {
    let put = match (shape, value) {
        ([length, inner @ ..], Value::Array(items)) if items.len() as u64 == *length => {
            return (items.iter()).try_for_each(|item| put_json(spec, inner, item, data));
        }
        ([], Value::String(text)) if is_number(text) => {
            number(text).and_then(|n| put_float(spec.dtype, n, data))
        }
        ([], Value::Bool(b)) if spec.dtype == Dtype::BOOL => put_int(spec.dtype, (*b).into(), data),
        ([], Value::Number(n)) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(n), _, _) => put_int(spec.dtype, n.into(), data),
            (_, Some(n), _) => put_int(spec.dtype, n.into(), data),
            // serde_json reads "-0" as a fraction, because integers have one zero.
            (_, _, Some(0.0)) if !is_float(spec.dtype) => put_int(spec.dtype, 0, data),
            (_, _, Some(n)) => put_float(spec.dtype, n, data),
            _ => None,
        },
        _ => None,
    };
    put.ok_or_else(|| misfit(spec, value))
}

/// Returns the reason why `value` is not one of the array's items.
fn misfit(spec: &ArraySpec, value: &Value) -> Reason {
    let mut found = match value.as_str().filter(|text| is_number(text)) {
        Some(text) => text.chars().skip(1).collect(),
        None => value.to_string(),
    };
    found.truncate(found.floor_char_boundary(60));
    let dtype = spec.dtype.name();
    let of_item = match &spec.shape[..] {
        [] => String::new(),
        shape => format!(" of an item of shape {shape:?}"),
    };
    wrong(
        &spec.name,
        format!("holds {found}, which is not {dtype}{of_item}"),
    )
}

/// Returns the items of an array, or its encoded image.
pub(super) fn from_cell(spec: &ArraySpec, cell: Cell) -> Result<Bytes, Reason> {
    let mut data = Vec::new();
    match cell {
        Cell::Bytes(encoded) | Cell::File(encoded) if spec.image.is_some() => return Ok(encoded),
        _ if spec.image.is_some() => return Err(wrong(&spec.name, NO_IMAGE)),
        Cell::Bytes(bytes) | Cell::File(bytes) => return whole_items(spec, bytes),
        Cell::Ints(numbers) => put_ints(spec, numbers, &mut data)?,
        Cell::Unsigned(numbers) => put_ints(spec, numbers, &mut data)?,
        Cell::Floats(numbers) => numbers.into_iter().try_for_each(|n| {
            put_float(spec.dtype, n, &mut data).ok_or_else(|| unfit(spec, format!("{n:?}")))
        })?,
    }
    whole_items(spec, data.into())
}

/// Appends whole numbers, each of which the type must be able to hold.
fn put_ints<N: Copy + fmt::Display + Into<i128>>(
    spec: &ArraySpec,
    numbers: Vec<N>,
    data: &mut Vec<u8>,
) -> Result<(), Reason> {
    numbers
        .into_iter()
        .try_for_each(|n| put_int(spec.dtype, n.into(), data).ok_or_else(|| unfit(spec, n)))
}

/// Returns the reason for a number that the array's type cannot hold.
fn unfit(spec: &ArraySpec, number: impl fmt::Display) -> Reason {
    let dtype = spec.dtype.name();
    wrong(&spec.name, format!("holds {number}, which is not {dtype}"))
}

fn whole_items(spec: &ArraySpec, data: Bytes) -> Result<Bytes, Reason> {
    check_whole(spec, &data)?;
    Ok(data)
}

fn check_whole(spec: &ArraySpec, data: &[u8]) -> Result<(), Reason> {
    let item = spec.item_bytes();
    if (data.len() as u64).is_multiple_of(item) {
        return Ok(());
    }
    let bytes = data.len();
    Err(wrong(
        &spec.name,
        format!("has {bytes} bytes, which are not whole items of {item} bytes"),
    ))
}

fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64)
}

/// Appends a whole number; `None` when the type cannot hold it.
fn put_int(dtype: Dtype, n: i128, data: &mut Vec<u8>) -> Option<()> {
    macro_rules! put {
        ($type:ty) => {
            data.extend_from_slice(&<$type>::try_from(n).ok()?.to_le_bytes())
        };
    }
    match dtype {
        Dtype::BOOL if n == 0 || n == 1 => data.push(n as u8),
        Dtype::BOOL | Dtype::F16 | Dtype::BF16 => return None,
        Dtype::U8 => put!(u8),
        Dtype::I8 => put!(i8),
        Dtype::U16 => put!(u16),
        Dtype::I16 => put!(i16),
        Dtype::U32 => put!(u32),
        Dtype::I32 => put!(i32),
        Dtype::U64 => put!(u64),
        Dtype::I64 => put!(i64),
        Dtype::F32 | Dtype::F64 => return put_float(dtype, n as f64, data),
    }
    Some(())
}

/// Appends a number with a fraction; `None` when the type cannot hold it.
fn put_float(dtype: Dtype, n: f64, data: &mut Vec<u8>) -> Option<()> {
    match dtype {
        // A cast would make a large double infinite.
        Dtype::F32 if n.is_finite() && (n as f32).is_infinite() => return None,
        Dtype::F32 => data.extend_from_slice(&(n as f32).to_le_bytes()),
        Dtype::F64 => data.extend_from_slice(&n.to_le_bytes()),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod numbers;
#[cfg(test)]
mod tests;
