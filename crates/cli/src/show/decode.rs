//! The rows of slices as text, split by document, with their source documents.

use std::fmt::Write as _;
use std::path::Path;

use batchweave_console::CliError;
use batchweave_console::output::{count, printable};
use batchweave_console::sources::{self, Names};
use batchweave_core::manifest::StepEntry;
use batchweave_core::provenance::Piece;
use batchweave_core::tgb::{Dtype, Layout, bin_ranges};
use batchweave_log::{Frame, Log};
use serde::Serialize;

use super::FirstRow;
use super::runs::{self, Run};
use super::vocabulary::Vocabulary;

/// One row of a slice.
#[derive(Debug, Serialize)]
pub(crate) struct Decoded {
    slice: u32,
    row: u64,
    documents: Vec<DocumentPart>,
    /// Padding tokens after the last document.
    padding: u64,
}

/// Consecutive tokens of one document, or one sample.
#[derive(Debug, Serialize)]
struct DocumentPart {
    /// `FILE:LINE`; `None` where the stream does not store it.
    source: Option<String>,
    /// Pass over the input, from 0.
    pass: Option<u64>,
    /// Tokens of the document that come before these.
    skip: Option<u64>,
    tokens: u64,
    /// The text; `None` for samples.
    text: Option<String>,
    /// The text by the loss mask; `None` where the stream has none.
    runs: Option<Vec<Run>>,
}

/// The source documents of a step's rows.
struct Origin {
    placed: Vec<(u64, u64, Piece)>,
    names: Names,
}

/// Decodes the rows of all intact frames; `tokenizer` is the file that the command line names.
pub(crate) async fn rows(
    log: &mut Log,
    entry: &StepEntry,
    frames: &[Frame],
    tokenizer: Option<&Path>,
) -> Result<Vec<Decoded>, CliError> {
    let origin = Origin::read(log, entry).await?;
    let stream = log.manifest().stream();
    let (rows_per_slice, _) = log.manifest().shape_at(&entry.producer, entry.seq);
    let producer = log.manifest().producer(&entry.producer);
    let cursor = producer.map(|producer| &producer.cursor);
    let mut vocabulary = None;
    let mut rows = Vec::new();
    for frame in frames {
        let Some(payload) = &frame.payload else {
            continue;
        };
        let layout = Layout::parse(payload).map_err(|e| CliError::Unsound(e.to_string()))?;
        let tokens = tokens(&layout, payload);
        if tokens.is_some() && vocabulary.is_none() {
            let id = &stream.tokenizer;
            let found = Vocabulary::find(log.store().as_ref(), id, tokenizer, cursor).await?;
            vocabulary = Some(found);
        }
        let of_slice = u64::from(rows_per_slice);
        let width = tokens.as_ref().map_or(0, |(width, _)| *width);
        let mask = runs::mask(&layout, payload, width);
        let bins = bin_ranges(&layout, payload);
        for row in 0..of_slice {
            let number = usize::try_from(row).unwrap_or(usize::MAX);
            let at = match &bins {
                Some(bins) => bins.get(number).cloned().unwrap_or_default(),
                None => number * width..(number + 1) * width,
            };
            let undecoded = Undecoded {
                slice: frame.slice,
                row,
                number: u64::from(frame.slice) * of_slice + row,
                tokens: tokens.as_ref().and_then(|(_, all)| all.get(at.clone())),
                mask: mask.and_then(|all| all.get(at)),
            };
            rows.extend(undecoded.decode(origin.as_ref(), vocabulary.as_ref()));
        }
    }
    Ok(rows)
}

/// One row of a frame.
struct Undecoded<'f> {
    slice: u32,
    row: u64,
    /// The number of the row within the step.
    number: u64,
    tokens: Option<&'f [u32]>,
    mask: Option<&'f [u8]>,
}

impl Undecoded<'_> {
    /// Decodes the row; `None` if it has neither tokens nor documents.
    fn decode(self, origin: Option<&Origin>, vocabulary: Option<&Vocabulary>) -> Option<Decoded> {
        let own = self.tokens;
        let text = own.zip(vocabulary);
        let mut documents = match origin {
            Some(origin) => origin.parts(self.number, text),
            None => text.map_or_else(Vec::new, |(own, words)| by_end(own, words)),
        };
        if let Some(((own, words), mask)) = text.zip(self.mask) {
            add_runs(&mut documents, own, mask, words);
        }
        let held: u64 = documents.iter().map(|part| part.tokens).sum();
        let padding = own.map_or(0, |own| (own.len() as u64).saturating_sub(held));
        (own.is_some() || !documents.is_empty()).then_some(Decoded {
            slice: self.slice,
            row: self.row,
            documents,
            padding,
        })
    }
}

impl Origin {
    async fn read(log: &mut Log, entry: &StepEntry) -> Result<Option<Self>, CliError> {
        let Some(key) = &entry.tgb.provenance else {
            return Ok(None);
        };
        let provenance = sources::provenance(log.store().as_ref(), key).await?;
        let Some(sources) = provenance.get(entry.seq) else {
            let text = format!("{key} has no entry for batch {}", entry.seq);
            return Err(CliError::Unsound(text));
        };
        let names = sources::names(log, &entry.producer).await?;
        let stream = log.manifest().stream();
        let (rows_per_slice, seq_len) = log.manifest().shape_at(&entry.producer, entry.seq);
        let rows = u64::from(stream.slices) * u64::from(rows_per_slice);
        Ok(Some(Self {
            placed: sources.placed(u64::from(seq_len), rows),
            names,
        }))
    }

    fn parts(&self, row: u64, text: Option<(&[u32], &Vocabulary)>) -> Vec<DocumentPart> {
        let from = self.placed.partition_point(|(r, ..)| *r < row);
        let own = self
            .placed
            .iter()
            .skip(from)
            .take_while(|(r, ..)| *r == row);
        let part = |(_, at, piece): &(u64, u64, Piece)| {
            let (from, to) = (*at as usize, (at + piece.items) as usize);
            let words = text.and_then(|(tokens, words)| Some((tokens.get(from..to)?, words)));
            DocumentPart {
                source: Some(sources::place(piece, &self.names)),
                pass: Some(piece.pass),
                skip: Some(piece.skip),
                tokens: piece.items,
                text: words.map(|(tokens, words)| words.text(tokens)),
                runs: None,
            }
        };
        own.map(part).collect()
    }
}

/// Adds the runs of the loss mask to the documents of a row, which follow one another from its beginning.
fn add_runs(documents: &mut [DocumentPart], own: &[u32], mask: &[u8], words: &Vocabulary) {
    let (mut own, mut mask) = (own, mask);
    for part in documents {
        let length = usize::try_from(part.tokens).unwrap_or(usize::MAX);
        let tokens = own.split_off(..length.min(own.len()));
        let values = mask.split_off(..length.min(mask.len()));
        let runs = tokens.zip(values);
        part.runs = runs.map(|(tokens, values)| runs::split(tokens, values, |own| words.text(own)));
    }
}

/// Splits a row without provenance after each end token.
fn by_end(tokens: &[u32], words: &Vocabulary) -> Vec<DocumentPart> {
    let pieces = tokens.split_inclusive(|token| Some(*token) == words.end);
    let part = |tokens: &[u32]| DocumentPart {
        source: None,
        pass: None,
        skip: None,
        tokens: tokens.len() as u64,
        text: Some(words.text(tokens)),
        runs: None,
    };
    pieces.map(part).collect()
}

/// Returns a row's width and the tokens of all rows; `None` for slices of samples.
fn tokens(layout: &Layout, payload: &[u8]) -> Option<(usize, Vec<u32>)> {
    let array = layout.array("tokens")?;
    let start = usize::try_from(array.offset).ok()?;
    let data = payload.get(start..start + usize::try_from(array.bytes).ok()?)?;
    let width = usize::try_from(*array.shape.last()?).ok()?;
    let token = |bytes: &[u8]| match (array.dtype, bytes) {
        (Dtype::U16, &[a, b]) => Some(u16::from_le_bytes([a, b]).into()),
        (Dtype::U32, &[a, b, c, d]) => Some(u32::from_le_bytes([a, b, c, d])),
        _ => None,
    };
    let items = data.chunks_exact(usize::try_from(array.dtype.bytes()).ok()?);
    Some((width.max(1), items.map(token).collect::<Option<_>>()?))
}

impl DocumentPart {
    /// Returns its source, pass and tokens.
    fn caption(&self) -> String {
        let source = self.source.as_deref().unwrap_or("a document");
        let pass = self
            .pass
            .filter(|pass| *pass > 0)
            .map_or(String::new(), |pass| format!(", pass {}", pass + 1));
        if self.text.is_none() {
            return format!("{source}{pass}");
        }
        let from = self
            .skip
            .filter(|skip| *skip > 0)
            .map_or(String::new(), |skip| format!(" from token {skip} on"));
        format!("{source}{pass}, {}{from}", count(self.tokens, "token"))
    }
}

impl Decoded {
    /// Returns whether it is this row of this slice.
    pub(crate) fn is(&self, slice: u32, row: u64) -> bool {
        (self.slice, self.row) == (slice, row)
    }

    /// Returns the text of the row, or of one of its documents.
    pub(crate) fn words(&self, document: Option<usize>) -> String {
        let all = 0..self.documents.len();
        let own = document.map_or(all, |n| n..n + 1);
        let parts = self.documents.get(own).unwrap_or_default();
        parts
            .iter()
            .filter_map(|part| part.text.as_deref())
            .collect()
    }

    /// Returns the first document of the row; `None` without a text.
    pub(super) fn beginning(&self) -> Option<FirstRow> {
        let part = self.documents.first()?;
        Some(FirstRow {
            source: part.source.clone(),
            tokens: part.tokens,
            text: part.text.clone()?,
        })
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!("\nslice {}, row {}\n", self.slice, self.row);
        for part in &self.documents {
            let _ = writeln!(out, "--- {}", printable(&part.caption()));
            if let Some(text) = &part.text {
                let _ = writeln!(out, "{text}");
            }
        }
        if self.padding > 0 {
            let _ = writeln!(out, "--- padding, {}", count(self.padding, "token"));
        }
        out
    }
}
