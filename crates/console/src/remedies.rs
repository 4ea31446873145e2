//! Commands in messages, which run as they are printed.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Verbs that work without a stream.
const WITHOUT_STORE: [&str; 6] = ["run", "demo", "dev-s3", "plan", "completions", "bench"];
const COMMAND: &str = "`batchweave ";

/// Returns `text`, whose commands about a stream name `store`, the one that the command line named.
pub(crate) fn runnable(text: &str, store: Option<&str>) -> String {
    let Some(store) = store else {
        return text.to_owned();
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/:._-+=@%,".contains(c);
    let store = if store.chars().all(plain) {
        store.to_owned()
    } else {
        format!("'{}'", store.replace('\'', "'\\''"))
    };
    let mut parts = text.split(COMMAND);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        whole += COMMAND;
        let Some((command, rest)) = part.split_once('`') else {
            whole += part;
            continue;
        };
        let verb = command.split_whitespace().next().unwrap_or_default();
        whole += command;
        let whole_line = command.contains("--store") || command.ends_with("--help");
        if !WITHOUT_STORE.contains(&verb) && !whole_line {
            whole.extend([" --store ", &store]);
        }
        whole += "`";
        whole += rest;
    }
    whole
}

/// Words of parsers about numbers, and those of a command line.
const NUMBERS: [(&str, &str); 4] = [
    (
        "invalid digit found in string",
        "expected a whole number from 0",
    ),
    (
        "cannot parse integer from empty string",
        "expected a whole number from 0",
    ),
    (
        "number too large to fit in target type",
        "the number is too large",
    ),
    ("invalid float literal", "expected a number"),
];

/// Returns the text of a wrong command line where the parser's own lacks a remedy.
pub(crate) fn reworded(error: &clap::Error) -> Option<String> {
    let text = error.render().to_string();
    if let Some((theirs, ours)) = NUMBERS.iter().find(|(theirs, _)| text.contains(theirs)) {
        return Some(text.replace(theirs, ours));
    }
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let place = found.contains("://") || found.starts_with('/');
    if error.kind() != ErrorKind::UnknownArgument || !place {
        return None;
    }
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    Some(format!(
        "{first}\n\n  tip: the stream's root is an option: --store {found}\n{rest}"
    ))
}

#[cfg(test)]
mod tests {
    use super::runnable;

    #[test]
    fn commands_get_the_store_that_was_named() {
        let text =
            "job a is open; run `batchweave job close a --reason TEXT`, or `batchweave run FILE`";
        assert_eq!(runnable(text, None), text);
        assert_eq!(
            runnable(text, Some("s3://b/x")),
            "job a is open; run `batchweave job close a --reason TEXT --store s3://b/x`, or `batchweave run FILE`"
        );
        assert_eq!(
            runnable("see `batchweave log`", Some("/my data")),
            "see `batchweave log --store '/my data'`"
        );
        let plain = "a `key` and `batchweave log --store x`";
        assert_eq!(runnable(plain, Some("y")), plain);
    }
}
