//! Preference pairs: a document with a prompt, a preferred and a rejected answer, as two conversations.
//!
//! The fields are lists of messages, or texts: a prompt by the user, answers by the assistant (`layouts`). The tokens
//! with which both conversations begin are not learned: they are the prompt's, or cancel out in the difference that
//! preference losses take.
//!
//! `earlier` has the rules of the first dialect, to find the pairs that it made other tokens of.

mod earlier;
mod layouts;

use super::{Chat, Mapping};
use crate::packing::{Answer, Content};
use crate::sources::Reason;

/// The fields of a pair, and the mapping of its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairFields {
    /// Field with the messages before both answers, if a document has any.
    pub prompt: String,
    /// Field with the preferred answer.
    pub chosen: String,
    /// Field with the rejected answer.
    pub rejected: String,
    pub mapping: Mapping,
    /// Most tokens of a conversation: those of a row.
    pub row_tokens: usize,
    /// The configuration key of that number.
    pub row_key: &'static str,
    /// The words for what holds the conversation.
    pub row: &'static str,
}

fn wrong(detail: String) -> Reason {
    Reason::Messages { detail }
}

impl PairFields {
    fn check(&self, name: &str, answer: &Answer) -> Result<(), Reason> {
        let tokens = answer.tokens.len();
        let most = self.row_tokens;
        if tokens == 0 || tokens > most {
            return Err(wrong(format!(
                "with \"{name}\" has {tokens} tokens, and {} holds 1 to {most}; shorten it, or raise {}",
                self.row, self.row_key
            )));
        }
        Ok(())
    }
}

type Made = Result<Content, Reason>;

/// Returns what was made when it is what it was in the first dialect; otherwise a reason that stops the producer.
fn same_as_before(made: Made, before: &Content) -> Made {
    let detail = match made {
        Ok(made) if made == *before => return Ok(made),
        Ok(_) => {
            "the pair becomes other tokens by now, because its prompt is taken once or its objects keep the order of their fields"
                .to_owned()
        }
        Err(why) if why.is_of_program() => return Err(why),
        Err(why) => format!("the pair was taken before, and is a bad one by now: {why}"),
    };
    Err(Reason::Changed { detail })
}

impl Chat {
    /// Returns the tokens of the pair in the JSON object `raw`; `Ok(None)` for a blank line.
    pub fn pair(&self, raw: &[u8], fields: &PairFields) -> Result<Option<Content>, Reason> {
        if raw.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let dialect = self.dialect();
        let conversations = fields.conversations(raw, dialect);
        let made = conversations.and_then(|both| self.pair_of(&both, fields));
        if dialect.is_earlier() {
            let before = earlier::conversations(fields, raw);
            if let Ok(before) = before.and_then(|both| self.pair_of(&both, fields)) {
                return same_as_before(made, &before).map(Some);
            }
        }
        made.map(Some)
    }

    /// Returns the tokens of both conversations of a pair.
    fn pair_of(&self, [chosen, rejected]: &[Vec<u8>; 2], fields: &PairFields) -> Made {
        let mut pair = [self.answer(chosen)?, self.answer(rejected)?];
        for (name, answer) in [&fields.chosen, &fields.rejected].into_iter().zip(&pair) {
            fields.check(name, answer)?;
        }
        let [a, b] = &pair;
        if a.tokens == b.tokens {
            return Err(wrong(format!(
                "is the same with \"{}\" and \"{}\", so it prefers nothing; leave such pairs out with \
                 source.on_bad_document = \"skip\"",
                fields.chosen, fields.rejected
            )));
        }
        let both = a.tokens.iter().zip(&b.tokens).take_while(|(a, b)| a == b);
        // The first token has none before it that could predict it.
        let shared = both.count().max(1);
        for answer in &mut pair {
            answer
                .learned
                .iter_mut()
                .take(shared)
                .for_each(|learned| *learned = false);
        }
        Ok(Content::Pair(Box::new(pair)))
    }

    fn answer(&self, raw: &[u8]) -> Result<Answer, Reason> {
        match self.turns(raw)? {
            Some(Content::Turns(tokens, learned)) => Ok(Answer { tokens, learned }),
            _ => Ok(Answer::default()),
        }
    }
}

#[cfg(test)]
mod tests;
