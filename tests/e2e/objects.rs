//! Shuffled sources whose files are objects of an S3 server: the same batches as of local files, and little more than
//! their bytes is read, however many producers share them.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use batchweave_dev_s3::{Op, Options, Server};
use batchweave_store::{AccessKeys, OpenOptions};
use batchweave_tests::Process;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use tokio::runtime::Runtime;

use crate::scene::{MINUTE, Scene};

const SCHEMA: &str = "message m { required binary text (UTF8); }";

fn words(seed: usize, n: usize) -> String {
    let words = (0..n % 150).map(|k| format!(" w{:x}", (seed + 7 * n + k * k) % 5003));
    words.fold(format!("{seed} {n}"), |text, word| text + &word)
}

fn write_lines(path: &Path, seed: usize, count: usize) {
    let lines = (0..count).map(|n| format!("{{\"text\":\"{}\"}}\n", words(seed, n)));
    std::fs::write(path, lines.collect::<String>()).unwrap();
}

fn write_parquet(path: &Path, seed: usize, count: usize) {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, properties).unwrap();
    let rows: Vec<ByteArray> = (0..count).map(|n| words(seed, n).as_str().into()).collect();
    for some in rows.chunks(400) {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let typed = column.typed::<ByteArrayType>();
        typed.write_batch(some, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn write_tar(path: &Path, seed: usize, count: usize) {
    let mut tar = tar::Builder::new(File::create(path).unwrap());
    for n in 0..count {
        let text = words(seed, n);
        for (field, data) in [("cls", "7"), ("txt", &text)] {
            let mut header = tar::Header::new_ustar();
            header.set_size(data.len() as u64);
            let name = format!("{n:05}.{field}");
            tar.append_data(&mut header, name, data.as_bytes()).unwrap();
        }
    }
    tar.finish().unwrap();
}

/// Writes Megatron's two files, with documents of up to 999 ids of two bytes each.
fn write_pair(folder: &Path, documents: u64) {
    let lengths: Vec<u64> = (0..documents).map(|n| 1 + n * 37 % 999).collect();
    let mut index = b"MMIDIDX\x00\x00".to_vec();
    index.extend(1_u64.to_le_bytes());
    index.push(8);
    index.extend(documents.to_le_bytes());
    index.extend((documents + 1).to_le_bytes());
    index.extend(lengths.iter().flat_map(|n| (*n as i32).to_le_bytes()));
    let mut at = 0_u64;
    for length in &lengths {
        index.extend(at.to_le_bytes());
        at += 2 * length;
    }
    index.extend((0..=documents).flat_map(u64::to_le_bytes));
    std::fs::write(folder.join("ids.idx"), index).unwrap();
    let ids: Vec<u8> = (0..at / 2)
        .flat_map(|n| ((n % 999) as u16).to_le_bytes())
        .collect();
    std::fs::write(folder.join("ids.bin"), ids).unwrap();
}

/// The files of a folder, and the same objects on a server.
struct Input {
    scene: Scene,
    /// The threads that the server runs on, as long as the input is there.
    _runtime: Runtime,
    server: Server,
    bytes: u64,
}

impl Input {
    fn new(write: impl Fn(&Path)) -> Self {
        let scene = Scene::new();
        let folder = scene.path("input");
        std::fs::create_dir(&folder).unwrap();
        write(&folder);
        let runtime = Runtime::new().unwrap();
        let options = Options::default();
        let (server, bytes) = runtime.block_on(async {
            let server = Server::start(options.clone()).await.unwrap();
            let open = OpenOptions {
                endpoint: Some(server.endpoint()),
                region: Some("us-east-1".to_owned()),
                keys: Some(AccessKeys {
                    id: options.access_key,
                    secret: options.secret_key,
                }),
                ..OpenOptions::default()
            };
            let store = batchweave_store::open("s3://batchweave/input", &open)
                .await
                .unwrap();
            let mut bytes = 0;
            for file in std::fs::read_dir(&folder).unwrap() {
                let path = file.unwrap().path();
                let content = std::fs::read(&path).unwrap();
                bytes += content.len() as u64;
                let name = path.file_name().unwrap().to_str().unwrap();
                let _ = store.upload(name, content.into()).await.unwrap();
            }
            (server, bytes)
        });
        Self {
            scene,
            _runtime: runtime,
            server,
            bytes,
        }
    }

    /// Runs the producers of `stream` with these sources to their end; `@` in paths stands for the input.
    fn produce(&self, stream: &str, at: &str, sources: &str, producers: usize) {
        std::fs::create_dir_all(self.scene.stream(stream)).unwrap();
        let names: Vec<String> = (0..producers).map(|n| format!("p{n}")).collect();
        let options = Options::default();
        let env = [
            ("AWS_ACCESS_KEY_ID", options.access_key.as_str()),
            ("AWS_SECRET_ACCESS_KEY", &options.secret_key),
            ("AWS_REGION", "us-east-1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let start = |(index, name): (usize, &String)| {
            let mut template = format!(
                "[store]\nurl = {:?}\n[stream]\nslices = 4\nrows_per_slice = 4\nseq_len = 512\nproducers = {names:?}\n\
                 [producer]\nname = {name:?}\nindex = {index}\nof = {producers}\n[packing]\nlast_batch = \"pad\"\n",
                self.scene.url(stream),
            );
            write!(template, "{}", sources.replace('@', at)).unwrap();
            let text = template.replace("ENDPOINT", &self.server.endpoint());
            let file = self.scene.path(&format!("{stream}-{name}.toml"));
            std::fs::write(&file, text).unwrap();
            let config = file.display().to_string();
            let log = self.scene.path(&format!("{stream}-{name}.log"));
            Process::start("batchweave-producer", &["--config", &config], &env, &log)
        };
        let running: Vec<Process> = names.iter().enumerate().map(start).collect();
        for mut process in running {
            let code = process.wait(2 * MINUTE);
            assert_eq!(
                code,
                Some(0),
                "{}",
                self.scene.log_text(&format!("{stream}-p0.log"))
            );
        }
    }

    /// Compares a producer of the objects with one of the files, and counts what `producers` read together.
    fn compare(&self, sources: &str, producers: usize) {
        let files = self.scene.path("input").display().to_string();
        self.produce("files", &files, sources, 1);
        let objects = "s3://batchweave/input";
        self.produce("objects", objects, sources, 1);
        assert!(self.scene.steps("files") > 20);
        assert_eq!(self.scene.digests("files"), self.scene.digests("objects"));
        let before = self.server.stats();
        self.produce("shared", objects, sources, producers);
        let after = self.server.stats();
        let read = after.bytes_out - before.bytes_out;
        let ratio = read as f64 / self.bytes as f64;
        assert!(ratio < 1.1, "{ratio}");
        assert!(after.of(Op::Get) > before.of(Op::Get));
    }
}

#[test]
fn shuffled_objects_make_the_batches_of_files() {
    let input = Input::new(|folder| {
        for n in 0..3 {
            write_lines(&folder.join(format!("web-{n}.jsonl")), n, 6000);
            write_parquet(&folder.join(format!("code-{n}.parquet")), 10 + n, 4000);
        }
    });
    input.compare(
        "[tokenizer]\nkind = \"bytes\"\n[source]\nendpoint = \"ENDPOINT\"\n\
         [[sources]]\nname = \"web\"\npaths = [\"@/web-*\"]\nweight = 0.7\nshuffle = { window = \"1MiB\" }\n\
         [[sources]]\nname = \"code\"\npaths = [\"@/code-*\"]\nweight = 0.3\nshuffle = { window = \"1MiB\" }\n",
        4,
    );
}

#[test]
fn shuffled_pairs_of_objects_make_the_batches_of_files() {
    let input = Input::new(|folder| write_pair(folder, 4000));
    input.compare(
        "[tokenizer]\nkind = \"none\"\nvocab_size = 1000\nend_token_id = 999\n\
         [source]\nendpoint = \"ENDPOINT\"\ncontent = \"ids\"\n\
         [[sources]]\nname = \"ids\"\npaths = [\"@/ids.*\"]\nformat = \"megatron\"\nshuffle = { window = \"1MiB\" }\n",
        1,
    );
}

#[test]
fn shuffled_shards_of_objects_make_the_batches_of_files() {
    let input = Input::new(|folder| {
        for n in 0..6 {
            write_tar(&folder.join(format!("s-{n}.tar")), n, 1500);
        }
    });
    input.compare(
        "[tokenizer]\nkind = \"bytes\"\n[source]\nendpoint = \"ENDPOINT\"\n\
         [[sources]]\nname = \"shards\"\npaths = [\"@/s-*\"]\nshuffle = { window = \"1MiB\" }\n",
        3,
    );
}

/// A file that can only be read as a whole has one block: the other producers have nothing of it.
#[test]
fn fewer_blocks_than_producers_are_warned_of_with_a_remedy() {
    let input = Input::new(|folder| write_lines(&folder.join("all.txt"), 1, 3000));
    let files = input.scene.path("input").display().to_string();
    let sources = "[tokenizer]\nkind = \"bytes\"\n\
         [[sources]]\nname = \"all\"\npaths = [\"@\"]\nformat = \"text\"\nshuffle = { window = \"1MiB\" }\n";
    input.produce("text", &files, sources, 2);
    for name in ["p0", "p1"] {
        let log = input.scene.log_text(&format!("text-{name}.log"));
        let line = log
            .lines()
            .find(|line| line.contains("fewer blocks than producers"))
            .unwrap_or_else(|| panic!("{log}"));
        for part in [
            "use more row groups, uncompressed lines or smaller files",
            "all",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }
}
