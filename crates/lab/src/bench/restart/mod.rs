//! `bench restart`: the time from a place in the middle of a large file to the next document, compared with reading that
//! file once.

mod files;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use batchweave_console::CliError;
use batchweave_core::order::{Blocks, FileShape, Portion, Position, Shuffle, SourceOrder, Walk};
use batchweave_daemon::config::ByteSize;
use batchweave_producer::sources::{
    FileReader, Format, InputList, Place, ReadContent, ReadOptions, SourceFiles, find_all,
};
use batchweave_store::OpenOptions;
use clap::Args;
use futures::FutureExt;
use serde::Serialize;

use crate::bench::cpu::median;
use crate::bench::producing::Text;
use crate::error::bench_error;

/// Distinct text, which is repeated to the wanted size.
const DISTINCT_MIB: u64 = 32;
/// Rows of a row group.
const GROUP_ROWS: usize = 20_000;

#[derive(Debug, Clone, Args)]
pub(crate) struct RestartArgs {
    /// Size of the file, before compression
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    bytes: ByteSize,
    /// Documents that are shuffled among themselves
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    window: ByteSize,
    /// Measurements of each form; the report has medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct RestartReport {
    content_bytes: u64,
    forms: Vec<FormReport>,
}

#[derive(Debug, Serialize)]
struct FormReport {
    form: &'static str,
    file_bytes: u64,
    read_once_seconds: f64,
    /// To the document in the middle of the group and of its window that is in the middle of the pass.
    middle_seconds: f64,
    middle_over_read_once: f64,
    /// To the last window of the last group.
    end_seconds: f64,
    end_over_read_once: f64,
}

/// Makes a case with about this many bytes of content.
type Make = fn(&Text, u64) -> Result<Case, CliError>;

/// A file and the way in which it is read.
struct Case {
    form: &'static str,
    path: PathBuf,
    format: Format,
    shape: FileShape,
}

pub(crate) async fn measure(args: &RestartArgs) -> Result<RestartReport, CliError> {
    let bytes = args.bytes.bytes();
    let distinct = (bytes >> 20).clamp(1, DISTINCT_MIB);
    let text = Text::new(distinct)?;
    let mut forms = Vec::new();
    let makers: [Make; 3] = [lines, row_groups, packed];
    for make in makers {
        let case = make(&text, bytes)?;
        let list = list(&case.path).await?;
        let args = args.clone();
        let measured = tokio::task::spawn_blocking(move || {
            let report = form(&args, &case, &list);
            // The next form needs the room.
            fs::remove_file(&case.path)?;
            report
        });
        forms.push(measured.await.map_err(bench_error)??);
    }
    Ok(RestartReport {
        content_bytes: bytes,
        forms,
    })
}

fn lines(text: &Text, bytes: u64) -> Result<Case, CliError> {
    let path = text.folder().join("large.jsonl");
    files::lines(File::create(&path)?, &text.documents, bytes)?;
    Ok(Case {
        form: "lines",
        path,
        format: Format::Jsonl,
        shape: FileShape::Lines,
    })
}

fn packed(text: &Text, bytes: u64) -> Result<Case, CliError> {
    let path = text.folder().join("large.jsonl.zst");
    files::packed_lines(&path, &text.documents, bytes)?;
    Ok(Case {
        form: "compressed",
        path,
        format: Format::Jsonl,
        shape: FileShape::Whole { compressed: true },
    })
}

fn row_groups(text: &Text, bytes: u64) -> Result<Case, CliError> {
    let path = text.folder().join("large.parquet");
    let times = bytes.div_ceil(text.bytes.max(1)) as usize;
    let many: Vec<String> = std::iter::repeat_n(&text.documents, times)
        .flatten()
        .cloned()
        .collect();
    let groups = files::parquet(&path, &many, GROUP_ROWS)?;
    Ok(Case {
        form: "row groups",
        path,
        format: Format::Parquet,
        shape: FileShape::RowGroups(groups),
    })
}

async fn list(path: &Path) -> Result<InputList, CliError> {
    let open = |url: String| {
        let options = OpenOptions::default();
        async move { batchweave_store::open(&url, &options).await }.boxed()
    };
    let paths = [path.display().to_string()];
    find_all(&paths, &open).await.map_err(bench_error)
}

fn form(args: &RestartArgs, case: &Case, list: &InputList) -> Result<FormReport, CliError> {
    let options = ReadOptions {
        format: case.format,
        content: ReadContent::Documents,
        column: "text".to_owned(),
        arrays: Vec::new(),
        beside: Vec::new(),
        members: Vec::new(),
        max_document_bytes: 64 << 20,
        decompress_memory: 512 << 20,
        inbox: false,
        sparse: false,
        share: Portion::ALL,
    };
    let file_bytes = case.path.metadata()?.len();
    let blocks = Blocks::plan([(0, file_bytes, case.shape.clone())]);
    let shuffle = Shuffle {
        seed: 1,
        window: args.window.bytes(),
    };
    let order = SourceOrder::new(case.form, blocks, Some(shuffle), Portion::ALL);
    let places = places(&order, list, &options)?;
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let once = read_once(list, &options)?;
        let [middle, end] = [0, 1].map(|n| resume(&order, list, &options, places[n]));
        rounds.push((once, middle?, end?));
    }
    let once = median(&rounds, |(once, _, _)| *once);
    Ok(FormReport {
        form: case.form,
        file_bytes,
        read_once_seconds: once,
        middle_seconds: median(&rounds, |(_, middle, _)| *middle),
        middle_over_read_once: median(&rounds, |(once, middle, _)| middle / once),
        end_seconds: median(&rounds, |(_, _, end)| *end),
        end_over_read_once: median(&rounds, |(once, _, end)| end / once),
    })
}

/// Walks one pass. Returns its place in the middle, and the last one.
fn places(
    order: &SourceOrder,
    list: &InputList,
    options: &ReadOptions,
) -> Result<[Position; 2], CliError> {
    let mut windows: Vec<Position> = Vec::new();
    let mut walk = Walk::new(order, SourceFiles { list, options }, 1, Position::default());
    while let Some((at, _)) = walk.next_document().map_err(bench_error)? {
        match windows.last_mut() {
            Some(last) if (last.group, last.window) == (at.group, at.window) => *last = at,
            _ => windows.push(at),
        }
    }
    let mut middle = *windows
        .get(windows.len() / 2)
        .ok_or_else(|| bench_error("no document"))?;
    middle.number /= 2;
    let last = windows.last().copied().unwrap_or(middle);
    Ok([middle, last])
}

fn read_once(list: &InputList, options: &ReadOptions) -> Result<f64, CliError> {
    let began = Instant::now();
    let mut reader = FileReader::open_in(list, options, Place::default())
        .map_err(bench_error)?
        .ok_or_else(|| bench_error("no file"))?;
    while reader.next_unit().map_err(bench_error)?.is_some() {}
    Ok(began.elapsed().as_secs_f64())
}

fn resume(
    order: &SourceOrder,
    list: &InputList,
    options: &ReadOptions,
    from: Position,
) -> Result<f64, CliError> {
    let began = Instant::now();
    let mut walk = Walk::new(order, SourceFiles { list, options }, 1, from);
    let next = walk.next_document().map_err(bench_error)?;
    let seconds = began.elapsed().as_secs_f64();
    let at = next.map(|(at, _)| at);
    if at == Some(from) {
        return Ok(seconds);
    }
    Err(bench_error(format!("{at:?} instead of {from:?}")))
}

impl RestartReport {
    pub(crate) fn text(&self) -> String {
        let mut text = format!("files with {} of text\n", ByteSize(self.content_bytes));
        for form in &self.forms {
            let _ = writeln!(
                text,
                "{:<10} {:.2} s in the middle, {:.2} s at the end; read once: {:.2} s ({:.2} and {:.2} of it)",
                form.form,
                form.middle_seconds,
                form.end_seconds,
                form.read_once_seconds,
                form.middle_over_read_once,
                form.end_over_read_once,
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn restarts_within_each_form_of_file_are_measured() {
        let args = RestartArgs {
            bytes: ByteSize(1 << 20),
            window: ByteSize(256 << 10),
            rounds: 1,
        };
        let report = measure(&args).await.unwrap();
        let names: Vec<_> = report.forms.iter().map(|form| form.form).collect();
        assert_eq!(names, ["lines", "row groups", "compressed"]);
        for form in &report.forms {
            assert!(form.middle_over_read_once > 0.0, "{form:?}");
            assert!(form.end_over_read_once > 0.0, "{form:?}");
        }
        assert_eq!(report.text().lines().count(), 4);
    }
}
