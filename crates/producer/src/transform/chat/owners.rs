//! The messages whose text each generation block of a template holds.
//!
//! A template says where a block begins and ends, and not of which message it is. So a copy of the conversation is
//! rendered whose texts carry the number of their message, in characters that no text has. When the copy is the same
//! text without these characters, each block holds the messages whose numbers are in it.

use std::collections::BTreeSet;
use std::ops::Range;

use minijinja::Value;
use minijinja::value::ValueKind;

use super::learned::Learned;
use super::rendered::{Rendered, unmark};
use super::special_tokens::{DEPTH_MAX, GENERATION_BEGINS, GENERATION_ENDS};
use super::wrong::wrong;
use crate::sources::Reason;

/// The two digits of a message's number.
const DIGITS: [char; 2] = ['\u{10fff9}', '\u{10fffa}'];
/// Digits of a number: enough for all messages that a template has the time to render.
const NUMBER_DIGITS: usize = 20;
/// Fields of a message with a text of its own.
const TEXTS: [&str; 4] = ["content", "reasoning_content", "reasoning", "thinking"];

/// Returns the text of a marked rendering, with the ranges of the blocks that are learned. `render` renders turns with
/// marks.
pub(super) fn learned_blocks(
    whole: &str,
    turns: &[Value],
    learned: &Learned,
    render: impl Fn(&[Value]) -> Result<String, Reason>,
) -> Result<Rendered, Reason> {
    let (text, blocks) = unmark(whole)?;
    let owners = owners(whole, turns, render)?;
    let assistants: Vec<usize> = (0..turns.len())
        .filter(|n| role(&turns[*n]) == "assistant")
        .collect();
    let mut kept: Vec<Range<usize>> = Vec::new();
    for (n, block) in blocks.into_iter().enumerate() {
        let held = holders(n, &owners, &assistants);
        let mut wanted = held.iter().map(|n| learned.blocks.get(*n) == Some(&true));
        let first = wanted.next().unwrap_or(false);
        if wanted.any(|other| other != first) {
            return Err(unknown(n, &held));
        }
        if first {
            kept.push(block);
        }
    }
    let of_role = |n: usize| learned.roles.iter().any(|own| role(&turns[n]) == *own);
    let unmarked = (0..turns.len()).find(|n| {
        learned.messages.get(*n) == Some(&true)
            && of_role(*n)
            && !owners.iter().any(|held| held.contains(n))
    });
    if let Some(n) = unmarked {
        return Err(wrong(format!(
            "has message {} of the role {:?}, which chat.learn names, and no {{% generation %}} block of the template \
             holds it; take the role out of chat.learn, or use a template without these blocks",
            n + 1,
            role(&turns[n])
        )));
    }
    Ok((text, kept))
}

fn role(turn: &Value) -> String {
    let role = turn.get_attr("role").unwrap_or_default();
    role.as_str().unwrap_or_default().to_owned()
}

fn unknown(block: usize, held: &BTreeSet<usize>) -> Reason {
    let numbers: Vec<String> = held.iter().map(|n| (n + 1).to_string()).collect();
    wrong(format!(
        "has messages that are learned and others that are not, and generation block {} of the template may hold text \
         of the messages {}; learn all of them, or write a template with a block for each message",
        block + 1,
        numbers.join(", ")
    ))
}

/// Returns the messages that block `n` may hold: those found in it, or the assistant's between the blocks around it.
fn holders(n: usize, owners: &[BTreeSet<usize>], assistants: &[usize]) -> BTreeSet<usize> {
    if !owners[n].is_empty() {
        return owners[n].clone();
    }
    let before = owners[..n].iter().rev().find_map(BTreeSet::last);
    let after = owners[n + 1..].iter().find_map(BTreeSet::first);
    let between = assistants.iter().filter(|assistant| {
        before.is_none_or(|before| before <= assistant)
            && after.is_none_or(|after| *assistant <= after)
    });
    between.chain(before).chain(after).copied().collect()
}

/// Returns the messages that each block of `whole` holds, as far as a numbered copy tells.
fn owners(
    whole: &str,
    turns: &[Value],
    render: impl Fn(&[Value]) -> Result<String, Reason>,
) -> Result<Vec<BTreeSet<usize>>, Reason> {
    // Numbers in calls and thoughts tell more, and break more templates.
    for all in [true, false] {
        let numbered = turns.iter().enumerate();
        let numbered: Vec<Value> = numbered
            .map(|(n, turn)| number_turn(turn, n, all))
            .collect();
        let owners = render(&numbered).ok().and_then(|text| found(&text, whole));
        if let Some(owners) = owners {
            return Ok(owners);
        }
    }
    Err(wrong(
        "has messages that are learned and others that are not, and the template's generation blocks do not tell which \
         message they hold; use a template that writes the texts of messages as they are",
    ))
}

/// Returns the numbers in each block of `text`; `None` when it is not `whole` with numbers in it.
fn found(text: &str, whole: &str) -> Option<Vec<BTreeSet<usize>>> {
    let mut plain = String::with_capacity(whole.len());
    let mut owners = Vec::new();
    let mut open: Option<BTreeSet<usize>> = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if let Some(first) = digit(c) {
            let mut number = first;
            for _ in 1..NUMBER_DIGITS {
                number = 2 * number + digit(chars.next()?)?;
            }
            if let Some(open) = &mut open {
                open.insert(number);
            }
            continue;
        }
        match c {
            GENERATION_BEGINS => open = Some(BTreeSet::new()),
            GENERATION_ENDS => owners.extend(open.take()),
            _ => {}
        }
        plain.push(c);
    }
    (plain == whole).then_some(owners)
}

fn digit(c: char) -> Option<usize> {
    DIGITS.iter().position(|digit| *digit == c)
}

/// Returns the message with its number in its texts.
fn number_turn(turn: &Value, n: usize, all: bool) -> Value {
    let field = |name: &str, item: Value| match name {
        "tool_calls" if all => number_below(&item, n, DEPTH_MAX),
        "content" if item.kind() == ValueKind::Seq => {
            let parts = item.try_iter().into_iter().flatten();
            let numbered = parts.map(|part| match part.kind() {
                ValueKind::Map => with_fields(&part, |name, item| match name {
                    "text" => number_text(&item, n),
                    _ => item,
                }),
                _ => number_text(&part, n),
            });
            numbered.collect::<Value>()
        }
        "content" => number_text(&item, n),
        name if all && TEXTS.contains(&name) => number_text(&item, n),
        _ => item,
    };
    with_fields(turn, field)
}

/// Returns the map with other values of its fields.
fn with_fields(map: &Value, field: impl Fn(&str, Value) -> Value) -> Value {
    if map.kind() != ValueKind::Map {
        return map.clone();
    }
    let keys = map.try_iter().into_iter().flatten();
    let pairs = keys.map(|key| {
        let item = map.get_item(&key).unwrap_or_default();
        let item = match key.as_str() {
            Some(name) => field(name, item),
            None => item,
        };
        (key, item)
    });
    pairs.collect()
}

/// Returns the value with a number in each of its texts other than names of kinds.
fn number_below(value: &Value, n: usize, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else {
        return value.clone();
    };
    match value.kind() {
        ValueKind::Map => with_fields(value, |name, item| match name {
            "type" | "id" | "index" => item,
            _ => number_below(&item, n, depth),
        }),
        ValueKind::Seq => {
            let items = value.try_iter().into_iter().flatten();
            items.map(|item| number_below(&item, n, depth)).collect()
        }
        _ => number_text(value, n),
    }
}

/// Returns the text with a number after its last letter or digit outside of `<...>`, where templates do not look.
fn number_text(value: &Value, n: usize) -> Value {
    let Some(text) = value.as_str() else {
        return value.clone();
    };
    let mut inside = false;
    for (at, c) in text.char_indices().rev() {
        match c {
            '>' => inside = true,
            '<' => inside = false,
            c if c.is_alphanumeric() && !inside => {
                let (before, after) = text.split_at(at + c.len_utf8());
                let digits = (0..NUMBER_DIGITS).rev().map(|bit| DIGITS[n >> bit & 1]);
                let number: String = digits.collect();
                return Value::from(format!("{before}{number}{after}"));
            }
            _ => {}
        }
    }
    value.clone()
}
