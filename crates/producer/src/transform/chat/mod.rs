//! Conversations: from messages to tokens by the model's own template, with a mark for each token that is learned.
//!
//! The template is rendered to text. A special token that the template spells becomes that token; one that a
//! message spells stays text (`special_tokens`). The learned text is in the template's `{% generation %}` blocks;
//! of a template without such blocks, it is the text that an assistant turn adds to its prompt.
//!
//! - `template` reads a template, `jinja` renders it; `earlier` and `python_compat` render it as the first dialect did;
//! - `mapping` finds the messages of a document and names their roles; `render` makes the text of a conversation,
//!   `renderer_pool` does so in processes of bounded memory;
//! - `learned` says which messages are learned, `owners` which of them a generation block holds;
//! - `dialect` names the rules by which a producer began, where they were others than today's;
//! - `pairs` makes two conversations of a prompt with a preferred and a rejected answer.

mod dialect;
mod earlier;
mod jinja;
mod learned;
mod mapping;
mod numbers;
mod owners;
mod pairs;
mod python_compat;
mod render;
mod rendered;
mod renderer_pool;
mod special_tokens;
mod template;
mod wrong;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::packing::Content;
use crate::sources::Reason;
use crate::tokenizer::{Tokenizer, TokenizerError};

pub use dialect::Dialect;
pub(crate) use dialect::KEY as DIALECT_KEY;
pub(crate) use jinja::is_date;
pub(crate) use learned::{KEYS as LOSS_KEYS, fields_beside};
pub use learned::{Learn, LossRules};
pub use mapping::Mapping;
pub use pairs::PairFields;
pub use renderer_pool::{RENDER, serve};
pub use template::{TemplateError, TemplateFile};

use dialect::CurrentDialect;
use render::{ConversationRenderer, RendererSetup};
use renderer_pool::RendererPool;

/// Makes tokens of conversations, by a template and a tokenizer.
pub struct Chat {
    renderer: Renderer,
    fingerprint: String,
    tokenizer: Arc<dyn Tokenizer>,
    specials: special_tokens::SpecialTokens,
    dialect: CurrentDialect,
}

/// The place where templates are rendered: the calling thread, or processes of bounded memory.
enum Renderer {
    InProcess(ConversationRenderer),
    Pool(RendererPool),
}

/// The tokens of one conversation; `Ok(None)` for a blank line.
pub type Turns = Result<Option<Content>, Reason>;

impl Chat {
    /// Returns a transform by `template`; `mapping` finds the messages of a document. Processes of `program`
    /// render ([`serve`]); without it, the calling threads do.
    pub fn new(
        template: TemplateFile,
        tokenizer: Arc<dyn Tokenizer>,
        mapping: impl Into<Mapping>,
        program: Option<&Path>,
    ) -> Result<Self, TemplateError> {
        let fingerprint = template.fingerprint();
        let specials = tokenizer.specials();
        let setup = RendererSetup::new(template, mapping.into(), specials);
        let specials = special_tokens::SpecialTokens::new(specials);
        let renderer = if let Some(program) = program {
            Renderer::Pool(RendererPool::new(program, setup)?)
        } else {
            let rendering = setup.compile();
            Renderer::InProcess(rendering.map_err(|detail| setup.template.broken(detail))?)
        };
        Ok(Self {
            renderer,
            fingerprint,
            tokenizer,
            specials,
            dialect: CurrentDialect::default(),
        })
    }

    /// Returns the text that identifies the template, which decides the tokens too.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Goes on by the rules of `dialect`.
    pub fn continue_in(&self, dialect: Dialect) {
        self.dialect.set(dialect);
        if let Renderer::Pool(processes) = &self.renderer {
            processes.continue_in(dialect);
        }
    }

    /// Returns the rules that the producer began by.
    pub(super) fn dialect(&self) -> Dialect {
        self.dialect.get()
    }

    /// Returns the tokens of the conversation in the JSON object `raw`.
    pub fn turns(&self, raw: &[u8]) -> Turns {
        if raw.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let rendered = match &self.renderer {
            Renderer::InProcess(rendering) => rendering.text(raw, self.dialect()),
            Renderer::Pool(processes) => processes.text(raw),
        };
        let (text, learned) = rendered?;
        let turns = self.encode(&text, &learned);
        turns.map(Some).map_err(Reason::tokenizer)
    }

    fn encode(&self, text: &str, learned: &[Range<usize>]) -> Result<Content, TokenizerError> {
        let mut tokens = Vec::new();
        let mut marks = Vec::new();
        for part in self.specials.split(text, learned) {
            match part {
                special_tokens::TextPart::Special(id, learn) => {
                    tokens.push(id);
                    marks.push(learn);
                }
                special_tokens::TextPart::Text {
                    text,
                    mut learn,
                    changes,
                } => {
                    let encoded = self.tokenizer.encode(&text)?;
                    let mut from = 0;
                    for offset in changes {
                        let before = self.tokenizer.encode(&text[..offset])?;
                        // From the first token on that the text before the border would not have alone, as one across
                        // the border, all belong to the text after it.
                        let same = encoded.iter().zip(&before).take_while(|(a, b)| a == b);
                        let to = same.count().max(from);
                        marks.extend(std::iter::repeat_n(learn, to - from));
                        (from, learn) = (to, !learn);
                    }
                    marks.extend(std::iter::repeat_n(learn, encoded.len() - from));
                    tokens.extend(encoded);
                }
            }
        }
        Ok(Content::Turns(tokens, marks))
    }
}

#[cfg(test)]
mod tests;
