//! `reclaim`: its plan in numbers, its deletions and its refusals.

use std::fs;
use std::sync::Arc;

use batchweave_core::keys;
use batchweave_dev_s3::{Options, Server};
use batchweave_log::{Log, LogOptions, create};
use batchweave_store::{AccessKeys, OpenOptions, Store};
use batchweave_testkit::TestProducer;
use bytes::Bytes;
use serde_json::Value;

use crate::world::{Ran, World, command};

/// Eight objects of five steps; job llm can restart from 0, 10, 20 and 30 and keeps two.
async fn marked() -> (World, String) {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    for _ in 0..8 {
        world.commit(&mut p0, 5).await;
    }
    let opened = world.json(&["job", "open", "llm", "--keep", "2"]);
    let job = format!("llm@{}", opened["version"]);
    world.attempt("llm", 4, 0, None).await;
    for step in [10, 20, 30] {
        world.mark(&job, 0, step, None).await;
    }
    world.mark(&job, 0, 35, Some(1)).await;
    world.progress(&job, 0, 37, (0, 3)).await;
    (world, job)
}

fn class<'v>(report: &'v Value, name: &str) -> &'v Value {
    let classes = report["classes"].as_array().unwrap();
    classes.iter().find(|class| class["class"] == name).unwrap()
}

#[tokio::test]
async fn a_plan_lists_deletions_and_the_jobs_that_retain_the_rest_and_writes_nothing() {
    let (world, job) = marked().await;
    let before = world.json(&["status"])["head"].clone();
    world.run(&["reclaim"]).prints(&[
        "watermark  0 -> 20; 20 steps to the head at 40",
        "given up   20 steps",
        &format!("job        {job} may need step 20 on (20 steps); restarts from 0, 10, 20, 30"),
        "attempt 0, opened by version 10, is at 37",
        "the mark at 35 lacks 3 coordinates",
        "nothing was written; add --apply to do it",
    ]);
    let plan = world.json(&["reclaim"]);
    let data = class(&plan, "data");
    assert_eq!(
        (&data["dead"]["objects"], &data["needed"]["objects"]),
        (&4.into(), &4.into())
    );
    assert!(data["dead"]["bytes"].as_u64().unwrap() > 4 * 1024);
    assert_eq!(plan["held_by"], "llm");
    assert_eq!(world.json(&["status"])["head"], before);
    assert_eq!(world.json(&["status"])["watermark"], 0);
}

#[tokio::test]
async fn what_is_applied_is_capped_repeatable_and_leaves_a_sound_stream() {
    let (world, _) = marked().await;
    let some = world.json(&["reclaim", "--apply", "--max-delete", "3"]);
    assert_eq!(
        (&some["watermark_after"], &some["more"]),
        (&20.into(), &true.into())
    );
    assert_eq!(class(&some, "data")["deleted"]["objects"], 3);
    world
        .run(&["verify", "--data"])
        .prints(&["20 steps can be read", "is sound"]);
    world
        .run(&["reclaim", "--apply"])
        .prints(&["stays at 20", "held by llm: the job may restart from there"]);
    let quiet = world.json(&["reclaim", "--apply"]);
    assert_eq!(
        (&quiet["steps"], &quiet["more"]),
        (&0.into(), &false.into())
    );
    for row in quiet["classes"].as_array().unwrap() {
        assert_eq!(row["deleted"]["objects"], 0, "{quiet}");
    }
    world.run(&["verify", "--data"]).prints(&["is sound"]);
    world.run(&["show", "19"]).fails(1, &["step 19", "20"]);
    assert_eq!(world.run(&["show", "20", "--slices"]).code, 0);
}

#[tokio::test]
async fn a_person_gives_up_steps_as_far_as_jobs_allow() {
    let (world, _) = marked().await;
    let to = |step: &str| world.run(&["reclaim", "--to", step, "--apply"]);
    to("21").fails(
        1,
        &[
            "job llm may still need steps below 21",
            "restart from step 20",
            "batchweave job close",
        ],
    );
    to("41").fails(1, &["step 41 is beyond the stream's 40 steps"]);
    to("15").prints(&["0 -> 15, by version"]);
    to("15").fails(1, &["the watermark is at step 15"]);
    world.json(&["job", "close", "llm", "--force", "--reason", "it is over"]);
    world
        .run(&["reclaim"])
        .prints(&["no job holds data: only --to STEP moves the watermark"]);
    to("40").prints(&["15 -> 40, by version"]);
    let data = world.path("data");
    assert!(!data.exists() || fs::read_dir(data).unwrap().next().is_none());
    assert_eq!(world.run(&["reclaim", "--to", "x"]).code, 64);
}

#[tokio::test]
async fn too_few_restart_points_and_objects_deleted_by_hand_are_told() {
    let world = World::with_stream("p0");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 5).await;
    world.json(&["job", "open", "llm", "--keep", "3"]);
    world.attempt("llm", 4, 0, None).await;
    world.run(&["reclaim", "--apply"]).prints(&[
        "stays at 0",
        "held by llm: fewer restart points than the job keeps",
        "keeps 3 restart points and has fewer; restarts from 0",
    ]);
    fs::remove_dir_all(world.path("data")).unwrap();
    world.run(&["reclaim", "--apply"]).prints(&["stays at 0"]);
    world
        .run(&["verify"])
        .fails(76, &["data/p0/", "is missing: steps 0..4"]);
}

/// A stream on the embedded S3 server, whose producer has begun its second term.
struct Bucket {
    server: Server,
    store: Arc<dyn Store>,
    producers: [TestProducer; 2],
}

impl Bucket {
    async fn new() -> Self {
        let server = Server::start(Options::default()).await.unwrap();
        let options = OpenOptions {
            endpoint: Some(server.endpoint()),
            region: Some("us-east-1".to_owned()),
            keys: Some(AccessKeys {
                id: Options::default().access_key,
                secret: Options::default().secret_key,
            }),
            ..OpenOptions::default()
        };
        let store = batchweave_store::open("s3://batchweave/one", &options)
            .await
            .unwrap();
        let config = batchweave_core::stream::StreamConfig::from_json(
            &fs::read(World::with_stream("p0").path("stream.json")).unwrap(),
            "stream.json",
        );
        let _ = create(&store, &config.unwrap()).await.unwrap();
        let old = opened(&store).await;
        let new = opened(&store).await;
        Self {
            server,
            store,
            producers: [old, new],
        }
    }

    fn data_key(&self, n: usize, first: u64) -> String {
        let p = &self.producers[n];
        keys::data(p.name(), p.epoch(), p.nonce(), (first, first), 7, 0)
    }

    async fn run(&self, args: &[&str]) -> Ran {
        let mut command = command(args);
        command
            .env("AWS_ENDPOINT_URL", self.server.endpoint())
            .env("AWS_ACCESS_KEY_ID", Options::default().access_key)
            .env("AWS_SECRET_ACCESS_KEY", Options::default().secret_key)
            .env("AWS_REGION", "us-east-1")
            .env("BATCHWEAVE_STORE", "s3://batchweave/one");
        let ran = tokio::task::spawn_blocking(move || Ran::of(&mut command));
        ran.await.unwrap()
    }
}

async fn opened(store: &Arc<dyn Store>) -> TestProducer {
    let options = LogOptions::new(rand::random());
    let log = Log::open(Arc::clone(store), &options).await.unwrap();
    TestProducer::open(log, "p0", "host:1").await
}

/// Dead and live objects of each kind.
#[tokio::test(flavor = "multi_thread")]
async fn past_uploads_intents_and_snapshots_are_deleted_and_present_ones_stay() {
    let bucket = Bucket::new().await;
    let [dead, alive] = [bucket.data_key(0, 0), bucket.data_key(1, 0)];
    for key in [&dead, &alive] {
        let body = Bytes::from_static(b"a part");
        let uploads = bucket.store.inspect().unwrap().bucket().unwrap();
        uploads.begin_upload(key, body).await.unwrap();
    }
    let name = "p0".parse().unwrap();
    let intents = [keys::intent(&name, 1, 0, 3), keys::intent(&name, 2, 0, 3)];
    let mut log = Log::open(Arc::clone(&bucket.store), &LogOptions::new([1; 32]))
        .await
        .unwrap();
    for reason in ["one", "two", "three"] {
        let request = log.new_request();
        let entry = batchweave_core::manifest::Entry::Quarantined(
            batchweave_core::manifest::entry::Quarantined {
                request,
                first: 90,
                last: 91,
                reason: reason.to_owned(),
            },
        );
        log.commit_entry("test", |_| entry.clone()).await.unwrap();
    }
    let snapshots: Vec<_> = (0..5).map(keys::snapshot).collect();
    for key in intents.iter().chain(&snapshots) {
        let body = Bytes::from_static(b"{}");
        let _ = bucket.store.create(key, body).await.unwrap();
    }
    let ran = bucket.run(&["reclaim", "--apply", "--json"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    for (name, deleted) in [
        ("uploads", 1),
        ("intents", 1),
        ("snapshots", 2),
        ("data", 0),
    ] {
        assert_eq!(
            class(&report, name)["deleted"]["objects"],
            deleted,
            "{name}: {report}"
        );
    }
    let left = bucket.store.unfinished(keys::DATA).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].key, alive);
    assert!(bucket.store.head(&intents[0]).await.is_err());
    bucket.store.head(&intents[1]).await.unwrap();
    for (n, key) in snapshots.iter().enumerate() {
        assert_eq!(bucket.store.head(key).await.is_ok(), n >= 2, "{key}");
    }
    bucket.server.shutdown().await;
}
