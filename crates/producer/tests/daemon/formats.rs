//! Input of other programs: the same documents in every form that pyarrow, numpy and Megatron-LM write give the same
//! batches, also after crashes. tests/inputs/make.py wrote the files.

use std::path::{Path, PathBuf};

use batchweave_daemon::Exit;
use batchweave_daemon::config::parse;
use batchweave_producer::config::{PackingMode, ProducerConfig, SourceContent, TokenizerKind};
use batchweave_producer::sources::Format;

use crate::support::World;

/// Writes roles, contents, calls and tools, in JSON where they are nested.
const TEMPLATE: &str = "{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}\
    {{ m.role }}: {% if m.content is none %}none{% else %}{{ m.content }}{% endif %}\
    {% if m.call is defined %}{{ m.call|tojson }}{% endif %}<|endoftext|>{% endfor %}";

fn inputs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/inputs")
}

fn config(files: &[&str]) -> ProducerConfig {
    let paths: Vec<String> = files
        .iter()
        .map(|name| inputs().join(name).display().to_string())
        .collect();
    World::config(&paths, "a")
}

fn ids(files: &[&str]) -> ProducerConfig {
    let mut config = config(files);
    config.source.content = SourceContent::Ids;
    (config.source.field, config.source.column) = ("input_ids".into(), "input_ids".into());
    if files
        .iter()
        .any(|name| Path::new(name).extension().is_some_and(|end| end == "idx"))
    {
        config.source.format = Format::Megatron;
    }
    config
}

pub(crate) fn chat(world: &World, file: &str) -> ProducerConfig {
    let mut config = config(&[file]);
    let template = world.folder.path().join("t.jinja");
    std::fs::write(&template, TEMPLATE).unwrap();
    config.chat.template = template.display().to_string();
    config.packing.mode = PackingMode::Chat;
    config.stream.seq_len = 255;
    if file.starts_with("sharegpt") {
        config.chat.messages = "conversations".into();
        config.chat.role_key = "from".into();
        config.chat.content_key = "value".into();
        let roles = [("human", "user"), ("gpt", "assistant")];
        config.chat.roles = roles.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    }
    config
}

async fn payloads(config: impl Fn(&World) -> ProducerConfig) -> Vec<Vec<Vec<u8>>> {
    let world = World::new();
    world.run(config(&world)).await.unwrap();
    world.payloads().await
}

/// Crashes at instants that the seed draws, until the input is complete. A drawn instant may lie behind the last
/// request, so seeds are drawn until at least one run crashed.
async fn crashing(config: impl Fn(&World) -> ProducerConfig, seed: u64) -> Vec<Vec<Vec<u8>>> {
    for seed in (0..20).map(|more| seed + 1000 * more) {
        let world = World::new();
        let mut crashes = 0;
        while !world.crash(config(&world), seed, crashes).await {
            crashes += 1;
            assert!(crashes < 500, "seed {seed}: no progress");
        }
        if crashes > 0 {
            return world.payloads().await;
        }
    }
    panic!("seed {seed}: no run crashed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_every_writer_are_packed_as_the_text_is() {
    let expected = payloads(|_| config(&["documents.jsonl"])).await;
    assert!(expected.len() > 20, "{}", expected.len());
    let forms: [&[&str]; 9] = [
        &["ids.jsonl"],
        &["ids-int32.parquet"],
        &["ids-int64.parquet"],
        &["ids-uint16.parquet"],
        &["ids-uint32.parquet"],
        &["list-u2.npy"],
        &["list-i8.npy"],
        &["megatron-u2.bin", "megatron-u2.idx"],
        &["megatron-i4.idx", "megatron-i4.bin"],
    ];
    for (seed, files) in (0..).zip(forms) {
        let whole = payloads(|_| ids(files)).await;
        assert!(whole == expected, "{files:?}");
        let crashed = crashing(|_| ids(files), seed).await;
        assert!(crashed == expected, "{files:?} with crashes");
    }
    let table = payloads(|_| config(&["table.jsonl"])).await;
    assert!(crashing(|_| ids(&["table-i4.npy"]), 9).await == table);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_share_files_of_ids_by_document() {
    for (files, name) in [
        (["documents.jsonl"].as_slice(), "text"),
        (&["ids-int32.parquet"], "parquet"),
        (&["list-u2.npy"], "list"),
        (&["megatron-u2.bin", "megatron-u2.idx"], "megatron"),
    ] {
        for index in 0..2 {
            let share = |mut config: ProducerConfig| {
                (config.producer.index, config.producer.of) = (index, 2);
                config
            };
            let text = payloads(|_| share(config(&["documents.jsonl"]))).await;
            let of = if name == "text" { config } else { ids };
            assert!(
                crashing(|_| share(of(files)), 3).await == text,
                "{name} {index}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_arrays_and_no_tokenizer() {
    let expected = payloads(|_| config(&["documents.jsonl"])).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.npy.zst");
    let list = std::fs::read(inputs().join("list-u2.npy")).unwrap();
    std::fs::write(&path, zstd::encode_all(&list[..], 1).unwrap()).unwrap();
    let none = |_: &World| {
        let mut config = ids(&[]);
        config.source.paths = vec![path.display().to_string()];
        config.tokenizer.kind = TokenizerKind::None;
        (config.tokenizer.vocab_size, config.tokenizer.end_token_id) = (257, Some(256));
        config
    };
    assert!(crashing(none, 5).await == expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_of_every_writer_are_the_same() {
    let expected = payloads(|world| chat(world, "chat.jsonl")).await;
    assert!(expected.len() > 5, "{}", expected.len());
    let all = String::from_utf8(
        expected
            .concat()
            .concat()
            .into_iter()
            .filter(|b| *b > 0)
            .collect(),
    );
    let text = all.unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
    for part in [
        "[{\"name\": \"clock\", \"at\": {\"zone\": \"UTC\"}}]",
        "assistant: none{\"name\":",
    ] {
        assert!(text.contains(part), "{part} in {text:.3000}");
    }
    let forms = [
        "chat.parquet",
        "chat-json.parquet",
        "sharegpt.jsonl",
        "sharegpt.parquet",
    ];
    for (seed, file) in (0..).zip(forms) {
        let whole = payloads(|world| chat(world, file)).await;
        assert!(whole == expected, "{file}");
        let crashed = crashing(|world| chat(world, file), seed).await;
        assert!(crashed == expected, "{file} with crashes");
    }
}

/// Each mistake of a newcomer gets one line that names the file, the place and the remedy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_input_is_named_with_its_remedy() {
    let world = World::new();
    let sharegpt = "set chat.messages = \"conversations\", chat.role_key = \"from\", \
                    chat.content_key = \"value\" and chat.roles = { human = \"user\", gpt = \"assistant\" }";
    let plain = |file: &str| {
        let mut config = chat(&world, file);
        config.chat = chat(&world, "chat.jsonl").chat;
        config
    };
    let mut unknown = chat(&world, "sharegpt.jsonl");
    unknown.chat.roles.remove("gpt");
    let mut column = ids(&["ids-int32.parquet"]);
    column.source.column = "id".into();
    let mut small = ids(&["list-u2.npy"]);
    small.tokenizer.kind = TokenizerKind::None;
    (small.tokenizer.vocab_size, small.tokenizer.end_token_id) = (150, Some(0));
    small.source.max_document_bytes.0 = 1 << 20;
    let text = config(&["list-u2.npy"]);
    for (config, wanted) in [
        (plain("sharegpt.jsonl"), ["sharegpt.jsonl:1: ", sharegpt]),
        (
            plain("sharegpt.parquet"),
            [
                "sharegpt.parquet: the conversation has no column \"messages\"",
                "needs chat.messages = \"conversations\"",
            ],
        ),
        (
            plain("chat-weight.parquet"),
            ["has \"weight\" beside its messages", "chat.ignore"],
        ),
        (
            unknown,
            [
                "has the role \"gpt\" in message 3, and the known ones are human, system, user,",
                "add it to chat.roles",
            ],
        ),
        (
            column,
            [
                "ids-int32.parquet: column \"id\" has no list of integers per row",
                "source.column",
            ],
        ),
        (
            small,
            [
                "list-u2.npy:1: id 195 at index ",
                "is not one of the 150 of the vocabulary",
            ],
        ),
        (
            text,
            [
                "list-u2.npy: a .npy file holds an array",
                "source.content = \"ids\"",
            ],
        ),
        (
            ids(&["documents.jsonl"]),
            ["documents.jsonl:1: no field \"input_ids\"", "source.field"],
        ),
        (
            ids(&["make.py"]),
            [
                "make.py: source.content = \"ids\" takes JSONL",
                "source.paths",
            ],
        ),
    ] {
        let why = World::new().run(config).await.unwrap_err();
        assert_eq!(why.exit(), Exit::BadInput, "{why}");
        for part in wanted {
            assert!(why.to_string().contains(part), "{part} in {why}");
        }
    }
    let mut alone = ids(&["megatron-u2.idx"]);
    alone.source.format = Format::Megatron;
    let why = World::new().run(alone).await.unwrap_err().to_string();
    assert!(
        why.contains("megatron-u2.bin is not in the input; name both files"),
        "{why}"
    );
}

fn pairs(world: &World, file: &str) -> ProducerConfig {
    let mut config = chat(world, file);
    config.packing.mode = PackingMode::Pairs;
    config.chat.messages = "messages".into();
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_of_every_writer_are_the_same() {
    let expected = payloads(|world| pairs(world, "pairs.jsonl")).await;
    assert!(expected.len() > 5, "{}", expected.len());
    for (seed, file) in (20..).zip(["pairs.jsonl", "pairs.parquet", "pairs-whole.parquet"]) {
        let whole = payloads(|world| pairs(world, file)).await;
        assert!(whole == expected, "{file}");
        let crashed = crashing(|world| pairs(world, file), seed).await;
        assert!(crashed == expected, "{file} with crashes");
    }
}

/// Returns the configuration in the block of docs/producing.md that begins with `first`, with `more`.
fn documented(first: &str, more: &str, file: &str) -> ProducerConfig {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/producing.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, block) = page.split_once(&format!("```toml\n{first}")).unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let base = "store.url = \"file:///x\"\nproducer.name = \"a\"\nsource.paths = [\"x\"]\n";
    let text = format!("{base}{more}{first}{block}");
    let documented: ProducerConfig = parse("producing.md", &text).unwrap();
    let mut config = config(&[file]);
    config.chat = documented.chat;
    config.source = batchweave_producer::config::SourceConfig {
        paths: config.source.paths,
        ..documented.source
    };
    if more.is_empty() {
        config.tokenizer = documented.tokenizer;
    }
    config.packing.mode = documented.packing.mode;
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_of_the_documentation_read_these_files() {
    let world = World::new();
    let template = chat(&world, "chat.jsonl").chat.template;
    let expected = payloads(|world| chat(world, "chat.jsonl")).await;
    let more = format!("packing.mode = \"chat\"\nchat.template = {template:?}\n");
    let found = payloads(|_| {
        let mut config = documented("chat.messages", &more, "sharegpt.jsonl");
        config.stream.seq_len = 255;
        config
    });
    assert!(found.await == expected);
    let found = payloads(|_| documented("source.content", "", "ids.jsonl"));
    let text = payloads(|_| config(&["documents.jsonl"])).await;
    assert_eq!(found.await.len(), text.len());
}
