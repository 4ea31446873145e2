//! `show --decode` and `where` on batches of the real producer, compared with the source.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_producer::config::{LastBatch, PackingMode, ProducerConfig, TokenizerKind};
use batchweave_producer::packing::{ArraySpec, Extra};
use batchweave_producer::tokenizer::Encoding;
use batchweave_producer::{Outcome, run_on};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::world::World;

pub(crate) struct Made {
    pub(crate) world: World,
    /// Outside the root, which must hold nothing but the stream.
    _folder: tempfile::TempDir,
    file: String,
    pub(crate) texts: Vec<String>,
}

pub(crate) async fn produced(edit: impl FnOnce(&mut ProducerConfig)) -> Made {
    let world = World::new();
    let text = |n: usize| format!("Text {n} says é{}", " over and out".repeat(n % 7));
    let texts: Vec<String> = (0..40).map(text).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("source.jsonl");
    let line = |text: &String| serde_json::json!({"text": text, "n": [1, 2]}).to_string() + "\n";
    std::fs::write(&file, texts.iter().map(line).collect::<String>()).unwrap();
    let file = file.display().to_string();
    let mut config = ProducerConfig::default();
    config.store.url = world.url();
    let stream = &mut config.stream;
    (stream.slices, stream.rows_per_slice, stream.seq_len) = (2, 2, 16);
    config.producer.name = "a".into();
    config.source.paths = vec![file.clone()];
    config.source.epochs = 2;
    config.tokenizer.kind = TokenizerKind::Bytes;
    config.packing.last_batch = LastBatch::Pad;
    edit(&mut config);
    let outcome = run_on(world.store().await, config, CancellationToken::new()).await;
    assert!(matches!(outcome.unwrap(), Outcome::Finished { .. }));
    Made {
        world,
        _folder: folder,
        file,
        texts,
    }
}

impl Made {
    fn steps(&self) -> u64 {
        let status = self.world.json(&["status"]);
        status["head"]["steps"].as_u64().unwrap()
    }

    /// The rows of all steps, with their steps.
    pub(crate) fn rows(&self) -> Vec<(u64, Value)> {
        let shown = |step: u64| {
            let shown = self.world.json(&["show", &step.to_string(), "--decode"]);
            let rows = shown["rows"].as_array().unwrap().clone();
            rows.into_iter().map(move |row| (step, row))
        };
        (0..self.steps()).flat_map(shown).collect()
    }

    /// Each piece of a row: step, slice, line from 0, pass, tokens before it, tokens, text.
    pub(crate) fn pieces(&self) -> Vec<(u64, u64, usize, u64, usize, usize, String)> {
        let mut pieces = Vec::new();
        for (step, row) in self.rows() {
            for part in row["documents"].as_array().unwrap() {
                let number = |field: &str| part[field].as_u64().unwrap();
                let source = part["source"].as_str().unwrap();
                let line = source.strip_prefix(&format!("{}:", self.file)).unwrap();
                pieces.push((
                    step,
                    row["slice"].as_u64().unwrap(),
                    line.parse::<usize>().unwrap() - 1,
                    number("pass"),
                    number("skip") as usize,
                    number("tokens") as usize,
                    part["text"].as_str().unwrap_or_default().to_owned(),
                ));
            }
        }
        pieces
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn show_decodes_rows_and_names_their_documents() {
    for mode in [PackingMode::Concat, PackingMode::BestFit] {
        let made = produced(|config| config.packing.mode = mode).await;
        let pieces = made.pieces();
        let mut seen = BTreeSet::new();
        for (_, _, line, pass, skip, tokens, text) in &pieces {
            // Tokens are bytes here, and the end token is the last.
            let whole = made.texts[*line].as_bytes();
            let own = &whole[(*skip).min(whole.len())..(skip + tokens).min(whole.len())];
            let mut expected = String::from_utf8_lossy(own).into_owned();
            if skip + tokens > whole.len() {
                expected.push_str("<|endoftext|>");
            }
            assert_eq!(text, &expected, "line {line} from {skip} on");
            seen.insert((*pass, *line));
        }
        assert_eq!(seen.len(), 80, "every document of both passes");
        // `where` finds the same places.
        for line in [0, 17, 39] {
            let document = format!("source.jsonl:{}", line + 1);
            let found = made.world.json(&["where", &document]);
            let mut said = BTreeSet::new();
            for one in found["found"].as_array().unwrap() {
                for slice in one["slices"].as_array().unwrap() {
                    said.insert((
                        one["step"].as_u64().unwrap(),
                        slice.as_u64().unwrap(),
                        one["pass"].as_u64().unwrap(),
                    ));
                }
            }
            let own = pieces.iter().filter(|piece| piece.2 == line);
            let shown = own.map(|piece| (piece.0, piece.1, piece.3));
            assert_eq!(said, shown.collect::<BTreeSet<_>>(), "line {line}");
        }
    }
}

/// Of a document in `best_fit`, all but its first token is learned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_is_divided_where_the_loss_mask_changes() {
    let made = produced(|config| {
        config.packing.mode = PackingMode::BestFit;
        config.packing.fields = vec![Extra::LossMask];
    })
    .await;
    let mut compared = 0;
    for (_, row) in made.rows() {
        for part in row["documents"].as_array().unwrap() {
            let runs = part["runs"].as_array().unwrap();
            let learned: Vec<_> = runs.iter().map(|run| run["learned"].as_bool()).collect();
            assert_eq!(learned, [Some(false), Some(true)][..runs.len()]);
            assert_eq!(runs[0]["tokens"], 1);
            let tokens: u64 = runs.iter().map(|run| run["tokens"].as_u64().unwrap()).sum();
            assert_eq!(part["tokens"], tokens);
            let texts = runs.iter().map(|run| run["text"].as_str().unwrap());
            let text: String = texts.collect();
            // A row may begin inside a character.
            if text.is_ascii() {
                assert_eq!(part["text"], text);
                compared += 1;
            }
        }
    }
    assert!(compared > 40, "{compared}");
    let plain = produced(|_| ()).await;
    let (_, row) = plain.rows().swap_remove(0);
    assert!(row["documents"][0]["runs"].is_null());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_vocabulary_is_decoded_and_says_so_in_text() {
    let made = produced(|config| {
        config.tokenizer.kind = TokenizerKind::Embedded;
        config.tokenizer.name = Encoding::Gpt2;
        config.source.epochs = 1;
    })
    .await;
    let mut texts = vec![String::new(); made.texts.len()];
    let mut last = (usize::MAX, 0);
    for (_, _, line, pass, skip, tokens, text) in made.pieces() {
        // The token that two rows share is in both.
        let shared = last == (line, skip + 1);
        if pass == 0 && !shared && !text.contains('\u{fffd}') {
            texts[line].push_str(&text);
        }
        last = (line, skip + tokens);
    }
    let found = texts.iter().zip(&made.texts);
    let whole = found.filter(|(found, text)| **found == format!("{text}<|endoftext|>"));
    assert!(whole.count() > 5, "{texts:?}");
    let first = format!("slice 0, row 0\n--- {}:1, ", made.file);
    made.world
        .run(&["show", "0", "--slice", "0", "--decode"])
        .prints(&[&first, "Text 0 says"]);
    made.world
        .run(&["where", "source.jsonl:3", "--to", "5"])
        .prints(&["STEP", "source.jsonl:3", "a, seq "]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_are_named_too() {
    let made = produced(|config| {
        config.packing.mode = PackingMode::Opaque;
        config.stream.seq_len = 1;
        config.packing.arrays = vec![ArraySpec {
            name: "n".into(),
            dtype: batchweave_core::tgb::Dtype::I32,
            shape: Vec::new(),
            from: String::new(),
            image: None,
            path: false,
            shortest: None,
            base64: false,
        }];
    })
    .await;
    let lines: Vec<usize> = made.pieces().into_iter().map(|piece| piece.2).collect();
    let twice: Vec<usize> = (0..40).chain(0..40).collect();
    assert_eq!(lines, twice);
}

/// `--sources` has the documents of `--decode`, without the text, of all steps of the provenance object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_cover_all_steps_of_one_provenance_object() {
    for mode in [PackingMode::Concat, PackingMode::BestFit] {
        let made = produced(|config| {
            config.packing.mode = mode;
            config.source.epochs = 1;
            config.commit.max_batches = 3;
        })
        .await;
        let mut decoded: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for (step, row) in made.rows() {
            for part in row["documents"].as_array().unwrap() {
                let mut part = part.clone();
                for (key, value) in [("slice", &row["slice"]), ("row", &row["row"])] {
                    part[key] = value.clone();
                }
                part.as_object_mut()
                    .unwrap()
                    .retain(|key, _| !["text", "runs"].contains(&key.as_str()));
                decoded.entry(step).or_default().push(part);
            }
        }
        let key = |step: u64| {
            let shown = made.world.json(&["show", &step.to_string()]);
            shown["tgb"]["provenance"].as_str().unwrap().to_owned()
        };
        let keys: Vec<String> = (0..made.steps()).map(key).collect();
        for step in [0, made.steps() / 2, made.steps() - 1] {
            let shown = made.world.json(&["show", &step.to_string(), "--sources"]);
            assert!(shown["rows"].is_null() && shown["slices"].is_null());
            let found = shown["sources"].as_array().unwrap();
            assert_eq!(found[0]["step"], step, "its own first");
            let mut steps = BTreeSet::new();
            for one in found {
                let at = one["step"].as_u64().unwrap();
                assert_eq!(one["documents"].as_array(), decoded.get(&at), "step {at}");
                assert!(steps.insert(at));
            }
            let same = |at: &u64| keys[*at as usize] == keys[step as usize];
            assert_eq!(
                steps,
                (0..made.steps()).filter(same).collect::<BTreeSet<u64>>()
            );
        }
        let text = made.world.run(&["show", "1", "--sources"]);
        text.prints(&["SKIPPED", "source.jsonl:"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_provenance_documents_end_at_end_tokens_and_where_says_why_it_finds_none() {
    let made = produced(|config| config.packing.provenance = false).await;
    let mut ends = 0;
    for (_, row) in made.rows() {
        for part in row["documents"].as_array().unwrap() {
            assert!(part["source"].is_null());
            ends += u64::from(part["text"].as_str().unwrap().ends_with("<|endoftext|>"));
        }
    }
    assert!(ends >= 80, "{ends}");
    let ran = made.world.run(&["show", "0", "--sources"]);
    ran.fails(
        1,
        &["step 0 of", "has no source documents", "packing.provenance"],
    );
    let ran = made.world.run(&["where", "source.jsonl:3"]);
    ran.fails(1, &["packing.provenance", "is in none of the steps"]);
    let ran = made.world.run(&["where", "other.jsonl:3"]);
    ran.fails(1, &["reads a file other.jsonl", "source.jsonl"]);
    for wrong in ["source.jsonl", "source.jsonl:0", ":3", "source.jsonl:x"] {
        let ran = made.world.run(&["where", wrong]);
        ran.fails(64, &["must be FILE:LINE"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_provenance_is_a_problem_that_verify_names() {
    let made = produced(|_| ()).await;
    let shown = made.world.json(&["show", "0"]);
    let key = shown["tgb"]["provenance"].as_str().unwrap();
    made.world
        .run(&["verify"])
        .prints(&["the stream is sound", "; 0 not named"]);
    std::fs::remove_file(made.world.path(key)).unwrap();
    let ran = made.world.run(&["verify"]);
    assert!(ran.out.contains("the source documents of"), "{ran:?}");
    let ran = made.world.run(&["show", "0", "--decode"]);
    ran.fails(76, &["is missing", "restore it"]);
}

/// The figures of `status` are those of the real producer, without a look at its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_counts_tokens_documents_and_passes() {
    let made = produced(|_| ()).await;
    let (world, steps) = (&made.world, made.steps());
    let status = world.json(&["status"]);
    let totals = &status["totals"];
    assert_eq!(
        (&totals["exact"], &totals["documents_exact"]),
        (&true.into(), &true.into())
    );
    assert_eq!(totals["documents"], 80, "40 in each of 2 passes");
    let shown = (0..steps).map(|step| world.json(&["show", &step.to_string()]));
    let tgbs: Vec<Value> = shown.map(|shown| shown["tgb"].clone()).collect();
    let number = |value: &Value| value.as_u64().unwrap();
    let tokens: u64 = tgbs.iter().map(|tgb| number(&tgb["tokens"])).sum();
    assert_eq!(totals["tokens"], tokens, "without padding");
    let parts = tgbs.iter().flat_map(|tgb| tgb["parts"].as_array().unwrap());
    let stored: u64 = parts.map(|part| number(&part["length"])).sum();
    assert_eq!(totals["bytes"], stored);
    let input = &status["inputs"][0];
    assert_eq!(
        (&input["producer"], &input["passes"]),
        (&"a".into(), &2.into())
    );
    assert!(
        status["rate"]["last_commit_seconds"].as_f64().is_some(),
        "{status}"
    );
    let data = world.path("data");
    std::fs::remove_dir_all(data).unwrap();
    let without = world.json(&["status"]);
    assert_eq!(without["totals"]["tokens"], totals["tokens"]);
    assert_eq!(
        without["totals"]["documents"],
        Value::Null,
        "unknown, and no error"
    );
    world
        .run(&["status"])
        .prints(&["a         finished", "all read\n"]);
}
