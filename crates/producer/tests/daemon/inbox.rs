//! Inboxes: the rows of each writer come once and in order, through crashes and deletions; an inbox that was set back is
//! refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::inbox::file_name;
use batchweave_daemon::Exit;
use batchweave_producer::Outcome;
use batchweave_producer::config::{Delete, ProducerConfig};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::support::{Corpus, World};

/// A writer's folder, and the number of its next file.
struct Writer {
    folder: PathBuf,
    next: u64,
}

impl Writer {
    fn new(inbox: &Path, name: &str) -> Self {
        let folder = inbox.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder, next: 0 }
    }

    /// Puts a file with `texts`, as a writer does: whole at once.
    fn put(&mut self, texts: &[String]) {
        let name = self
            .folder
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let part = self.folder.join("part.tmp");
        write(&part, texts, &name, self.next);
        std::fs::rename(&part, self.folder.join(file_name(self.next))).unwrap();
        self.next += 1;
    }

    fn end(&self) {
        std::fs::write(self.folder.join("end"), "").unwrap();
    }

    /// Returns the numbers of its files.
    fn files(&self) -> Vec<u64> {
        let names = (0..self.next).filter(|n| self.folder.join(file_name(*n)).exists());
        names.collect()
    }
}

fn write(path: &Path, texts: &[String], writer: &str, number: u64) {
    let schema = parse_message_type("message m { required binary text (UTF8); }").unwrap();
    let pair = |key: &str, value: String| KeyValue::new(format!("batchweave.{key}"), value);
    let pairs = vec![
        pair("writer", writer.to_owned()),
        pair("number", number.to_string()),
    ];
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_key_value_metadata(Some(pairs));
    let file = std::fs::File::create(path).unwrap();
    let mut file =
        SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build())).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<ByteArray> = texts
        .iter()
        .map(|text| ByteArray::from(text.as_str()))
        .collect();
    column
        .typed::<ByteArrayType>()
        .write_batch(&values, None, None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
}

/// Returns the lines of a corpus and its documents.
fn documents(seed: u64, count: usize) -> (Corpus, Vec<String>) {
    let corpus = Corpus::new(seed, count);
    let texts = corpus
        .lines
        .iter()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["text"].as_str().unwrap().to_owned()
        })
        .collect();
    (corpus, texts)
}

fn reading(inbox: &Path, writers: &[&str]) -> ProducerConfig {
    let mut config = World::config(&[inbox.display().to_string()], "a");
    config.source.inbox = true;
    config.source.follow_every.0 = Duration::from_millis(5);
    config.inbox.writers = writers.iter().map(|&name| name.to_owned()).collect();
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_come_once_and_in_order_through_crashes_until_the_writer_ends() {
    for seed in 0..4 {
        let world = World::new();
        let (corpus, texts) = documents(seed, 240);
        let inbox = world.folder.path().join("inbox");
        let mut writer = Writer::new(&inbox, "w0");
        let mut config = reading(&inbox, &["w0"]);
        config.inbox.delete = Delete::Committed;
        let parts: Vec<_> = texts.chunks(40).collect();
        for (n, part) in parts.iter().enumerate() {
            writer.put(part);
            if (seed + n as u64).is_multiple_of(2) {
                let run = world.crash(config.clone(), seed << 8 | n as u64, n as u64);
                let _ = tokio::time::timeout(Duration::from_millis(80), run).await;
            }
            let (mut task, stop) = world.spawn(config.clone());
            let come = &corpus.lines[..40 * (n + 1)];
            let batches = Corpus::expected_of_lines(come).len();
            tokio::select! {
                biased;
                () = world.wait_for_batches(batches) => {}
                ended = &mut task => panic!("seed {seed}, file {n}: {ended:?}"),
            }
            stop.cancel();
            assert!(matches!(
                task.await.unwrap().unwrap(),
                Outcome::Stopped { .. }
            ));
            assert!(
                writer.files().contains(&(n as u64)),
                "the newest file stays"
            );
        }
        // A stop deletes what is committed; the last documents may wait for a batch to be full.
        assert!(writer.files().len() < 4, "{:?} are left", writer.files());
        writer.end();
        let ended = world.run(config).await.unwrap();
        assert!(matches!(ended, Outcome::Finished { .. }), "{ended:?}");
        assert!(world.batches().await == corpus.expected(1), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_that_was_set_back_stops_the_producer() {
    let world = World::new();
    let (corpus, texts) = documents(11, 120);
    let inbox = world.folder.path().join("inbox");
    let mut writer = Writer::new(&inbox, "w0");
    texts.chunks(40).for_each(|part| writer.put(part));
    let (task, _stop) = world.spawn(reading(&inbox, &[]));
    world
        .wait_for_batches(Corpus::expected_of_lines(&corpus.lines).len())
        .await;
    std::fs::remove_file(writer.folder.join(file_name(2))).unwrap();
    let why = task.await.unwrap().unwrap_err();
    assert_eq!(why.exit(), Exit::BadInput);
    let text = why.to_string();
    assert!(
        text.contains("/inbox/w0/: file 2, which was read, is gone"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_another_writer_stops_the_producer() {
    let world = World::new();
    let (_, texts) = documents(12, 40);
    let inbox = world.folder.path().join("inbox");
    let mut writer = Writer::new(&inbox, "w0");
    write(&writer.folder.join(file_name(0)), &texts, "w1", 0);
    writer.next = 1;
    let why = world.run(reading(&inbox, &[])).await.unwrap_err();
    assert_eq!(why.exit(), Exit::BadInput);
    let text = why.to_string();
    assert!(text.contains("it is a file of writer \"w1\""), "{text}");
}
