//! The layouts of preference rows, which are those of trl: a prompt with answers, as messages or as texts; whole
//! conversations, whose common messages are the prompt; and whole conversations with the prompt beside them, which is
//! then taken once.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::super::super::json;
use super::super::dialect::Dialect;
use super::{PairFields, wrong};
use crate::sources::Reason;

/// From this number of characters on, a prompt that both answers begin with is the prompt again.
const REPEATED_CHARS: usize = 24;
/// Most characters of a text in a message to people.
const SHOWN_CHARS: usize = 40;

/// The value of one of the three fields.
#[derive(Debug)]
enum Part {
    Absent,
    Text(String),
    Turns(Vec<Value>),
}

fn field(value: &Value, name: &str) -> Option<Value> {
    let found = value.get_attr(name).unwrap_or_default();
    (!found.is_undefined()).then_some(found)
}

fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN_CHARS).collect();
    if short.len() < text.len() {
        format!("{:?}", short + "...")
    } else {
        format!("{short:?}")
    }
}

/// Returns whether a number below `value` is one that JSON can't write.
fn holds_non_finite(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Number => f64::try_from(value.clone()).is_ok_and(|number| !number.is_finite()),
        ValueKind::Seq => {
            (value.try_iter().into_iter().flatten()).any(|item| holds_non_finite(&item))
        }
        ValueKind::Map => {
            let keys = value.try_iter().into_iter().flatten();
            keys.filter_map(|key| value.get_item(&key).ok())
                .any(|item| holds_non_finite(&item))
        }
        _ => false,
    }
}

impl PairFields {
    /// Returns both conversations as objects like a line of messages.
    pub(super) fn conversations(
        &self,
        raw: &[u8],
        dialect: Dialect,
    ) -> Result<[Vec<u8>; 2], Reason> {
        let document: Value = json::from_slice(raw).map_err(|e| Reason::broken_json(&e))?;
        let chosen = &self.chosen;
        let rejected = &self.rejected;
        if document.kind() != ValueKind::Map {
            return Err(wrong(format!(
                "is not a JSON object; write {{\"{chosen}\": [...], \"{rejected}\": [...]}}"
            )));
        }
        let keys: Vec<Value> = document.try_iter().into_iter().flatten().collect();
        let present = (keys.iter().filter_map(Value::as_str))
            .filter(|key| field(&document, key).is_some_and(|v| !v.is_none()));
        self.mapping.loss.check_beside(present, dialect)?;
        self.mapping.loss.check_prompt(&document, dialect)?;
        let prompt = match field(&document, &self.prompt) {
            None => Part::Absent,
            Some(value) => self.part(&self.prompt, &value)?,
        };
        let answers = [
            self.answer(&document, chosen, "chat.chosen")?,
            self.answer(&document, rejected, "chat.rejected")?,
        ];
        self.check_repeated(&prompt, &answers)?;
        let tools = field(&document, &self.mapping.tools);
        let [chosen_part, rejected_part] = answers;
        let whole = |name: &str, answer: Part| {
            let turns = self.turns(&prompt, name, answer)?;
            self.written(turns, tools.clone(), raw)
        };
        Ok([whole(chosen, chosen_part)?, whole(rejected, rejected_part)?])
    }

    /// Returns the answer in the field `name`, which `setting` configures.
    fn answer(&self, document: &Value, name: &str, setting: &str) -> Result<Part, Reason> {
        let Some(value) = field(document, name) else {
            let keys = document.try_iter().into_iter().flatten().take(12);
            let names = (keys.map(|key| key.to_string()).collect::<Vec<_>>()).join(", ");
            return Err(wrong(format!(
                "has no field \"{name}\", only {names}; name the right one in {setting}"
            )));
        };
        match self.part(name, &value)? {
            Part::Absent => Err(wrong(format!(
                "has no message in \"{name}\"; leave such pairs out with source.on_bad_document = \"skip\""
            ))),
            part => Ok(part),
        }
    }

    /// Returns a conversation of the document `raw` as JSON.
    fn written(
        &self,
        turns: Vec<Value>,
        tools: Option<Value>,
        raw: &[u8],
    ) -> Result<Vec<u8>, Reason> {
        let key = |name: &str| Value::from(name);
        let messages = (key(&self.mapping.messages), Value::from(turns));
        let with_tools = tools.map(|tools| (key(&self.mapping.tools), tools));
        let conversation: Value = std::iter::once(messages).chain(with_tools).collect();
        if json::is_marked(raw) && holds_non_finite(&conversation) {
            return Err(wrong(
                "has NaN or an infinite number in its messages; write it as a text, or leave it out".to_owned(),
            ));
        }
        serde_json::to_vec(&conversation)
            .map_err(|why| wrong(format!("cannot be written as JSON: {why}")))
    }

    /// Returns the messages or the text of a field. Tables often hold lists as JSON.
    fn part(&self, name: &str, value: &Value) -> Result<Part, Reason> {
        let turns =
            |list: &Value| -> Vec<Value> { list.try_iter().into_iter().flatten().collect() };
        match value.kind() {
            ValueKind::None => Ok(Part::Absent),
            ValueKind::Seq if value.len() == Some(0) => Ok(Part::Absent),
            ValueKind::Seq => Ok(Part::Turns(turns(value))),
            ValueKind::String => {
                let text = value.as_str().unwrap_or_default();
                let parsed: Option<Value> = text
                    .trim_start()
                    .starts_with('[')
                    .then(|| serde_json::from_str(text).ok())
                    .flatten();
                let list = parsed
                    .filter(|value| value.kind() == ValueKind::Seq)
                    .map(|list| turns(&list));
                let is_turn = |turn: &Value| field(turn, &self.mapping.role_key).is_some();
                Ok(match list.filter(|list| list.iter().all(is_turn)) {
                    Some(turns) if turns.is_empty() => Part::Absent,
                    Some(turns) => Part::Turns(turns),
                    None => Part::Text(text.to_owned()),
                })
            }
            _ => Err(wrong(format!(
                "field \"{name}\" is neither a list of messages nor a text; correct it"
            ))),
        }
    }

    /// Fails where both answers are texts that begin with the text of the prompt.
    fn check_repeated(&self, prompt: &Part, answers: &[Part; 2]) -> Result<(), Reason> {
        let (Part::Text(prompt), [Part::Text(a), Part::Text(b)]) = (prompt, answers) else {
            return Ok(());
        };
        let text = prompt.trim();
        let again = text.chars().count() >= REPEATED_CHARS
            && [a, b]
                .iter()
                .all(|answer| answer.trim_start().starts_with(text));
        if again {
            return Err(wrong(format!(
                "has the text of \"{}\", {}, at the beginning of both answers again; leave it out of the answers",
                self.prompt,
                shown(text)
            )));
        }
        Ok(())
    }

    /// Returns the conversation of the prompt and an answer.
    fn turns(&self, prompt: &Part, name: &str, answer: Part) -> Result<Vec<Value>, Reason> {
        let answer = match (answer, prompt) {
            (Part::Turns(answer), _) => answer,
            (Part::Text(text), Part::Text(_) | Part::Turns(_)) => {
                vec![self.turn("assistant", &text)]
            }
            (Part::Text(_) | Part::Absent, _) => {
                return Err(wrong(format!(
                    "has a text in \"{name}\" and no \"{}\", so what it answers is unknown; name the field of the prompt \
                     in chat.prompt, or write lists of messages",
                    self.prompt
                )));
            }
        };
        match prompt {
            Part::Absent => Ok(answer),
            Part::Text(text) => self.after_text(text, name, answer),
            Part::Turns(prompt) => self.after_turns(prompt, name, answer),
        }
    }

    fn turn(&self, role: &str, text: &str) -> Value {
        let role_key = &self.mapping.role_key;
        let content_key = &self.mapping.content_key;
        [(role_key, role), (content_key, text)]
            .into_iter()
            .map(|(key, value)| (Value::from(key.as_str()), Value::from(value)))
            .collect()
    }

    /// Returns the conversation of a prompt that is a text.
    fn after_text(&self, text: &str, name: &str, answer: Vec<Value>) -> Result<Vec<Value>, Reason> {
        let begins_whole = answer.first().is_some_and(|turn| self.asks(turn));
        if !begins_whole {
            return Ok(std::iter::once(self.turn("user", text))
                .chain(answer)
                .collect());
        }
        let wanted = text.trim();
        let before = answer.iter().rposition(|turn| !self.asks(turn));
        let mut asked = answer.iter().take(before.unwrap_or(answer.len()));
        let same = |turn: &Value| self.asks(turn) && self.text_of(turn).trim() == wanted;
        if wanted.is_empty() || asked.any(same) {
            return Ok(answer);
        }
        Err(wrong(format!(
            "has the text {} in \"{}\", and \"{name}\" is a conversation in which no message before the answer has it; \
             correct one of them, or name another field in chat.prompt, one that no document has if the conversations \
             are whole",
            shown(text),
            self.prompt
        )))
    }

    fn are_same(&self, a: &[Value], b: &[Value]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.is_same(a, b))
    }

    /// Returns whether the answer begins with the first message of the prompt, or with some of its last ones.
    fn repeats_part(&self, prompt: &[Value], answer: &[Value]) -> bool {
        let count = prompt.len();
        let first = (answer.first().zip(prompt.first())).is_some_and(|(a, p)| self.is_same(p, a));
        let last = |n: usize| {
            let part = answer.get(..n);
            part.is_some_and(|part| self.are_same(part, &prompt[count - n..]))
        };
        first || (1..count).any(last)
    }

    /// Returns the conversation of a prompt that is a list of messages.
    fn after_turns(
        &self,
        prompt: &[Value],
        name: &str,
        answer: Vec<Value>,
    ) -> Result<Vec<Value>, Reason> {
        let count = prompt.len();
        if answer
            .get(..count)
            .is_some_and(|first| self.are_same(first, prompt))
        {
            if answer.len() == count {
                return Err(wrong(format!(
                    "has nothing but the messages of \"{}\" in \"{name}\"; add the answer",
                    self.prompt
                )));
            }
            return Ok(answer);
        }
        let first = answer.first();
        let repeats = self.repeats_part(prompt, &answer);
        let asks = |turn: Option<&Value>| turn.is_some_and(|turn| self.asks(turn));
        let twice = asks(prompt.last()) && asks(first);
        let system = first.is_some_and(|turn| self.role_of(turn) == "system");
        if repeats || twice && count > 0 || system {
            let how = if repeats {
                "repeats a part of it"
            } else {
                "does not begin with the answer"
            };
            return Err(wrong(format!(
                "has messages in \"{}\", and \"{name}\" neither begins with all of them nor goes on after them: it {how}; \
                 write whole conversations or answers, or name another field in chat.prompt",
                self.prompt
            )));
        }
        Ok(prompt.iter().cloned().chain(answer).collect())
    }

    fn role_of(&self, turn: &Value) -> String {
        let role = field(turn, &self.mapping.role_key)
            .and_then(|role| Some(role.as_str()?.to_owned()))
            .unwrap_or_default();
        self.mapping.roles.get(&role).cloned().unwrap_or(role)
    }

    /// Returns whether the message is one that answers follow.
    fn asks(&self, turn: &Value) -> bool {
        matches!(self.role_of(turn).as_str(), "user" | "system" | "developer")
    }

    fn text_of(&self, turn: &Value) -> String {
        let content = field(turn, &self.mapping.content_key).unwrap_or_default();
        if let Some(text) = content.as_str() {
            return text.to_owned();
        }
        let parts = content.try_iter().into_iter().flatten();
        let texts = parts.filter_map(|part| Some(field(&part, "text")?.as_str()?.to_owned()));
        texts.collect()
    }

    /// Returns whether two messages are the same, whatever they say about the loss.
    fn is_same(&self, a: &Value, b: &Value) -> bool {
        let plain = |turn: &Value| -> Vec<(String, Value)> {
            let keys = turn.try_iter().into_iter().flatten();
            let fields = keys.filter_map(|key| {
                let value = turn.get_item(&key).ok()?;
                let key = key.as_str()?.to_owned();
                let says = !value.is_none() && !self.mapping.loss.is_about_loss(&key);
                let value = if key == self.mapping.role_key {
                    Value::from(self.role_of(turn))
                } else {
                    value
                };
                says.then_some((key, value))
            });
            let mut fields: Vec<(String, Value)> = fields.collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            fields
        };
        plain(a) == plain(b)
    }
}
