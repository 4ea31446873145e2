//! Units that are documents, and every reason why one is not.

use super::*;

fn text(kind: UnitKind, first: bool, raw: &[u8]) -> Result<Option<String>, Reason> {
    decode(kind, "text", first, raw, str::to_owned)
}

/// Returns what the fast path makes of `line`.
fn fast(line: &[u8]) -> Option<String> {
    let mut out = vec![b'x'; 5];
    quick::field(line, "text", &mut out).map(str::to_owned)
}

fn json(line: &str) -> Result<Option<String>, Reason> {
    text(UnitKind::Json, true, line.as_bytes())
}

fn good(line: &str) -> String {
    json(line).unwrap().unwrap()
}

fn bad(line: &str) -> String {
    json(line).unwrap_err().to_string()
}

#[test]
fn good_lines() {
    assert_eq!(good(r#"{"text":"a"}"#), "a");
    assert_eq!(
        good(r#"  {"id":7,"meta":{"text":["x"]},"text":"a\n\"b\" \u00e9","z":null} "#),
        "a\n\"b\" é"
    );
    assert_eq!(good(r#"{"text":"first","text":"last"}"#), "last");
    assert_eq!(good("{\"\\u0074ext\":\"escaped key\"}"), "escaped key");
    assert_eq!(good("\u{feff}{\"text\":\"bom\"}"), "bom");
    assert_eq!(json("").unwrap(), None);
    assert_eq!(json(" \t\r").unwrap(), None);
}

#[test]
fn bad_lines_name_the_reason_and_the_remedy() {
    let table = [
        (r#"{"text":"a"#, "broken JSON at column"),
        (r#"{"text":"a"} x"#, "broken JSON at column"),
        (r#"{"text":"\ud800"}"#, "broken JSON at column"),
        (r#"{"body":"a"}"#, "no field \"text\""),
        (r#"{"text":7}"#, "field \"text\" is a number"),
        (r#"{"text":-7}"#, "field \"text\" is a number"),
        (r#"{"text":null}"#, "field \"text\" is null"),
        (r#"{"text":true}"#, "field \"text\" is a boolean"),
        (r#"{"text":["a"]}"#, "field \"text\" is an array"),
        (r#"{"text":{"a":1}}"#, "field \"text\" is an object"),
        (r#"["text"]"#, "the line is an array"),
        (r#""text""#, "the line is a string"),
        ("1.5", "the line is a number"),
        ("null", "the line is null"),
        ("true", "the line is a boolean"),
        (r#"{"text":""}"#, "the document is empty"),
    ];
    for (line, expected) in table {
        let message = bad(line);
        assert!(message.starts_with(expected), "{line}: {message}");
        assert!(message.contains("; "), "no remedy: {message}");
        assert!(!message.contains("at line"), "{message}");
    }
}

#[test]
fn invalid_utf8_gives_its_offset() {
    let raw = b"{\"text\":\"ab\xff\"}";
    let why = text(UnitKind::Json, false, raw).unwrap_err();
    assert_eq!(why, Reason::InvalidUtf8 { at: 11 });
    let why = text(UnitKind::Text, false, &[0xc3]).unwrap_err();
    assert_eq!(why, Reason::InvalidUtf8 { at: 0 });
}

#[test]
fn text_keeps_its_whitespace_and_lines_pass_over_blank_ones() {
    let kept = text(UnitKind::Text, true, b" \n").unwrap();
    assert_eq!(kept.as_deref(), Some(" \n"));
    assert_eq!(text(UnitKind::Line, true, b" ").unwrap(), None);
    assert_eq!(text(UnitKind::Text, true, b"").unwrap_err(), Reason::Empty);
    assert_eq!(text(UnitKind::Row, true, b"").unwrap_err(), Reason::Empty);
}

proptest::proptest! {
    #[test]
    fn never_panics_and_agrees_with_serde_json(line in "\\{(\"text\":)?[\\x00-\\x7f]{0,20}\\}?|.{0,30}") {
        let value: Result<serde_json::Value, _> = serde_json::from_str(&line);
        match json(&line) {
            Ok(Some(text)) => match value {
                Ok(value) => assert_eq!(value["text"].as_str(), Some(text.as_str())),
                Err(why) => assert!(line.contains("\\u"), "{line}: {why}"),
            },
            Ok(None) => assert!(line.trim_start_matches('\u{feff}').trim().is_empty()),
            Err(Reason::BrokenJson { .. }) => assert!(value.is_err(), "{line}"),
            // Half a surrogate pair in another field is ignored.
            Err(_) => assert!(
                value.is_ok() || line.starts_with('\u{feff}') || line.contains("\\u"),
                "{line}"
            ),
        }
    }

    /// Objects with fields in any order and repeated, escapes, and values of all kinds.
    #[test]
    fn the_fast_path_agrees_with_the_parser(
        fields in proptest::collection::vec(
            "[ \t]?\"(text|a|t\\\\u0065xt)\"[ ]?:[ ]?(\"([a-zé中\x01 ]|\\\\[nt\"/\\\\xbf]|\\\\u[0-9dD][0-9a-f]{2}[0-9]){0,6}\"|-?[0-9.e]{1,4}|null|tru|true|\\{\"b\":\\[1,\\{\\}\\]\\}|\\[\\])[ ]?",
            0..4,
        ),
        end in "[ ]?|,|x",
    ) {
        let line = format!("{{{}}}{end}", fields.join(","));
        if let Some(text) = fast(line.as_bytes()) {
            assert_eq!(parsed_field(&line, "text"), Ok(text), "{line}");
        }
    }
}

/// Returns what the parser alone makes of `line`, a line of JSONL.
fn by_parser(line: &[u8]) -> Result<Option<String>, Reason> {
    let object = line.strip_prefix(BOM).unwrap_or(line);
    if object.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    match parsed_field(utf8(object)?, "text")? {
        text if text.is_empty() => Err(Reason::Empty),
        text => Ok(Some(text)),
    }
}

/// Pieces of lines, whole and broken, that are joined in any order.
const PIECES: [&[u8]; 44] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\"",
    b"\\",
    b"\\\\",
    b"\\\"",
    b" ",
    b"\t",
    b"\r",
    b"\n",
    b"\x0b",
    b"\0",
    b"\x1f",
    b"\x7f",
    b"text",
    b"\"text\":\"",
    b"{\"text\":\"",
    b"\"}",
    b"\",\"id\":7",
    b"\"a\":{\"text\":[1,\"x\"]},",
    b"\\n",
    b"\\u00e9",
    b"\\ud83d\\ude00",
    b"\\ud800",
    b"\\udc00",
    b"\\u12",
    b"\\x",
    b"\\/",
    b"null",
    b"-0.5e3",
    b"tru",
    b"\xc3",
    b"\xa9",
    b"\xc3\xa9",
    b"\xf0\x9f\x98\x80",
    b"\xed\xa0\x80",
    b"\xff",
    BOM,
    b"abcdefghijklmnopqrstuvwxyz",
    b"sixteen bytes it",
];

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4096))]

    /// Any bytes behind a usual beginning, which most of them break somewhere.
    #[test]
    fn hostile_lines_give_what_the_parser_gives(
        usual in proptest::bool::ANY,
        pieces in proptest::collection::vec(0..PIECES.len(), 0..24),
        end in 0..4usize,
    ) {
        let mut line = if usual { b"{\"text\":\"".to_vec() } else { Vec::new() };
        for piece in pieces {
            line.extend_from_slice(PIECES[piece]);
        }
        line.extend_from_slice([&b"\"}"[..], b"\",\"id\":1}", b"", b"\"} \r"][end]);
        assert_eq!(text(UnitKind::Json, true, &line), by_parser(&line), "{}", line.escape_ascii());
    }

    /// Each offset in a block, and each length, of a byte that ends a stretch.
    #[test]
    fn a_special_byte_is_found_wherever_it_is(
        plain in "[a-zé中]{0,40}",
        special in 0..=u8::MAX,
        behind in "[a-z\"]{0,20}",
    ) {
        let line = [b"{\"text\":\"".as_slice(), plain.as_bytes(), &[special], behind.as_bytes(), b"\"}"].concat();
        assert_eq!(text(UnitKind::Json, true, &line), by_parser(&line), "{}", line.escape_ascii());
    }
}

#[test]
fn a_huge_line_and_the_short_ones_around_it_are_read() {
    let huge = "long \"text\" 中\n".repeat(200_000);
    for text in ["a\\b", &huge, "c"] {
        let line = serde_json::json!({ "id": 1, "text": text }).to_string();
        assert_eq!(fast(line.as_bytes()).as_deref(), Some(text));
        assert!(good(&line) == text);
    }
}

#[test]
fn half_a_surrogate_pair_in_another_field_is_ignored() {
    let line = r#"{"a":"\ud8ab","text":"b"}"#;
    assert_eq!(fast(line.as_bytes()).as_deref(), Some("b"));
    assert_eq!(parsed_field(line, "text").as_deref(), Ok("b"));
}

/// Each copy would reserve the rest of the line.
#[test]
fn a_repeated_field_is_left_to_the_parser() {
    let line = r#"{"text":"old","text":"new"}"#;
    assert_eq!(fast(line.as_bytes()), None);
    assert_eq!(parsed_field(line, "text").as_deref(), Ok("new"));
}

#[test]
fn usual_lines_take_the_fast_path() {
    for (line, text) in [
        (r#"{"text":"a"}"#, "a"),
        (
            r#" { "id" : 7.5, "text" : "é\n\"\u00e9\\" , "meta":{"k":[1,null]} } "#,
            "é\n\"é\\",
        ),
        (r#"{"text":""}"#, ""),
    ] {
        assert_eq!(fast(line.as_bytes()).as_deref(), Some(text), "{line}");
    }
}
