//! Templates of several families compared with the output of Jinja2, masks, injection, and templates that fail.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use minijinja::Value;

use super::template::Template;
use super::*;
use crate::tokenizer::{Choice, load};

const FAMILIES: [&str; 5] = ["chatml", "headers", "instruct", "marked", "turns"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/chat")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

fn template(source: &str, most: u64) -> TemplateFile {
    let tokens = [("bos_token", "<s>"), ("eos_token", "</s>")]
        .map(|(name, text)| (name.to_owned(), text.to_owned()));
    TemplateFile::for_test(source, BTreeMap::from(tokens), most)
}

/// Returns bytes as tokens, and `<|endoftext|>` as 256.
pub(super) fn chat(source: &str) -> Chat {
    chat_with(source, LossRules::default())
}

pub(super) fn chat_with(source: &str, loss: LossRules) -> Chat {
    let tokenizer = load(&Choice::Bytes).unwrap();
    let template = template(source, 1 << 20);
    let mapping = Mapping {
        loss,
        ..("messages", "tools").into()
    };
    Chat::new(template, tokenizer, mapping, None).unwrap()
}

/// Returns the learned text, spans joined by `|`, and the whole text.
pub(super) fn learned(chat: &Chat, line: &str) -> (String, String) {
    let turns = chat.turns(line.as_bytes()).unwrap().unwrap();
    let Content::Turns(tokens, marks) = turns else {
        panic!("no turns")
    };
    assert_eq!(tokens.len(), marks.len());
    let mut text = Vec::new();
    let mut all = Vec::new();
    let mut before = false;
    for (token, learn) in tokens.iter().zip(marks) {
        let byte = u8::try_from(*token).unwrap_or(b'@');
        all.push(byte);
        if learn && !before && !text.is_empty() {
            text.push(b'|');
        }
        if learn {
            text.push(byte);
        }
        before = learn;
    }
    let string = |bytes| String::from_utf8(bytes).unwrap();
    (string(text), string(all))
}

#[test]
fn five_families_write_what_jinja2_writes() {
    let golden: Vec<BTreeMap<String, String>> = serde_json::from_str(&read("golden.json")).unwrap();
    let conversations = read("conversations.jsonl");
    let mut compared = 0;
    for (line, golden) in conversations.lines().zip(&golden) {
        let row: Value = serde_json::from_str(line).unwrap();
        let messages: Vec<Value> = row
            .get_attr("messages")
            .unwrap()
            .try_iter()
            .unwrap()
            .collect();
        let tools = row.get_attr("tools").unwrap();
        for family in FAMILIES {
            let template = template(&read(&format!("{family}.jinja")), 1 << 20);
            let template = Template::compile(&template).unwrap();
            for ask in [false, true] {
                let expected = &golden[&format!("{family} {ask}")];
                match template.render(&messages, &tools, ask) {
                    Ok(text) => assert_eq!(&text, expected, "{family}: {line}"),
                    Err(reason) => {
                        let message = expected.strip_prefix("error: ").unwrap_or("no failure");
                        let why = reason.to_string();
                        assert!(why.contains(message), "{family}: {why}, not {expected}");
                    }
                }
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 40);
}

#[test]
fn what_the_assistant_says_is_learned() {
    let line = read("conversations.jsonl")
        .lines()
        .nth(1)
        .unwrap()
        .to_owned();
    for (family, expected) in [
        ("chatml", "4<|im_end|>|  Yes.  <|im_end|>"),
        ("headers", "4<|eot_id|>|Yes.<|eot_id|>"),
        ("instruct", " 4</s>| Yes.</s>"),
        ("turns", "4<end_of_turn>|Yes.<end_of_turn>"),
        ("marked", "4<|end|>|  Yes.  <|end|>"),
    ] {
        let chat = chat(&read(&format!("{family}.jinja")));
        assert_eq!(learned(&chat, &line).0, expected, "{family}");
    }
}

#[test]
fn a_template_that_rewrites_earlier_turns_must_say_what_is_learned() {
    let line = read("conversations.jsonl")
        .lines()
        .nth(2)
        .unwrap()
        .to_owned();
    let marked = read("marked.jinja");
    let (text, all) = learned(&chat(&marked), &line);
    assert_eq!(
        text,
        "<|end|>|21 degrees.<|end|>|<think>polite</think>Welcome<|end|>"
    );
    assert!(!all.contains("mild"), "{all}");
    let unmarked = marked
        .replace("{% generation %}", "")
        .replace("{%- endgeneration %}", "");
    let reason = chat(&unmarked).turns(line.as_bytes()).unwrap_err();
    let why = reason.to_string();
    assert!(
        why.contains("writes message 4 differently when others follow"),
        "{why}"
    );
}

#[test]
fn a_message_that_spells_a_special_token_stays_text() {
    let source = "{% for m in messages %}{{ m.content.strip() ~ '<|endoftext|>' }}{% endfor %}";
    let line = serde_json::json!({"messages": [{"role": "user", "content": " <|endoftext|> "}]});
    let (_, all) = learned(&chat(source), &line.to_string());
    assert_eq!(all, "<|endoftext|>@");
}

#[test]
fn templates_that_fail_loop_or_do_not_end_are_bad_documents() {
    let line = br#"{"messages":[{"role":"user","content":"x"}]}"#;
    let long = "{% for a in range(9999) %}".to_owned() + &"x".repeat(2000) + "{% endfor %}";
    for (source, expected) in [
        (
            "{{ raise_exception('roles must alternate') }}",
            "roles must alternate",
        ),
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "fuel",
        ),
        (long.as_str(), "writes more than 1048576 bytes"),
        ("{{ strftime_now('%Y') }}", "set chat.date"),
        ("{{ messages[0].content.nothing() }}", "nothing"),
        (
            "{% macro m() %}x{% generation %}y{% endgeneration %}{% endmacro %}{{ m() }}",
            "a generation block within a macro",
        ),
        ("{{ lipsum() }}", "lipsum is random"),
        (
            "{{ [1]|pprint }}",
            "the filter \"pprint\" is not supported (line 1)",
        ),
    ] {
        let why = chat(source).turns(line).unwrap_err().to_string();
        assert!(why.contains(expected), "{source}: {why}");
    }
    for (line, expected) in [
        ("{", "broken JSON"),
        (
            "{\"messages\":\"x\"}",
            "field \"messages\" is not a list of messages",
        ),
        ("{}", "has no field \"messages\""),
    ] {
        let why = chat("x").turns(line.as_bytes()).unwrap_err();
        assert!(why.to_string().contains(expected), "{line}: {why}");
    }
    assert_eq!(chat("x").turns(b" ").unwrap(), None);
}

/// A text that a template looks for in a message must be there, as with the library, or the document is refused.
#[test]
fn a_template_that_looks_for_a_special_token_in_a_message_is_refused() {
    let chat =
        chat("{% for m in messages %}{{ m.content.split('<|endoftext|>')|last }}{% endfor %}");
    let line = |content: &str| {
        let line = serde_json::json!({"messages": [{"role": "user", "content": content}]});
        chat.turns(line.to_string().as_bytes())
    };
    line("a<|endof").unwrap();
    let why = line("a<|endoftext|>b").unwrap_err().to_string();
    assert!(why.contains("depends on a special token"), "{why}");
}

/// As transformers' `render_jinja_template` writes them.
#[test]
fn templates_that_were_read_otherwise_once() {
    let adjacent = "{%- for m in messages %}{%- if m.role == 'tool' %}{%- if loop.previtem and \
                    loop.previtem.role != 'tool' %}[TOOLS]{%- endif %}({{ m.content }}){%- if not loop.last and \
                    loop.nextitem.role != 'tool' %}[/TOOLS]{%- elif loop.last %}[/TOOLS]{%- endif %}{%- else %}\
                    <{{ m.role }}>{{ m.content }}{%- endif %}{%- endfor %}";
    let iterable = "{% if tools is iterable and tools|length > 0 %}[tools]{% endif %}\
                    {% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let values = "{{ ['STRING', none] }} {{ {'a': 1.0} }} {{ (1,) }}|{% for m in messages %}{{ m.content }}{% endfor %}";
    let thoughts = "{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }}{{ m.reasoning }}|{% endfor %}";
    let plain =
        r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}"#;
    let tools = r#"{"messages":[{"role":"user","content":"q"},{"role":"tool","content":"ok"},{"role":"assistant","content":"a"}]}"#;
    let thinks = r#"{"messages":[{"role":"assistant","reasoning":"x","thinking":null},{"role":"assistant","thinking":"y"}]}"#;
    for (template, line, expected) in [
        (adjacent, tools, "<user>q[TOOLS](ok)[/TOOLS]<assistant>a"),
        (iterable, plain, "<user>q<assistant>a"),
        (values, plain, "['STRING', None] {'a': 1.0} (1,)|qa"),
        (thoughts, thinks, "xNonex|yy|"),
    ] {
        assert_eq!(learned(&chat(template), line).1, expected, "{template}");
    }
}

#[test]
fn a_date_is_the_configured_one() {
    let with = |date: &str| {
        let file = template("{{ strftime_now('%d %b %Y, %A') }}", 100).with_date(date);
        Template::compile(&file)
            .unwrap()
            .render(&[], &Value::UNDEFINED, false)
    };
    assert_eq!(with("2026-11-27").unwrap(), "27 Nov 2026, Friday");
    with("").unwrap_err();
    for (text, holds) in [
        ("2024-02-29", true),
        ("2023-02-29", false),
        ("2024-2-9", false),
        ("today", false),
    ] {
        assert_eq!(is_date(text), holds, "{text}");
    }
}

/// A producer of the first dialect goes on while its conversations stay the same, and stops at the first other one.
#[test]
fn a_producer_that_began_by_earlier_rules_stops_where_they_differ() {
    let source = "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}\
                  {% endgeneration %}{% else %}[{{ m.content }}]{% endif %}{% endfor %}";
    let now = chat(source);
    let before = chat(source);
    before.continue_in(Dialect::First);
    let line = |content: serde_json::Value| {
        let turns = [("user", content), ("assistant", "a".into())];
        let turns =
            turns.map(|(role, content)| serde_json::json!({"role": role, "content": content}));
        serde_json::json!({"messages": turns})
            .to_string()
            .into_bytes()
    };
    let same = line("plain".into());
    assert_eq!(before.turns(&same).unwrap(), now.turns(&same).unwrap());
    let other = line(serde_json::json!(["x", true]));
    now.turns(&other).unwrap();
    let reason = before.turns(&other).unwrap_err();
    assert!(reason.is_of_program(), "not to be skipped");
    let why = reason.to_string();
    assert!(
        why.contains("the template now writes") && why.contains("new producer.name"),
        "{why}"
    );
    let refused = chat("{{ messages[0].content|map('foo') }}");
    refused.continue_in(Dialect::First);
    assert!(
        !refused.turns(&same).unwrap_err().is_of_program(),
        "bad by both"
    );
}

#[test]
fn templates_are_found_in_the_files_that_models_come_with() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let several = serde_json::json!({
        "bos_token": {"content": "<s>"},
        "chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "{{ bos_token }}"}],
    });
    let config = write("tokenizer_config.json", &several.to_string());
    let jinja = write(
        "chat_template.jinja",
        "{{ bos_token }}{{ messages|length }}",
    );
    let render = |path: &PathBuf| {
        let template = TemplateFile::read(path, 100).unwrap();
        let template = Template::compile(&template).unwrap();
        template.render(&[], &Value::UNDEFINED, false).unwrap()
    };
    assert_eq!(
        (render(&config).as_str(), render(&jinja).as_str()),
        ("<s>", "<s>0")
    );
    for (path, expected) in [
        (write("none.json", "{}"), "has no \"chat_template\""),
        (write("odd.jinja", "{% if %}"), "is not a valid template"),
        (folder.path().join("absent"), "can't be read"),
    ] {
        let chat = TemplateFile::read(&path, 100).and_then(|template| {
            let tokenizer = load(&Choice::Bytes).unwrap();
            Chat::new(template, tokenizer, ("messages", "tools"), None)
        });
        let why = chat.map(drop).unwrap_err().to_string();
        assert!(why.contains(expected), "{why}");
    }
}
