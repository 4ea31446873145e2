//! From units to documents, by the configured mode, and the identity that this gives the stream: all
//! producers of one stream must make slices of one form.
//!
//! - `content` makes the content of a document by the kind of the transform: `text` takes the text out of a unit, `ids`
//!   the token ids; `chat` makes tokens of conversations; `arrays` makes samples;
//! - `columns` takes the numbers beside them;
//! - `shards` finds the text or the conversation in a sample of a tar;
//! - `function` applies the user's own function to units, before all others;
//! - `long` treats documents longer than a row or a bin;
//! - `json` reads JSON as Python does, and `again` decides when;
//! - `stages` are the forms of batches, of the stream and its stages;
//! - `identity` names the tokenizer and the form of slices, which stream.json keeps;
//! - `error` holds the reasons why a transform cannot be set up.

mod again;
pub mod arrays;
pub mod chat;
mod columns;
mod content;
mod error;
mod frames;
pub mod function;
mod identity;
pub mod ids;
pub(crate) mod json;
mod long;
mod setup;
pub(crate) mod shards;
mod stages;
pub mod text;
mod tokenizer;

use std::sync::Arc;

use batchweave_daemon::panics;
use bytes::Bytes;

pub(crate) use again::Transformed;
pub use columns::Columns;
use columns::Values;
pub use error::TransformError;
use function::{Applied, Function, Prepared};
pub(crate) use tokenizer::missing_begin_token;

use self::arrays::sample;
use self::chat::{Chat, Dialect, PairFields};
use self::json::Beyond;
use self::setup::{balancing, beside, chat, pair_fields};
pub use self::stages::BatchForm;
use self::tokenizer::{begin_token, load_tokenizer, pad_token, tokens_of};
use crate::config::{DocumentKind, LongDocuments, PackingMode, ProducerConfig, SourceContent};
use crate::packing::{
    ArraySpec, Balancing, Batches, Beside, ColumnValues, Content, Encoder, Extra, Packer, Restart,
    Samples, Shape,
};
use crate::sources::{Reason, Unit, UnitKind};
use crate::tokenizer::Tokenizer;

/// Makes documents of units, and the packer and encoder that fit them.
pub struct DocumentTransform {
    kind: Kind,
    shape: Shape,
    mode: PackingMode,
    of_stream: BatchForm,
    /// The forms of the configured stages.
    stages: Vec<BatchForm>,
    /// Of bins: the settings that decide them, and what becomes of long documents.
    balancing: Option<(Balancing, LongDocuments)>,
    template: bool,
    beside: Beside,
    columns: Columns,
    function: Option<Function>,
    object_bytes: u64,
    /// Tokens of [`CANARY`] as the tokenizer made them at the start.
    canary: Vec<Option<Vec<u32>>>,
    /// Makes slices of packed batches.
    pub encoder: Arc<Encoder>,
}

enum Kind {
    Text {
        tokenizer: Arc<dyn Tokenizer>,
        pad: u32,
        /// The token that each document begins with, if any.
        begin: Option<u32>,
        content: SourceContent,
    },
    Chat {
        chat: Box<Chat>,
        /// The fields of preference pairs; `None` for conversations.
        pairs: Option<Box<PairFields>>,
        tokenizer: Arc<dyn Tokenizer>,
        pad: u32,
    },
    Arrays(Vec<ArraySpec>),
}

impl Kind {
    /// Makes the kind for documents that become tokens.
    fn of_tokens(
        config: &ProducerConfig,
        shape: Shape,
        tokenizer: Arc<dyn Tokenizer>,
        pad: u32,
    ) -> Result<Self, TransformError> {
        Ok(match config.documents() {
            DocumentKind::Conversation | DocumentKind::Pair => Self::Chat {
                chat: Box::new(chat(config, tokenizer.clone())?),
                pairs: pair_fields(config, shape),
                tokenizer,
                pad,
            },
            _ => Self::Text {
                begin: begin_token(config, tokenizer.as_ref())?,
                tokenizer,
                pad,
                content: config.source.content,
            },
        })
    }
}

impl DocumentTransform {
    /// Sets up the configured transform. Reads files and loads the tokenizer, which takes seconds: call it outside
    /// of async code.
    pub fn new(config: &ProducerConfig) -> Result<Self, TransformError> {
        let shape = config.shape();
        let packing = &config.packing;
        let beside = beside(config);
        let mut canary = Vec::new();
        let (kind, encoder) = if packing.mode == PackingMode::Opaque {
            let arrays = packing.arrays.clone();
            let encoder = Encoder::samples(shape, arrays.clone())?;
            (Kind::Arrays(arrays), encoder)
        } else {
            let tokenizer = load_tokenizer(config)?;
            let pad = pad_token(config, tokenizer.as_ref())?;
            canary = tokens_of(tokenizer.as_ref());
            let bound = tokenizer.identity().id_bound;
            let encoder = if config.is_balanced() {
                Encoder::bins(shape, bound, &beside)?
            } else {
                Encoder::rows(shape, bound, &beside)?
            };
            (Kind::of_tokens(config, shape, tokenizer, pad)?, encoder)
        };
        let encoder = Arc::new(encoder);
        let balancing = balancing(config, &kind)?;
        let mut of_stream = BatchForm::of_stream(config, shape, encoder.clone());
        of_stream.balancing = balancing.as_ref().map(|(own, _)| own.clone());
        let transform = Self {
            shape,
            mode: packing.mode,
            of_stream,
            stages: Vec::new(),
            balancing,
            template: config.documents().has_template(),
            kind,
            beside,
            columns: Columns::from_config(config),
            function: Function::start(config)?,
            object_bytes: packing.object_bytes.bytes(),
            canary,
            encoder,
        };
        transform.with_stages(config)
    }

    fn tokenizer(&self) -> Option<&Arc<dyn Tokenizer>> {
        match &self.kind {
            Kind::Text { tokenizer, .. } | Kind::Chat { tokenizer, .. } => Some(tokenizer),
            Kind::Arrays(_) => None,
        }
    }

    /// Returns the settings that decide bins; `None` in other modes.
    pub(crate) fn balancing(&self) -> Option<&Balancing> {
        self.balancing.as_ref().map(|(balancing, _)| balancing)
    }

    /// Returns the token after each document; none for arrays.
    pub fn end_token(&self) -> Option<u32> {
        match &self.kind {
            Kind::Text { tokenizer, .. } | Kind::Chat { tokenizer, .. } => {
                Some(tokenizer.identity().end_token)
            }
            Kind::Arrays(_) => None,
        }
    }

    /// Returns the token before each document, if any.
    pub fn begin_token(&self) -> Option<u32> {
        match &self.kind {
            Kind::Text { begin, .. } => *begin,
            Kind::Chat { .. } | Kind::Arrays(_) => None,
        }
    }

    /// Returns the tokenizer.json that the stream keeps in place of the configured file, where that is another one.
    pub(crate) fn tokenizer_definition(&self) -> Option<Bytes> {
        match &self.kind {
            Kind::Text { tokenizer, .. } | Kind::Chat { tokenizer, .. } => tokenizer.definition(),
            Kind::Arrays(_) => None,
        }
    }

    /// Goes on by the rules of an earlier dialect, which the cursor names.
    pub(crate) fn continue_in(&self, dialect: Dialect) {
        if let Kind::Chat { chat, .. } = &self.kind {
            chat.continue_in(dialect);
        }
    }

    /// Returns the text of `tokens` for people; `None` for arrays.
    pub(crate) fn decode(&self, tokens: &[u32]) -> Option<String> {
        match &self.kind {
            Kind::Text { tokenizer, .. } | Kind::Chat { tokenizer, .. } => {
                Some(tokenizer.decode(tokens))
            }
            Kind::Arrays(_) => None,
        }
    }

    /// Returns the slices that the packer makes at a time: all of a batch that surely fits in one object, else
    /// one.
    pub fn unit_slices(&self) -> u32 {
        self.slices_at_once(&self.of_stream)
    }

    /// Returns the shape of the batches that the packer returns: whole ones, or slices of large ones.
    pub fn unit_shape(&self) -> Shape {
        Shape {
            slices: self.unit_slices(),
            ..self.shape
        }
    }

    /// Returns a packer that starts at `from` and makes [`Self::unit_slices`] slices at a time; bins of `batches`.
    pub fn packer(&self, from: Restart, batches: Batches) -> Box<dyn Packer> {
        let shape = self.unit_shape();
        let at = from.at;
        let packer = self.token_packer(&self.of_stream, from, batches);
        packer.unwrap_or_else(|| Box::new(Samples::new(shape, at)))
    }

    /// Returns what the function of the user makes of these units; without a function, the same ones. `field` is that of their
    /// source.
    pub(crate) fn prepare(&self, field: &str, units: Vec<Unit>) -> Applied {
        match &self.function {
            Some(function) => function.apply(field, units),
            None => Applied {
                units: units
                    .into_iter()
                    .map(|unit| Some(Prepared::as_read(unit)))
                    .collect(),
                dropped: 0,
                deaths: 0,
            },
        }
    }

    /// Ends the processes of the function that wait for work, so that new ones are started.
    pub(crate) fn renew_function(&self) {
        if let Some(function) = &self.function {
            function.renew();
        }
    }

    /// Reads the document once, by the standard unless it is marked.
    fn transform_once(&self, field: &str, mut unit: Unit) -> Result<Option<Transformed>, Reason> {
        if unit.kind == UnitKind::Sample {
            return self.transform_sample(field, unit);
        }
        let bytes = unit.bytes() as u64;
        let values = self.columns.take(&mut unit)?;
        self.with_values(field, unit, bytes, values)
    }

    /// Returns the values of a document's columns, followed by the number of its source where slices have these.
    pub(crate) fn with_source(
        &self,
        columns: Option<ColumnValues>,
        source: usize,
    ) -> Option<ColumnValues> {
        if !self.beside.extras.contains(&Extra::SourceIds) {
            return columns;
        }
        let own = columns.iter().flat_map(|values| values.iter().copied());
        let number = (source as u64).to_le_bytes();
        Some(own.chain(std::iter::once(number)).collect())
    }

    /// Returns the document with the values beside its content, which are taken out of `unit`; `read` bytes were read.
    fn with_values(
        &self,
        field: &str,
        unit: Unit,
        read: u64,
        values: Values,
    ) -> Result<Option<Transformed>, Reason> {
        let Some((content, bytes)) = self.content(field, unit, read, values.mask)? else {
            return Ok(None);
        };
        let (content, truncated) = self.fitted(content)?;
        let arrays: usize = values.arrays.iter().map(Bytes::len).sum();
        Ok(Some(Transformed {
            content,
            columns: values.numbers,
            arrays: values.arrays,
            bytes: bytes + arrays as u64,
            beyond: Beyond::default(),
            truncated,
        }))
    }

    /// Returns what [`Self::transform`] does for the sample of a tar, whose key is in the reason of a bad one.
    fn transform_sample(&self, field: &str, mut unit: Unit) -> Result<Option<Transformed>, Reason> {
        let key = std::mem::replace(&mut unit.raw, Ok(Bytes::new()))?;
        let bytes = unit.bytes() as u64;
        let made = match &self.kind {
            Kind::Arrays(specs) => sample(specs, unit).map(|arrays| {
                arrays.map(|arrays| Transformed {
                    content: Content::Sample(arrays),
                    columns: None,
                    arrays: Vec::new(),
                    bytes,
                    beyond: Beyond::default(),
                    truncated: 0,
                })
            }),
            Kind::Text {
                content: SourceContent::Ids,
                ..
            } => Err(Reason::NotIdFile),
            Kind::Text { .. } | Kind::Chat { .. } => {
                let template = self.template;
                self.columns.take(&mut unit).and_then(|values| {
                    let (field, unit) = shards::document(field, template, unit);
                    let bytes = unit.bytes() as u64;
                    // Only a blank line may be left out silently: the sample of a blank file has other files.
                    let made = self.with_values(field, unit, bytes, values)?;
                    made.ok_or(Reason::Empty).map(Some)
                })
            }
        };
        made.map_err(|why| why.in_sample(&String::from_utf8_lossy(&key)))
    }

    /// Returns whether the tokenizer still gives the tokens of the start. A panic may leave it broken for every
    /// later document; those are not bad documents.
    pub(crate) fn is_sound(&self) -> bool {
        match &self.kind {
            Kind::Text { tokenizer, .. } | Kind::Chat { tokenizer, .. } => {
                panics::guard(|| tokens_of(tokenizer.as_ref())).is_ok_and(|now| now == self.canary)
            }
            Kind::Arrays(_) => true,
        }
    }
}
