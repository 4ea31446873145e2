//! One array from a file of a tar's sample, by the extension of the file, as webdataset decodes it.

use batchweave_core::tgb::Dtype;
use bytes::Bytes;

use super::{from_json, npy, put_int, whole_items, wrong};
use crate::packing::ArraySpec;
use crate::sources::{Cell, MemberKind, Reason};

/// Returns the items of the array that `file` holds, which must fit `spec`, or its encoded image.
pub(super) fn array(spec: &ArraySpec, file: Cell) -> Result<Bytes, Reason> {
    let Cell::Bytes(file) = file else {
        return Err(Reason::NotArrays);
    };
    if spec.image.is_some() {
        return Ok(file);
    }
    let bytes = spec.dtype == Dtype::U8;
    match MemberKind::from_field(spec.source()) {
        MemberKind::Npy => npy::array(spec, file),
        MemberKind::Number => number(spec, &file),
        MemberKind::Json if !bytes => {
            let value = serde_json::from_slice(&file)
                .map_err(|why| wrong(&spec.name, format!("is not JSON: {why}")))?;
            from_json(spec, &value).map(Bytes::from)
        }
        MemberKind::Json | MemberKind::Bytes if bytes => whole_items(spec, file),
        MemberKind::Json | MemberKind::Bytes => {
            let dtype = spec.dtype.name();
            let detail = format!("is {dtype}, and its files hold bytes, which are U8");
            Err(wrong(&spec.name, detail))
        }
    }
}

/// Returns the whole number in decimal digits, as an array of one item.
fn number(spec: &ArraySpec, text: &[u8]) -> Result<Bytes, Reason> {
    let mut data = Vec::new();
    let digits = std::str::from_utf8(text).ok();
    digits
        .and_then(|digits| digits.trim().parse::<i128>().ok())
        .and_then(|number| put_int(spec.dtype, number, &mut data))
        .ok_or_else(|| {
            let mut found = String::from_utf8_lossy(text).into_owned();
            found.truncate(found.floor_char_boundary(40));
            let dtype = spec.dtype.name();
            wrong(
                &spec.name,
                format!("holds {found:?}, which is not a whole number of {dtype}"),
            )
        })?;
    whole_items(spec, data.into())
}

#[cfg(test)]
mod tests;
