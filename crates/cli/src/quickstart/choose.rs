//! The choice of the form of documents from a survey, without any access to files.

use std::collections::BTreeMap;

use batchweave_daemon::survey::{FileGroup, Survey};
use serde_json::{Map, Value};

use super::fields::{FieldSummary, Fields, ids, messages};
use super::refusal::{Refusal, nothing_fits};

/// Names of the fields of questions and of answers, which no packing mode takes as they are.
const QUESTIONS: [&str; 5] = ["prompt", "instruction", "question", "query", "input"];
const ANSWERS: [&str; 5] = ["response", "completion", "output", "answer", "target"];
/// Fields of a tar's samples that hold pictures.
const PICTURES: [&str; 4] = ["jpg", "jpeg", "png", "webp"];
/// The role in templates for each other name of one.
const ROLES: [(&str, &str); 6] = [
    ("human", "user"),
    ("gpt", "assistant"),
    ("chatgpt", "assistant"),
    ("bing", "assistant"),
    ("bot", "assistant"),
    ("model", "assistant"),
];
/// The largest file that is one document: the producer's default limit is twice that.
const ONE_DOCUMENT_MAX: u64 = 32 << 20;

/// The documents that the chosen files hold.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    /// Each file is a text, or each of its lines.
    Files { by_line: bool },
    /// The text is in this field.
    Text { field: String },
    /// The text is in this field of a tar's samples, and the pictures in these.
    Captions { field: String, pictures: String },
    Chat {
        field: String,
        /// The fields of a message with its role and its text.
        keys: (String, String),
        roles: BTreeMap<String, String>,
    },
    /// Fields `chosen` and `rejected`.
    Pairs,
    Ids {
        field: String,
        /// The largest id of the sampled documents.
        largest: u64,
        /// The id with which all sampled documents end.
        end: Option<u64>,
    },
}

/// The files that the stream is made of, and the form of their documents.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    /// The number of the group in the survey.
    pub(super) group: usize,
    pub(super) content: Content,
    /// Other fields that would fit.
    pub(super) others: Vec<String>,
    /// Sampled documents without the chosen field, and sampled documents.
    pub(super) missing: (usize, usize),
}

impl Content {
    /// Returns whether a template makes the tokens.
    pub(super) fn has_template(&self) -> bool {
        matches!(self, Self::Chat { .. } | Self::Pairs)
    }
}

/// Chooses the files and the form of their documents; `field` is the one that the user names.
pub(super) fn choose(survey: &Survey, field: Option<&str>) -> Result<Choice, Refusal> {
    let mut seen = Vec::new();
    for number in by_likelihood(&survey.groups) {
        let group = &survey.groups[number];
        match choose_in(group, field) {
            Ok(choice) => {
                return Ok(Choice {
                    group: number,
                    ..choice
                });
            }
            Err(why) => seen.push(why),
        }
    }
    Err(nothing_fits(seen, &survey.unread))
}

/// Returns the numbers of the groups, the likeliest data first: files with fields, by size, unless there are ten times as
/// many bytes of prose; texts of other kinds come last.
fn by_likelihood(groups: &[FileGroup]) -> Vec<usize> {
    let rank = |group: &FileGroup| match group.format.as_str() {
        "text" if !group.prose => (1, group.bytes),
        "text" => (0, group.bytes / 10),
        _ => (0, group.bytes),
    };
    let mut numbers: Vec<usize> = (0..groups.len()).collect();
    numbers.sort_by_key(|number| {
        let (class, bytes) = rank(&groups[*number]);
        (class, u64::MAX - bytes)
    });
    numbers
}

fn choose_in(group: &FileGroup, wanted: Option<&str>) -> Result<Choice, Refusal> {
    let objects: Vec<_> = group
        .documents
        .iter()
        .filter_map(Value::as_object)
        .collect();
    let fields = Fields::of(objects.iter().copied());
    if group.documents.is_empty() {
        return Err(Refusal::unreadable(group));
    }
    if group.format == "text" {
        return match &group.fault {
            Some(_) => Err(Refusal::unreadable(group)),
            None => Ok(whole_files(group)),
        };
    }
    let found = if group.format == "webdataset" {
        samples(&objects, wanted)
    } else {
        records(&objects, &fields, wanted)?
    };
    let Some(found) = found else {
        return Err(Refusal::fields(group, &fields, wanted));
    };
    Ok(found)
}

fn whole_files(group: &FileGroup) -> Choice {
    let by_line = group.largest > ONE_DOCUMENT_MAX;
    Choice {
        group: 0,
        content: Content::Files { by_line },
        others: Vec::new(),
        missing: (0, group.documents.len()),
    }
}

/// Returns the choice of a field that this number of documents has.
fn chosen(content: Content, number: usize, fields: &Fields, others: Vec<String>) -> Choice {
    Choice {
        group: 0,
        content,
        others,
        missing: (fields.documents - number, fields.documents),
    }
}

/// Chooses among the fields of lines and rows.
fn records(
    documents: &[&Map<String, Value>],
    fields: &Fields,
    wanted: Option<&str>,
) -> Result<Option<Choice>, Refusal> {
    if let Some(name) = wanted {
        let field = fields.get(name);
        return Ok(field.and_then(|field| of_field(documents, fields, field)));
    }
    let pair = |name| {
        fields
            .get(name)
            .filter(|f| fields.is_most(f.texts.max(f.messages)))
    };
    if let (Some(_), Some(rejected)) = (pair("chosen"), pair("rejected")) {
        let number = rejected.texts.max(rejected.messages);
        return Ok(Some(chosen(Content::Pairs, number, fields, Vec::new())));
    }
    let texts = fields.texts();
    let candidates: Vec<&FieldSummary> = fields.messages().chain(texts.iter().copied()).collect();
    let known = texts.first().filter(|field| Fields::is_known_text(field));
    let answer = fields.text_named(&ANSWERS);
    let first = match (fields.messages().next(), known, fields.ids()) {
        (Some(field), ..) | (None, Some(&field), _) | (None, None, Some(field)) => Some(field),
        _ => match (fields.text_named(&QUESTIONS), answer) {
            (Some(question), Some(answer)) => return Err(Refusal::answers(question, answer)),
            _ => texts.first().copied(),
        },
    };
    let choice = first.and_then(|field| of_field(documents, fields, field));
    Ok(choice.map(|choice| {
        let own = first.map(|field| field.name.as_str());
        let others = candidates
            .iter()
            .filter(|field| Some(field.name.as_str()) != own);
        Choice {
            others: others.map(|field| field.name.clone()).collect(),
            ..choice
        }
    }))
}

/// Returns the choice of one field by its values; `None` if they are none that a producer takes.
fn of_field(
    documents: &[&Map<String, Value>],
    fields: &Fields,
    field: &FieldSummary,
) -> Option<Choice> {
    let name = field.name.clone();
    let values = || documents.iter().filter_map(|document| document.get(&name));
    if fields.is_most(field.messages) {
        let all: Vec<_> = values().filter_map(messages).flatten().collect();
        return Some(chosen(
            chat(&name, &all),
            field.messages,
            fields,
            Vec::new(),
        ));
    }
    if fields.is_most(field.ids) {
        let lists: Vec<Vec<u64>> = values().filter_map(ids).collect();
        let last = |list: &Vec<u64>| list.last().copied();
        let end = lists.first().and_then(last);
        let content = Content::Ids {
            largest: lists.iter().flatten().copied().max()?,
            end: end.filter(|_| lists.len() > 1 && lists.iter().all(|list| last(list) == end)),
            field: name.clone(),
        };
        return Some(chosen(content, field.ids, fields, Vec::new()));
    }
    let content = Content::Text {
        field: name.clone(),
    };
    fields
        .is_most(field.texts)
        .then(|| chosen(content, field.texts, fields, Vec::new()))
}

/// Returns the form of conversations with these messages.
fn chat(field: &str, messages: &[Map<String, Value>]) -> Content {
    let is_shared = messages.iter().all(|message| message.contains_key("from"));
    let (role, text) = if is_shared {
        ("from", "value")
    } else {
        ("role", "content")
    };
    let used = messages
        .iter()
        .filter_map(|message| message.get(role)?.as_str());
    let roles = used.filter_map(|name| {
        let (_, mapped) = ROLES.iter().find(|(other, _)| *other == name)?;
        Some((name.to_owned(), (*mapped).to_owned()))
    });
    Content::Chat {
        field: field.to_owned(),
        keys: (role.to_owned(), text.to_owned()),
        roles: roles.collect(),
    }
}

/// Chooses among the fields of a tar's samples.
fn samples(documents: &[&Map<String, Value>], wanted: Option<&str>) -> Option<Choice> {
    let within = documents
        .iter()
        .filter_map(|sample| sample.get("json")?.as_object());
    let json = Fields::of(within);
    let fields = Fields::of(documents.iter().copied());
    let own = |name: &str| fields.get(name).filter(|field| fields.is_most(field.texts));
    let in_json = |name: &str| {
        let key = name.strip_prefix("json.")?;
        json.get(key).map(|field| (name.to_owned(), field.texts))
    };
    let longest = |fields: &Fields| fields.texts().first().map(|f| (f.name.clone(), f.texts));
    let (field, number) = match wanted {
        Some(name) => in_json(name).or_else(|| own(name).map(|f| (name.to_owned(), f.texts)))?,
        None => own("txt")
            .or_else(|| own("text"))
            .map(|field| (field.name.clone(), field.texts))
            .or_else(|| longest(&json).map(|(name, n)| (format!("json.{name}"), n)))
            .or_else(|| longest(&fields))?,
    };
    let is_there = |name: &&&str| documents.iter().any(|sample| sample.contains_key(**name));
    let found: Vec<&str> = PICTURES.iter().filter(is_there).copied().collect();
    let content = if found.is_empty() {
        Content::Text { field }
    } else {
        let pictures = found.join(";");
        Content::Captions { field, pictures }
    };
    Some(chosen(content, number, &fields, Vec::new()))
}

#[cfg(test)]
mod tests;
