//! The messages of a conversation that are learned: those of `chat.learn`, without the ones whose own key says 0.
//!
//! Programs name that key differently, and some give it another meaning. A key that this module does not read is an
//! error, not a guess, as long as the configuration does not say what it means.

mod beside;

use std::fmt;

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::dialect::Dialect;
use crate::sources::Reason;

pub(crate) use beside::fields_beside;

/// The keys of a message with 1 when it is learned and 0 when not: those of OpenAI and Mistral, ms-swift and xtuner, and
/// axolotl.
pub(crate) const KEYS: [&str; 5] = ["weight", "loss", "train", "training", "train_on_turn"];
/// Parts of names by which programs say what is learned.
const WORDS: [&str; 26] = [
    "loss",
    "losses",
    "mask",
    "masks",
    "masked",
    "masking",
    "unmasked",
    "train",
    "trained",
    "trains",
    "training",
    "trainable",
    "untrainable",
    "untrained",
    "weight",
    "weights",
    "weighted",
    "learn",
    "learned",
    "learnable",
    "learning",
    "supervise",
    "supervised",
    "supervision",
    "backprop",
    "gradient",
];
/// The messages that are learned, by the setting `chat.learn`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Learn {
    /// Each message of the assistant.
    #[default]
    All,
    /// The last message of the assistant alone.
    Last,
    /// The messages of these roles, as the template names them.
    Roles(Vec<String>),
}

const FORM: &str = "\"all\", \"last\" or a list of roles, as [\"assistant\", \"tool\"]";

impl<'de> Deserialize<'de> for Learn {
    fn deserialize<D: Deserializer<'de>>(parser: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Learn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FORM)
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Learn, E> {
                match word {
                    "all" => Ok(Learn::All),
                    "last" => Ok(Learn::Last),
                    other => Err(E::custom(format!(
                        "invalid value {other:?}: expected {FORM}"
                    ))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Learn, A::Error> {
                let mut roles = Vec::new();
                while let Some(role) = seq.next_element()? {
                    roles.push(role);
                }
                Ok(Learn::Roles(roles))
            }
        }
        parser.deserialize_any(Form)
    }
}

impl Serialize for Learn {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => out.serialize_str("all"),
            Self::Last => out.serialize_str("last"),
            Self::Roles(roles) => roles.serialize(out),
        }
    }
}

/// The settings that decide which messages are learned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LossRules {
    pub learn: Learn,
    /// Keys of a message that are read beside the usual ones.
    pub keys: Vec<String>,
    /// Keys that say nothing about the loss.
    pub ignore: Vec<String>,
    /// Fields beside the messages that other settings name.
    pub named: Vec<String>,
}

/// The messages of a conversation that are learned.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Learned {
    /// For each message whether its text is learned.
    pub(super) messages: Vec<bool>,
    /// For each message whether the text of generation blocks in it is learned.
    pub(super) blocks: Vec<bool>,
    /// Roles other than the assistant's that are learned.
    pub(super) roles: Vec<String>,
    /// All messages of the assistant are learned, as without any setting and key.
    pub(super) plain: bool,
}

fn wrong(detail: String) -> Reason {
    Reason::Messages { detail }
}

fn unread(detail: String) -> Reason {
    Reason::LossKey { detail }
}

/// Returns whether a part of the name says that it is about the loss: `step_loss_mask`, `isTrainable`.
fn sounds_like_loss(name: &str) -> bool {
    let mut part = String::new();
    let mut found = false;
    let mut lower = false;
    for c in name.chars().chain(['_']) {
        if !c.is_alphanumeric() || (c.is_uppercase() && lower) {
            found |= WORDS.contains(&part.as_str());
            part.clear();
        }
        if c.is_alphanumeric() {
            part.extend(c.to_lowercase());
        }
        lower = c.is_lowercase();
    }
    found
}

fn shown(value: &Value) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_else(|_| value.to_string());
    text.truncate(text.floor_char_boundary(40));
    text
}

fn role(turn: &Value) -> String {
    let role = turn.get_attr("role").unwrap_or_default();
    role.as_str().unwrap_or_default().to_owned()
}

/// Returns the fields of an object that are not null.
fn fields(value: &Value) -> Vec<(String, Value)> {
    if value.kind() != ValueKind::Map {
        return Vec::new();
    }
    let keys = value.try_iter().into_iter().flatten();
    let fields = keys.filter_map(|key| {
        let item = value.get_item(&key).ok()?;
        Some((key.as_str()?.to_owned(), item))
    });
    fields
        .filter(|(_, item)| !item.is_none() && !item.is_undefined())
        .collect()
}

impl LossRules {
    fn is_read(&self, key: &str) -> bool {
        !self.is_ignored(key) && (KEYS.contains(&key) || self.keys.iter().any(|own| own == key))
    }

    fn is_ignored(&self, key: &str) -> bool {
        self.ignore.iter().any(|own| own == key)
    }

    /// Returns whether the key says at most something about the loss, and nothing to the template.
    pub(super) fn is_about_loss(&self, key: &str) -> bool {
        self.is_ignored(key) || self.is_read(key)
    }

    /// Returns the messages of `turns` that are learned.
    pub(super) fn learned(&self, turns: &[Value], dialect: Dialect) -> Result<Learned, Reason> {
        let mut flags = Vec::with_capacity(turns.len());
        for (n, turn) in turns.iter().enumerate() {
            let flag = self.flag(n + 1, turn);
            flags.push(flag.map_err(|why| changed(why, dialect))?);
        }
        let roles: Vec<String> = turns.iter().map(role).collect();
        let last = roles.iter().rposition(|role| role == "assistant");
        let by_role = |n: usize, role: &str| match &self.learn {
            Learn::All => role == "assistant",
            Learn::Last => Some(n) == last,
            Learn::Roles(all) => all.iter().any(|own| own == role),
        };
        let mut learned = Learned {
            messages: Vec::with_capacity(turns.len()),
            blocks: Vec::with_capacity(turns.len()),
            roles: match &self.learn {
                Learn::Roles(all) => all.iter().filter(|r| *r != "assistant").cloned().collect(),
                Learn::All | Learn::Last => Vec::new(),
            },
            plain: self.learn == Learn::All,
        };
        for (n, (role, flag)) in roles.iter().zip(flags).enumerate() {
            let named = by_role(n, role);
            self.check_flag((n + 1, role), named, flag.as_ref(), dialect)?;
            let off = matches!(flag, Some((_, false)));
            learned.plain &= !off;
            learned.messages.push(named && !off);
            learned
                .blocks
                .push(!off && (self.learn == Learn::All || named));
        }
        Ok(learned)
    }

    /// Fails where the key of message `n` contradicts chat.learn. `named`: the message is learned by its role.
    fn check_flag(
        &self,
        (n, role): (usize, &str),
        named: bool,
        flag: Option<&(String, bool)>,
        dialect: Dialect,
    ) -> Result<(), Reason> {
        match flag {
            Some((key, true)) if !named && self.learn == Learn::All => {
                let why = wrong(format!(
                    "has {key:?} = 1 in message {n} of the role {role:?}, and chat.learn = \"all\" is for the \
                     assistant's messages; name all roles to learn, as chat.learn = [\"assistant\", {role:?}], or only \
                     the assistant there, or leave the key out"
                ));
                Err(changed(why, dialect))
            }
            Some((key, false)) if named => dialect.refuse_if_earlier(|| {
                format!(
                    "the conversation has {key:?} = 0 in message {n}, which is not learned by now, unless \
                     chat.ignore = [{key:?}]"
                )
            }),
            _ => Ok(()),
        }
    }

    /// Returns the key of message `n` that says whether it is learned, and what it says.
    fn flag(&self, n: usize, turn: &Value) -> Result<Flag, Reason> {
        let mut flag: Flag = None;
        for (key, value) in fields(turn) {
            if self.is_read(&key) {
                let says = says(&value).ok_or_else(|| {
                    wrong(format!(
                        "has {key:?} = {} in message {n}, and a loss mask holds only 0 and 1; write 0 or 1, or name the \
                         key in chat.ignore",
                        shown(&value)
                    ))
                })?;
                if let Some((other, before)) = flag.replace((key.clone(), says))
                    && before != says
                {
                    return Err(wrong(format!(
                        "has both {other:?} = {} and {key:?} = {} in message {n}; leave one out, or name it in \
                         chat.ignore",
                        u8::from(before),
                        u8::from(says)
                    )));
                }
            } else if !self.is_ignored(&key) && sounds_like_loss(&key) {
                return Err(unread(format!(
                    "has {key:?} in message {n}, which some programs read as its loss; name it in chat.loss_keys if 1 \
                     means that the message is learned and 0 that it is not, in chat.ignore if it says nothing about \
                     the loss, or write it as \"weight\": 0 or 1"
                )));
            }
        }
        self.check_parts(n, turn)?;
        Ok(flag)
    }

    /// Fails for a part of a message's content with a key about the loss: a mask knows whole messages only.
    fn check_parts(&self, n: usize, turn: &Value) -> Result<(), Reason> {
        let content = turn.get_attr("content").unwrap_or_default();
        if content.kind() != ValueKind::Seq {
            return Ok(());
        }
        for part in content.try_iter().into_iter().flatten() {
            let mut keys = fields(&part).into_iter().map(|(key, _)| key);
            let is_about_loss = |key: &_| self.is_read(key) || sounds_like_loss(key);
            if let Some(key) = keys.find(|key| !self.is_ignored(key) && is_about_loss(key)) {
                return Err(unread(format!(
                    "has {key:?} in a part of message {n}, and only whole messages can be left out of the loss; divide \
                     the message, or name the key in chat.ignore if it says nothing about the loss"
                )));
            }
        }
        Ok(())
    }
}

/// The key that says whether a message is learned, and what it says.
type Flag = Option<(String, bool)>;

/// Returns what the value of such a key says; `None` for anything but 0, 1 and a boolean.
fn says(value: &Value) -> Option<bool> {
    match value.kind() {
        ValueKind::Bool => Some(value.is_true()),
        ValueKind::Number => {
            let number = f64::try_from(value.clone()).ok()?;
            // Neither is a rounded number: both have a form of their own.
            [(0.0_f64, false), (1.0, true)]
                .into_iter()
                .find(|(known, _)| known.total_cmp(&number.abs()).is_eq())
                .map(|(_, says)| says)
                .filter(|says| !says || number > 0.0)
        }
        _ => None,
    }
}

/// Returns the reason; where a producer began before these keys were read, as one that stops it.
fn changed(why: Reason, dialect: Dialect) -> Reason {
    match why {
        Reason::Messages { detail } if dialect.is_earlier() => Reason::Changed {
            detail: format!("the conversation {detail}"),
        },
        why => why,
    }
}

#[cfg(test)]
mod tests;
