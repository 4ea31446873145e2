//! Layouts of pairs, what is learned of them, and pairs that are wrong.

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
        row_key: "stream.seq_len",
        row: "a row of a pair",
    }
}

/// Returns text and learned text of both answers.
fn pair(line: &str) -> Result<[(String, String); 2], String> {
    let made = chat(TEMPLATE).pair(line.as_bytes(), &fields());
    Ok(texts(made.map_err(|why| why.to_string())?))
}

fn texts(made: Option<Content>) -> [(String, String); 2] {
    let Some(Content::Pair(pair)) = made else {
        panic!("no pair")
    };
    pair.map(|answer| {
        let text = |tokens: Vec<u32>| {
            let bytes = tokens.iter().map(|t| u8::try_from(*t).unwrap()).collect();
            String::from_utf8(bytes).unwrap()
        };
        let both = answer.tokens.iter().zip(&answer.learned);
        let learned = both.filter(|(_, l)| **l).map(|(t, _)| *t).collect();
        (text(answer.tokens), text(learned))
    })
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

const GOLDEN: &str = "{{ bos_token }}{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}\
    <{{ m.role }}>{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls|tojson }}{% endif %}</>{% endfor %}\
    {% if add_generation_prompt %}<assistant>{% endif %}";

/// Returns what the assistant says in a completion, of which the user's turns are not learned.
fn said(completion: &str) -> String {
    let mut said = String::new();
    let mut rest = completion;
    while let Some((own, other)) = rest.split_once("<user>") {
        said.push_str(own);
        rest = other.split_once("<assistant>").unwrap().1;
    }
    said + rest
}

/// `BATCHWEAVE_PAIRS` names another file of `tests/chat/pairs_golden.py`.
#[test]
fn rows_of_all_layouts_are_what_trl_makes_of_them() {
    let own = env!("CARGO_MANIFEST_DIR").to_owned() + "/tests/chat/pairs_golden.jsonl";
    let file = std::env::var("BATCHWEAVE_PAIRS").unwrap_or(own);
    let mut counts = std::collections::BTreeMap::new();
    let chat = chat(GOLDEN);
    let fields = PairFields {
        row_tokens: 1 << 20,
        row_key: "stream.seq_len",
        row: "a row of a pair",
        ..fields()
    };
    for line in std::fs::read_to_string(file).unwrap().lines() {
        let golden: minijinja::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| golden.get_attr(name).unwrap().to_string();
        let row = serde_json::to_vec(&golden.get_attr("row").unwrap()).unwrap();
        let found = match chat.pair(&row, &fields) {
            Ok(made) => texts(made),
            Err(why) => panic!("{why}: {line}"),
        };
        let rows = ["chosen", "rejected"].map(|name| text("prompt") + &text(name));
        let both = rows[0].bytes().zip(rows[1].bytes());
        let shared = both.take_while(|(a, b)| a == b).count();
        for (n, name) in ["chosen", "rejected"].into_iter().enumerate() {
            assert_eq!(found[n].0, rows[n], "{line}");
            let completion = text(name);
            let answer_shared = shared.saturating_sub(text("prompt").len());
            let learned = said(&completion);
            assert_eq!(
                found[n].1.as_bytes(),
                &learned.as_bytes()[answer_shared..],
                "{line}"
            );
        }
        *counts.entry(text("layout")).or_insert(0) += 1;
    }
    println!("equal: {counts:?}");
    assert_eq!(counts.len(), 4, "{counts:?}");
}

#[test]
fn a_prompt_beside_conversations_is_taken_once_or_is_a_contradiction() {
    let user = |text: &str| serde_json::json!({"role": "user", "content": text});
    let answer = |text: &str| serde_json::json!({"role": "assistant", "content": text});
    let system = serde_json::json!({"role": "system", "content": "s"});
    let whole = |first: &serde_json::Value, text: &str| serde_json::json!([first, answer(text)]);
    let row = |prompt: serde_json::Value, first: &serde_json::Value| serde_json::json!({"prompt": prompt, "chosen": whole(first, "yes"), "rejected": whole(first, "no")});
    let once = "[user] q\n[assistant] yes\n";
    let marked = serde_json::json!({"role": "user", "content": "q", "weight": 0, "name": null});
    let goes_on = serde_json::json!([system.clone(), user("a"), answer("b")]);
    for (row, expected) in [
        (row("q".into(), &user("q")), Ok(once)),
        (row(" q ".into(), &user("q")), Ok(once)),
        (row("".into(), &user("q")), Ok(once)),
        (row(serde_json::json!([]), &user("q")), Ok(once)),
        (row(serde_json::Value::Null, &user("q")), Ok(once)),
        (row(serde_json::json!([user("q")]), &user("q")), Ok(once)),
        (row(serde_json::json!([marked]), &user("q")), Ok(once)),
        (
            row(
                serde_json::json!([user("q")]).to_string().into(),
                &user("q"),
            ),
            Ok(once),
        ),
        (
            row(goes_on.clone(), &user("q")),
            Ok("[system] s\n[user] a\n[assistant] b\n[user] q\n[assistant] yes\n"),
        ),
        (
            row("other".into(), &user("q")),
            Err("no message before the answer has it"),
        ),
        (
            row(serde_json::json!([user("other")]), &user("q")),
            Err("does not begin with the answer"),
        ),
        (
            row(serde_json::json!([system, user("q")]), &user("q")),
            Err("repeats a part of it"),
        ),
        (
            row(goes_on, &user("a")),
            Ok("[system] s\n[user] a\n[assistant] b\n[user] a\n[assistant] yes\n"),
        ),
        (
            row(serde_json::json!([user("q"), answer("x")]), &user("q")),
            Err("repeats a part of it"),
        ),
    ] {
        check(&row, expected);
    }
}

#[test]
fn answers_without_a_message_of_their_own_or_without_a_prompt_are_contradictions() {
    let user = serde_json::json!({"role": "user", "content": "q"});
    let long = "a question that is long enough to be one";
    for (row, expected) in [
        (
            serde_json::json!({"prompt": long, "chosen": format!("{long} yes"), "rejected": format!("{long} no")}),
            Err("at the beginning of both answers again"),
        ),
        (
            serde_json::json!({"prompt": [user], "chosen": [user], "rejected": "no"}),
            Err("has nothing but the messages of \"prompt\" in \"chosen\""),
        ),
        (
            serde_json::json!({"chosen": "The sky is blue.", "rejected": "The sky is green."}),
            Err("has a text in \"chosen\" and no \"prompt\", so what it answers is unknown"),
        ),
        (
            serde_json::json!({"prompt": "q", "chosen": [], "rejected": "no"}),
            Err("has no message in \"chosen\""),
        ),
    ] {
        check(&row, expected);
    }
}

/// Checks the text of the chosen answer, or a part of the error.
fn check(row: &serde_json::Value, expected: Result<&str, &str>) {
    match (pair(&row.to_string()), expected) {
        (Ok([chosen, _]), Ok(expected)) => assert_eq!(chosen.0, expected, "{row}"),
        (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}, for {row}"),
        (found, _) => panic!("{row}: {found:?}"),
    }
}

/// A producer that began by the first rules goes on with rows that mean the same, and stops at all others.
#[test]
fn an_earlier_producer_stops_where_a_pair_becomes_other_tokens() {
    let template = "{% if tools %}{{ tools|tojson }}{% endif %}".to_owned() + TEMPLATE;
    let user = r#"{"role": "user", "content": "q"}"#;
    let answers = r#""chosen": "yes", "rejected": "no""#;
    for (line, wanted) in [
        (format!(r#"{{"prompt": [{user}], {answers}}}"#), None),
        (
            format!(r#"{{"prompt": "q", "tools": [{{"a": 1, "b": 2}}], {answers}}}"#),
            None,
        ),
        (
            format!(r#"{{"prompt": "q", "tools": [{{"b": 1, "a": 2}}], {answers}}}"#),
            Some("objects keep the order of their fields"),
        ),
        (
            format!(
                r#"{{"prompt": "q", "chosen": [{user}, {{"role": "assistant", "content": "y"}}], "rejected": "no"}}"#
            ),
            Some("because its prompt is taken once"),
        ),
        (
            format!("{{{answers}}}"),
            Some("is a bad one by now: the conversation has a text in"),
        ),
    ] {
        let chat = super::super::tests::chat(&template);
        chat.continue_in(super::super::Dialect::First);
        match (chat.pair(line.as_bytes(), &fields()), wanted) {
            (Ok(Some(_)), None) => {}
            (Err(Reason::Changed { detail }), Some(wanted)) => {
                assert!(detail.contains(wanted), "{detail}");
            }
            (found, _) => panic!("{line}: {found:?}"),
        }
    }
}

#[test]
fn each_wrong_pair_is_named() {
    let long = "x".repeat(90);
    let long = format!(r#"{{"prompt": "", "chosen": "{long}", "rejected": "y"}}"#);
    let cases = [
        (
            r#"{"prompt": "a", "chosen": "b"}"#,
            "no field \"rejected\", only prompt, chosen; name",
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
            "with \"chosen\" has 111 tokens, and a row of a pair holds 1 to 80",
        ),
    ];
    for (line, expected) in cases {
        let why = pair(line).unwrap_err();
        assert!(why.contains(expected), "{expected} in {why}");
    }
    assert!(chat(TEMPLATE).pair(b"  ", &fields()).unwrap().is_none());
}
