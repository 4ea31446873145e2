//! Rows from every place on; the values of pyarrow's files are compared in tests/daemon/formats.rs.

use std::path::PathBuf;

use super::*;
use crate::sources::tests::{list, options, raw, read};
use crate::sources::{Format, Place, ReadContent, ReadOptions};

fn with(messages: &str) -> ReadOptions {
    let mut options = options(Format::Auto);
    options.max_document_bytes = 10_000;
    options.content = ReadContent::Conversations(ConversationColumns {
        wanted: vec![messages.to_owned()],
        optional: vec!["tools".to_owned()],
        content_key: "content".to_owned(),
        verbatim: false,
        setting: "chat.messages",
    });
    options
}

#[tokio::test]
async fn rows_from_every_place_on_are_lines_of_jsonl() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/inputs");
    let lines = std::fs::read_to_string(folder.join("chat.jsonl")).unwrap();
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let wanted: Vec<_> = lines.lines().map(value).collect();
    for name in ["chat.parquet", "chat-json.parquet"] {
        let inputs = list(&folder.join(name)).await;
        let options = with("messages");
        let all = read(&inputs, &options, Place::default());
        let found: Vec<_> = raw(&all)
            .into_iter()
            .map(|row| value(row.unwrap()))
            .collect();
        assert_eq!(found, wanted, "{name}");
        for k in [0, 1, 15, 16, 17, 40, 59] {
            let rest = read(&inputs, &options, all[k].place);
            assert_eq!(raw(&rest), raw(&all[k..]), "{name} from {k}");
        }
    }
}

#[tokio::test]
async fn a_missing_column_is_named_with_the_existing_ones() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/inputs");
    let inputs = list(&folder.join("chat.parquet")).await;
    let units = read(&inputs, &with("turns"), Place::default());
    let why = raw(&units)[0].clone().unwrap_err();
    assert!(
        why.contains("which has source, messages, tools; name the right one"),
        "{why}"
    );
}
