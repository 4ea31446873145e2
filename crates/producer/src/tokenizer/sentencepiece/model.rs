//! The content of a SentencePiece model: a protobuf message as `sentencepiece_model.proto` of the library defines it.
//!
//! Invariant: pieces are not empty and all different, one of them is the unknown one or byte fallback has a piece for
//! every byte, and scores are finite. The library refuses most of this too.

use std::collections::HashMap;

use super::wire::{Fields, Value};

/// No id: no model has as many pieces.
pub(super) const NO_UNKNOWN: u32 = u32::MAX;
/// Bytes of a piece that are too many for the library.
const PIECE_BYTES_END: usize = 8000;

/// The way in which a model divides a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unigram,
    Bpe,
    Word,
    Char,
}

/// The use of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Normal,
    Unknown,
    /// Never made from text.
    Control,
    /// One piece wherever a text has it.
    UserDefined,
    Unused,
    Byte,
}

#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) usage: Use,
}

impl Piece {
    /// Returns whether the piece only fills up the vocabulary; the library's trainer adds such pieces.
    fn is_filler(&self) -> bool {
        self.text == "\0" && self.usage == Use::Unused
    }
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) kind: Kind,
    pub(super) pieces: Vec<Piece>,
    /// The id of the unknown piece; [`NO_UNKNOWN`] if byte fallback makes it needless and it is missing.
    pub(super) unknown: u32,
    /// The ids of the byte pieces, with byte fallback.
    pub(super) bytes: Option<Vec<u32>>,
    /// The text of the piece that ends a document.
    pub(super) end: String,
    pub(super) charsmap: Vec<u8>,
    pub(super) dummy_prefix: bool,
    pub(super) remove_extra_spaces: bool,
    pub(super) escape_spaces: bool,
    pub(super) space_as_suffix: bool,
}

impl Model {
    /// Reads a model. The error says what is wrong with it.
    pub(super) fn parse(file: &[u8]) -> Result<Self, String> {
        let mut model = Self {
            kind: Kind::Unigram,
            pieces: Vec::new(),
            unknown: 0,
            bytes: None,
            end: "</s>".to_owned(),
            charsmap: Vec::new(),
            dummy_prefix: true,
            remove_extra_spaces: true,
            escape_spaces: true,
            space_as_suffix: false,
        };
        let mut byte_fallback = false;
        for field in Fields::new(file) {
            let (number, value) = field?;
            let content = || value.bytes().ok_or("a part of it has another type");
            match number {
                1 => {
                    let id = model.pieces.len();
                    let piece = piece(content()?).map_err(|why| format!("piece {id}: {why}"))?;
                    model.pieces.push(piece);
                }
                2 => model
                    .trainer(content()?, &mut byte_fallback)
                    .map_err(|why| format!("its trainer_spec: {why}"))?,
                3 => model
                    .normalizer(content()?)
                    .map_err(|why| format!("its normalizer_spec: {why}"))?,
                _ => {}
            }
        }
        model.check(byte_fallback)?;
        Ok(model)
    }

    fn trainer(&mut self, message: &[u8], byte_fallback: &mut bool) -> Result<(), String> {
        for field in Fields::new(message) {
            let (number, value) = field?;
            match (number, value) {
                (3, Value::Number(kind)) => {
                    self.kind = match kind {
                        1 => Kind::Unigram,
                        2 => Kind::Bpe,
                        3 => Kind::Word,
                        4 => Kind::Char,
                        _ => return Err(format!("unknown model_type {kind}")),
                    };
                }
                (24, Value::Number(flag)) => self.space_as_suffix = flag != 0,
                (35, Value::Number(flag)) => *byte_fallback = flag != 0,
                (47, Value::Bytes(text)) => {
                    let text = std::str::from_utf8(text).map_err(|e| format!("eos_piece: {e}"))?;
                    text.clone_into(&mut self.end);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, message: &[u8]) -> Result<(), String> {
        for field in Fields::new(message) {
            match field? {
                (2, Value::Bytes(rules)) => self.charsmap = rules.to_vec(),
                (3, Value::Number(flag)) => self.dummy_prefix = flag != 0,
                (4, Value::Number(flag)) => self.remove_extra_spaces = flag != 0,
                (5, Value::Number(flag)) => self.escape_spaces = flag != 0,
                _ => {}
            }
        }
        Ok(())
    }

    fn check(&mut self, byte_fallback: bool) -> Result<(), String> {
        let mut ids: HashMap<&str, usize> = HashMap::new();
        let mut unknown = None;
        let mut bytes = vec![None; 256];
        let pieces = self.pieces.iter().enumerate();
        for (id, piece) in pieces.filter(|(_, piece)| !piece.is_filler()) {
            let text = piece.text.as_str();
            check_piece(id, piece, &mut ids)?;
            match piece.usage {
                Use::Unknown => {
                    if let Some(first) = unknown.replace(id) {
                        return Err(format!("pieces {first} and {id} are both the unknown one"));
                    }
                }
                Use::Byte if !byte_fallback => {
                    return Err(format!(
                        "piece {id}, {text:?}, is a byte, but byte_fallback is false"
                    ));
                }
                Use::Byte => {
                    let byte = byte_of(text).ok_or_else(|| {
                        format!("piece {id}, {text:?}, is marked as a byte, and bytes are <0x00> to <0xFF>")
                    })?;
                    bytes[usize::from(byte)] = Some(id as u32);
                }
                _ => {}
            }
        }
        if unknown.is_none() && !byte_fallback {
            let count = self.pieces.len();
            return Err(format!("none of its {count} pieces is the unknown one"));
        }
        self.unknown = unknown.map_or(NO_UNKNOWN, |id| id as u32);
        if byte_fallback {
            self.bytes = Some(all_bytes(&bytes)?);
        }
        Ok(())
    }
}

/// Checks the text and the score of a piece, and adds it to the `ids` of those before it.
fn check_piece<'a>(
    id: usize,
    piece: &'a Piece,
    ids: &mut HashMap<&'a str, usize>,
) -> Result<(), String> {
    let text = piece.text.as_str();
    if text.is_empty() || text.contains('\0') || text.len() >= PIECE_BYTES_END {
        let bytes = text.len();
        return Err(format!(
            "piece {id} is empty, has a zero byte or is too long: it has {bytes} bytes"
        ));
    }
    if let Some(first) = ids.insert(text, id) {
        return Err(format!("piece {id} is {text:?}, as piece {first} is"));
    }
    if !piece.score.is_finite() {
        return Err(format!(
            "piece {id}, {text:?}, has the score {}",
            piece.score
        ));
    }
    Ok(())
}

/// Returns the ids of the pieces of all bytes, none of which may be missing.
fn all_bytes(ids: &[Option<u32>]) -> Result<Vec<u32>, String> {
    if let Some(byte) = ids.iter().position(Option::is_none) {
        return Err(format!(
            "byte_fallback is true, but no piece is <0x{byte:02X}>"
        ));
    }
    Ok(ids.iter().copied().flatten().collect())
}

fn piece(message: &[u8]) -> Result<Piece, String> {
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        usage: Use::Normal,
    };
    for field in Fields::new(message) {
        let (number, value) = field?;
        match number {
            1 => {
                let text = value.bytes().ok_or("its text has another type")?;
                let text = std::str::from_utf8(text).map_err(|e| format!("its text: {e}"))?;
                text.clone_into(&mut piece.text);
            }
            2 => piece.score = value.float().ok_or("its score has another type")?,
            3 => {
                piece.usage = match value.number() {
                    Some(1) => Use::Normal,
                    Some(2) => Use::Unknown,
                    Some(3) => Use::Control,
                    Some(4) => Use::UserDefined,
                    Some(5) => Use::Unused,
                    Some(6) => Use::Byte,
                    _ => return Err(format!("its type is the unknown {value:?}")),
                }
            }
            _ => {}
        }
    }
    Ok(piece)
}

/// Returns the byte of a piece like `<0x0A>`.
fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let byte = u8::from_str_radix(digits, 16).ok()?;
    (format!("{byte:02X}") == digits).then_some(byte)
}
