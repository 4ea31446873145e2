//! The learned tokens of conversations and pairs, and the token that begins a document, in the slices of a stream.

use std::path::Path;

use batchweave_core::tgb::Layout;
use batchweave_daemon::Exit;
use batchweave_producer::chat::Learn;
use batchweave_producer::config::{LastBatch, OnBadDocument, PackingMode, ProducerConfig};
use serde_json::json;

use crate::support::World;

const PROGRAM: &str = env!("CARGO_BIN_EXE_batchweave-producer");
const TEMPLATE: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}\
                        {% if add_generation_prompt %}<assistant>{% endif %}";

/// Returns a configuration for one row per document.
fn config(world: &World, mode: PackingMode, lines: &[serde_json::Value]) -> ProducerConfig {
    let path = |name: &str| world.folder.path().join(name).display().to_string();
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    std::fs::write(path("t.jinja"), TEMPLATE).unwrap();
    std::fs::write(path("a.jsonl"), lines.join("\n")).unwrap();
    let mut config = World::config(&[path("a.jsonl")], "a");
    (
        config.stream.slices,
        config.stream.rows_per_slice,
        config.stream.seq_len,
    ) = (1, 2, 99);
    config.packing.mode = mode;
    config.packing.last_batch = LastBatch::Pad;
    if matches!(mode, PackingMode::Chat | PackingMode::Pairs) {
        config.chat.template = path("t.jinja");
        config.chat.renderer = Some(Path::new(PROGRAM).to_owned());
    }
    config
}

/// Returns text and learned text of each row that is not padding alone.
async fn rows(world: &World) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for payload in world.payloads().await.into_iter().flatten() {
        let layout = Layout::parse(&payload).unwrap();
        let data = |name: &str| {
            let array = layout.array(name).unwrap();
            &payload[array.offset as usize..][..array.bytes as usize]
        };
        let tokens = data("tokens").chunks_exact(200);
        for (tokens, marks) in tokens.zip(data("loss_mask").chunks_exact(100)) {
            let tokens = tokens
                .chunks_exact(2)
                .map(|b| u16::from_le_bytes([b[0], b[1]]));
            let (mut all, mut learned) = (Vec::new(), Vec::new());
            for (token, mark) in tokens.zip(marks) {
                let Ok(byte) = u8::try_from(token) else {
                    continue;
                };
                all.push(byte);
                learned.extend((*mark == 1).then_some(byte));
            }
            let [all, learned] = [all, learned].map(|bytes| String::from_utf8(bytes).unwrap());
            rows.extend((!all.is_empty()).then_some((all, learned)));
        }
    }
    rows
}

fn conversation(key: &str, value: &serde_json::Value) -> serde_json::Value {
    json!({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "BAD", key: value},
                        {"role": "user", "content": "q"}, {"role": "assistant", "content": "good"}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_say_so_are_not_learned_and_a_changed_setting_is_refused() {
    let lines = [
        ("weight", json!(0)),
        ("weight", json!(0.0)),
        ("loss", json!(false)),
        ("train", json!(false)),
    ]
    .map(|(key, value)| conversation(key, &value));
    let world = World::new();
    let chat = config(&world, PackingMode::Chat, &lines);
    world.run(chat.clone()).await.unwrap();
    // Four conversations of 50 tokens, two in each row.
    let learned: Vec<String> = rows(&world).await.into_iter().map(|row| row.1).collect();
    assert_eq!(learned.concat(), "good</>".repeat(4));
    let change = |learn, ignore: &[&str]| {
        let mut other = chat.clone();
        other.chat.learn = learn;
        other.chat.ignore = ignore.iter().map(|key| (*key).to_owned()).collect();
        other
    };
    refused(
        change(Learn::All, &["mask"]),
        &[
            (
                change(Learn::Last, &[]),
                "chat.learn: was null, is \"last\"",
            ),
            (
                change(Learn::All, &["weight"]),
                "chat.ignore: was null, is [\"weight\"]",
            ),
        ],
    )
    .await;
}

/// Starts a producer without an end, and others of its name with these settings.
async fn refused(mut first: ProducerConfig, others: &[(ProducerConfig, &str)]) {
    let world = World::new();
    first.source.epochs = 0;
    let (running, stop) = world.spawn(first);
    world.wait_for_batches(2).await;
    for (other, wanted) in others {
        let mut other = other.clone();
        other.source.epochs = 0;
        let why = world.run(other).await.unwrap_err();
        assert_eq!(why.exit(), Exit::Config);
        assert!(why.to_string().contains(wanted), "{wanted} in {why}");
    }
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_a_meaning_is_no_bad_document_to_leave_out() {
    let world = World::new();
    let lines = [
        conversation("weight", &json!(1)),
        conversation("step_loss_mask", &json!(0)),
    ];
    let mut chat = config(&world, PackingMode::Chat, &lines);
    chat.source.on_bad_document = OnBadDocument::Skip;
    let why = world.run(chat.clone()).await.unwrap_err();
    assert_eq!(why.exit(), Exit::BadInput);
    let why = why.to_string();
    for part in [
        "a.jsonl:2: the conversation has \"step_loss_mask\" in message 2",
        "chat.loss_keys",
        "chat.ignore",
    ] {
        assert!(why.contains(part), "{part} in {why}");
    }
    chat.chat.loss_keys = vec!["step_loss_mask".to_owned()];
    let world = World::new();
    world.run(chat).await.unwrap();
    let learned: Vec<String> = rows(&world).await.into_iter().map(|row| row.1).collect();
    assert_eq!(learned.concat(), "BAD</>good</>good</>");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_beside_whole_conversations_is_taken_once() {
    let world = World::new();
    let whole = |text: &str| json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]);
    let line = json!({"prompt": "q", "chosen": whole("good"), "rejected": whole("bad")});
    world
        .run(config(&world, PackingMode::Pairs, &[line]))
        .await
        .unwrap();
    let expected =
        ["good</>", "bad</>"].map(|said| (format!("<user>q</><assistant>{said}"), said.to_owned()));
    assert_eq!(rows(&world).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_document_begins_with_the_begin_token_once() {
    const BEGIN: u32 = 256;
    let texts = ["ab".to_owned(), "x".repeat(250), "c".to_owned()];
    let lines = texts.clone().map(|text| json!({ "text": text }));
    let documents = texts.map(|text| {
        let bytes = text.bytes().map(u32::from);
        std::iter::once(BEGIN)
            .chain(bytes)
            .chain([256])
            .collect::<Vec<u32>>()
    });
    for mode in [PackingMode::Concat, PackingMode::BestFit] {
        let world = World::new();
        let mut with = config(&world, mode, &lines);
        with.tokenizer.begin_token = Some("<|endoftext|>".to_owned());
        world.run(with.clone()).await.unwrap();
        let payload = &world.payloads().await[0][0];
        let layout = Layout::parse(payload).unwrap();
        let at = layout.array("tokens").unwrap().offset as usize;
        let row = |n: usize| -> Vec<u32> {
            let bytes = payload[at + 200 * n..][..200].chunks_exact(2);
            bytes
                .map(|b| u16::from_le_bytes([b[0], b[1]]).into())
                .collect()
        };
        let rows = [row(0), row(1)];
        let expected: Vec<u32> = match mode {
            PackingMode::Concat => documents.concat()[..199].to_vec(),
            // The longest document is divided; its pieces share a token, and the last one is between the short documents.
            _ => [&documents[0], &documents[1][198..], &documents[2]].concat(),
        };
        if mode == PackingMode::Concat {
            assert_eq!([&rows[0][..], &rows[1][1..]].concat(), expected);
        } else {
            assert_eq!(rows[0][..expected.len()], expected);
            let whole = [&documents[1][..100], &documents[1][99..199]];
            assert!(whole.contains(&&rows[1][..]), "{:?}", rows[1]);
        }
        let mut without = with.clone();
        without.tokenizer.begin_token = Some(String::new());
        refused(
            with,
            &[(without, "tokenizer.begin_token: was 256, is null")],
        )
        .await;
    }
    let world = World::new();
    let mut absent = config(&world, PackingMode::Concat, &lines);
    absent.tokenizer.begin_token = Some("<s>".to_owned());
    let why = world.run(absent).await.unwrap_err().to_string();
    assert!(
        why.contains(
            "tokenizer.begin_token: the vocabulary has no token \"<s>\"; its special tokens are"
        ),
        "{why}"
    );
}
