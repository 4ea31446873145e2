//! Each form of other languages, and each slip of the pen, has a sentence with what to write instead.

use toml::de::DeTable;

use super::super::Located;
use super::*;

/// The first problem of a text: its line, and its sentence.
fn first(text: &str) -> (usize, String) {
    let (_, errors) = DeTable::parse_recoverable(text);
    let error = errors
        .first()
        .unwrap_or_else(|| panic!("{text} is not refused"));
    let at = error.span().map_or(0, |place| place.start);
    let line = Located::at(text, error.span(), "", String::new()).line;
    (line, explain(error.message(), text, at))
}

#[test]
fn each_slip_has_its_sentence() {
    for (text, expected) in [
        ("a = 70%", "a number has no percent sign; write 70"),
        (
            "a = [{ b = 70%, c = 1 }]",
            "a number has no percent sign; write 70",
        ),
        ("a = True", "True is not a value of TOML; write true"),
        ("a = yes # sure", "yes is not a value of TOML; write true"),
        ("a = off", "off is not a value of TOML; write false"),
        (
            "a = None",
            "None is not a value of TOML; remove the key, which leaves its default",
        ),
        (
            "a = null",
            "null is not a value of TOML; remove the key, which leaves its default",
        ),
        ("a = text", "text needs quotes; write \"text\""),
        ("a = nano", "nano needs quotes; write \"nano\""),
        ("a = s3://b/x", "s3://b/x needs quotes; write \"s3://b/x\""),
        (
            "a = two words # x",
            "two words needs quotes; write \"two words\"",
        ),
        ("a = 64MiB", "64MiB needs quotes; write \"64MiB\""),
        ("a = 5 tokens", "5 tokens needs quotes; write \"5 tokens\""),
        (
            "a = 127.0.0.1:9464",
            "127.0.0.1:9464 needs quotes; write \"127.0.0.1:9464\"",
        ),
        ("a = [x, y]", "x needs quotes; write \"x\""),
        (
            "a = 2k",
            "2k is not a number; write it out, as 2000 or 2048",
        ),
        ("a = 007", "007 is not a number of TOML; write 7"),
        ("a = 1_000_", "1_000_ is not a number of TOML; write 1000"),
        ("a = .5", ".5 is not a number of TOML; write 0.5"),
        ("a = 5.", "5. is not a number of TOML; write 5.0"),
        ("a = +-1", "+-1 needs quotes; write \"+-1\""),
        (
            "a = 1,024",
            "a number has no commas; write its digits alone, or with _ between them",
        ),
        (
            "a = “text”",
            "“text” is in typographic quotes; write \"text\"",
        ),
        (
            "a = ${HOME}",
            "${HOME}: variables of the environment are not replaced in the file; write the value itself",
        ),
        (
            "a =",
            "`a` has no value; write one, as \"text\" in quotes, 1, true or [\"a\", \"b\"], or remove the line",
        ),
        ("a.b: 5", "`a.b:` is not TOML; write a.b = 5"),
        ("t = { a: \"b\" }", "`a:` is not TOML; write a = \"b\""),
        ("a 5", "there is no `=` between key and value; write a = 5"),
        (
            "größe = 1",
            "the key \"größe\" has letters that keys need quotes for; names here are of a-z, 0-9 and _",
        ),
        ("a == 1", "one `=` is enough between key and value"),
        ("a = 1,", "a line has no comma at its end; remove it"),
        ("a = 1;", "a line has no semicolon at its end; remove it"),
        ("a = \"x\" // why", "comments begin with #"),
        ("// why", "comments begin with #"),
        ("; why", "comments begin with #"),
        (
            "a = \"x\", \"y\"",
            "several values are a list in brackets; write KEY = [A, B]",
        ),
        (
            "a = \"x\" b = 2",
            "`b = 2` stands behind a value; write each key in a line of its own",
        ),
        (
            "a = \"say \"hi\"\"",
            "`hi\"\"` stands behind the closing quote; write \\\" for a quote within \"...\", and a comment with #",
        ),
        (
            "[a]]",
            "`]` closes nothing; write [TABLE] for a table, [[LIST]] for a table of a list",
        ),
        (
            "[[a]\nb = 1",
            "the name has no closing ]]; write it as [[NAME]]",
        ),
        (
            "[a\nb = 1",
            "the table's name has no closing ]; write it as [NAME]",
        ),
        (
            "export A=1",
            "a line is KEY = VALUE, without a command before it; write A=1",
        ),
        ("a = 1\n- b", "a list is written as KEY = [A, B]"),
        (
            "a = \"C:\\data\"",
            "a backslash in \"...\" begins an escape; write \\\\ for each, or the text in single quotes, as 'C:\\data'",
        ),
        (
            "a = \"C:\\Users\"",
            "a backslash in \"...\" begins an escape; write \\\\ for each, or the text in single quotes, as 'C:\\data'",
        ),
        (
            "a = \"x",
            "the text has no closing quote (\"); write it at the text's end, on the same line",
        ),
        (
            "a = 'x",
            "the text has no closing single quote ('); write it at the text's end, on the same line",
        ),
        (
            "a = \"\"\"x",
            "the text has no closing \"\"\"; write it at the text's end",
        ),
        (
            "a = [1",
            "the list has no closing ]; write it behind the last item",
        ),
        (
            "a = { b = 1",
            "the table has no closing }; write it behind the last value",
        ),
        (
            "a = [1 2]",
            "two items of the list have no comma between them; write [A, B]",
        ),
        (
            "a = { b = 1 c = 2 }",
            "two keys have no comma between them; write { A = 1, B = 2 }",
        ),
        (
            "a = [\n1\n[b]\nc = 2",
            "the list above has no closing ]; write it behind the last item",
        ),
        (
            "a = 1 2",
            "several values are a list in brackets; write KEY = [A, B]",
        ),
        ("a = dict(b='c')", "a table is written as { KEY = VALUE }"),
        (
            "a = \"x\" [b]",
            "`[b]` stands behind a value; write it in a line of its own",
        ),
        (
            "a = [1,, 2]",
            "a comma has no value before it; remove the comma, or write the value",
        ),
        (
            "a = [, 1]",
            "a comma has no value before it; remove the comma, or write the value",
        ),
        (
            "a = { b = 1,, c = 2 }",
            "a comma has no KEY = VALUE before it; remove the comma, or write what is missing",
        ),
    ] {
        assert_eq!(first(text).1, expected, "{text}");
    }
}

#[test]
fn keys_of_one_table_in_two_places_say_how_to_join_them() {
    for (text, line, part) in [
        (
            "source = { field = \"a\" }\nsource.content = \"ids\"",
            2,
            "`source = {...}` above is a whole table, and `source.content` can't add to it; write all its keys within the braces, or each as source.KEY",
        ),
        (
            "source.content = \"ids\"\nsource = { field = \"a\" }",
            2,
            "`source` has keys above already, and `source = {...}` is a whole table",
        ),
        (
            "source.content = \"ids\"\n[source]\nfield = \"a\"",
            2,
            "the table source has keys above already; write all its keys in one place, below one [source], or each as source.KEY",
        ),
        (
            "[source]\nfield = \"a\"\n[source]\ncontent = \"ids\"",
            3,
            "the table source has keys above already",
        ),
        (
            "source = { field = \"a\" }\n[source]\ncontent = \"ids\"",
            2,
            "the table source has keys above already",
        ),
        (
            "tokenizer = \"gpt2\"\ntokenizer.kind = \"embedded\"",
            2,
            "`tokenizer` has a value above, so `tokenizer.kind` can't be a key of it; write that value as tokenizer.KEY = VALUE too",
        ),
        ("a = 1\na = 2", 2, "duplicate key; remove one of the two"),
    ] {
        let (found, sentence) = first(text);
        assert_eq!(found, line, "{text}: {sentence}");
        assert!(sentence.starts_with(part), "{part} begins {sentence}");
    }
}

#[test]
fn other_languages_are_known_by_their_first_line() {
    for (text, language) in [
        ("# mine\nstore:\n  url: x\n", Some("YAML")),
        ("- name: x\n", Some("YAML")),
        ("---\nstore: x\n", Some("YAML")),
        ("{\"store\": {}}", Some("JSON")),
        ("[{\"store\": {}}]", Some("JSON")),
        ("<?xml version=\"1.0\"?>", Some("XML")),
        ("import os\n", Some("Python")),
        ("[store]\nurl = \"x\"\n", None),
        ("store.url = \"s3://x\"\n", None),
    ] {
        assert_eq!(other_language(text), language, "{text}");
    }
}
