//! From a unit to what is beside its content: marks of the tokens that are learned, numbers of the whole document, and
//! arrays. Pure; runs on the tokenizing threads.

use std::sync::Arc;

use batchweave_core::tgb::Dtype;
use bytes::Bytes;

use super::arrays::{from_cell, json, sample, wrong};
use crate::config::ProducerConfig;
use crate::packing::{ArraySpec, ColumnValues};
use crate::sources::{Cell, Reason, Unit, UnitKind};

/// The columns that are read beside the content of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Columns {
    /// The column of marks first, if there is one, then the numbers.
    specs: Vec<ArraySpec>,
    has_mask: bool,
    arrays: Vec<ArraySpec>,
}

/// The values of one document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Values {
    /// For each token of the document whether it is learned.
    pub(super) mask: Option<Vec<bool>>,
    pub(super) numbers: Option<ColumnValues>,
    pub(super) arrays: Vec<Bytes>,
}

impl Columns {
    /// Returns the configured columns.
    pub fn from_config(config: &ProducerConfig) -> Self {
        let packing = &config.packing;
        Self::new(&config.source.mask, &packing.extra, packing.arrays_beside())
    }

    /// Returns the columns `numbers`, after the column `mask` unless that is empty, and these arrays.
    fn new(mask: &str, numbers: &[ArraySpec], arrays: &[ArraySpec]) -> Self {
        let has_mask = !mask.is_empty();
        let mask = has_mask.then(|| ArraySpec {
            name: mask.to_owned(),
            dtype: Dtype::BOOL,
            shape: Vec::new(),
            base64: false,
            image: None,
            path: false,
            shortest: None,
            from: String::new(),
        });
        let specs = mask.into_iter().chain(numbers.iter().cloned()).collect();
        Self {
            specs,
            has_mask,
            arrays: arrays.to_vec(),
        }
    }

    /// Returns the names of the columns of Parquet files or fields of tars, in the order of a unit's last cells.
    pub fn names(&self) -> Vec<String> {
        self.specs
            .iter()
            .chain(&self.arrays)
            .map(|spec| spec.source().to_owned())
            .collect()
    }

    /// Takes the values out of `unit`; none for a blank line.
    pub(super) fn take(&self, unit: &mut Unit) -> Result<Values, Reason> {
        let arrays = self.take_arrays(unit)?;
        let values = self.take_columns(unit)?;
        Ok(Values { arrays, ..values })
    }

    fn take_arrays(&self, unit: &mut Unit) -> Result<Vec<Bytes>, Reason> {
        if self.arrays.is_empty() {
            return Ok(Vec::new());
        }
        let content = match unit.kind {
            UnitKind::Json => 0,
            UnitKind::Row | UnitKind::Sample => unit.cells.len().saturating_sub(self.arrays.len()),
            _ => return Err(Reason::NoColumns),
        };
        let cells = unit.cells.split_off(content);
        let files = self.arrays.iter().any(|spec| spec.path);
        let of_unit = Unit {
            place: unit.place,
            kind: match unit.kind {
                // What a function returns has all of them.
                UnitKind::Json if !cells.is_empty() && !files => UnitKind::Row,
                kind => kind,
            },
            raw: unit.raw.clone(),
            cells,
        };
        Ok(sample(&self.arrays, of_unit)?.unwrap_or_default())
    }

    fn take_columns(&self, unit: &mut Unit) -> Result<Values, Reason> {
        if self.specs.is_empty() {
            return Ok(Values::default());
        }
        let raw = unit.raw.as_ref().map_err(Clone::clone)?;
        let arrays = match unit.kind {
            UnitKind::Json => {
                let arrays = json(&self.specs, raw, unit.place.unit == 0);
                arrays.map_err(|why| self.explain(why))?
            }
            UnitKind::Row => {
                let own = unit.cells.len().saturating_sub(self.specs.len());
                let cells = self.specs.iter().zip(unit.cells.split_off(own));
                let arrays = cells.map(|(spec, cell)| number(spec, cell));
                let arrays: Result<_, _> = arrays.collect();
                Some(arrays.map_err(|why| self.explain(why))?)
            }
            _ => return Err(Reason::NoColumns),
        };
        let values = arrays.map_or(Ok(Values::default()), |arrays| self.values(arrays));
        values.map_err(|why| self.explain(why))
    }

    /// Names the key of the column that `why` is about.
    fn explain(&self, why: Reason) -> Reason {
        match why {
            Reason::Array { name, detail } if self.has_mask && self.specs[0].name == name => {
                Reason::Mask { name, detail }
            }
            Reason::Array { name, detail } => Reason::Column { name, detail },
            other => other,
        }
    }

    fn values(&self, mut arrays: Vec<Bytes>) -> Result<Values, Reason> {
        let mask = self.has_mask.then(|| arrays.remove(0));
        let specs = self.specs.iter().skip(usize::from(self.has_mask));
        let words = specs.zip(&arrays).map(|(spec, data)| {
            let mut word = [0; 8];
            let items = data.len() as u64 / spec.item_bytes().max(1);
            match word.get_mut(..data.len()) {
                Some(bytes) if items == 1 => bytes.copy_from_slice(data),
                _ => return Err(wrong(&spec.name, format!("holds {items} numbers, not one"))),
            }
            Ok(word)
        });
        let words: Vec<[u8; 8]> = words.collect::<Result<_, _>>()?;
        Ok(Values {
            mask: mask.map(|marks| marks.iter().map(|mark| *mark != 0).collect()),
            numbers: (!words.is_empty()).then(|| Arc::from(words)),
            arrays: Vec::new(),
        })
    }
}

fn number(spec: &ArraySpec, cell: Cell) -> Result<Bytes, Reason> {
    match cell {
        Cell::Bytes(_) => Err(wrong(&spec.name, "holds text or bytes, not numbers")),
        cell => from_cell(spec, cell),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Place;

    fn spec(name: &str, dtype: Dtype) -> ArraySpec {
        ArraySpec {
            name: name.into(),
            dtype,
            shape: Vec::new(),
            base64: false,
            image: None,
            path: false,
            shortest: None,
            from: String::new(),
        }
    }

    fn columns() -> Columns {
        let numbers = [spec("version", Dtype::I64), spec("reward", Dtype::F32)];
        Columns::new("mask", &numbers, &[])
    }

    fn line(text: &str) -> Result<Values, String> {
        let mut unit = Unit {
            place: Place::default(),
            kind: UnitKind::Json,
            raw: Ok(text.to_owned().into()),
            cells: Vec::new(),
        };
        let values = columns().take(&mut unit);
        values.map_err(|why| why.to_string())
    }

    fn row(cells: &[Cell]) -> Result<(Values, usize), String> {
        let mut unit = Unit {
            place: Place::default(),
            kind: UnitKind::Row,
            raw: Ok(Bytes::new()),
            cells: cells.to_vec(),
        };
        let values = columns().take(&mut unit);
        let left = unit.cells.len();
        values.map(|v| (v, left)).map_err(|why| why.to_string())
    }

    fn wanted(version: i64, reward: f32) -> Values {
        let mut word = [0; 8];
        word[..4].copy_from_slice(&reward.to_le_bytes());
        Values {
            mask: Some(vec![false, true]),
            numbers: Some(Arc::new([version.to_le_bytes(), word])),
            arrays: Vec::new(),
        }
    }

    #[test]
    fn rows_and_lines_give_the_same_values() {
        let text = r#"{"reward": -0.5, "mask": [0, true], "version": 7, "ids": [1, 2]}"#;
        assert_eq!(line(text), Ok(wanted(7, -0.5)));
        let content = Cell::Ints(vec![1, 2]);
        let beside = [
            Cell::Ints(vec![0, 1]),
            Cell::Ints(vec![7]),
            Cell::Floats(vec![-0.5]),
        ];
        let all = [&[content][..], &beside].concat();
        assert_eq!(row(&all), Ok((wanted(7, -0.5), 1)));
        assert_eq!(row(&beside), Ok((wanted(7, -0.5), 0)));
        assert_eq!(line(" \n"), Ok(Values::default()));
    }

    #[test]
    fn values_that_do_not_fit_are_named() {
        let why = |text| line(text).unwrap_err();
        let missing = why(r#"{"mask": [], "version": 1}"#);
        assert!(
            missing.starts_with("packing.extra: \"reward\" is missing"),
            "{missing}"
        );
        let mark = why(r#"{"mask": [2], "version": 1, "reward": 0}"#);
        assert!(mark.starts_with("source.mask: \"mask\" holds 2"), "{mark}");
        let list = why(r#"{"mask": [1], "version": [1, 2], "reward": 0}"#);
        assert!(
            list.contains("\"version\" holds 2 numbers, not one"),
            "{list}"
        );
        let row_with_text = row(&[
            Cell::Ints(vec![0, 1]),
            Cell::Ints(vec![7]),
            Cell::Bytes(b"0.50".to_vec().into()),
        ]);
        let why = row_with_text.unwrap_err();
        assert!(why.contains("\"reward\" holds text or bytes"), "{why}");
    }

    #[test]
    fn files_without_columns_are_refused() {
        let mut unit = Unit {
            place: Place::default(),
            kind: UnitKind::Text,
            raw: Ok(Bytes::from_static(b"text")),
            cells: Vec::new(),
        };
        let why = columns().take(&mut unit).unwrap_err();
        assert_eq!(why, Reason::NoColumns);
        assert!(Columns::new("", &[], &[]).take(&mut unit).is_ok());
    }
}
