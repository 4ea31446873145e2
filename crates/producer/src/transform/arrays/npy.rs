//! One array as `numpy.save` writes it: a magic number, a small header, the items.

use batchweave_core::tgb::Dtype;
use bytes::Bytes;

use super::wrong;
use crate::npy;
use crate::packing::ArraySpec;
use crate::sources::Reason;

/// Returns the items of the array in `file`, which must fit `spec`.
pub(super) fn array(spec: &ArraySpec, file: Bytes) -> Result<Bytes, Reason> {
    let begin = check(spec, &file)?;
    Ok(file.slice(begin..))
}

/// Checks the header. Returns the offset of the items.
fn check(spec: &ArraySpec, file: &[u8]) -> Result<usize, Reason> {
    let refused = |why: String| wrong(&spec.name, why);
    let broken = |detail: &str| refused(format!("is not readable as .npy: {detail}"));
    let header = npy::header(file).ok_or_else(|| broken("no such header"))?;
    let data = file.get(header.data_at as usize..).unwrap_or_default();
    let Some(descr) = header.descr.as_deref() else {
        return Err(broken("no simple type"));
    };
    let shape = header.shape.ok_or_else(|| broken("no shape"))?;
    if dtype(descr) != Some(spec.dtype) {
        let wanted = spec.dtype.name();
        return Err(refused(format!("has items of type {descr}, not {wanted}")));
    }
    if header.columns_first && shape.len() > 1 {
        return Err(wrong(
            &spec.name,
            "is in Fortran order; save numpy.ascontiguousarray of it",
        ));
    }
    // A single number counts as an array of one item.
    let inner = shape.get(1..).unwrap_or_default();
    if inner != spec.shape {
        let wanted = &spec.shape;
        return Err(refused(format!(
            "has the shape {shape:?}, not [any, then {wanted:?}]"
        )));
    }
    let items = shape.iter().try_fold(1_u64, |n, &d| n.checked_mul(d));
    let bytes = items.and_then(|n| n.checked_mul(spec.dtype.bytes()));
    if bytes != Some(data.len() as u64) {
        let found = data.len();
        return Err(refused(format!(
            "has {found} bytes of data, not those of the shape {shape:?}"
        )));
    }
    Ok(file.len() - data.len())
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
