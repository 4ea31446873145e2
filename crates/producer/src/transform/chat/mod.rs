//! Conversations: from messages to tokens by the model's own template, and which of the tokens are to
//! be learned.
//!
//! The template is rendered to text; where the text spells a special token, that token stands in the
//! result, unless a message spelled it: what people wrote stays text (`shield`). To be learned is what
//! stands in the template's `{% generation %}` blocks, or, when it has none, what an assistant turn
//! adds to the text that asks for it.

mod python_compat;
mod render;
mod renderer_pool;
mod special_tokens;
mod template;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::packing::Content;
use crate::sources::Reason;
use crate::tokenizer::{Tokenizer, TokenizerError};

pub use renderer_pool::{RENDER, serve};
pub use template::{TemplateError, TemplateFile};

use render::{ConversationRenderer, RendererSetup};
use renderer_pool::RendererPool;
use special_tokens::{ESCAPE, GENERATION_BEGINS, GENERATION_ENDS};

/// Makes tokens of conversations.
pub struct Chat {
    renderer: Renderer,
    fingerprint: String,
    tokenizer: Arc<dyn Tokenizer>,
    specials: special_tokens::SpecialTokens,
}

/// Where templates are rendered: here, or in processes whose memory is bounded.
enum Renderer {
    Here(ConversationRenderer),
    Elsewhere(RendererPool),
}

/// What one document becomes; `Ok(None)` for a blank line.
pub type Turns = Result<Option<Content>, Reason>;

fn wrong(detail: impl Into<String>) -> Reason {
    Reason::Chat {
        detail: detail.into(),
    }
}

impl Chat {
    /// By `template`; `fields` name the messages and the tools. `program` renders in processes of its
    /// own ([`serve`]); without one, it is done here.
    pub fn new(
        template: TemplateFile,
        tokenizer: Arc<dyn Tokenizer>,
        fields: (&str, &str),
        program: Option<&Path>,
    ) -> Result<Self, TemplateError> {
        let fingerprint = template.fingerprint();
        let specials = tokenizer.specials();
        let setup = RendererSetup::new(template, fields, specials);
        let specials = special_tokens::SpecialTokens::new(specials);
        let renderer = if let Some(program) = program {
            Renderer::Elsewhere(RendererPool::new(program, setup)?)
        } else {
            let rendering = setup.rendering();
            Renderer::Here(rendering.map_err(|detail| setup.template.broken(detail))?)
        };
        Ok(Self {
            renderer,
            fingerprint,
            tokenizer,
            specials,
        })
    }

    /// The template's text, which decides the tokens too.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The tokens of the conversation in the JSON object `raw`.
    pub fn turns(&self, raw: &[u8]) -> Turns {
        if raw.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let rendered = match &self.renderer {
            Renderer::Here(rendering) => rendering.text(raw),
            Renderer::Elsewhere(processes) => processes.text(raw),
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
                        // A token across the border belongs to what follows it.
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

/// Whether a text holds one of the characters that mark places here.
fn holds_marks(text: &str) -> bool {
    text.contains([ESCAPE, GENERATION_BEGINS, GENERATION_ENDS])
}

#[cfg(test)]
mod tests;
