//! Choices from surveys as folders of people give them.

use batchweave_daemon::survey::Unread;
use serde_json::json;

use super::*;

const LONG: &str = "a text of some length, as people write it";

fn group(format: &str, documents: &[Value]) -> FileGroup {
    FileGroup {
        format: format.to_owned(),
        words: format.to_owned(),
        files: 1,
        bytes: 100,
        first: format!("a.{format}"),
        documents: documents.to_vec(),
        ..FileGroup::default()
    }
}

fn survey(groups: &[FileGroup]) -> Survey {
    Survey {
        groups: groups.to_vec(),
        ..Survey::default()
    }
}

fn of_documents(documents: &[Value], field: Option<&str>) -> Result<Choice, Refusal> {
    choose(&survey(&[group("jsonl", documents)]), field)
}

fn text(field: &str) -> Content {
    let field = field.to_owned();
    Content::Text { field }
}

#[test]
fn the_text_of_a_known_name_is_chosen_and_the_others_are_named() {
    let found = of_documents(&[json!({"text": "x", "summary": LONG})], None).unwrap();
    assert_eq!(found.content, text("text"));
    assert_eq!(found.others, ["summary"]);
    let named = of_documents(&[json!({"text": "x", "summary": LONG})], Some("summary"));
    assert_eq!(named.unwrap().content, text("summary"));
}

#[test]
fn documents_without_the_field_are_counted() {
    let documents = [
        json!({"body": LONG}),
        json!({"body": LONG}),
        json!({"x": 1}),
    ];
    let found = of_documents(&documents, None).unwrap();
    assert_eq!((found.content, found.missing), (text("body"), (1, 3)));
}

#[test]
fn conversations_come_before_texts_and_their_roles_are_mapped() {
    let said = json!([{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]);
    let found = of_documents(&[json!({"conversations": said, "text": LONG})], None).unwrap();
    let Content::Chat { field, keys, roles } = found.content else {
        panic!("{found:?}");
    };
    assert_eq!(field, "conversations");
    assert_eq!(keys, ("from".to_owned(), "value".to_owned()));
    assert_eq!(roles["human"], "user");
    assert_eq!(roles["gpt"], "assistant");
    assert_eq!(found.others, ["text"]);
}

#[test]
fn preferred_and_rejected_answers_are_pairs() {
    let document = json!({"prompt": LONG, "chosen": LONG, "rejected": "no"});
    assert_eq!(
        of_documents(&[document], None).unwrap().content,
        Content::Pairs
    );
}

#[test]
fn ids_are_taken_by_name_with_the_end_that_all_lists_share() {
    let document = |last: u64| json!({"attention_mask": [1, 1], "input_ids": [5, 700, last]});
    let ids = |end| Content::Ids {
        field: "input_ids".to_owned(),
        largest: 700,
        end,
    };
    let ended = of_documents(&[document(2), document(2)], None).unwrap();
    assert_eq!(ended.content, ids(Some(2)));
    let open = of_documents(&[document(2), document(3)], None).unwrap();
    assert_eq!(open.content, ids(None));
    let masks = of_documents(&[json!({"attention_mask": [1, 1]})], None);
    assert!(matches!(masks, Err(Refusal::Nothing(_))), "{masks:?}");
}

#[test]
fn questions_with_answers_are_refused_with_the_line_that_makes_conversations() {
    let document = json!({"instruction": LONG, "output": LONG});
    let why = of_documents(std::slice::from_ref(&document), None)
        .unwrap_err()
        .to_string();
    assert!(
        why.contains("content: .instruction") && why.contains("--field output"),
        "{why}"
    );
    let named = of_documents(&[document], Some("output")).unwrap();
    assert_eq!(named.content, text("output"));
}

#[test]
fn a_refusal_names_the_fields_and_what_to_write() {
    let why = of_documents(&[json!({"label": "cat", "n": 3})], None).unwrap_err();
    let why = why.to_string();
    assert!(
        why.contains("label (text), n (number)") && why.contains("--field"),
        "{why}"
    );
    let why = of_documents(&[json!({"label": "cat"})], Some("body")).unwrap_err();
    assert!(why.to_string().starts_with("--field body: "), "{why}");
    assert_eq!(choose(&Survey::default(), None), Err(Refusal::Empty));
    let unread = Unread {
        files: 2,
        first: "a.pdf".to_owned(),
        why: "it is binary".to_owned(),
    };
    let only = Survey {
        unread: vec![unread],
        ..Survey::default()
    };
    let why = choose(&only, None).unwrap_err().to_string();
    assert!(
        why.contains("2 files, for example a.pdf: it is binary"),
        "{why}"
    );
}

#[test]
fn the_format_with_most_data_is_chosen_and_the_next_where_it_does_not_fit() {
    let mut lines = group("jsonl", &[json!({"text": LONG})]);
    let mut table = group("csv", &[json!({"text": LONG})]);
    let mut prose = group("text", &[json!(LONG)]);
    prose.prose = true;
    (lines.bytes, table.bytes, prose.bytes) = (100, 200, 900);
    let groups = [lines, table, prose];
    assert_eq!(choose(&survey(&groups), None).unwrap().group, 1);
    let mut other = groups.clone();
    other[1].documents = vec![json!({"n": 1})];
    assert_eq!(choose(&survey(&other), None).unwrap().group, 0);
    let mut much = groups.clone();
    much[2].bytes = 9000;
    assert_eq!(choose(&survey(&much), None).unwrap().group, 2);
    much[2].prose = false;
    assert_eq!(
        choose(&survey(&much), None).unwrap().group,
        1,
        "programs come last"
    );
}

#[test]
fn large_texts_are_read_by_line() {
    let mut texts = group("text", &[json!(LONG)]);
    let chosen = |group: &FileGroup| {
        choose(&survey(std::slice::from_ref(group)), None)
            .unwrap()
            .content
    };
    assert_eq!(chosen(&texts), Content::Files { by_line: false });
    texts.largest = ONE_DOCUMENT_MAX + 1;
    assert_eq!(chosen(&texts), Content::Files { by_line: true });
    texts.fault = Some("a.txt: invalid UTF-8".to_owned());
    assert!(choose(&survey(&[texts]), None).is_err());
}

#[test]
fn samples_of_a_tar_have_texts_alone_or_with_pictures() {
    let of = |sample: Value| choose(&survey(&[group("webdataset", &[sample])]), None).unwrap();
    assert_eq!(of(json!({"txt": "x"})).content, text("txt"));
    let json = of(json!({"json": {"caption": "x", "n": 1}, "cls": 1}));
    assert_eq!(json.content, text("json.caption"));
    let captions = of(json!({"jpg": 900, "txt": "x"}));
    let expected = Content::Captions {
        field: "txt".to_owned(),
        pictures: "jpg".to_owned(),
    };
    assert_eq!(captions.content, expected);
}
