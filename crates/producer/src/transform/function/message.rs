//! Messages between this program and a worker process: documents as parts, and the outcome of each.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::packing::ArraySpec;
use crate::sources::{Cell, MemberKind};
use crate::transform::text::BOM;

/// The first message to a process.
#[derive(Debug, Serialize)]
pub(super) struct Setup<'a> {
    pub(super) function: &'a str,
    /// A folder of modules.
    pub(super) path: &'a str,
    /// Most bytes of a document.
    pub(super) limit: u64,
    pub(super) arrays: Vec<ArrayForm<'a>>,
}

/// The form that an array of a sample must have.
#[derive(Debug, Serialize)]
pub(super) struct ArrayForm<'a> {
    name: &'a str,
    dtype: &'static str,
    /// The type as numpy writes it, without the byte order.
    numpy: String,
    /// The shape of one item.
    shape: &'a [u64],
}

impl<'a> ArrayForm<'a> {
    pub(super) fn new(spec: &'a ArraySpec) -> Self {
        let name = spec.dtype.name();
        let kind = match name.as_bytes() {
            [b'B', b'O', ..] => "b",
            // numpy has none.
            [b'B', ..] => "bf",
            [b'U', ..] => "u",
            [b'I', ..] => "i",
            _ => "f",
        };
        Self {
            name: &spec.name,
            dtype: name,
            numpy: format!("{kind}{}", spec.dtype.bytes()),
            shape: &spec.shape,
        }
    }
}

/// The fields of the documents that the function returns; others are left out.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Wanted {
    pub(super) wanted: Vec<String>,
    /// Fields that may be missing.
    pub(super) optional: Vec<String>,
}

/// The header of a request; the bytes of all parts follow.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    /// Its number at this process.
    #[serde(rename = "request")]
    pub(super) number: u64,
    #[serde(flatten)]
    pub(super) wanted: &'a Wanted,
    pub(super) documents: Vec<&'a [Part]>,
}

/// A document on its way to the function.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) parts: Vec<Part>,
    pub(super) bytes: Vec<Bytes>,
}

/// One field of a document, or all of them.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    name: String,
    kind: PartKind,
    bytes: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum PartKind {
    /// All fields, as an object in JSON.
    Object,
    /// All fields, with bytes as base64 below `__bytes__`.
    Row,
    Text,
    Bytes,
    Json,
    Number,
}

impl Document {
    fn new(fields: impl IntoIterator<Item = (String, PartKind, Bytes)>) -> Self {
        let mut parts = Vec::new();
        let mut bytes = Vec::new();
        for (name, kind, data) in fields {
            parts.push(Part {
                name,
                kind,
                bytes: data.len(),
            });
            bytes.push(data);
        }
        Self { parts, bytes }
    }

    /// Returns the document in a line of JSONL.
    pub(super) fn line(raw: Bytes, first: bool) -> Self {
        Self::new([(String::new(), PartKind::Object, unmarked(raw, first))])
    }

    /// Returns the document in a row, whose JSON object this is.
    pub(super) fn row(raw: Bytes) -> Self {
        Self::new([(String::new(), PartKind::Row, raw)])
    }

    /// Returns the document that is a text.
    pub(super) fn text(raw: Bytes, first: bool) -> Self {
        let name = "text".to_owned();
        Self::new([(name, PartKind::Text, unmarked(raw, first))])
    }

    /// Returns the document that is a tar's sample with these fields.
    pub(super) fn sample(key: &Bytes, names: &[String], cells: Vec<Cell>) -> Self {
        let key = ("__key__".to_owned(), PartKind::Text, key.clone());
        let fields = names.iter().zip(cells).map(|(name, cell)| {
            let data = match cell {
                Cell::Bytes(bytes) => bytes,
                Cell::File(_) | Cell::Ints(_) | Cell::Unsigned(_) | Cell::Floats(_) => Bytes::new(),
            };
            let suffix = name.rsplit('.').next().unwrap_or(name);
            let extension = suffix.to_ascii_lowercase();
            let kind = match MemberKind::from_field(name) {
                MemberKind::Json => PartKind::Json,
                MemberKind::Number => PartKind::Number,
                MemberKind::Bytes if matches!(&*extension, "txt" | "text" | "transcript") => {
                    PartKind::Text
                }
                MemberKind::Npy | MemberKind::Bytes => PartKind::Bytes,
            };
            (name.clone(), kind, data)
        });
        Self::new([key].into_iter().chain(fields))
    }
}

/// Returns the bytes without the byte order mark that a file may begin with.
fn unmarked(raw: Bytes, first: bool) -> Bytes {
    if first && raw.starts_with(BOM) {
        raw.slice(BOM.len()..)
    } else {
        raw
    }
}

/// The header of an answer, with the numbers of its request and of the document in it; its bytes follow.
#[derive(Debug, Deserialize)]
pub(super) struct AnswerFrame {
    pub(super) request: u64,
    pub(super) document: u64,
    pub(super) answer: AnswerHeader,
}

/// The outcome of a document, without its bytes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerHeader {
    Dropped,
    /// The parts of each document.
    Documents(Vec<Vec<CellHeader>>),
    Failed(String),
}

#[derive(Debug, Deserialize)]
pub(super) struct CellHeader {
    kind: CellKind,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CellKind {
    Bytes,
    Json,
}

/// A part of a document that the function made: the fields of one with tokens, or the value of an array.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// The items of an array as they are stored.
    Bytes(Bytes),
    Json(Bytes),
}

/// The outcome of a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The function returned None.
    Dropped,
    /// For each document that it made the object in JSON of one with tokens, and one value for each array.
    Documents(Vec<Vec<Body>>),
    /// It is a bad document.
    Failed(String),
    /// No process could be started.
    NoProcess(String),
}

impl AnswerHeader {
    /// Returns the answer with this header; `None` when the bytes do not fit it.
    pub(super) fn with(self, data: Vec<u8>) -> Option<Answer> {
        let headers = match self {
            Self::Dropped => return Some(Answer::Dropped),
            Self::Failed(detail) => return Some(Answer::Failed(detail)),
            Self::Documents(headers) => headers,
        };
        let mut data = Bytes::from(data);
        let mut body = |CellHeader { kind, bytes }| {
            let body = (bytes <= data.len()).then(|| data.split_to(bytes))?;
            Some(match kind {
                CellKind::Bytes => Body::Bytes(body),
                CellKind::Json => Body::Json(body),
            })
        };
        let documents: Option<Vec<Vec<Body>>> = (headers.into_iter())
            .map(|cells| cells.into_iter().map(&mut body).collect())
            .collect();
        documents.filter(|_| data.is_empty()).map(Answer::Documents)
    }
}
