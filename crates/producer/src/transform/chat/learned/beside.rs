//! Fields beside the messages that other programs read, and this one does not: an error, as long as no setting names
//! them.

use minijinja::Value;

use super::{LossRules, unread};
use crate::sources::Reason;
use crate::transform::chat::dialect::Dialect;

/// Keys beside the messages that some program reads as the loss of the conversation.
const BESIDE: [&str; 16] = [
    "weight",
    "weights",
    "sample_weight",
    "sample_weights",
    "loss_weight",
    "loss_weights",
    "loss_mask",
    "loss_masks",
    "mask",
    "masks",
    "train",
    "trainable",
    "train_on_turn",
    "step_loss_mask",
    "assistant_masks",
    "completion_mask",
];

/// Keys beside the messages by which other programs change the prompt, and how.
const PROMPT: [(&str, &str); 2] = [
    (
        "system",
        "LLaMA-Factory writes before them, and this program reads in messages only: write it as the first message",
    ),
    (
        "chat_template_kwargs",
        "trl passes to the template, and this program does not: leave such lines out",
    ),
];

/// Returns the names of all these fields, which are columns in a Parquet file.
pub(crate) fn fields_beside() -> impl Iterator<Item = &'static str> {
    BESIDE.into_iter().chain(PROMPT.map(|(key, _)| key))
}

impl LossRules {
    /// Fails for a field beside the messages that some program reads as the loss of the conversation.
    pub(in crate::transform::chat) fn check_beside<'a>(
        &self,
        mut fields: impl Iterator<Item = &'a str>,
        dialect: Dialect,
    ) -> Result<(), Reason> {
        // A producer that began before this check never read these fields, and goes on so.
        if dialect.is_earlier() {
            return Ok(());
        }
        let is_unread = |key: &&str| {
            BESIDE.contains(key)
                && !self.is_ignored(key)
                && !self.named.iter().any(|own| own == key)
        };
        match fields.find(is_unread) {
            None => Ok(()),
            Some(key) => Err(unread(format!(
                "has {key:?} beside its messages, which some programs read as the loss of the conversation, and this \
                 one reads in messages only: write it there, or name it in chat.ignore if it says nothing about the loss"
            ))),
        }
    }

    /// Fails for a field of the document beside the messages by which another program changes the prompt.
    pub(in crate::transform::chat) fn check_prompt(
        &self,
        document: &Value,
        dialect: Dialect,
    ) -> Result<(), Reason> {
        if dialect.is_earlier() {
            return Ok(());
        }
        for (key, means) in PROMPT {
            let says = document.get_attr(key).unwrap_or_default().is_true();
            if says && !self.is_ignored(key) && !self.named.iter().any(|own| own == key) {
                return Err(unread(format!(
                    "has {key:?} beside its messages, which {means}, or name {key:?} in chat.ignore to train without it"
                )));
            }
        }
        Ok(())
    }
}
