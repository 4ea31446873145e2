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
    }
}

/// Returns text and learned text of both answers.
fn pair(line: &str) -> Result<[(String, String); 2], String> {
    let made = chat(TEMPLATE).pair(line.as_bytes(), &fields());
    let Some(Content::Pair(pair)) = made.map_err(|why| why.to_string())? else {
        panic!("no pair")
    };
    Ok(pair.map(|answer| {
        let text = |tokens: Vec<u32>| {
            let bytes = tokens.iter().map(|t| u8::try_from(*t).unwrap()).collect();
            String::from_utf8(bytes).unwrap()
        };
        let both = answer.tokens.iter().zip(&answer.learned);
        let learned = both.filter(|(_, l)| **l).map(|(t, _)| *t).collect();
        (text(answer.tokens), text(learned))
    }))
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

#[test]
fn each_wrong_pair_is_named() {
    let long = "x".repeat(90);
    let long = format!(r#"{{"chosen": "{long}", "rejected": "y"}}"#);
    let cases = [
        (
            r#"{"prompt": "a", "chosen": "b"}"#,
            "no field \"rejected\", only chosen, prompt; name",
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
            "with \"chosen\" has 103 tokens, and a row of a pair holds 1 to 80",
        ),
    ];
    for (line, expected) in cases {
        let why = pair(line).unwrap_err();
        assert!(why.contains(expected), "{expected} in {why}");
    }
    assert!(chat(TEMPLATE).pair(b"  ", &fields()).unwrap().is_none());
}
