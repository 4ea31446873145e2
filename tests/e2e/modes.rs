//! Every packing mode through the real daemons: a producer that is killed repeatedly makes the same
//! batches as an undisturbed one, and samples reach a rank byte for byte as they are in their files.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave_client::{Client, ConnectOptions};
use batchweave_tests::{Process, seed};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::scene::{MINUTE, Scene};

const SCHEMA: &str =
    "message m { required binary image; required binary action; required double reward; }";
const ROBOT: &str = "mode = \"opaque\"\nlast_batch = \"pad\"\narrays = [{ name = \"image\", dtype = \"U8\" }, \
     { name = \"action\", dtype = \"F32\", shape = [7] }, { name = \"reward\", dtype = \"F64\" }]\n";
const POINTS: &str = "mode = \"opaque\"\nlast_batch = \"pad\"\narrays = [{ name = \"points\", dtype = \"F32\", shape = [3] }]\n";
const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}\
     {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The arrays of a sample, as bytes.
type Sample = Vec<Vec<u8>>;

/// Returns a sample: a picture, some actions of seven joints, a reward.
fn robot(rng: &mut StdRng) -> Sample {
    let image: Vec<u8> = (0..rng.random_range(0..3000))
        .map(|_| rng.random())
        .collect();
    let action: Vec<u8> = (0..7 * rng.random_range(0..20))
        .map(|_| rng.random::<f32>())
        .flat_map(f32::to_le_bytes)
        .collect();
    let reward = rng.random::<f64>().to_le_bytes();
    vec![image, action, reward.to_vec()]
}

fn write_parquet(path: &Path, samples: &[Sample]) {
    let file = std::fs::File::create(path).unwrap();
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
    for some in samples.chunks(64) {
        let mut group = writer.next_row_group().unwrap();
        for n in 0..2 {
            let values: Vec<ByteArray> = some.iter().map(|s| s[n].clone().into()).collect();
            let mut column = group.next_column().unwrap().unwrap();
            let typed = column.typed::<ByteArrayType>();
            typed.write_batch(&values, None, None).unwrap();
            column.close().unwrap();
        }
        let number = |s: &Sample| f64::from_le_bytes(s[2].clone().try_into().unwrap());
        let rewards: Vec<f64> = some.iter().map(number).collect();
        let mut column = group.next_column().unwrap().unwrap();
        let typed = column.typed::<DoubleType>();
        typed.write_batch(&rewards, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// Returns a .npy file of version 1.0 with points in space.
fn write_npy(path: &Path, data: &[u8]) {
    let mut header = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 3), }}",
        data.len() / 12
    );
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    std::fs::write(path, bytes).unwrap();
}

/// Writes pictures, actions and rewards into two Parquet files.
fn robots(scene: &Scene, count: usize) -> (String, Vec<Sample>) {
    let mut rng = StdRng::seed_from_u64(11);
    let samples: Vec<Sample> = (0..count).map(|_| robot(&mut rng)).collect();
    let (first, second) = samples.split_at(count / 3);
    for (name, part) in [("robot-0.parquet", first), ("robot-1.parquet", second)] {
        write_parquet(&scene.path(name), part);
    }
    (scene.path("robot-*.parquet").display().to_string(), samples)
}

/// Writes point clouds, one per file.
fn clouds(scene: &Scene, count: usize) -> (String, Vec<Sample>) {
    let mut rng = StdRng::seed_from_u64(12);
    let cloud = |n: usize| {
        let numbers = (0..3 * rng.random_range(0..50)).map(|_| rng.random::<f32>());
        let data: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
        write_npy(&scene.path(&format!("cloud-{n:05}.npy")), &data);
        vec![data]
    };
    let samples = (0..count).map(cloud).collect();
    (scene.path("cloud-*.npy").display().to_string(), samples)
}

/// Writes conversations of any length, some with special tokens in a person's text.
fn conversations(scene: &Scene, count: usize) -> String {
    let mut rng = StdRng::seed_from_u64(13);
    let mut text = String::new();
    for _ in 0..count {
        let mut messages = Vec::new();
        for turn in 0..2 * rng.random_range(1..4) {
            let role = ["user", "assistant"][turn % 2];
            let words: Vec<String> = (0..rng.random_range(1..30))
                .map(|_| format!("w{}", rng.random_range(0..5000)))
                .collect();
            let content = words.join(" ") + ["", " <|im_end|>"][usize::from(turn % 5 == 4)];
            messages.push(serde_json::json!({ "role": role, "content": content }));
        }
        writeln!(text, "{}", serde_json::json!({ "messages": messages })).unwrap();
    }
    std::fs::write(scene.path("talk.jsonl"), text).unwrap();
    std::fs::write(scene.path("chat.jinja"), TEMPLATE).unwrap();
    scene.path("talk.jsonl").display().to_string()
}

/// Starts a producer of `stream` from `path` with the given packing.
fn producer(scene: &Scene, stream: &str, path: &str, packing: &str, seq_len: u32) -> Process {
    std::fs::create_dir_all(scene.stream(stream)).unwrap();
    let file = scene.path(&format!("{stream}.toml"));
    let chat = scene.path("chat.jinja").display().to_string();
    let chat = if packing.contains("chat") {
        format!("[chat]\ntemplate = {chat:?}\n")
    } else {
        String::new()
    };
    let text = format!(
        "[store]\nurl = {:?}\n[stream]\nslices = 2\nrows_per_slice = 2\nseq_len = {seq_len}\nproducers = [\"p0\"]\n\
         [producer]\nname = \"p0\"\n[source]\npaths = [{path:?}]\n[tokenizer]\nkind = \"bytes\"\n\
         [commit]\nlinger = \"1ms\"\nmax_batches = 8\n{chat}[packing]\nobject_bytes = \"16KiB\"\n{packing}",
        scene.url(stream),
    );
    std::fs::write(&file, text).unwrap();
    let config = file.display().to_string();
    let log = scene.path(&format!("{stream}.log"));
    Process::start("batchweave-producer", &["--config", &config], &[], &log)
}

/// Kills producers until this many were hit, on as many streams as needed. Each stream must equal
/// that of an undisturbed run.
fn killed(scene: &Scene, mode: &str, path: &str, packing: &str, seq_len: u32) {
    let long = std::env::var_os("BATCHWEAVE_LONG").is_some();
    let wanted = if long { 100 } else { 10 };
    let mut rng = StdRng::seed_from_u64(seed());
    let start = |stream: &str| producer(scene, stream, path, packing, seq_len);
    let log_text = |stream: &str| scene.log_text(&format!("{stream}.log"));
    let calm = format!("{mode}-calm");
    assert_eq!(start(&calm).wait(MINUTE), Some(0), "{}", log_text(&calm));
    let expected = scene.digests(&calm);
    assert!(expected.len() > 100, "{} batches", expected.len());
    let (mut kills, mut streams) = (0, 0);
    while kills < wanted {
        let stream = format!("{mode}-{streams}");
        streams += 1;
        loop {
            let mut process = start(&stream);
            std::thread::sleep(Duration::from_millis(rng.random_range(5..150)));
            if kills < wanted {
                process.signal("KILL");
            }
            match process.wait(MINUTE) {
                None => kills += 1,
                Some(0) => break,
                Some(code) => panic!("exit {code}: {}", log_text(&stream)),
            }
        }
        assert_eq!(scene.digests(&stream), expected, "{stream}");
    }
    eprintln!(
        "{mode}: {kills} kills, {streams} streams of {} batches",
        expected.len()
    );
}

#[test]
fn a_producer_of_conversations_killed_at_random_instants_makes_the_same_batches() {
    let scene = Scene::new();
    let path = conversations(&scene, 2500);
    killed(&scene, "chat", &path, "mode = \"chat\"\n", 256);
}

#[test]
fn a_producer_of_whole_documents_killed_at_random_instants_makes_the_same_batches() {
    let scene = Scene::new();
    let path = scene.path("documents.jsonl").display().to_string();
    let packing =
        "mode = \"best_fit\"\nlook_ahead = 100\nfields = [\"positions\", \"cu_seqlens\"]\n";
    killed(&scene, "best-fit", &path, packing, 700);
}

#[test]
fn producers_of_samples_killed_at_random_instants_make_the_same_batches() {
    let scene = Scene::new();
    let (path, _) = robots(&scene, 2000);
    killed(&scene, "robot", &path, ROBOT, 1);
    let (path, _) = clouds(&scene, 1000);
    killed(&scene, "points", &path, POINTS, 1);
}

/// Returns all samples of a stream, as a rank gets them from a consumer daemon.
fn received(scene: &Scene, stream: &str, arrays: &[(&str, usize)]) -> Vec<Sample> {
    let socket = scene.path(&format!("{stream}.sock"));
    let file = scene.path(&format!("{stream}-consumer.toml"));
    let text = format!(
        "[store]\nurl = {:?}\n[arena]\nbytes = \"8MiB\"\nsegment_bytes = \"1MiB\"\n[socket]\npath = {:?}\n\
         [prefetch]\nbytes = \"256KiB\"\nsteps = 8\n[admin]\nlisten = \"off\"\n",
        scene.url(stream),
        socket.display().to_string(),
    );
    std::fs::write(&file, text).unwrap();
    let config = file.display().to_string();
    let log = scene.path(&format!("{stream}-consumer.log"));
    let _daemon = Process::start("batchweave-consumer", &["--config", &config], &[], &log);
    let options = ConnectOptions {
        timeout: MINUTE,
        ..ConnectOptions::new(&socket)
    };
    let mut reader = Client::connect(options).unwrap();
    let mut samples = Vec::new();
    while let Some(batch) = reader.next(MINUTE).unwrap() {
        for slice in batch.slices() {
            let bytes = slice.bytes();
            let data = |name: &str| {
                let array = slice.arrays().iter().find(|a| a.name == name).unwrap();
                &bytes[array.offset as usize..][..array.bytes().unwrap() as usize]
            };
            let ends = |name: &str| slice.array::<i64>(&format!("{name}.offsets")).unwrap();
            let count = ends(arrays[0].0).len() - 1;
            for n in 0..count {
                let part = |(name, item): &(&str, usize)| {
                    let ends = ends(name);
                    let (from, to) = (ends[n] as usize * item, ends[n + 1] as usize * item);
                    data(name)[from..to].to_vec()
                };
                samples.push(arrays.iter().map(part).collect());
            }
        }
    }
    samples
}

#[test]
fn samples_reach_a_rank_byte_for_byte() {
    let scene = Scene::new();
    let (path, samples) = robots(&scene, 300);
    assert_eq!(
        producer(&scene, "robot", &path, ROBOT, 1).wait(MINUTE),
        Some(0),
        "{}",
        scene.log_text("robot.log")
    );
    let arrays = [("image", 1), ("action", 28), ("reward", 8)];
    assert!(received(&scene, "robot", &arrays) == samples);
    let (path, samples) = clouds(&scene, 150);
    assert_eq!(
        producer(&scene, "points", &path, POINTS, 1).wait(MINUTE),
        Some(0),
        "{}",
        scene.log_text("points.log")
    );
    assert!(received(&scene, "points", &[("points", 12)]) == samples);
}
