//! The messages of the parser of TOML, and what they mean to the author of a file.

const ESCAPE: &str = "a backslash in \"...\" begins an escape; write \\\\ for each, or the text in single quotes, as 'C:\\data'";
/// The sentence for two keys of an inline table without a comma.
pub(super) const TWO_KEYS: &str = "two keys have no comma between them; write { A = 1, B = 2 }";

/// The parser's messages about a value that is not in quotes.
pub(super) const BARE_VALUE: &[&str] = &[
    "string values must be quoted",
    "invalid boolean",
    "invalid float",
    "invalid mantissa",
    "invalid fraction",
    "invalid exponent",
    "missing value",
    "redundant numeric sign",
    "unexpected leading zero",
    "unexpected sign",
    "`_` may only go between digits",
    "radix must be lowercase",
];

/// The parser's messages about a line that is not KEY = VALUE.
pub(super) const NO_ASSIGNMENT: &[&str] = &[
    "key with no value",
    "missing value for key",
    "invalid unquoted key",
    "invalid key-value pair",
    "missing key for inline table element",
    "invalid inline table element",
    "missing assignment between key-value pairs",
];

/// The sentences for the parser's messages that mean the same wherever they are.
const SENTENCES: &[(&str, &str)] = &[
    ("extra `=`", "one `=` is enough between key and value"),
    (
        "extra assignment between key-value pairs",
        "one `=` is enough between key and value",
    ),
    (
        "invalid basic string",
        "the text has no closing quote (\"); write it at the text's end, on the same line",
    ),
    (
        "invalid literal string",
        "the text has no closing single quote ('); write it at the text's end, on the same line",
    ),
    (
        "invalid multi-line basic string",
        "the text has no closing \"\"\"; write it at the text's end",
    ),
    (
        "invalid multi-line literal string",
        "the text has no closing '''; write it at the text's end",
    ),
    ("missing escaped value", ESCAPE),
    ("too few unicode value digits", ESCAPE),
    (
        "unclosed array",
        "the list has no closing ]; write it behind the last item",
    ),
    (
        "unclosed inline table",
        "the table has no closing }; write it behind the last value",
    ),
    (
        "unclosed table",
        "the table's name has no closing ]; write it as [NAME]",
    ),
    (
        "unclosed array table",
        "the name has no closing ]]; write it as [[NAME]]",
    ),
    (
        "missing comma between array elements",
        "two items of the list have no comma between them; write [A, B]",
    ),
    ("missing comma between key-value pairs", TWO_KEYS),
    (
        "extra comma in array",
        "a comma has no value before it; remove the comma, or write the value",
    ),
    (
        "extra comma in inline table",
        "a comma has no KEY = VALUE before it; remove the comma, or write what is missing",
    ),
    (
        "unexpected `=` in array",
        "a list has values only; write keys with values in braces, as [{ KEY = VALUE }]",
    ),
];

/// Returns the sentence for a message of the parser; for one without, the message itself and the forms of a line.
pub(super) fn sentence(what: &str) -> String {
    match SENTENCES.iter().find(|(message, _)| *message == what) {
        Some((_, sentence)) => (*sentence).to_owned(),
        None if what.contains("escape") || what.contains("unicode") => ESCAPE.to_owned(),
        None => format!("{what}; a line is KEY = VALUE, [TABLE] or a comment that begins with #"),
    }
}
