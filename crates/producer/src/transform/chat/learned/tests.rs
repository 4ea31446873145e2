//! Messages that are learned, with generation blocks and without, and keys that have no meaning yet.

use serde_json::{Value as Json, json};

use super::super::tests::{chat_with, learned};
use super::*;

/// A template without generation blocks, in which each message is its role and its text.
const PLAIN: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}\
                     {% if add_generation_prompt %}<assistant>{% endif %}";
/// The same with blocks around what the assistant says and calls.
const MARKED: &str = "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}\
    {% if m.tool_calls %}{% generation %}{{ m.tool_calls|tojson }}{% endgeneration %}{% endif %}\
    {% generation %}{{ m.content.split('</think>')[-1] if not loop.last else m.content }}</>{% endgeneration %}\
    {% else %}{{ m.content }}</>{% endif %}{% endfor %}";

fn rules(learn: Learn) -> LossRules {
    LossRules {
        learn,
        ..LossRules::default()
    }
}

fn roles(names: &[&str]) -> Learn {
    Learn::Roles(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Returns the learned text of a conversation, or the reason why it is bad.
fn text(template: &str, rules: &LossRules, messages: &Json) -> Result<String, String> {
    let line = json!({ "messages": messages }).to_string();
    let chat = chat_with(template, rules.clone());
    let made = chat.turns(line.as_bytes()).map_err(|why| why.to_string());
    made.map(|_| learned(&chat, &line).0)
}

/// Returns four messages; the key and value are in the first answer.
fn four(key: &str, value: &Json) -> Json {
    let mut bad = json!({"role": "assistant", "content": "BAD"});
    bad[key] = value.clone();
    json!([{"role": "user", "content": "q"}, bad, {"role": "user", "content": "r"},
           {"role": "assistant", "content": "good"}])
}

#[test]
fn a_message_that_says_so_is_not_learned() {
    for template in [PLAIN, MARKED] {
        for key in KEYS {
            for (value, expected) in [
                (json!(0), "good</>"),
                (json!(0.0), "good</>"),
                (json!(false), "good</>"),
                (json!(1), "BAD</>|good</>"),
                (json!(1.0), "BAD</>|good</>"),
                (json!(true), "BAD</>|good</>"),
                (Json::Null, "BAD</>|good</>"),
            ] {
                let found = text(template, &LossRules::default(), &four(key, &value));
                assert_eq!(found.as_deref(), Ok(expected), "{key}: {value}");
            }
            for value in [json!(0.5), json!(-1), json!(2), json!("0"), json!([0])] {
                let why = text(template, &LossRules::default(), &four(key, &value)).unwrap_err();
                let wanted = format!("has {key:?} = {value} in message 2, and a loss mask holds");
                assert!(why.contains(&wanted), "{why}");
            }
        }
    }
}

#[test]
fn the_setting_names_the_messages_that_are_learned() {
    let messages = json!([
        {"role": "system", "content": "s"}, {"role": "user", "content": "q"},
        {"role": "assistant", "content": "one"}, {"role": "tool", "content": "t"},
        {"role": "assistant", "content": "two"}, {"role": "user", "content": "bye"}]);
    let all = "one</>|two</>";
    let tool = roles(&["assistant", "tool"]);
    for (learn, plain, marked) in [
        (Learn::All, all, Ok(all)),
        (Learn::Last, "two</>", Ok("two</>")),
        (roles(&["assistant"]), all, Ok(all)),
        (roles(&["nobody"]), "", Ok("")),
        (
            tool,
            "one</>|<tool>t</>|two</>",
            Err(
                "has message 4 of the role \"tool\", which chat.learn names, and no {% generation %}",
            ),
        ),
    ] {
        // Neighbours are one span.
        let found = text(PLAIN, &rules(learn.clone()), &messages).unwrap();
        assert_eq!(found.replace('|', ""), plain.replace('|', ""), "{learn:?}");
        match (text(MARKED, &rules(learn.clone()), &messages), marked) {
            (Ok(found), Ok(marked)) => assert_eq!(found, marked, "{learn:?}"),
            (Err(why), Err(wanted)) => assert!(why.contains(wanted), "{why}"),
            (found, _) => panic!("{learn:?}: {found:?}"),
        }
    }
    let mut off = messages;
    off[4]["weight"] = json!(0);
    off[3]["weight"] = json!(1);
    assert_eq!(text(PLAIN, &rules(Learn::Last), &off).as_deref(), Ok(""));
    let why = text(PLAIN, &rules(Learn::All), &off).unwrap_err();
    assert!(
        why.contains("\"weight\" = 1 in message 4 of the role \"tool\""),
        "{why}"
    );
    let found = text(PLAIN, &rules(roles(&["assistant"])), &off);
    assert_eq!(
        found.as_deref(),
        Ok("one</>"),
        "the roles are all that count"
    );
    let found = text(PLAIN, &rules(roles(&["tool", "user"])), &off);
    assert_eq!(found.as_deref(), Ok("<user>q</>|<tool>t</>|<user>bye</>"));
}

#[test]
fn a_block_is_of_the_message_that_is_found_in_it() {
    let call = |name: &str| json!([{"type": "function", "function": {"name": name, "arguments": {"x": "v"}}}]);
    let messages = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": call("f"), "weight": 0},
        {"role": "tool", "content": "t"},
        {"role": "assistant", "content": "<think>hm</think>", "tool_calls": call("g")},
        {"role": "tool", "content": "t"},
        {"role": "assistant", "content": "<think>so</think> it is", "train": true}]);
    let why = text(MARKED, &LossRules::default(), &messages).unwrap_err();
    let wanted = "generation block 2 of the template may hold text of the messages 2, 4; learn all";
    assert!(why.contains(wanted), "an empty text is of nobody: {why}");
    let mut told = messages.clone();
    told[1]["content"] = json!("wait");
    told[3]["content"] = json!("<think>hm</think>then");
    let found = text(MARKED, &LossRules::default(), &told).unwrap();
    assert!(
        !found.contains("wait") && !found.contains("\"f\""),
        "{found}"
    );
    assert!(
        found.ends_with("then</>|<think>so</think> it is</>"),
        "{found}"
    );
    let found = text(MARKED, &rules(Learn::Last), &told);
    assert_eq!(found.as_deref(), Ok("<think>so</think> it is</>"));
    // A template that counts characters, or puts two messages into one block.
    let counts = MARKED.replace(
        "{{ m.content.split",
        "{{ m.content|length }}{{ m.content.split",
    );
    let why = text(&counts, &rules(Learn::Last), &told).unwrap_err();
    assert!(
        why.contains("blocks do not tell which message they hold"),
        "{why}"
    );
    let one =
        "{% generation %}{% for m in messages %}{{ m.content }}{% endfor %}{% endgeneration %}";
    let why = text(one, &rules(Learn::Last), &told).unwrap_err();
    assert!(
        why.contains("generation block 1 of the template may hold text of the messages 1, 2,"),
        "{why}"
    );
}

#[test]
fn a_key_without_a_meaning_is_an_error_that_names_the_settings() {
    let unread = [
        "loss_mask",
        "mask",
        "masked",
        "is_masked",
        "step_loss_mask",
        "loss_weight",
        "learn",
        "trainable",
        "loss_scale",
        "calculate_loss",
        "train_detail",
        "training_detail",
        "do_train",
        "mask_loss",
        "isTrainable",
        "no-train",
    ];
    for key in unread {
        let messages = four(key, &json!(0));
        let line = json!({ "messages": messages }).to_string();
        let made = chat_with(PLAIN, LossRules::default()).turns(line.as_bytes());
        let Err(reason @ Reason::LossKey { .. }) = made else {
            panic!("{key}: {made:?}")
        };
        assert!(reason.is_of_program(), "it is never left out");
        let why = reason.to_string();
        assert!(
            why.contains(&format!("has {key:?} in message 2, which some")),
            "{why}"
        );
        assert!(
            why.contains("chat.loss_keys") && why.contains("chat.ignore"),
            "{why}"
        );
        let read = LossRules {
            keys: vec![key.to_owned()],
            ..LossRules::default()
        };
        assert_eq!(text(PLAIN, &read, &messages).as_deref(), Ok("good</>"));
        let ignored = LossRules {
            ignore: vec![key.to_owned()],
            ..LossRules::default()
        };
        assert_eq!(
            text(PLAIN, &ignored, &messages).as_deref(),
            Ok("BAD</>|good</>")
        );
    }
}

#[test]
fn keys_that_contradict_each_other_or_are_of_a_part_are_errors() {
    for key in [
        "name",
        "tool_call_id",
        "trainer",
        "lossless",
        "weigh",
        "maskot",
        "id",
        "reasoning_content",
    ] {
        assert!(!sounds_like_loss(key), "{key}");
    }
    let both = json!([{"role": "assistant", "content": "x", "weight": 0, "train": true}]);
    let why = text(PLAIN, &LossRules::default(), &both).unwrap_err();
    assert!(
        why.contains("has both \"train\" = 1 and \"weight\" = 0 in message 1"),
        "{why}"
    );
    let part =
        json!([{"role": "assistant", "content": [{"type": "text", "text": "x", "train": false}]}]);
    let why = text(PLAIN, &LossRules::default(), &part).unwrap_err();
    assert!(
        why.contains("has \"train\" in a part of message 1"),
        "{why}"
    );
}

#[test]
fn a_key_beside_the_messages_is_an_error_unless_a_setting_names_it() {
    let line =
        r#"{"messages": [{"role": "user", "content": "q"}], "loss_mask": [0, 1], "weights": null}"#;
    let why = chat_with(PLAIN, LossRules::default())
        .turns(line.as_bytes())
        .unwrap_err();
    assert!(
        why.to_string()
            .contains("has \"loss_mask\" beside its messages"),
        "{why}"
    );
    for named in [true, false] {
        let names = vec!["loss_mask".to_owned()];
        let mut rules = LossRules::default();
        *(if named {
            &mut rules.named
        } else {
            &mut rules.ignore
        }) = names;
        chat_with(PLAIN, rules).turns(line.as_bytes()).unwrap();
    }
}

#[test]
fn a_key_that_changes_the_prompt_elsewhere_is_an_error_unless_it_is_empty_or_ignored() {
    for (key, value) in [
        ("system", json!("Be brief.")),
        ("chat_template_kwargs", json!({"enable_thinking": false})),
    ] {
        let line = |value: &serde_json::Value| {
            let mut line = json!({"messages": [{"role": "user", "content": "q"}]});
            line[key] = value.clone();
            line.to_string()
        };
        let chat = chat_with(PLAIN, LossRules::default());
        let reason = chat.turns(line(&value).as_bytes()).unwrap_err();
        assert!(
            matches!(reason, Reason::LossKey { .. }),
            "it stops the producer"
        );
        let why = reason.to_string();
        assert!(why.contains(&format!("{key:?} in chat.ignore")), "{why}");
        for empty in [json!(null), json!(""), json!({})] {
            chat.turns(line(&empty).as_bytes()).unwrap();
        }
        let rules = LossRules {
            ignore: vec![key.to_owned()],
            ..LossRules::default()
        };
        chat_with(PLAIN, rules)
            .turns(line(&value).as_bytes())
            .unwrap();
        // A producer that began before this check goes on as it did.
        chat.continue_in(Dialect::First);
        chat.turns(line(&value).as_bytes()).unwrap();
    }
}

/// A producer that began before these keys were read stops where they would change a mask, and goes on elsewhere.
#[test]
fn an_earlier_producer_stops_where_a_key_says_something_else_than_before() {
    let ignored = LossRules {
        ignore: vec!["weight".to_owned()],
        ..LossRules::default()
    };
    let user = json!([{"role": "user", "content": "q", "weight": 1}, {"role": "assistant", "content": "a"}]);
    for (rules, messages, stops) in [
        (LossRules::default(), four("weight", &json!(0)), true),
        (LossRules::default(), four("weight", &json!(0.5)), true),
        (LossRules::default(), user, true),
        (LossRules::default(), four("weight", &json!(1)), false),
        (ignored, four("weight", &json!(0)), false),
    ] {
        let chat = chat_with(PLAIN, rules);
        chat.continue_in(Dialect::First);
        let line = json!({"messages": messages, "mask": 1}).to_string();
        match (chat.turns(line.as_bytes()), stops) {
            (Err(Reason::Changed { detail }), true) => {
                assert!(detail.contains("weight"), "{detail}")
            }
            (Ok(_), false) => assert_eq!(
                learned(&chat, &line).0.matches("BAD").count(),
                usize::from(line.contains("BAD"))
            ),
            (found, _) => panic!("{line}: {found:?}"),
        }
    }
}

#[test]
fn the_setting_is_read_in_its_three_forms_and_no_other() {
    for (json, expected) in [
        ("\"all\"", Learn::All),
        ("\"last\"", Learn::Last),
        ("[\"tool\"]", roles(&["tool"])),
    ] {
        let learn: Learn = serde_json::from_str(json).unwrap();
        assert_eq!(learn, expected);
        assert_eq!(serde_json::to_string(&learn).unwrap(), json);
    }
    for bad in ["\"assistant\"", "5", "true"] {
        let why = serde_json::from_str::<Learn>(bad).unwrap_err().to_string();
        assert!(
            why.contains("expected \"all\", \"last\" or a list of roles"),
            "{why}"
        );
    }
}
