//! The first inputs of each target: golden files, and the output of encoders where there is none.

use std::fs;
use std::path::PathBuf;

use batchweave_core::ids::{Hash, Nonce};
use batchweave_core::inputs::{Chain, LinkId, PinnedFile};
use batchweave_core::manifest::Record;
use batchweave_core::tgb::{Dtype, HEADER_BYTES, Layout, TRAILER_BYTES, check_object};
use batchweave_core::{json, keys};
use serde_json::Value;

fn golden(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../golden");
    fs::read(folder.join(name)).unwrap()
}

fn lines(name: &str) -> Vec<String> {
    let text = String::from_utf8(golden(name)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Lines of a key and an object.
fn keyed(name: &str) -> Vec<(String, Vec<u8>)> {
    let lines = lines(name);
    let split = |line: &String| {
        let (key, object) = line.split_once(' ').unwrap();
        (key.to_owned(), format!("{object}\n").into_bytes())
    };
    lines.iter().map(split).collect()
}

fn objects(name: &str, folder: &str) -> Vec<Vec<u8>> {
    let all = keyed(name).into_iter();
    all.filter(|(key, _)| key.contains(folder))
        .map(|(_, object)| object)
        .collect()
}

/// The messages that `side` sends.
fn messages(side: &str) -> Vec<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let of_side = |line: &String| {
        let mut words = line.split(' ');
        let hex = (words.next() == Some(side)).then(|| words.nth(1).unwrap())?;
        Some(hex.as_bytes().chunks(2).map(byte).collect())
    };
    let files = ["socket-v1.txt", "socket-v1-reports.txt"];
    let all: Vec<String> = files.iter().flat_map(|file| lines(file)).collect();
    all.iter().filter_map(of_side).collect()
}

pub(crate) fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "stream" => vec![golden("stream-v1.json"), golden("stream-v1/stream.json")],
        "record" => [records(), vec![golden("log-v2-why.jsonl")]].concat(),
        "fold" => vec![history(b'l'), history(b'a'), turns()],
        "fork" => vec![golden("fork-v1.json")],
        "snapshot" => vec![golden("snapshot-v1.json"), plain_snapshot()],
        "segment" => segments(),
        "repair" => vec![golden("repair-v1.json")],
        "intent" => intents(),
        "intent_key" => keyed("intents-v1-carried.txt")
            .into_iter()
            .map(|(key, _)| key.into())
            .collect(),
        "inputs" => links(),
        "cursor" => cursors(),
        "mark" => objects("jobs-v1.txt", "/marks/"),
        "progress" => objects("jobs-v1.txt", "/progress/"),
        "ledger" => [
            objects("jobs-v1.txt", "/ledger/"),
            vec![golden("ledger-v2.json")],
        ]
        .concat(),
        "values" => vec![golden("values-v1.bwr")],
        "keys" => vec![listing()],
        "data_object" => vec![golden("tgb-v1-equal.tgb"), golden("tgb-v1-unequal.tgb")],
        "frame" => frames(),
        "index" => indexes(),
        "ranges" => ranges(),
        "payload" => payloads(),
        "bins" => vec![golden("bins-v1.safetensors")],
        "provenance" => provenance(),
        "from_rank" => messages("rank"),
        "from_daemon" => messages("daemon"),
        "saved_state" => states(),
        "http_head" => heads(),
        "listed_name" => vec![b"data/p%40x/%3D%2f+a".to_vec(), b"100%".to_vec()],
        _ => Vec::new(),
    }
}

fn records() -> Vec<Vec<u8>> {
    lines("log-v1.jsonl")
        .into_iter()
        .map(String::into_bytes)
        .collect()
}

/// The entries of the golden log; batches continue from their producer's cursor.
fn history(order: u8) -> Vec<u8> {
    let mut text = vec![order];
    for (version, record) in records().iter().enumerate() {
        let record = Record::from_json(&[&record[..], b"\n"].concat(), version as u64).unwrap();
        for entry in record.entries {
            let mut entry = serde_json::to_value(&entry).unwrap();
            if entry.get("cursor_before").is_some() {
                entry["cursor_before"] = "0".repeat(64).into();
            }
            text.extend(serde_json::to_vec(&entry).unwrap());
            text.push(b'\n');
        }
        text.push(b'\n');
    }
    text
}

/// Two batches of a lane that waits, then its turn.
fn turns() -> Vec<u8> {
    let text = String::from_utf8(history(b'l')).unwrap();
    let records: Vec<&str> = text[1..].split("\n\n").collect();
    let (first, second) = (records[0], records[1]);
    format!(
        "l{second}\n\n{}\n\n{first}\n\n{}\n\n",
        records[3], records[2]
    )
    .into_bytes()
}

/// Only a producer, without the largest fields.
fn plain_snapshot() -> Vec<u8> {
    let snapshot = golden("snapshot-v1.json");
    let mut value: Value = serde_json::from_slice(&snapshot).unwrap();
    let fields = value.as_object_mut().unwrap();
    fields.remove("digest");
    fields["jobs"] = serde_json::json!({});
    fields["quarantine"] = serde_json::json!([]);
    json::compact(&value)
}

fn segments() -> Vec<Vec<u8>> {
    let text = String::from_utf8(golden("segment-v1-ends.txt")).unwrap();
    let begin = text.lines().next().unwrap();
    let steps = begin.split_once("\"steps\":[").unwrap();
    let end = steps.1.find(",{\"step\":1,").unwrap();
    let first = &steps.1[..end];
    let short = format!("{}\"steps\":[{first}]}}", steps.0);
    vec![format!("+{first}\n").into_bytes(), short.into_bytes()]
}

fn intents() -> Vec<Vec<u8>> {
    let all = keyed("intents-v1.txt").into_iter();
    all.map(|(key, object)| [key.as_bytes(), b"\n", &object].concat())
        .collect()
}

fn file(name: &str) -> PinnedFile {
    PinnedFile::new(name.to_owned(), 7, name.as_bytes(), b"")
}

fn links() -> Vec<Vec<u8>> {
    let mut chain = Chain::default();
    let (_, first) = chain.grow((1, Nonce([7; 8])), &[file("a"), file("b")]);
    let (_, second) = chain.grow((1, Nonce([7; 8])), &[file("a"), file("b"), file("c")]);
    let line = |name| serde_json::to_string(&file(name)).unwrap();
    let pieces = format!("+\n{},{}\n+\n{}", line("a"), line("b"), line("c"));
    let links = first.into_iter().chain(second).map(|(_, bytes)| bytes);
    links.chain([pieces.into_bytes()]).collect()
}

fn cursors() -> Vec<Vec<u8>> {
    let inputs = LinkId {
        epoch: 1,
        nonce: Nonce([7; 8]),
        files: 3,
        hash: Hash([5; 32]),
    };
    let own = serde_json::json!({"format": 1, "inputs": inputs, "at": {"file": 3}});
    vec![
        own.to_string().into_bytes(),
        br#"{"b":[1,2.5,-3e-7,null,true],"a":"x\n\u00e4"}"#.to_vec(),
        b"null".to_vec(),
    ]
}

/// A key of each kind.
fn listing() -> Vec<u8> {
    let mut all: Vec<String> = ["intents-v1.txt", "jobs-v1.txt"]
        .iter()
        .flat_map(|name| keyed(name))
        .map(|(key, _)| key)
        .collect();
    let hash = "0".repeat(64);
    all.extend([
        keys::log(3),
        keys::repair(3),
        keys::snapshot(3),
        keys::segment(0),
        format!("inputs/a/1-0101010101010101/000000000002-{hash}.json"),
        "data/a/1-0101010101010101/000000000000-000000000001.0000000000000000.0.tgb".into(),
        "data/a/1-0101010101010101/000000000000-000000000001.0000000000000000.0.sources".into(),
        "jobs/llm@4/1/progress/alive-000000000001-a1.json".into(),
        "jobs/llm@4/1/marks/000000000001-all.json".into(),
        "jobs/llm@4/1/progress/000000000001-0_3-a1.json".into(),
    ]);
    all.join("\n").into_bytes()
}

/// The frames of the golden objects.
fn frames() -> Vec<Vec<u8>> {
    let object = golden("tgb-v1-unequal.tgb");
    let contents = check_object(&object, "k").unwrap();
    let frame = |at: usize, payload: u64| {
        let end = at + (HEADER_BYTES + payload.next_multiple_of(64)) as usize;
        object[at..end].to_vec()
    };
    let entries = contents.entries.iter().take(3);
    entries
        .map(|entry| frame(entry.offset as usize, entry.payload_bytes))
        .collect()
}

fn indexes() -> Vec<Vec<u8>> {
    let object = golden("tgb-v1-unequal.tgb");
    let contents = check_object(&object, "k").unwrap();
    let at = contents.trailer.index_offset as usize;
    let end = object.len() - TRAILER_BYTES as usize;
    vec![
        object[at..end].to_vec(),
        object[end..].to_vec(),
        object[at..].to_vec(),
    ]
}

fn ranges() -> Vec<Vec<u8>> {
    let records: Value = serde_json::from_slice(&golden("tgb-v1-records.json")).unwrap();
    let mut found = Vec::new();
    collect(&records, &mut found);
    let index = &indexes()[0];
    let one = |record: &Value| [record.to_string().as_bytes(), b"\n", index].concat();
    found.into_iter().map(one).collect()
}

/// All TGBs' records in a value.
fn collect<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(fields) if fields.contains_key("parts") => found.push(value),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, found)),
        Value::Array(items) => items.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

fn payloads() -> Vec<Vec<u8>> {
    let tokens = Layout::tokens(Dtype::U16, 2, 9).unwrap();
    let arrays = Layout::new([
        ("mask", Dtype::BOOL, vec![3]),
        ("x", Dtype::F64, vec![1, 2]),
        ("empty", Dtype::I32, vec![0]),
    ]);
    let zeros = |layout: &Layout| layout.encode_with(|_, _| Ok(())).unwrap();
    vec![zeros(&tokens), zeros(&arrays.unwrap())]
}

fn provenance() -> Vec<Vec<u8>> {
    use batchweave_core::provenance::{Form, Piece, Provenance, Sources};
    let piece = |unit, skip, new_row| Piece {
        pass: 1,
        file: 2,
        unit,
        skip,
        items: 9,
        new_row,
    };
    let rows = Sources {
        form: Form::Rows,
        pieces: vec![piece(7, 0, false), piece(8, 3, true), piece(5, 0, true)],
    };
    let sequence = Sources {
        form: Form::Sequence,
        pieces: vec![piece(7, 0, false), piece(900, 3, false)],
    };
    let object = Provenance {
        inputs: Hash([5; 32]),
        first_seq: 4,
        tgbs: vec![rows, sequence],
    };
    let folder = "stream-v1/data/tokens-0/1-d6d7e025aa4b0385";
    let stored = format!("{folder}/000000000000-000000000003.5558646ba84bf968.0.sources");
    vec![object.encode(), golden(&stored)]
}

fn states() -> Vec<Vec<u8>> {
    let inner = r#"{"format":1,"stream_id":"id","next_step":7,"attempt":"ab","attempt_number":3,"world":4}"#;
    let outer = serde_json::json!({ "batchweave": inner }).to_string();
    vec![inner.into(), outer.into_bytes()]
}

fn heads() -> Vec<Vec<u8>> {
    let heads = [
        "HTTP/1.1 206 Partial Content\r\nETag: \"e\"\r\nContent-Range: bytes 2-5/9\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nx-amz-request-id: 7\r\nConnection: close\r\n\r\n",
        "HTTP/1.0 503 Slow Down\r\ncontent-length: 4\r\nContent-Length: 4\r\nx-amz-bucket-region: eu\r\n\r\n",
    ];
    heads.iter().map(|head| head.as_bytes().to_vec()).collect()
}
