//! A panic in the work on one document makes it a bad document and ends neither the daemon nor the input.

use batchweave_daemon::Exit;
use batchweave_producer::config::{OnBadDocument, TokenizerKind};
use batchweave_producer::tokenizer::Encoding;
use batchweave_producer::{Outcome, RunError};

use crate::support::World;

/// o200k encodes texts with this character by another library, which panics on a long run of blanks.
fn poison() -> String {
    format!("{{\"text\":\"'\u{17f}{}x\"}}\n", " ".repeat(1_000_000))
}

fn good(from: usize, to: usize) -> String {
    let line = |n| format!("{{\"text\":\"document {n} of this file\"}}\n");
    (from..to).map(line).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_makes_the_tokenizer_panic_is_a_bad_document() {
    let mut payloads = Vec::new();
    for poison in [poison(), String::new()] {
        let world = World::new();
        let path = world.folder.path().join("a.jsonl");
        std::fs::write(&path, good(0, 40) + &poison + &good(40, 80)).unwrap();
        let mut config = World::config(&[path.display().to_string()], "a");
        config.tokenizer.kind = TokenizerKind::Embedded;
        config.tokenizer.name = Encoding::O200k;
        if !poison.is_empty() {
            let why = world.run(config.clone()).await.unwrap_err();
            assert!(matches!(why, RunError::Document(_)), "{why}");
            assert_eq!(why.exit(), Exit::BadInput);
            for word in ["a.jsonl:41: ", "panic", "on_bad_document"] {
                assert!(why.to_string().contains(word), "{word} in {why}");
            }
        }
        config.source.on_bad_document = OnBadDocument::Skip;
        let outcome = world.run(config).await.unwrap();
        assert!(
            matches!(outcome, Outcome::Finished { batches: 5.. }),
            "{outcome:?}"
        );
        payloads.push(world.payloads().await);
    }
    assert!(payloads[0] == payloads[1], "all but the bad document");
}
