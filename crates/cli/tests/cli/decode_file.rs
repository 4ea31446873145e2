//! `show --decode` on a stream made with a tokenizer.json: the text is that of the `tokenizers` library.

use std::path::{Path, PathBuf};

use batchweave_producer::config::{PackingMode, ProducerConfig, TokenizerKind};
use serde_json::{Map, Value, json};
use tokenizers::Tokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use crate::decode::{Made, produced};

const END: &str = "<|end|>";
/// The first id after the vocabulary, as the library numbers added tokens.
const END_ID: u32 = 261;

/// Returns a byte-level tokenizer of few merges, with a special token.
fn tokenizer_json() -> String {
    let mut alphabet: Vec<String> = ByteLevel::alphabet().iter().map(char::to_string).collect();
    alphabet.sort();
    alphabet.extend(["Te", "xt", "Text", "Ġo", "Ġov"].map(str::to_owned));
    let ids = alphabet.into_iter().zip(0_u32..);
    let vocab: Map<String, Value> = ids.map(|(token, id)| (token, id.into())).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [{"id": END_ID, "content": END, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
            "merges": ["T e", "x t", "Te xt", "Ġ o", "Ġo v"]},
    })
    .to_string()
}

struct World {
    made: Made,
    _folder: tempfile::TempDir,
    file: PathBuf,
    library: Tokenizer,
}

async fn world(edit: impl FnOnce(&mut ProducerConfig)) -> World {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    std::fs::write(&file, tokenizer_json()).unwrap();
    let path = file.display().to_string();
    let made = produced(|config| {
        config.tokenizer.kind = TokenizerKind::File;
        config.tokenizer.path = path;
        config.tokenizer.end_token = END.into();
        edit(config);
    });
    let mut library = Tokenizer::from_file(&file).unwrap();
    library.set_encode_special_tokens(true);
    World {
        made: made.await,
        _folder: folder,
        file,
        library,
    }
}

impl World {
    /// The only stored tokenizer.
    fn stored(&self) -> PathBuf {
        let folder = self.made.world.path("tokenizers");
        let mut all = std::fs::read_dir(folder).unwrap();
        let stored = all.next().unwrap().unwrap().path();
        assert!(all.next().is_none(), "one tokenizer for a stream");
        stored
    }

    fn show(&self, more: &[&str]) -> crate::world::Ran {
        let args = [&["show", "0", "--decode"], more].concat();
        self.made.world.run(&args)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tokenizer_file_decodes_as_the_library_does() {
    for mode in [PackingMode::Concat, PackingMode::BestFit] {
        let world = world(|config| config.packing.mode = mode).await;
        assert_eq!(
            std::fs::read(world.stored()).unwrap(),
            tokenizer_json().as_bytes()
        );
        let (mut ends, mut cut) = (0, 0);
        for (_, _, line, _, skip, tokens, text) in world.made.pieces() {
            let document = world.made.texts[line].as_str();
            let encoded = world.library.encode(document, false).unwrap();
            let whole = [encoded.get_ids(), &[END_ID]].concat();
            let expected = world.library.decode(&whole[skip..skip + tokens], false);
            assert_eq!(text, expected.unwrap(), "line {line} from {skip} on");
            ends += usize::from(text.ends_with(END));
            cut += usize::from(text.contains('\u{fffd}'));
        }
        assert!(ends >= 80, "special tokens are visible: {ends}");
        assert!(
            cut > 0 || mode == PackingMode::BestFit,
            "no character is cut by a row"
        );
        world
            .made
            .world
            .run(&["verify"])
            .prints(&["the stream is sound"]);
        world.made.world.run(&["delete"]).prints(&["tokenizers"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_provenance_documents_end_at_the_producer_s_end_token() {
    let world = world(|config| config.packing.provenance = false).await;
    let mut ends = 0;
    for (_, row) in world.made.rows() {
        for part in row["documents"].as_array().unwrap() {
            let text = part["text"].as_str().unwrap();
            assert!(!text.trim_end_matches(END).contains(END), "{text}");
            ends += u64::from(text.ends_with(END));
        }
    }
    assert!(ends >= 80, "{ends}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_or_missing_file_is_named_with_the_remedy() {
    let world = world(|_| ()).await;
    let (stored, file) = (world.stored(), world.file.clone());
    let key = stored.file_name().unwrap().to_str().unwrap().to_owned();
    let mut bytes = std::fs::read(&stored).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&stored, &bytes).unwrap();
    let damaged = world.show(&[]);
    damaged.fails(
        76,
        &[&key, "damaged, or another tokenizer", "restart a producer"],
    );
    world
        .show(&["--tokenizer", text(&file)])
        .prints(&["Text 0 says"]);
    std::fs::remove_file(&stored).unwrap();
    let missing = world.show(&[]);
    missing.fails(
        1,
        &["keeps no file of its tokenizer", "pass --tokenizer FILE"],
    );
    world
        .show(&["--tokenizer", text(&file)])
        .prints(&["Text 0 says"]);
    let other = file.with_file_name("other.json");
    std::fs::write(&other, tokenizer_json() + "\n").unwrap();
    let wrong = world.show(&["--tokenizer", text(&other)]);
    wrong.fails(
        65,
        &[
            "not the file that made the tokens",
            "name the file that its producers use",
        ],
    );
    let absent = world.show(&["--tokenizer", "/nowhere/t.json"]);
    absent.fails(65, &["--tokenizer /nowhere/t.json: "]);
}
