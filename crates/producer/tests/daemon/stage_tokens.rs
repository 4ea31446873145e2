//! Each token of each document once over all stages, and the batches before a stage as without it.

use std::collections::BTreeMap;

use batchweave_core::ids::Seq;
use batchweave_core::provenance::Form;
use batchweave_core::tgb::Layout;
use batchweave_producer::config::{LastBatch, PackingMode};

use crate::stages::{BINS, Change, expected, with_stages};
use crate::support::{Corpus, World};

/// The tokens of a document of bytes, with the end token.
pub(crate) fn tokens(line: &str) -> Vec<u32> {
    let json: BTreeMap<String, serde_json::Value> = serde_json::from_str(line).unwrap();
    let text = json["text"].as_str().unwrap().as_bytes().to_vec();
    text.into_iter().map(u32::from).chain([256]).collect()
}

/// Returns the tokens of a batch, in which rows of a sequence share one, and the stride of its rows; 0 of bins, which follow one
/// another.
fn batch_tokens(slices: &[Vec<u8>], form: Form) -> (Vec<u32>, usize) {
    let (mut all, mut width) = (Vec::new(), 0);
    for payload in slices {
        let layout = Layout::parse(payload).unwrap();
        let array = layout.array("tokens").unwrap();
        let is_bins = array.shape.len() == 1;
        width = if is_bins { 0 } else { array.shape[1] as usize };
        let bytes = array.shape.iter().product::<u64>() as usize * 2;
        let data = &payload[array.offset as usize..][..bytes];
        let tokens: Vec<u32> = data
            .chunks_exact(2)
            .map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])))
            .collect();
        if is_bins {
            all.extend(tokens);
            continue;
        }
        for row in tokens.chunks_exact(width) {
            let shared = usize::from(form == Form::Sequence && !all.is_empty());
            all.extend_from_slice(&row[shared..]);
        }
    }
    (all, width)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_token_is_given_once_over_all_stages() {
    for (mode, stages) in [
        (
            PackingMode::Concat,
            [("packed", 1, 40, 8), ("long", 1, 61, 0)],
        ),
        (
            PackingMode::BestFit,
            [("long", 1, 61, 0), ("packed", 2, 11, 3)],
        ),
        (
            PackingMode::Concat,
            [("bins", 2, 40, BINS), ("packed", 1, 61, 5)],
        ),
        (
            PackingMode::Balanced,
            [("long", 1, 61, 0), ("bins", 3, 24, BINS)],
        ),
        (
            PackingMode::BestFit,
            [("bins", 2, 40, BINS), ("more", 1, 55, BINS)],
        ),
    ] {
        let world = World::new();
        let corpus = Corpus::new(9, 300);
        let mut config = World::config(&corpus.write(&world, 1), "a");
        config.packing.mode = mode;
        if mode == PackingMode::BestFit {
            config.packing.look_ahead = 25;
        }
        config.packing.balanced.window = 3;
        if mode == PackingMode::Balanced {
            let table = &mut config.packing.balanced;
            (table.tokens, table.micro_batches) = (32, 2);
        }
        config.packing.last_batch = LastBatch::Pad;
        let config = with_stages(config, &stages);
        let shapes: Vec<Change> = stages.iter().map(|stage| Change::Stage(stage.0)).collect();
        let plain = expected(&with_stages(config.clone(), &[]), &[]).await;
        world.open_producer(config.clone()).await;
        for (n, change) in shapes.iter().enumerate() {
            change.make(&world, &config, Ok(5 + 7 * n as Seq)).await;
        }
        world.run(config).await.unwrap();
        let payloads = world.payloads().await;
        assert_eq!(payloads[..5], plain[..5], "as without a stage");
        assert_ne!(payloads[5], plain[5]);
        let documents: Vec<Vec<u32>> = corpus.lines.iter().map(|line| tokens(line)).collect();
        let mut given: BTreeMap<(u64, u64), u32> = BTreeMap::new();
        for (sources, slices) in world.sources().await.iter().zip(&payloads) {
            let (found, width) = batch_tokens(slices, sources.form);
            let (mut at, mut row) = (0, 0);
            for piece in &sources.pieces {
                if sources.form == Form::Rows && piece.new_row && width > 0 {
                    at = row * width;
                    row += 1;
                }
                for n in 0..piece.items {
                    let (document, token) = (piece.unit, piece.skip + n);
                    assert_eq!(found[at], documents[document as usize][token as usize]);
                    // The first token of a piece, or of a sequence, is only looked at.
                    let is_learned = n > 0 || sources.form == Form::Sequence && at > 0;
                    *given.entry((document, token)).or_default() += u32::from(is_learned);
                    at += 1;
                }
            }
        }
        let all = (0..)
            .zip(&documents)
            .flat_map(|(d, tokens)| (0..tokens.len() as u64).map(move |t| (d, t)));
        for (document, token) in all {
            let count = given.get(&(document, token));
            assert!(
                count == Some(&1) || token == 0 && count == Some(&0),
                "{mode:?}: token {token} of document {document} was learned {count:?} times"
            );
        }
    }
}
