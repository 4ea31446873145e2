//! The file has the keys of the choice, and each is one that `batchweave run` knows.

use batchweave_daemon::survey::Survey;
use serde_json::{Value, json};

use super::super::choose::choose;
use super::*;

fn run_file(format: &str, document: Value, template: Option<&str>) -> String {
    let group = FileGroup {
        format: format.to_owned(),
        files: 3,
        paths: vec!["data/\"a\"/*".to_owned()],
        documents: vec![document.clone(), document],
        estimated: 2.0,
        ..FileGroup::default()
    };
    let survey = Survey {
        groups: vec![group],
        ..Survey::default()
    };
    let choice = choose(&survey, None).unwrap();
    let group = &survey.groups[0];
    let plan = Plan {
        store: "./stream",
        store_keys: vec![("endpoint", "http://127.0.0.1:9000")],
        group,
        shape: Shape::for_choice(&choice, group),
        model: None,
        template: template.map(str::to_owned),
        choice: &choice,
    };
    plan.run_file()
}

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|own| own == *line), "{line} in {text}");
    }
    let width = text.lines().map(str::len).max();
    assert!(width <= Some(150), "{text}");
}

#[test]
fn a_text_is_named_by_field_or_column() {
    let lines = run_file("jsonl", json!({"body": "x ".repeat(15)}), None);
    has(
        &lines,
        &[
            "url = \"./stream\"",
            "endpoint = \"http://127.0.0.1:9000\"",
            "paths = [\"data/\\\"a\\\"/*\"]",
            "field = \"body\"",
            "mode = \"concat\"",
            "last_batch = \"pad\"",
            "name = \"gpt2\"",
        ],
    );
    let rows = run_file("parquet", json!({"body": "x ".repeat(15)}), None);
    has(&rows, &["column = \"body\""]);
}

#[test]
fn conversations_have_a_template_and_their_names() {
    let said = json!([{"from": "human", "value": "hi"}]);
    let text = run_file("jsonl", json!({"conversations": said}), Some("chat.jinja"));
    has(
        &text,
        &[
            "mode = \"chat\"",
            "template = \"chat.jinja\"",
            "messages = \"conversations\"",
            "role_key = \"from\"",
            "roles = { \"human\" = \"user\" }",
        ],
    );
    assert!(text.contains("No model's template was found"), "{text}");
}

#[test]
fn ids_have_a_vocabulary_that_holds_them_all() {
    let text = run_file("jsonl", json!({"input_ids": [9, 70_000, 2]}), None);
    has(
        &text,
        &[
            "content = \"ids\"",
            "kind = \"none\"",
            "vocab_size = 131072",
            "end_token_id = 2",
        ],
    );
}
