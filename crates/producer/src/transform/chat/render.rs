//! Renders a conversation to text, with the ranges that are learned. Pure.

use std::ops::Range;

use minijinja::Value;
use serde::{Deserialize, Serialize};

use super::super::json;
use super::dialect::Dialect;
use super::learned::Learned;
use super::mapping::Mapping;
use super::numbers;
use super::owners::learned_blocks;
use super::rendered::{Rendered, unmark};
use super::special_tokens::SpecialTokens;
use super::template::{Template, TemplateFile};
use super::wrong::wrong;
use crate::sources::Reason;

/// The settings that decide the text of a conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RendererSetup {
    pub(super) template: TemplateFile,
    pub(super) mapping: Mapping,
    pub(super) specials: Vec<(String, u32)>,
    /// The rules that the producer began by.
    pub(super) dialect: Dialect,
}

/// A compiled template, and the mapping of documents to its messages.
pub(super) struct ConversationRenderer {
    template: Template,
    mapping: Mapping,
    specials: SpecialTokens,
}

impl RendererSetup {
    pub(super) fn new(
        template: TemplateFile,
        mapping: Mapping,
        specials: &[(String, u32)],
    ) -> Self {
        Self {
            template,
            mapping,
            specials: specials.to_vec(),
            dialect: Dialect::default(),
        }
    }

    /// Compiles the template; the error is the reason why it does not compile.
    pub(super) fn compile(&self) -> Result<ConversationRenderer, String> {
        Ok(ConversationRenderer {
            template: Template::compile(&self.template)?,
            mapping: self.mapping.clone(),
            specials: SpecialTokens::new(&self.specials),
        })
    }
}

impl ConversationRenderer {
    /// Renders the conversation in `raw`.
    pub(super) fn text(&self, raw: &[u8], dialect: Dialect) -> Result<Rendered, Reason> {
        self.template.continue_in(dialect);
        numbers::check(raw)?;
        let document: Value = json::from_slice(raw).map_err(|e| Reason::broken_json(&e))?;
        let escape = |value: &Value| self.specials.escape_special_tokens(value).map_err(wrong);
        let turns = self.mapping.turns(&document)?;
        let turns = escape(&turns)?;
        let turns: Vec<Value> = turns.try_iter().into_iter().flatten().collect();
        let loss = &self.mapping.loss;
        let fields: Vec<Value> = document.try_iter().into_iter().flatten().collect();
        let fields = fields
            .iter()
            .filter(|key| document.get_item(key).is_ok_and(|v| !v.is_none()));
        loss.check_beside(fields.filter_map(Value::as_str), dialect)?;
        loss.check_prompt(&document, dialect)?;
        let learned = loss.learned(&turns, dialect)?;
        let tools = document.get_attr(&self.mapping.tools);
        let tools = escape(&tools.unwrap_or(Value::UNDEFINED))?;
        let whole = self.render(&turns, &tools, false)?;
        if !self.template.marks_generation() {
            let ranges = self.learned_turns(&turns, &learned, &tools, &whole)?;
            return Ok((whole, ranges));
        }
        if learned.plain {
            return unmark(&whole);
        }
        learned_blocks(&whole, &turns, &learned, |turns| {
            self.render(turns, &tools, false)
        })
    }

    fn render(&self, turns: &[Value], tools: &Value, ask: bool) -> Result<String, Reason> {
        self.template.render(turns, tools, ask)
    }

    /// Returns the text that each learned turn adds to its prompt, or, of other roles than the assistant's, to the
    /// turns before it.
    fn learned_turns(
        &self,
        turns: &[Value],
        wanted: &Learned,
        tools: &Value,
        whole: &str,
    ) -> Result<Vec<Range<usize>>, Reason> {
        let mut learned = Vec::new();
        for (n, turn) in turns.iter().enumerate() {
            if wanted.messages.get(n) != Some(&true) {
                continue;
            }
            let role = turn.get_attr("role").unwrap_or_default();
            let asked = role.as_str() == Some("assistant");
            let before = self.render(&turns[..n], tools, asked)?;
            let after = self.render(&turns[..=n], tools, false)?;
            if !whole.starts_with(&before) || !whole.starts_with(&after) {
                let turn = n + 1;
                return Err(wrong(format!(
                    "the template writes message {turn} differently when others follow, so the \
                     learned text in it is unknown; use a template with {{% generation %}} blocks"
                )));
            }
            let end = after.trim_end().len();
            if before.len() < end {
                learned.push(before.len()..end);
            }
        }
        Ok(learned)
    }
}
