//! `show --pictures FILE`: a page of a step's first rows for a browser: pictures, with text and other arrays beside
//! them.

mod arrays;
mod html;
mod image;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::ops::Range;
use std::path::Path;

use batchweave_console::CliError;
use batchweave_console::output::{bytes, count, joined};
use batchweave_core::tgb::{Dtype, Layout};
use batchweave_log::Frame;
use serde::Serialize;

use self::arrays::{Items, SliceArrays};
use self::html::{Document, Row};
use super::decode::{Decoded, DocumentPart};
use super::values;

/// Rows on a page, at most.
const ROWS_MAX: usize = 64;
/// Bytes of a page after which no row follows.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Documents of a row, at most.
const DOCUMENTS_MAX: usize = 64;
/// Pictures of a row, at most.
const PICTURES_MAX: usize = 16;
/// Values of another array, at most.
const VALUES_MAX: usize = 12;

/// The file of a page that was written, and its contents in numbers.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    file: String,
    /// Rows on the page, and rows of the slices that it is of.
    rows: u64,
    of_rows: u64,
    pictures: u64,
    bytes: u64,
}

impl Page {
    pub(super) fn text(&self) -> String {
        let (file, size) = (&self.file, bytes(self.bytes));
        let pictures = count(self.pictures, "picture");
        let (rows, of) = (self.rows, self.of_rows);
        format!("\n{file}: {rows} of {of} rows, {pictures}, {size}\n")
    }
}

/// Returns the slices whose rows have a place on the page.
pub(super) fn slices(first: u32, end: u32, rows_per_slice: u32) -> Range<u32> {
    let needed = (ROWS_MAX as u32).div_ceil(rows_per_slice.max(1));
    first..first.saturating_add(needed).min(end)
}

/// Fails where the file of the page can't be created, before any data is read.
pub(super) fn check(file: &Path) -> Result<(), CliError> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if file.symlink_metadata().is_ok() {
        return Err(refused(file, ErrorKind::AlreadyExists.into()));
    }
    match folder.map(Path::metadata) {
        Some(Err(why)) => Err(refused(file, why)),
        Some(Ok(found)) if !found.is_dir() => Err(refused(file, ErrorKind::NotADirectory.into())),
        _ => Ok(()),
    }
}

fn refused(file: &Path, why: std::io::Error) -> CliError {
    let file = file.display();
    CliError::Failed(match why.kind() {
        ErrorKind::AlreadyExists => {
            format!(
                "--pictures {file}: exists already, and is not replaced; name another file, or delete it"
            )
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            format!("--pictures {file}: its folder does not exist; create it, or name another file")
        }
        _ => format!("--pictures {file}: cannot be written: {why}; name another file"),
    })
}

/// Writes the page of the frames' rows, whose text is `decoded`.
pub(super) fn write(
    file: &Path,
    title: &str,
    of_rows: u64,
    frames: &[Frame],
    decoded: &[Decoded],
) -> Result<Page, CliError> {
    let (html, rows, pictures) = page(title, of_rows, frames, decoded)?;
    let written = File::create_new(file).and_then(|mut file| file.write_all(html.as_bytes()));
    written.map_err(|why| refused(file, why))?;
    Ok(Page {
        file: file.display().to_string(),
        rows,
        of_rows,
        pictures,
        bytes: html.len() as u64,
    })
}

/// Returns the page, and the number of its rows and pictures.
fn page(
    title: &str,
    of_rows: u64,
    frames: &[Frame],
    decoded: &[Decoded],
) -> Result<(String, u64, u64), CliError> {
    let (mut body, mut rows, mut pictures) = (String::new(), 0, 0);
    let mut notes = Vec::new();
    'page: for frame in frames {
        let slice = frame.slice;
        let Some(payload) = &frame.payload else {
            let fault = frame.fault.as_deref().unwrap_or("not read");
            notes.push(format!("slice {slice} is not shown: {fault}"));
            continue;
        };
        let unsound = |why: String| CliError::Unsound(format!("slice {slice}: {why}"));
        let layout = Layout::parse(payload).map_err(|why| unsound(why.to_string()))?;
        let arrays = SliceArrays::read(&layout, payload).map_err(unsound)?;
        let sizes = image::sizes(&arrays);
        for row in 0..arrays.rows {
            if rows == ROWS_MAX as u64 || body.len() > PAGE_BYTES_MAX {
                break 'page;
            }
            let text = decoded.iter().find(|one| one.is(slice, row as u64));
            let shown = one_row(&arrays, &sizes, slice, row, text);
            pictures += shown
                .documents
                .iter()
                .map(|part| part.pictures.len())
                .sum::<usize>() as u64;
            rows += 1;
            body += &html::row(&shown);
        }
    }
    let mut lines = vec![format!("{} of {}", rows, count(of_rows, "row"))];
    if body.contains("<span class=\"off\">") {
        lines.push("text in another colour is not learned (loss_mask)".to_owned());
    }
    lines.append(&mut notes);
    let page = html::head(title, &lines) + &body + html::END;
    Ok((page, rows, pictures))
}

fn one_row(
    arrays: &SliceArrays<'_>,
    sizes: &[Option<&Items<'_>>],
    slice: u32,
    row: usize,
    decoded: Option<&Decoded>,
) -> Row {
    let kind = if arrays.is_text { "row" } else { "sample" };
    let texts = decoded.map_or(&[][..], |decoded| &decoded.documents);
    let mut documents: Vec<Document> = texts.iter().map(of_text).collect();
    let own = arrays.documents(row);
    let is_paired = documents.len() == own.len();
    let mut left = PICTURES_MAX;
    for (number, at) in own.enumerate() {
        if is_paired && let Some(document) = documents.get_mut(number) {
            add_arrays(document, arrays, sizes, at, &mut left);
            continue;
        }
        let caption = if arrays.is_text {
            format!("document {} of the row", number + 1)
        } else {
            String::new()
        };
        let mut document = Document {
            caption,
            ..Document::default()
        };
        add_arrays(&mut document, arrays, sizes, at, &mut left);
        documents.push(document);
    }
    let hidden = documents.len().saturating_sub(DOCUMENTS_MAX);
    documents.truncate(DOCUMENTS_MAX);
    let padding = decoded.map_or(0, |decoded| decoded.padding);
    let mut more = Vec::new();
    more.extend((hidden > 0).then(|| count(hidden as u64, "more document")));
    more.extend((padding > 0).then(|| format!("padding, {}", count(padding, "token"))));
    Row {
        title: format!("slice {slice}, {kind} {row}"),
        documents,
        more,
    }
}

fn of_text(part: &DocumentPart) -> Document {
    let runs = part.runs.as_ref().map(|runs| {
        runs.iter()
            .map(|run| (run.learned, run.text.clone()))
            .collect()
    });
    let text = part.text.as_ref();
    Document {
        caption: part.caption(),
        text: runs
            .or(text.map(|text| vec![(true, text.clone())]))
            .unwrap_or_default(),
        ..Document::default()
    }
}

/// Adds the arrays of a document; `left` is the number of pictures that the row may still have.
fn add_arrays(
    to: &mut Document,
    arrays: &SliceArrays<'_>,
    sizes: &[Option<&Items<'_>>],
    document: usize,
    left: &mut usize,
) {
    let mut shown = Vec::new();
    for (items, own) in arrays.arrays.iter().zip(sizes) {
        let name = items.name;
        let Some((mut found, more)) = image::pictures(items, *own, document, *left) else {
            continue;
        };
        shown.extend(own.map(|own| own.name));
        shown.push(name);
        *left -= found.len();
        to.pictures.append(&mut found);
        let more = (more > 0).then(|| format!("{name}: {}", count(more as u64, "more picture")));
        to.more.extend(more);
    }
    let others = arrays
        .arrays
        .iter()
        .filter(|items| !shown.contains(&items.name));
    to.values.extend(others.map(|items| short(items, document)));
}

/// Returns an array's name, type and shape, and first values.
fn short(items: &Items<'_>, document: usize) -> [String; 3] {
    let (dtype, data) = (items.dtype, items.of(document));
    let mut extents = vec![items.count(document)];
    extents.extend(&items.shape);
    let shape = format!("{} [{}]", dtype.name(), joined(&extents, ""));
    let values = values::first(dtype, data, VALUES_MAX).unwrap_or_default();
    let text = |value: &serde_json::Value| match value.as_f64() {
        // The shortest digits of the stored number.
        Some(number) if dtype == Dtype::F32 => (number as f32).to_string(),
        _ => value.to_string(),
    };
    let mut values: Vec<String> = values.iter().map(text).collect();
    if data.len() / dtype.bytes() as usize > values.len() {
        values.push("…".to_owned());
    }
    [items.name.to_owned(), shape, values.join(" ")]
}
