//! Preference pairs: a document with a prompt, a preferred and a rejected answer, as two conversations.
//!
//! The fields are lists of messages, or texts: a prompt by the user, answers by the assistant. Without a prompt both
//! answers are whole conversations. The tokens with which both begin are not learned: they are the prompt's, or cancel
//! out in the difference that preference losses take.

use serde_json::{Map, Value};

use super::super::json;
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
}

fn wrong(detail: String) -> Reason {
    Reason::Messages { detail }
}

impl PairFields {
    /// Returns both conversations as objects like a line of messages.
    fn conversations(&self, raw: &[u8]) -> Result<[Vec<u8>; 2], Reason> {
        let document = json::value(raw).map_err(|e| Reason::broken_json(&e))?;
        let Value::Object(fields) = &document else {
            let (chosen, rejected) = (&self.chosen, &self.rejected);
            return Err(wrong(format!(
                "is not a JSON object; write {{\"{chosen}\": [...], \"{rejected}\": [...]}}"
            )));
        };
        let prompt = match fields.get(&self.prompt) {
            None | Some(Value::Null) => Vec::new(),
            Some(value) => self.messages(&self.prompt, value, "user")?,
        };
        let answer = |name: &str, setting: &str| {
            let Some(value) = fields.get(name) else {
                let names: Vec<&str> = fields.keys().take(12).map(String::as_str).collect();
                let names = names.join(", ");
                return Err(wrong(format!(
                    "has no field \"{name}\", only {names}; name the right one in {setting}"
                )));
            };
            let mut turns = prompt.clone();
            turns.extend(self.messages(name, value, "assistant")?);
            let mut conversation = Map::new();
            conversation.insert(self.mapping.messages.clone(), Value::Array(turns));
            let tools = fields.get(&self.mapping.tools);
            conversation.extend(tools.map(|tools| (self.mapping.tools.clone(), tools.clone())));
            let text = Value::Object(conversation).to_string();
            if json::is_marked(raw) && json::holds_number(&text) {
                return Err(wrong(
                    "has NaN or an infinite number in its messages; write it as a text, or leave it out".to_owned(),
                ));
            }
            Ok(text.into_bytes())
        };
        Ok([
            answer(&self.chosen, "chat.chosen")?,
            answer(&self.rejected, "chat.rejected")?,
        ])
    }

    /// Returns the messages of a field; a text is one message with `role`.
    fn messages(&self, name: &str, value: &Value, role: &str) -> Result<Vec<Value>, Reason> {
        match value {
            Value::Array(turns) => Ok(turns.clone()),
            Value::String(text) => {
                // Tables often hold lists as JSON.
                if text.trim_start().starts_with('[')
                    && let Ok(Value::Array(turns)) = serde_json::from_str(text)
                {
                    return Ok(turns);
                }
                let mut turn = Map::new();
                turn.insert(self.mapping.role_key.clone(), role.into());
                turn.insert(self.mapping.content_key.clone(), text.as_str().into());
                Ok(vec![Value::Object(turn)])
            }
            _ => Err(wrong(format!(
                "field \"{name}\" is neither a list of messages nor a text; correct it"
            ))),
        }
    }

    fn check(&self, name: &str, answer: &Answer) -> Result<(), Reason> {
        let (tokens, most) = (answer.tokens.len(), self.row_tokens);
        if tokens == 0 || tokens > most {
            return Err(wrong(format!(
                "with \"{name}\" has {tokens} tokens, and a row of a pair holds 1 to {most}; raise stream.seq_len, or \
                 leave such pairs out with source.on_bad_document = \"skip\""
            )));
        }
        Ok(())
    }
}

impl Chat {
    /// Returns the tokens of the pair in the JSON object `raw`; `Ok(None)` for a blank line.
    pub fn pair(&self, raw: &[u8], fields: &PairFields) -> Result<Option<Content>, Reason> {
        if raw.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let [chosen, rejected] = fields.conversations(raw)?;
        let mut pair = [self.answer(&chosen)?, self.answer(&rejected)?];
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
        Ok(Some(Content::Pair(pair)))
    }

    fn answer(&self, raw: &[u8]) -> Result<Answer, Reason> {
        match self.turns(raw)? {
            Some(Content::Turns(tokens, learned)) => Ok(Answer { tokens, learned }),
            _ => Ok(Answer::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::chat;
    use super::*;

    const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}\
                            {% if add_generation_prompt %}[assistant] {% endif %}";

    fn fields() -> PairFields {
        PairFields {
            prompt: "prompt".into(),
            chosen: "chosen".into(),
            rejected: "rejected".into(),
            mapping: ("messages", "tools").into(),
            row_tokens: 80,
        }
    }

    /// Returns text and learned text of both answers.
    fn pair(line: &str) -> Result<[(String, String); 2], String> {
        let made = chat(TEMPLATE).pair(line.as_bytes(), &fields());
        let Some(Content::Pair(pair)) = made.map_err(|why| why.to_string())? else {
            panic!("no pair")
        };
        Ok(pair.map(|answer| {
            let text = |tokens: Vec<u32>| {
                let bytes = tokens.iter().map(|t| u8::try_from(*t).unwrap()).collect();
                String::from_utf8(bytes).unwrap()
            };
            let both = answer.tokens.iter().zip(&answer.learned);
            let learned = both.filter(|(_, l)| **l).map(|(t, _)| *t).collect();
            (text(answer.tokens), text(learned))
        }))
    }

    #[test]
    fn texts_messages_and_implicit_prompts_are_the_same_pair() {
        let expected = [
            ("[user] 1+1?\n[assistant] two\n", "wo"),
            ("[user] 1+1?\n[assistant] three\n", "hree"),
        ]
        .map(|(a, b)| (a.to_owned(), b.to_owned()));
        let lines = [
            r#"{"prompt": "1+1?", "chosen": "two", "rejected": "three"}"#,
            r#"{"prompt": [{"role": "user", "content": "1+1?"}],
                "chosen": [{"role": "assistant", "content": "two"}],
                "rejected": "[{\"role\": \"assistant\", \"content\": \"three\"}]"}"#,
            r#"{"chosen": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "two"}],
                "rejected": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "three"}]}"#,
        ];
        for line in lines {
            assert_eq!(pair(line), Ok(expected.clone()), "{line}");
        }
    }

    /// An assistant's turn in the prompt is learned in a conversation, and not in a pair.
    #[test]
    fn only_the_answers_are_learned() {
        let line = r#"{"prompt": [{"role": "assistant", "content": "hi"}], "chosen": "yes", "rejected": "no"}"#;
        let [chosen, rejected] = pair(line).unwrap();
        assert_eq!((chosen.1.as_str(), rejected.1.as_str()), ("yes", "no"));
    }

    #[test]
    fn each_wrong_pair_is_named() {
        let long = "x".repeat(90);
        let long = format!(r#"{{"chosen": "{long}", "rejected": "y"}}"#);
        let cases = [
            (
                r#"{"prompt": "a", "chosen": "b"}"#,
                "no field \"rejected\", only chosen, prompt; name",
            ),
            (
                r#"{"prompt": "a", "chosen": "b", "rejected": "b"}"#,
                "so it prefers nothing",
            ),
            (
                r#"{"prompt": 5, "chosen": "b", "rejected": "c"}"#,
                "field \"prompt\" is neither",
            ),
            ("[1]", "is not a JSON object; write {\"chosen\""),
            ("{", "broken JSON at column 1"),
            (
                &long,
                "with \"chosen\" has 103 tokens, and a row of a pair holds 1 to 80",
            ),
        ];
        for (line, expected) in cases {
            let why = pair(line).unwrap_err();
            assert!(why.contains(expected), "{expected} in {why}");
        }
        assert!(chat(TEMPLATE).pair(b"  ", &fields()).unwrap().is_none());
    }
}
