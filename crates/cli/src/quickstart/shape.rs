//! The shape of a batch by the amount of data: small data make small batches, so that there are some steps.

use batchweave_daemon::survey::FileGroup;
use serde_json::Value;

use super::choose::{Choice, Content};
use super::fields::{ids, messages};

/// Slices, rows per slice and tokens per row, from the largest batch on.
const SHAPES: [(u32, u32, u32); 8] = [
    (8, 8, 2048),
    (8, 4, 1024),
    (4, 4, 512),
    (4, 2, 256),
    (4, 2, 128),
    (2, 2, 64),
    (2, 1, 32),
    (1, 1, 16),
];
/// Slices and rows per slice where whole documents decide the length of a row.
const WHOLE: [(u32, u32); 5] = [(8, 8), (8, 2), (4, 2), (2, 2), (1, 2)];
/// Rows of whole documents have at least and at most this number of tokens.
const WHOLE_LENGTHS: [u32; 6] = [256, 512, 1024, 2048, 4096, 8192];
/// Steps that the data should make.
const STEPS: f64 = 40.0;
/// Data for fewer steps are padded to whole batches, since dropping the last one would lose much of them.
const STEPS_DROPPED: f64 = 100.0;
/// Bytes of text per token, about.
const BYTES_PER_TOKEN: f64 = 4.0;
/// Tokens that a template adds to a message, about.
const TOKENS_PER_MESSAGE: f64 = 8.0;
/// The room that rows of whole documents leave for longer ones than the longest sampled.
const ROOM: f64 = 1.5;

/// The shape of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    pub(super) slices: u32,
    pub(super) rows: u32,
    pub(super) seq_len: u32,
    /// The estimated number of tokens in all documents.
    pub(super) tokens: f64,
    /// The last batch is filled up with padding.
    pub(super) pads: bool,
}

impl Shape {
    /// Returns the shape for the chosen documents of `group`.
    pub(super) fn for_choice(choice: &Choice, group: &FileGroup) -> Self {
        let lengths: Vec<f64> = (group.documents.iter())
            .map(|document| tokens(document, &choice.content))
            .collect();
        let sampled: f64 = lengths.iter().sum();
        let mean = sampled / lengths.len().max(1) as f64;
        let mut tokens = mean * group.estimated;
        let longest = lengths.iter().copied().fold(0.0, f64::max);
        let (slices, rows, seq_len) = if is_whole(&choice.content) {
            let seq_len = whole_length(longest);
            if choice.content == Content::Pairs {
                // A pair takes two rows, whatever its length.
                tokens = 2.0 * f64::from(seq_len) * group.estimated;
            }
            whole(tokens, seq_len)
        } else {
            let fits = |(slices, rows, seq_len): &&(u32, u32, u32)| {
                tokens >= STEPS * f64::from(slices * rows * seq_len)
            };
            let last = SHAPES[SHAPES.len() - 1];
            SHAPES.iter().find(fits).copied().unwrap_or(last)
        };
        let steps = tokens / f64::from(slices * rows * seq_len);
        Self {
            slices,
            rows,
            seq_len,
            tokens,
            pads: is_whole(&choice.content) || steps < STEPS_DROPPED,
        }
    }

    /// Returns the tokens of a batch.
    pub(super) fn batch(&self) -> u32 {
        self.slices * self.rows * self.seq_len
    }
}

/// Returns whether rows hold whole documents.
fn is_whole(content: &Content) -> bool {
    content.has_template() || matches!(content, Content::Captions { .. })
}

/// Returns the length of rows in which the longest sampled document has room.
fn whole_length(longest: f64) -> u32 {
    let fits = |length: &&u32| f64::from(**length) >= ROOM * longest;
    let most = WHOLE_LENGTHS[WHOLE_LENGTHS.len() - 1];
    WHOLE_LENGTHS.iter().find(fits).copied().unwrap_or(most)
}

/// Returns the shape for documents that are never cut, in rows of this length.
fn whole(tokens: f64, seq_len: u32) -> (u32, u32, u32) {
    let fits = |(slices, rows): &&(u32, u32)| tokens >= STEPS * f64::from(slices * rows * seq_len);
    let last = WHOLE[WHOLE.len() - 1];
    let (slices, rows) = WHOLE.iter().find(fits).copied().unwrap_or(last);
    (slices, rows, seq_len)
}

/// Returns about the number of tokens of a document.
fn tokens(document: &Value, content: &Content) -> f64 {
    let field = |name: &str| document.get(name).unwrap_or(&Value::Null);
    match content {
        Content::Files { .. } => of_text(document),
        Content::Text { field: name } | Content::Captions { field: name, .. } => {
            let within = name.strip_prefix("json.");
            of_text(within.map_or_else(|| field(name), |key| &field("json")[key]))
        }
        Content::Chat { field: name, .. } => of_messages(field(name)),
        Content::Pairs => {
            let answers = ["chosen", "rejected"].map(|name| of_messages(field(name)));
            of_messages(field("prompt")) + answers[0].max(answers[1])
        }
        Content::Ids { field: name, .. } => ids(field(name)).map_or(0.0, |ids| ids.len() as f64),
    }
}

fn of_text(value: &Value) -> f64 {
    value
        .as_str()
        .map_or(0.0, |text| text.len() as f64 / BYTES_PER_TOKEN)
}

fn of_messages(value: &Value) -> f64 {
    let Some(messages) = messages(value) else {
        return of_text(value);
    };
    let bytes: usize = messages
        .iter()
        .map(|message| Value::from(message.clone()).to_string().len())
        .sum();
    bytes as f64 / BYTES_PER_TOKEN + TOKENS_PER_MESSAGE * messages.len() as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape(content: Content, document: Value, estimated: f64) -> Shape {
        let choice = Choice {
            group: 0,
            content,
            others: Vec::new(),
            missing: (0, 1),
        };
        let group = FileGroup {
            documents: vec![document],
            estimated,
            ..FileGroup::default()
        };
        Shape::for_choice(&choice, &group)
    }

    #[test]
    fn small_data_make_small_batches_and_large_data_large_ones() {
        let of = |documents| {
            let text = Content::Text { field: "t".into() };
            shape(text, json!({"t": "x".repeat(4000)}), documents)
        };
        let large = of(1e6);
        assert_eq!((large.slices, large.rows, large.seq_len), (8, 8, 2048));
        assert!(!large.pads);
        let small = of(200.0);
        assert_eq!(small.batch(), 2048);
        assert!(small.tokens / f64::from(small.batch()) >= STEPS && small.pads);
        let one = shape(Content::Files { by_line: false }, json!("a text"), 1.0);
        assert_eq!((one.batch(), one.pads), (16, true));
    }

    #[test]
    fn each_pair_takes_two_rows() {
        let pair = json!({"chosen": "a good answer", "rejected": "no"});
        let found = shape(Content::Pairs, pair, 40.0);
        assert_eq!((found.slices, found.rows), (1, 2));
        assert!((found.tokens / f64::from(found.batch()) - 40.0).abs() < 1e-9);
    }

    #[test]
    fn a_row_has_room_for_the_longest_conversation() {
        let chat = Content::Chat {
            field: "messages".into(),
            keys: ("role".into(), "content".into()),
            roles: std::collections::BTreeMap::new(),
        };
        let message = json!({"role": "user", "content": "x".repeat(8000)});
        let found = shape(chat, json!({"messages": [message]}), 9.0);
        assert_eq!(found.seq_len, 4096);
        assert!(found.rows.is_multiple_of(2) && found.pads);
    }
}
