//! Arrays whose field or column holds the path of a file: which files a unit names, and their bytes in its cells.

use bytes::Bytes;
use serde_json::Value;

use super::super::json;
use super::super::text::BOM;
use super::wrong;
use crate::packing::ArraySpec;
use crate::sources::{Cell, Reason, Unit, UnitKind};

/// Returns the name of each array with `path = true`, and the path that `unit` has for it. None for a unit that is refused
/// later anyway, or holds nothing.
pub(crate) fn paths(specs: &[ArraySpec], unit: &Unit) -> Result<Vec<(String, String)>, Reason> {
    let Ok(raw) = &unit.raw else {
        return Ok(Vec::new());
    };
    let named = specs.iter().enumerate().filter(|(_, spec)| spec.path);
    match unit.kind {
        UnitKind::Row => {
            let first = first_cell(specs, unit);
            let cells = named.filter_map(|(n, spec)| Some((spec, unit.cells.get(first + n)?)));
            cells.map(|(spec, cell)| from_column(spec, cell)).collect()
        }
        UnitKind::Json => {
            let raw = raw
                .strip_prefix(BOM)
                .filter(|_| unit.place.unit == 0)
                .unwrap_or(raw);
            let Ok(Value::Object(object)) = json::value_as_python(raw) else {
                return Ok(Vec::new());
            };
            let value = |spec: &ArraySpec| match object.get(spec.source()) {
                None => Err(wrong(&spec.name, "is missing")),
                Some(Value::String(path)) => Ok((spec.name.clone(), path.clone())),
                Some(Value::Null) => Err(wrong(&spec.name, "is null, not the path of a file")),
                Some(_) => Err(wrong(&spec.name, NO_PATH)),
            };
            named.map(|(_, spec)| value(spec)).collect()
        }
        _ => match specs.iter().find(|spec| spec.path) {
            Some(spec) => Err(wrong(
                &spec.name,
                "has path = true, which is for JSONL, Parquet, Arrow and CSV files",
            )),
            None => Ok(Vec::new()),
        },
    }
}

/// Returns the index of the first array among the cells of a row; those of its content are before.
fn first_cell(specs: &[ArraySpec], unit: &Unit) -> usize {
    unit.cells.len().saturating_sub(specs.len())
}

/// The fault of a value that can't be a path.
const NO_PATH: &str = "is not the path of a file, which is text";

fn from_column(spec: &ArraySpec, cell: &Cell) -> Result<(String, String), Reason> {
    let text = match cell {
        Cell::Bytes(path) => std::str::from_utf8(path).ok(),
        _ => None,
    };
    let path = text.ok_or_else(|| wrong(&spec.name, NO_PATH))?;
    Ok((spec.name.clone(), path.to_owned()))
}

/// Puts the bytes of the files, one for each path of [`paths`], where [`super::sample`] takes them.
pub(crate) fn put(specs: &[ArraySpec], unit: &mut Unit, files: Vec<Bytes>) {
    let cells = files.into_iter().map(Cell::File);
    if unit.kind == UnitKind::Json {
        unit.cells = cells.collect();
        return;
    }
    let first = first_cell(specs, unit);
    let given = specs.iter().zip(unit.cells.iter_mut().skip(first));
    let named = given.filter(|(spec, _)| spec.path);
    for ((_, cell), file) in named.zip(cells) {
        *cell = file;
    }
}
