//! The arrays of a slice by row and document: their items, by the offsets that are stored beside them.

use std::ops::Range;

use batchweave_core::tgb::{Array, Dtype, Layout};

const OFFSETS: &str = ".offsets";
/// The first document of each row of tokens, and the end.
const SEGMENTS: &str = "segments.offsets";

/// The arrays of one slice that have items per document, or per sample of an `opaque` stream.
pub(super) struct SliceArrays<'p> {
    pub(super) arrays: Vec<Items<'p>>,
    pub(super) rows: usize,
    /// Whether rows are of tokens.
    pub(super) is_text: bool,
    segments: Option<Vec<usize>>,
}

/// The items of one array.
pub(super) struct Items<'p> {
    pub(super) name: &'p str,
    pub(super) dtype: Dtype,
    /// The shape of an item.
    pub(super) shape: Vec<usize>,
    data: &'p [u8],
    /// The first item of each document, and the end.
    offsets: Vec<usize>,
}

impl<'p> SliceArrays<'p> {
    /// Finds the arrays of a payload; an error says which offsets divide nothing.
    pub(super) fn read(layout: &'p Layout, payload: &'p [u8]) -> Result<Self, String> {
        let of = |name: &str| layout.array(&format!("{name}{OFFSETS}"));
        let segments = layout
            .array(SEGMENTS)
            .map(|array| offsets(array, payload))
            .transpose()?;
        let is_text = segments.is_some() || layout.array("tokens").is_some();
        let mut found = Self {
            arrays: Vec::new(),
            rows: 0,
            is_text,
            segments,
        };
        let mut rows = Vec::new();
        for array in layout.arrays() {
            let is_offsets = array.name.strip_suffix(OFFSETS);
            if is_offsets.is_some_and(|name| name == "segments" || layout.array(name).is_some()) {
                continue;
            }
            let Some((&count, shape)) = array.shape.split_first() else {
                continue;
            };
            let own = match of(&array.name) {
                Some(own) => offsets(own, payload)?,
                // Beside tokens these are arrays of tokens or rows.
                None if is_text => {
                    if array.name == "tokens" {
                        rows.push(count as usize);
                    }
                    continue;
                }
                None => (0..=count as usize).collect(),
            };
            if own.last().is_none_or(|end| *end > count as usize) {
                let name = &array.name;
                return Err(format!(
                    "array \"{name}{OFFSETS}\" does not divide the {count} items of {name:?}"
                ));
            }
            if found.segments.is_none() {
                rows.push(own.len() - 1);
            }
            found.arrays.push(Items {
                name: &array.name,
                dtype: array.dtype,
                shape: shape.iter().map(|extent| *extent as usize).collect(),
                data: data(array, payload),
                offsets: own,
            });
        }
        found.rows = match &found.segments {
            Some(segments) => segments.len().saturating_sub(1),
            None => rows.into_iter().min().unwrap_or(0),
        };
        found.check_documents()?;
        Ok(found)
    }

    fn check_documents(&self) -> Result<(), String> {
        let Some(documents) = self.segments.as_ref().and_then(|segments| segments.last()) else {
            return Ok(());
        };
        let wrong = |items: &&Items<'_>| items.documents() < *documents;
        self.arrays.iter().find(wrong).map_or(Ok(()), |items| {
            let (name, has) = (items.name, items.documents());
            Err(format!(
                "array {name:?} has items of {has} documents, the rows have {documents}"
            ))
        })
    }

    /// Returns the documents of a row by their numbers in the slice. A row without arrays of documents has none.
    pub(super) fn documents(&self, row: usize) -> Range<usize> {
        match &self.segments {
            Some(segments) => match segments.get(row..row + 2) {
                Some(&[first, end]) => first..end,
                _ => 0..0,
            },
            None if self.is_text => 0..0,
            None => row..row + 1,
        }
    }
}

impl<'p> Items<'p> {
    pub(super) fn documents(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns the number of items of a document.
    pub(super) fn count(&self, document: usize) -> usize {
        self.range(document).len()
    }

    /// Returns the bytes of a document's items.
    pub(super) fn of(&self, document: usize) -> &'p [u8] {
        let Range { start, end } = self.range(document);
        let size = self.item_bytes();
        self.data.get(start * size..end * size).unwrap_or_default()
    }

    pub(super) fn item_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes() as usize
    }

    fn range(&self, document: usize) -> Range<usize> {
        match self.offsets.get(document..document + 2) {
            Some(&[start, end]) => start..end,
            _ => 0..0,
        }
    }
}

/// Returns offsets, which must rise.
fn offsets(array: &Array, payload: &[u8]) -> Result<Vec<usize>, String> {
    let wide = matches!(array.dtype, Dtype::I64 | Dtype::U64) && array.shape.len() == 1;
    let (items, _) = data(array, payload).as_chunks::<8>();
    let values: Vec<usize> = items
        .iter()
        .map(|item| usize::try_from(u64::from_le_bytes(*item)).unwrap_or(usize::MAX))
        .collect();
    if wide && !values.is_empty() && values.is_sorted() {
        return Ok(values);
    }
    let (name, dtype) = (&array.name, array.dtype.name());
    Err(format!(
        "array {name:?} ({dtype}) has no rising offsets: expected whole numbers of 64 bits from 0 on"
    ))
}

/// Returns an array's bytes.
fn data<'p>(array: &Array, payload: &'p [u8]) -> &'p [u8] {
    let (start, bytes) = (array.offset as usize, array.bytes as usize);
    payload.get(start..start + bytes).unwrap_or_default()
}
