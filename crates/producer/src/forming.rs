//! What units become: documents for the packer, by the configured mode; and what that makes of the
//! stream, so that producers of one stream make slices of one form.

use std::sync::Arc;

use batchweave_core::ids::Hash;
use batchweave_core::stream::TokenizerId;
use batchweave_daemon::panics;

use crate::chat::{Chat, TemplateError, TemplateFile};
use crate::config::{PackingMode, ProducerConfig};
use crate::error::RunError;
use crate::packing::{
    ArraySpec, BestFit, Concat, Content, Encoder, Extra, Packer, Restart, Samples, Shape,
};
use crate::prepare::{load_tokenizer, pad_token};
use crate::sources::{Format, Reason, Unit, decode, sample};
use crate::tokenizer::Tokenizer;

/// See the file's header.
pub struct Forming {
    kind: Kind,
    shape: Shape,
    mode: PackingMode,
    look_ahead: usize,
    extras: Vec<Extra>,
    object_bytes: u64,
    /// What the tokenizer made of [`CANARY`] at the start.
    canary: Vec<Option<Vec<u32>>>,
    /// Makes slices of what was packed.
    pub encoder: Arc<Encoder>,
}

enum Kind {
    Text {
        tokenizer: Arc<dyn Tokenizer>,
        /// JSON field with the text.
        field: String,
        pad: u32,
    },
    Chat {
        chat: Box<Chat>,
        tokenizer: Arc<dyn Tokenizer>,
        pad: u32,
    },
    Arrays(Vec<ArraySpec>),
}

impl Forming {
    /// As configured. Reads files and loads the tokenizer: seconds, outside of async code.
    pub fn new(config: &ProducerConfig) -> Result<Self, RunError> {
        let shape = Shape {
            slices: config.stream.slices,
            rows_per_slice: config.stream.rows_per_slice,
            seq_len: config.stream.seq_len,
        };
        let packing = &config.packing;
        let mut extras = packing.fields.clone();
        if packing.mode == PackingMode::Chat {
            extras.push(Extra::LossMask);
        }
        extras.sort_unstable();
        extras.dedup();
        let mut canary = Vec::new();
        let (kind, encoder) = if packing.mode == PackingMode::Opaque {
            let arrays = packing.arrays.clone();
            let encoder = Encoder::samples(shape, arrays.clone())?;
            (Kind::Arrays(arrays), encoder)
        } else {
            let tokenizer = load_tokenizer(config)?;
            let pad = pad_token(config, tokenizer.as_ref())?;
            canary = tokens_of(tokenizer.as_ref());
            let encoder = Encoder::rows(shape, tokenizer.identity().id_bound, &extras)?;
            let field = config.source.field.clone();
            let kind = match packing.mode {
                PackingMode::Chat => Kind::Chat {
                    chat: Box::new(chat(config, tokenizer.clone())?),
                    tokenizer,
                    pad,
                },
                _ => Kind::Text {
                    tokenizer,
                    field,
                    pad,
                },
            };
            (kind, encoder)
        };
        Ok(Self {
            kind,
            shape,
            mode: packing.mode,
            look_ahead: packing.look_ahead,
            extras,
            object_bytes: packing.object_bytes.bytes(),
            canary,
            encoder: Arc::new(encoder),
        })
    }

    /// The token after each document, if there are tokens.
    pub fn end_token(&self) -> Option<u32> {
        match &self.kind {
            Kind::Text { tokenizer, .. } | Kind::Chat { tokenizer, .. } => {
                Some(tokenizer.identity().end_token)
            }
            Kind::Arrays(_) => None,
        }
    }

    /// What the stream keeps: the tokenizer, and how its slices differ from plain rows.
    pub fn identity(&self) -> TokenizerId {
        let tokenizer = match &self.kind {
            Kind::Text { tokenizer, .. } | Kind::Chat { tokenizer, .. } => {
                tokenizer.identity().id.clone()
            }
            Kind::Arrays(arrays) => {
                let arrays: Vec<String> = arrays.iter().map(ArraySpec::text).collect();
                let name = format!("none; arrays {}", arrays.join(", "));
                let fingerprint = Hash::sha256(name.as_bytes());
                return TokenizerId { name, fingerprint };
            }
        };
        let mut form: Vec<String> = Vec::new();
        if self.mode != PackingMode::Concat {
            form.push(name(self.mode));
        }
        form.extend(self.extras.iter().map(|extra| name(*extra)));
        if form.is_empty() {
            return tokenizer;
        }
        let mut form = form.join(", ");
        if let Kind::Chat { chat, .. } = &self.kind {
            let template = Hash::sha256(chat.fingerprint().as_bytes());
            form = format!("{form}, template {:.8}", template.to_string());
        }
        let fingerprint = Hash::sha256(format!("{}; {form}", tokenizer.fingerprint).as_bytes());
        let name = format!("{}; {form}", tokenizer.name);
        TokenizerId { name, fingerprint }
    }

    /// Slices that the packer makes at a time: a whole batch, where it surely fits in one object, or
    /// one slice of it.
    pub fn unit_slices(&self) -> u32 {
        let whole = self.encoder.batch_bytes();
        if whole.is_some_and(|bytes| bytes <= self.object_bytes) {
            self.shape.slices
        } else {
            1
        }
    }

    /// Packs from `from` on, in units of [`Self::unit_slices`].
    pub fn packer(&self, from: Restart) -> Box<dyn Packer> {
        let shape = Shape {
            slices: self.unit_slices(),
            ..self.shape
        };
        let (Kind::Text { tokenizer, pad, .. } | Kind::Chat { tokenizer, pad, .. }) = &self.kind
        else {
            return Box::new(Samples::new(shape, from.at));
        };
        let tokens = (tokenizer.identity().end_token, *pad);
        match self.mode {
            PackingMode::BestFit | PackingMode::Chat => {
                Box::new(BestFit::new(shape, tokens, self.look_ahead, from))
            }
            PackingMode::Concat | PackingMode::Opaque => {
                let segments = self.extras.iter().any(|extra| extra.needs_segments());
                Box::new(Concat::new(shape, tokens, from.at, segments))
            }
        }
    }

    /// What `unit` becomes, and its bytes; `Ok(Ok(None))` for a blank line.
    pub(crate) fn form(&self, format: Format, unit: Unit) -> Formed {
        let bytes = unit.bytes() as u64;
        match &self.kind {
            Kind::Arrays(specs) => {
                sample(format, specs, unit).map(|s| s.map(|s| (Content::Sample(s), bytes)))
            }
            Kind::Chat { chat, .. } => match (format, unit.raw) {
                (Format::Jsonl, Ok(raw)) => {
                    let turns = chat.turns(&raw)?;
                    Ok(turns.map(|turns| (turns, bytes)))
                }
                (_, Ok(_)) => Err(Reason::NotConversations),
                (_, Err(reason)) => Err(reason),
            },
            Kind::Text {
                tokenizer, field, ..
            } => {
                let first = unit.place.unit == 0;
                let Some(text) = decode(format, field, first, unit.raw?)? else {
                    return Ok(None);
                };
                let tokens = tokenizer.encode(&text).map_err(Reason::tokenizer)?;
                Ok(Some((Content::Tokens(tokens), text.len() as u64)))
            }
        }
    }

    /// Whether the tokenizer still gives the tokens of the start. A panic may leave it broken for every later
    /// document, and those are not bad.
    pub(crate) fn is_sound(&self) -> bool {
        match &self.kind {
            Kind::Text { tokenizer, .. } | Kind::Chat { tokenizer, .. } => {
                panics::guard(|| tokens_of(tokenizer.as_ref())).is_ok_and(|now| now == self.canary)
            }
            Kind::Arrays(_) => true,
        }
    }
}

/// The second text takes o200k's other way.
const CANARY: [&str; 2] = ["A good document, \n  no. 1234.", "It'\u{17f} another."];

fn tokens_of(tokenizer: &dyn Tokenizer) -> Vec<Option<Vec<u32>>> {
    CANARY.map(|text| tokenizer.encode(text).ok()).into()
}

fn chat(config: &ProducerConfig, tokenizer: Arc<dyn Tokenizer>) -> Result<Chat, TemplateError> {
    let most = config.source.max_document_bytes.bytes();
    let template = TemplateFile::read(config.chat.template.as_ref(), most)?;
    let fields = (config.chat.messages.as_str(), config.chat.tools.as_str());
    let program = config.chat.renderer.as_deref();
    Chat::new(template, tokenizer, fields, program)
}

/// A document and its bytes; `Ok(None)` for a blank line.
pub(crate) type Formed = Result<Option<(Content, u64)>, Reason>;

/// A word of the configuration.
fn name(word: impl serde::Serialize) -> String {
    let word = serde_json::to_value(word).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}
