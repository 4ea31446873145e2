//! The output of `quickstart`: at most twelve lines, or one JSON object.

use batchweave_console::output::{bytes, count, fields_from, printable};
use batchweave_daemon::figures::grouped;
use batchweave_daemon::survey::{FileGroup, Survey};
use serde::Serialize;

use super::choose::{Choice, Content};
use super::run_file::Plan;
use crate::run::first_steps::FirstSteps;
use crate::show::FirstRow;

/// Width of the names of lines.
const NAMES: usize = 9;
/// Most characters of a row that are shown.
const ROW_CHARS: usize = 60;

/// The result of the command.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) path: String,
    pub(super) format: String,
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// The files that the stream is not made of.
    pub(super) left_out: Vec<String>,
    /// The chosen form, and the keys that change it.
    pub(super) chosen: String,
    pub(super) tokenizer: String,
    pub(super) template: Option<String>,
    pub(super) slices: u32,
    pub(super) rows_per_slice: u32,
    pub(super) seq_len: u32,
    pub(super) wrote: Vec<String>,
    pub(super) store: String,
    /// The first steps; `None` with `--no-run`.
    pub(super) steps: Option<u64>,
    /// The stream is complete.
    pub(super) finished: bool,
    pub(super) first_row: Option<FirstRow>,
    /// The commands to run next.
    pub(super) next: Vec<String>,
    #[serde(skip)]
    words: String,
    #[serde(skip)]
    estimate: String,
}

impl Report {
    /// Returns the report before anything has run.
    pub(super) fn new(path: &str, survey: &Survey, plan: &Plan<'_>, wrote: Vec<String>) -> Self {
        let (group, shape) = (plan.group, plan.shape);
        let steps = (shape.tokens / f64::from(shape.batch())).ceil() as u64;
        let store = plan.store.to_owned();
        let file = wrote.first().map_or("", String::as_str);
        let script = wrote.get(1).map_or("", String::as_str);
        Self {
            path: path.to_owned(),
            format: group.format.clone(),
            words: group.words.clone(),
            files: group.files,
            bytes: group.bytes,
            left_out: left_out(survey, plan.choice.group),
            chosen: chosen(plan.choice, plan.field_key()),
            tokenizer: tokenizer(plan),
            template: template(plan),
            slices: shape.slices,
            rows_per_slice: shape.rows,
            seq_len: shape.seq_len,
            estimate: format!("about {}", count(steps.max(1), "step")),
            next: vec![
                format!("batchweave run {file}"),
                format!("python {script}"),
                format!(
                    "batchweave show 0 {} --store {store}",
                    if plan.has_text() {
                        "--decode"
                    } else {
                        "--slice 0"
                    }
                ),
            ],
            wrote,
            store,
            steps: None,
            finished: false,
            first_row: None,
        }
    }

    /// Adds the first steps and the first row.
    pub(super) fn made(&mut self, made: FirstSteps, row: Option<FirstRow>) {
        self.steps = Some(made.steps);
        self.finished = made.finished;
        self.first_row = row;
    }

    /// Returns the lines about the files and the choice.
    pub(super) fn choice(&self) -> String {
        let files = count(self.files, "file");
        let found = format!(
            "{files}, {}, {} in {}",
            self.words,
            bytes(self.bytes),
            self.path
        );
        let mut rows = vec![("found", found)];
        if !self.left_out.is_empty() {
            rows.push(("left out", self.left_out.join("; ")));
        }
        rows.push(("chosen", self.chosen.clone()));
        rows.push(("tokenizer", self.tokenizer.clone()));
        rows.extend(self.template.iter().map(|text| ("template", text.clone())));
        let batch = format!(
            "{} x {} x {} tokens; {}",
            count(self.slices.into(), "slice"),
            count(self.rows_per_slice.into(), "row"),
            grouped(self.seq_len.into()),
            self.estimate
        );
        rows.push(("step", batch));
        rows.push(("wrote", self.wrote.join(", ")));
        fields_from(NAMES, &printable_rows(rows))
    }

    /// Returns the lines about the first steps, and the next commands.
    pub(super) fn outcome(&self) -> String {
        let mut rows = Vec::new();
        if let Some(steps) = self.steps {
            let more = if self.finished {
                "all of the data"
            } else {
                "the rest follows in the run"
            };
            let text = format!("{}, {more}, in {}", count(steps, "step"), self.store);
            rows.push(("stream", text));
        }
        if let Some(row) = &self.first_row {
            let source = row.source.as_deref().unwrap_or("a document");
            rows.push(("row 0", format!("{source}: \"{}\"", excerpt(&row.text))));
        }
        let [run, train, show] = &self.next[..] else {
            return fields_from(NAMES, &rows);
        };
        let width = run.len().max(train.len());
        rows.push(("next", format!("{run:width$}  in this terminal")));
        rows.push(("", format!("{train:width$}  in another one")));
        if self.steps.is_some() {
            rows.push(("", show.clone()));
        }
        fields_from(NAMES, &printable_rows(rows))
    }
}

/// Returns the rows without control characters, which names of files may have.
fn printable_rows(rows: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    let rows = rows.into_iter();
    rows.map(|(name, text)| (name, printable(&text).into_owned()))
        .collect()
}

/// Returns the beginning of a text on one line.
fn excerpt(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let short: String = line.chars().take(ROW_CHARS).collect();
    let more = if short.len() < line.len() { " ..." } else { "" };
    format!("{short}{more}")
}

/// Returns what the stream is not made of: other files with an example each, and names that are left out.
fn left_out(survey: &Survey, own: usize) -> Vec<String> {
    let groups = survey.groups.iter().enumerate();
    let others: Vec<&FileGroup> = groups
        .filter(|(number, _)| *number != own)
        .map(|(_, group)| group)
        .collect();
    let mut pieces = Vec::new();
    if let Some(first) = others.first() {
        let files = others.iter().map(|group| group.files).sum();
        let files = count(files, "other file");
        let (name, words) = (&first.first, &first.words);
        pieces.push(format!("{files}, as {name} ({words})"));
    }
    if let Some(first) = survey.unread.first() {
        let files = survey.unread.iter().map(|out| out.files).sum();
        let files = count(files, "file");
        pieces.push(format!("{files} without a reader, as {}", first.first));
    }
    if let Some(first) = survey.left_out.first() {
        let names = survey.left_out.iter().map(|out| out.files).sum();
        let names = count(names, "name");
        pieces.push(format!("{names} beside data, as {}", first.first));
    }
    pieces
}

fn chosen(choice: &Choice, key: &str) -> String {
    let mut text = match &choice.content {
        Content::Files { by_line: false } => "each file is a document (source.format)".to_owned(),
        Content::Files { by_line: true } => "each line is a document (source.format)".to_owned(),
        Content::Text { field } => format!("the text in {field:?} (source.{key})"),
        Content::Captions { field, pictures } => {
            format!(
                "the text in {field:?} (source.{key}), with the picture in {pictures} (packing.arrays)"
            )
        }
        Content::Chat { field, .. } => format!("the conversations in {field:?} (chat.messages)"),
        Content::Pairs => {
            "preference pairs in \"chosen\" and \"rejected\" (packing.mode)".to_owned()
        }
        Content::Ids { field, .. } => format!("the token ids in {field:?} (source.{key})"),
    };
    if !choice.others.is_empty() {
        let others: Vec<String> = choice
            .others
            .iter()
            .map(|name| format!("{name:?}"))
            .collect();
        text = format!("{text}; {} would fit too", others.join(", "));
    }
    let (missing, sampled) = choice.missing;
    if missing > 0 {
        text = format!("{text}; {missing} of {sampled} sampled documents lack it and are skipped");
    }
    text
}

fn tokenizer(plan: &Plan<'_>) -> String {
    if let Some(model) = plan.model {
        let path = model.tokenizer.display();
        let more = match model.others {
            0 => String::new(),
            more => format!("; {} more found", grouped(more as u64)),
        };
        return format!("{path} (tokenizer.path){more}");
    }
    if matches!(plan.choice.content, Content::Ids { .. }) {
        return "none: the documents are ids; --tokenizer FILE names the one that made them"
            .to_owned();
    }
    "gpt2, part of the program; --tokenizer FILE takes a model's tokenizer.json".to_owned()
}

fn template(plan: &Plan<'_>) -> Option<String> {
    let path = plan.template.as_ref()?;
    let own = plan.model.is_some_and(|model| model.template.is_some());
    Some(if own {
        format!("{path}, the model's (chat.template)")
    } else {
        format!(
            "{path}, a plain one: no model's is near; --tokenizer MODEL/tokenizer.json takes both"
        )
    })
}
