//! Surveys of folders as people have them.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::*;

fn write(folder: &Path, name: &str, content: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

async fn surveyed(folder: &Path, outputs: &Path, left_out: &[String]) -> Survey {
    let mut survey = survey(folder.to_str().unwrap(), outputs, left_out)
        .await
        .unwrap();
    let prefix = format!("{}/", folder.display());
    for group in &mut survey.groups {
        for path in group.paths.iter_mut().chain([&mut group.first]) {
            *path = path.replace(&prefix, "");
        }
    }
    survey
}

fn group<'a>(survey: &'a Survey, format: &str) -> &'a FileGroup {
    let mut groups = survey.groups.iter();
    groups.find(|group| group.format == format).unwrap()
}

#[tokio::test]
async fn a_folder_is_sorted_by_format_and_each_file_is_accounted_for() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(
        root,
        "a.jsonl",
        b"{\"body\": \"one\"}\n\n{\"body\": \"two\"}\n",
    );
    write(root, "deep/b.jsonl", b"{\"body\": \"three\"}\n");
    write(root, "notes.md", b"# A note");
    write(root, "tool.py", b"print(1)");
    write(root, "x.pdf", b"%PDF");
    write(root, ".hidden/c.jsonl", b"{}");
    let survey = surveyed(root, Path::new("/"), &[]).await;
    let lines = group(&survey, "jsonl");
    assert_eq!((lines.files, lines.bytes), (2, 51));
    assert_eq!(lines.first, "a.jsonl");
    assert_eq!(lines.paths, ["*.jsonl", "deep/**/*.jsonl"]);
    assert_eq!(lines.documents[0], json!({"body": "one"}));
    assert_eq!((lines.documents.len(), lines.estimated), (3, 3.0));
    let texts: Vec<_> = survey
        .groups
        .iter()
        .filter(|g| g.format == "text")
        .collect();
    assert_eq!(texts.len(), 2, "prose and programs are kept apart");
    assert_eq!(texts[0].documents, [json!("# A note")]);
    assert_eq!(survey.unread[0].files, 1);
    assert!(survey.left_out[0].first.contains(".hidden"), "{survey:?}");
}

#[tokio::test]
async fn one_kind_of_files_needs_no_pattern_unless_the_stream_lies_among_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root, "a.txt", b"one");
    write(root, "sub/b.txt", b"two");
    let apart = surveyed(root, Path::new("/"), &[]).await;
    assert_eq!(apart.groups[0].paths, [root.to_str().unwrap()]);
    write(root, "run.toml", b"x = 1");
    write(root, "stream/log/1.txt", b"three");
    let out = ["run.toml", "stream"].map(|name| root.join(name).display().to_string());
    let within = surveyed(root, root, &out).await;
    assert_eq!(within.groups.len(), 1, "{within:?}");
    assert_eq!(within.groups[0].paths, ["*.txt", "sub/**/*.txt"]);
    assert_eq!(within.groups[0].files, 2);
}

#[tokio::test]
async fn a_file_that_a_pattern_would_match_is_kept_out_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root, "a.json", b"{\"text\": \"one\"}\n");
    write(root, "tokenizer.json", b"{}");
    let out = [root.join("tokenizer.json").display().to_string()];
    let survey = surveyed(root, Path::new("/"), &out).await;
    assert_eq!(group(&survey, "jsonl").paths, ["a.json"]);
}

#[tokio::test]
async fn a_file_of_another_form_has_no_documents_and_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.json", b"[\n {\"text\": \"one\"}\n]\n");
    let survey = surveyed(folder.path(), Path::new("/"), &[]).await;
    let found = group(&survey, "jsonl");
    assert_eq!(found.documents.len(), 0);
    let why = found.fault.as_deref().unwrap();
    assert!(
        why.contains("a.json:1") && why.contains("jq -c '.[]'"),
        "{why}"
    );
}

#[tokio::test]
async fn an_empty_folder_has_no_groups_and_an_unreadable_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = surveyed(folder.path(), Path::new("/"), &[]).await;
    assert_eq!(empty, Survey::default());
    let link = folder.path().join("a.jsonl");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let why = survey(folder.path().to_str().unwrap(), Path::new("/"), &[])
        .await
        .unwrap_err();
    assert!(why.to_string().contains("a.jsonl: can't be read"), "{why}");
}
