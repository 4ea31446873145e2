//! The number that fences an older instance of a producer is its *term* wherever people read it. Stored
//! fields and identifiers call it `epoch`, a word that elsewhere means a pass over data.

use crate::assert_none;
use crate::files::{of_a_crate, sources};

/// Pages, and the text with which a line of them may speak of an epoch: passes of a trainer, and Spark's.
const OTHER_EPOCHS: [(&str, &str); 5] = [
    ("docs/engines.md", "epoch"),
    ("docs/coming-from/mosaic.md", "in the middle of an epoch"),
    ("docs/when-not.md", "mixture for each epoch"),
    ("docs/when-not.md", "differs in each epoch"),
    // Names of other systems for `source.epochs`.
    ("crates/daemon/src/config/other_names.rs", "num_epochs"),
];

/// Returns whether the text has the word `epoch`, in any case, other than as `{epoch}` or `"epoch"`.
fn says_epoch(text: &str) -> bool {
    let text = text.to_lowercase();
    text.match_indices("epoch").any(|(at, word)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let longer = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let name = matches!((before, after), (Some('{'), Some('}' | ':')))
            || (before == Some('"') && matches!(after, Some('"' | '\\')));
        !longer(before) && !longer(after) && !name
    })
}

/// String literals of Rust, each with the number of the line where it begins.
fn literals(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(at) = rest.find(['"', '\'', '/', '\n']) {
        let (before, from) = rest.split_at(at);
        let raw = before.trim_end_matches('#').ends_with('r');
        let hashes = before.len() - before.trim_end_matches('#').len();
        let length = match from.as_bytes() {
            [b'/', b'/', ..] => from.find('\n').unwrap_or(from.len()),
            [b'\'', b'"', b'\'', ..] => 3,
            [b'\'', b'\\', _, b'\'', ..] => 4,
            [b'"', ..] => {
                let end = if raw {
                    format!("\"{}", "#".repeat(hashes))
                } else {
                    "\"".to_owned()
                };
                let inside = &from[1..];
                let ends = |(at, _): &(usize, &str)| {
                    let escapes = inside[..*at].bytes().rev().take_while(|b| *b == b'\\');
                    raw || escapes.count() % 2 == 0
                };
                let ended = inside.match_indices(&end).find(ends);
                let length = ended.map_or(inside.len(), |(at, _)| at);
                found.push((line, inside[..length].to_owned()));
                line += inside[..length].matches('\n').count();
                (length + 1 + end.len()).min(from.len())
            }
            _ => {
                line += usize::from(from.starts_with('\n'));
                1
            }
        };
        rest = &from[length..];
    }
    found
}

/// Messages of Rust, and fields of log lines. A literal of this word alone is a key of JSON.
fn rust(text: &str) -> Vec<usize> {
    let messages = literals(text).into_iter();
    let spoken = messages.filter(|(_, text)| text != "epoch" && says_epoch(text));
    let field = |line: &str| {
        let line = line.trim();
        let alone = line.starts_with("epoch = ") && line.ends_with(',');
        alone || line.contains("(epoch = ") || line.contains(", epoch = ")
    };
    let lines = text.lines().enumerate();
    let fields = lines.filter(|(_, line)| field(line)).map(|(at, _)| at + 1);
    spoken.map(|(line, _)| line).chain(fields).collect()
}

/// Pages, without what stands between backticks in a line: fields, enums, and keys of commands' JSON.
fn page(text: &str) -> Vec<usize> {
    let spoken = |line: &str| line.split('`').step_by(2).any(says_epoch);
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| spoken(line))
        .map(|(at, _)| at + 1)
        .collect()
}

/// Scripts of pages: headings are strings of one word.
fn script(text: &str) -> Vec<usize> {
    let spoken = |line: &str| line.split('"').skip(1).step_by(2).any(says_epoch);
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| spoken(line))
        .map(|(at, _)| at + 1)
        .collect()
}

#[test]
fn a_producer_has_a_term() {
    let mut found = Vec::new();
    for (name, text) in sources(&["rs", "md", "js", "html"]) {
        let own = of_a_crate(&name);
        let lines = match name.rsplit_once('.') {
            Some((_, "md")) => page(&text),
            Some((_, "rs")) if own => rust(&text),
            Some((_, "js" | "html")) if own => script(&text),
            _ => continue,
        };
        for at in lines {
            let line = text.lines().nth(at - 1).unwrap_or_default();
            let allowed = |(page, words): &(&str, &str)| name == *page && line.contains(words);
            if !OTHER_EPOCHS.iter().any(allowed) {
                found.push(format!("{name}:{at}: {}", line.trim()));
            }
        }
    }
    assert_none("say term, unless it is a pass over data", &found);
}

#[test]
fn the_rule_sees_what_it_is_for() {
    for text in [
        "let e = format!(\"opened epoch {epoch} by {by}\");",
        "let e = \"it was opened again, \\\n as epoch {current}\";",
        "let header = \"PRODUCER|STATE|EPOCH|NEXT SEQ\";",
        "    epoch = producer.epoch(),",
        "tracing::info!(epoch = 1, \"producing\");",
        "let quote = '\"'; fail(\"in epoch {by}\");",
    ] {
        assert_eq!(rust(text).len(), 1, "{text}");
    }
    for text in [
        "// The epoch of \"our epoch\" is stored.",
        "let epoch = format!(\"{producer}/{epoch}\");",
        "let json = r#\"{\"epoch\": 1}\"#; let raised = \"\\\"epoch\\\": 2\";",
        "config(\"source.epochs\", json[\"epoch\"]);",
        "    epoch = epoch.saturating_sub(1);",
    ] {
        assert!(rust(text).is_empty(), "{text}");
    }
    for (text, lines) in [
        ("INFO producing producer=a epoch=1", 1),
        ("| open in epoch *e* | `epoch` |", 1),
        ("    {\"kind\": \"finished\", \"epoch\": 2}", 0),
        ("`{name,epoch}` of `source.epochs`", 0),
    ] {
        assert_eq!(page(text).len(), lines, "{text}");
    }
    assert_eq!(script("grid([\"state\", \"epoch\"], p.epoch)"), [1]);
}
