//! Batches larger than the memory of the program that makes them: they are uploaded slice by slice, in
//! several objects, and reach a rank byte for byte. Killed in the middle and restarted, the producer
//! makes the same batches.
//!
//! 256 MiB within 128 MiB here; in `make test-long` 2 GiB within 1 GiB, and 10 GiB within 1 GiB on
//! `dev-s3`, where objects of more than 32 MiB are uploaded in parts. Memory is the daemon's peak
//! resident memory (`VmHWM`), the program's text included; for the consumer, without its arena.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use batchweave_client::{Client, ConnectOptions, Slice};
use batchweave_tests::{Process, program, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::scene::{MINUTE, Scene};

const MIB: u64 = 1 << 20;

/// The size of one batch, and the memory that its daemons may use.
struct Large {
    slices: u32,
    samples_per_slice: u32,
    /// The approximate size of a sample; samples differ.
    sample_bytes: u64,
    /// Files of samples, which are read repeatedly.
    files: u64,
    object_mib: u64,
    upload_mib: u64,
    most_mib: u64,
    ranks: u32,
    s3: bool,
}

impl Large {
    fn samples(&self) -> u64 {
        u64::from(self.slices) * u64::from(self.samples_per_slice)
    }

    /// Returns sample `n`, which is always the same.
    fn sample(&self, n: u64) -> Vec<u8> {
        let n = n % self.files;
        let bytes =
            self.sample_bytes - self.sample_bytes / 8 + n * 97_777 % (self.sample_bytes / 4);
        let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut data = Vec::with_capacity(bytes as usize + 8);
        while (data.len() as u64) < bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            data.extend_from_slice(&state.to_le_bytes());
        }
        data.truncate(bytes as usize);
        data
    }

    fn write(&self, folder: &Path) {
        for n in 0..self.files {
            let data = self.sample(n);
            let mut header = format!(
                "{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}",
                data.len()
            );
            while (header.len() + 11) % 64 != 0 {
                header.push(' ');
            }
            let mut file = std::fs::File::create(folder.join(format!("{n:06}.npy"))).unwrap();
            file.write_all(b"\x93NUMPY\x01\x00").unwrap();
            let length = header.len() as u16 + 1;
            file.write_all(&length.to_le_bytes()).unwrap();
            writeln!(file, "{header}").unwrap();
            file.write_all(&data).unwrap();
        }
    }

    fn config(&self, scene: &Scene, url: &str) -> String {
        let mut text = format!(
            "[store]\nurl = {url:?}\n[stream]\nslices = {}\nrows_per_slice = {}\nproducers = [\"p0\"]\n",
            self.slices, self.samples_per_slice
        );
        let _ = write!(
            text,
            "seq_len = 1\n[producer]\nname = \"p0\"\n[source]\npaths = [\"{}/*.npy\"]\nepochs = {}\n\
             [tokenizer]\nkind = \"bytes\"\n[packing]\nmode = \"opaque\"\nobject_bytes = \"{}MiB\"\n\
             arrays = [{{ name = \"x\", dtype = \"U8\" }}]\n[upload]\nmemory = \"{}MiB\"\n",
            scene.path("samples").display(),
            self.samples().div_ceil(self.files),
            self.object_mib,
            self.upload_mib,
        );
        let name = url.rsplit('/').next().unwrap();
        let path = scene.path(&format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// Returns the peak resident memory, and the memory resident now without shared memory and files.
fn memory(process: &Process) -> Option<(u64, u64)> {
    let path = format!("/proc/{}/status", process.0.id());
    let text = std::fs::read_to_string(path).ok()?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib = line.trim().trim_end_matches(" kB");
        kib.parse::<u64>().ok()
    };
    Some((kib("VmHWM:")? * 1024, kib("RssAnon:")? * 1024))
}

/// Runs the producer to its end and returns its peak resident memory.
fn watched(process: &mut Process, log_text: impl Fn() -> String) -> u64 {
    let mut most = 0;
    loop {
        if let Some((high, _)) = memory(process) {
            most = most.max(high);
        }
        if let Some(status) = process.0.try_wait().unwrap() {
            assert!(status.success(), "{status}: {}", log_text());
            return most;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn samples_of(slice: &Slice) -> Vec<Vec<u8>> {
    let ends = slice.array::<i64>("x.offsets").unwrap();
    let array = slice.arrays().iter().find(|a| a.name == "x").unwrap();
    let data = &slice.bytes()[array.offset as usize..];
    let ends: Vec<usize> = ends.iter().map(|n| *n as usize).collect();
    ends.windows(2).map(|w| data[w[0]..w[1]].to_vec()).collect()
}

/// Reads the batch as each rank in turn and compares it. Returns the peak of the daemon's own
/// memory.
fn consumed(large: &Large, scene: &Scene, url: &str, env: &[(String, String)]) -> u64 {
    let socket = scene.path("s.sock");
    let share = large.samples() * large.sample_bytes / u64::from(large.ranks);
    let arena = (share + share / 2).next_multiple_of(64 * MIB) / MIB;
    let config = format!(
        "[store]\nurl = {url:?}\n[arena]\nbytes = \"{arena}MiB\"\ngrow_after = \"0s\"\n[socket]\npath = {:?}\n\
         [prefetch]\nbytes = \"{arena}MiB\"\n[admin]\nlisten = \"off\"\n",
        socket.display().to_string(),
    );
    let path = scene.path("consumer.toml");
    std::fs::write(&path, config).unwrap();
    let args = ["--config", &path.display().to_string()];
    let log = scene.path("consumer.log");
    let daemon = Process::start("batchweave-consumer", &args, env, &log);
    let (mut next, mut most) = (0, 0);
    for rank in 0..large.ranks {
        let options = ConnectOptions {
            dp_rank: rank,
            dp_size: large.ranks,
            timeout: MINUTE,
            ..ConnectOptions::new(&socket)
        };
        let connected = Client::connect(options);
        let mut reader =
            connected.unwrap_or_else(|why| panic!("{why}: {}", scene.log_text("consumer.log")));
        let batch = reader.next(5 * MINUTE).unwrap().unwrap();
        for slice in batch.slices() {
            for sample in samples_of(slice) {
                assert!(sample == large.sample(next), "sample {next}");
                next += 1;
            }
            most = most.max(memory(&daemon).unwrap().1);
        }
    }
    assert_eq!(next, large.samples());
    most
}

/// Kills the producer once some of the batch's objects are stored, this many times.
fn killed(start: impl Fn() -> Process, objects: impl Fn() -> usize, times: u32) {
    let mut random = StdRng::seed_from_u64(seed());
    for _ in 0..times {
        let (mut process, before) = (start(), objects());
        let more = random.random_range(1..12);
        while objects() < before + more && process.0.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        process.signal("KILL");
        process.wait(MINUTE);
    }
}

fn objects(stream: &Path) -> usize {
    let folders = std::fs::read_dir(stream.join("data/p0"))
        .into_iter()
        .flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    files.count()
}

fn produced_and_consumed(large: &Large) {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("samples")).unwrap();
    large.write(&scene.path("samples"));
    let server = large.s3.then(|| S3::start(&scene.path("s3")));
    let env = server.as_ref().map_or_else(Vec::new, |s3| s3.env.clone());
    let url = if server.is_some() {
        "s3://batchweave/large".to_owned()
    } else {
        std::fs::create_dir(scene.stream("large")).unwrap();
        scene.url("large")
    };
    let config = large.config(&scene, &url);
    let log = scene.path("large.log");
    let start = || Process::start("batchweave-producer", &["--config", &config], &env, &log);
    let made = watched(&mut start(), || scene.log_text("large.log"));
    let read = consumed(large, &scene, &url, &env);
    let bytes: u64 = (0..large.samples())
        .map(|n| large.sample(n).len() as u64)
        .sum();
    eprintln!(
        "one batch of {} MiB: the producer had at most {} MiB, the consumer {} MiB beside its arena",
        bytes / MIB,
        made / MIB,
        read / MIB
    );
    assert!(made <= large.most_mib * MIB, "{made} bytes in the producer");
    assert!(read <= large.most_mib * MIB, "{read} bytes in the consumer");
}

/// Starts `dev-s3` with its objects on disk.
struct S3 {
    env: Vec<(String, String)>,
    _process: Process,
}

impl S3 {
    fn start(folder: &Path) -> Self {
        let mut process = Command::new(program("batchweave"))
            .args(["dev-s3", "--listen", "127.0.0.1:0", "--json", "--dir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = process.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let pair = |name: &str, field: &str| {
            let value = ready[field].as_str().unwrap().to_owned();
            (name.to_owned(), value)
        };
        Self {
            env: vec![
                pair("AWS_ACCESS_KEY_ID", "access_key"),
                pair("AWS_SECRET_ACCESS_KEY", "secret_key"),
                pair("AWS_REGION", "region"),
                pair("AWS_ENDPOINT_URL", "endpoint"),
            ],
            _process: Process(process),
        }
    }
}

const SMALLEST: Large = Large {
    slices: 66,
    samples_per_slice: 2,
    sample_bytes: 2 * MIB,
    files: 100,
    object_mib: 2,
    upload_mib: 16,
    most_mib: 128,
    ranks: 1,
    s3: false,
};

#[test]
fn a_batch_of_256_mib_takes_128_mib() {
    produced_and_consumed(&SMALLEST);
}

/// Two gigabytes with the default settings.
#[test]
#[ignore = "half a minute: make test-long"]
fn a_batch_of_2_gib_takes_1_gib() {
    produced_and_consumed(&Large {
        slices: 128,
        samples_per_slice: 4,
        sample_bytes: 4 * MIB,
        files: 128,
        object_mib: 16,
        upload_mib: 256,
        most_mib: 1024,
        ranks: 4,
        s3: true,
    });
}

#[test]
#[ignore = "minutes, and 12 GB on disk: make test-long"]
fn a_batch_of_10_gib_takes_1_gib() {
    produced_and_consumed(&Large {
        slices: 512,
        samples_per_slice: 5,
        sample_bytes: 4 * MIB,
        files: 256,
        object_mib: 16,
        upload_mib: 256,
        most_mib: 1024,
        ranks: 16,
        s3: true,
    });
}

/// Text with all fields, 25 bytes per token: 150 MB in one batch; and samples.
#[test]
fn a_large_batch_killed_in_the_middle_comes_out_the_same() {
    let scene = Scene::new();
    let fields = "\"segment_ids\", \"positions\", \"loss_mask\", \"cu_seqlens\", \"document_ids\"";
    let start = |stream: &str, object_kib: u32| {
        std::fs::create_dir_all(scene.stream(stream)).unwrap();
        let text = format!(
            "[store]\nurl = {:?}\n[stream]\nslices = 60\nrows_per_slice = 4\nseq_len = 4096\n\
             producers = [\"p0\"]\n[producer]\nname = \"p0\"\n[source]\npaths = [{:?}]\nepochs = 2\n\
             [tokenizer]\nkind = \"bytes\"\n[packing]\nfields = [{fields}]\nobject_bytes = \"{object_kib}KiB\"\n\
             last_batch = \"pad\"\n",
            scene.url(stream),
            scene.path("documents.jsonl").display().to_string(),
        );
        let file = scene.path(&format!("{stream}.toml"));
        std::fs::write(&file, text).unwrap();
        let log = scene.path(&format!("{stream}.log"));
        let config = file.display().to_string();
        Process::start("batchweave-producer", &["--config", &config], &[], &log)
    };
    // In one object, in many, and in many with kills.
    let done = |stream: &str, object_kib: u32| {
        let ended = start(stream, object_kib).wait(5 * MINUTE);
        assert_eq!(
            ended,
            Some(0),
            "{}",
            scene.log_text(&format!("{stream}.log"))
        );
        scene.digests(stream)
    };
    let whole = done("whole", 1 << 20);
    assert!(whole.len() > 3, "{} batches", whole.len());
    assert!(done("cut", 256) == whole);
    killed(
        || start("killed", 256),
        || objects(&scene.stream("killed")),
        5,
    );
    assert!(done("killed", 256) == whole);
}
