//! The conformance suite: every store implementation must pass every check.
//!
//! Each check works below a prefix of its own and deletes its objects at the end, so that the suite
//! may run on a bucket in use.

mod bounds;
mod cleaning;
mod order;
mod tools;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use crate::{Create, Effect, ErrorKind, Store, Unseen, probe_long, probe_ranges, probe_visibility};
use tools::{all, noise, ok};

const RACERS: usize = 32;
const LISTED: usize = 1100;
/// A size above which uploads go in parts.
const LARGE_BYTES: usize = 40 << 20;

/// The extent of the suite; a store behind a network may need fewer rounds.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Number of races of 32 writers for one key.
    pub rounds: usize,
    /// A random number that makes the prefix of this run unique.
    pub random: u64,
}

struct Bench {
    store: Arc<dyn Store>,
    prefix: String,
}

/// Runs all checks on the store; panics with the check's name and the failure.
pub async fn run(store: Arc<dyn Store>, effort: Effort) {
    println!("conformance of {}: {effort:?}", store.root());
    let bench = |name: &str| {
        println!("  {name}");
        let prefix = format!("conformance/{:016x}/{name}", effort.random);
        Bench {
            store: Arc::clone(&store),
            prefix,
        }
    };
    bench("create").create_once().await;
    bench("bodies").bodies().await;
    bench("bounds").bounds().await;
    bench("absent").absent().await;
    bench("ranges").ranges().await;
    bench("lists").lists().await;
    bench("deletes").deletes().await;
    bench("bulk").bulk_deletes().await;
    bench("unfinished").unfinished().await;
    bench("uploads").uploads().await;
    bench("large").large().await;
    bench("keys").invalid_keys().await;
    bench("races").races(effort.rounds).await;
    bench("uploads-race").upload_races().await;
    probed(&*store, effort.random).await;
    let left = all(&*store, &format!("conformance/{:016x}/", effort.random)).await;
    assert!(left.is_empty(), "objects are left behind: {left:?}");
}

/// Asserts what `doctor` prints.
async fn probed(store: &dyn Store, random: u64) {
    let folder = format!("conformance/{random:016x}/probe/");
    let (unseen, ended) = probe_visibility(store, &folder, 8).await;
    assert!(ended.is_ok(), "visibility: {ended:?}");
    assert_eq!(unseen, Unseen::default(), "visibility");
    let ranges = probe_ranges(store, &format!("{folder}ranges")).await;
    assert_eq!(ok("ranges", &folder, ranges), None);

    let report = probe_long(store, random, 3, crate::Access::Write)
        .await
        .unwrap_or_else(|error| panic!("the probe refuses the store: {error}"));
    assert_eq!(report.rounds, 3, "probe rounds");
}

impl Bench {
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    async fn put(&self, name: &str, body: &Bytes) -> String {
        let key = self.key(name);
        let created = ok("create", &key, self.store.create(&key, body.clone()).await);
        assert_eq!(created, Create::Created, "first create of {key}");
        key
    }

    async fn read(&self, key: &str, range: Range<u64>) -> Bytes {
        let chunks: Result<Vec<Bytes>, _> = ok(
            "get_range",
            key,
            self.store.get_range(key, range.clone()).await,
        )
        .try_collect()
        .await;
        let body = Bytes::from(ok("chunks of", key, chunks).concat());
        assert_eq!(
            body.len() as u64,
            range.end - range.start,
            "length of {range:?} of {key}"
        );
        let opened = tools::opened(&*self.store, key, range.clone()).await;
        let opened = ok("open_range", key, opened);
        assert!(opened == body, "bytes {range:?} of {key} by open_range");
        body
    }

    async fn delete(&self, key: &str) {
        ok("delete", key, self.store.delete(key).await);
    }

    async fn create_once(self) {
        let body = Bytes::from_static(b"first");
        let key = self.put("a/b.json", &body).await;
        let again = ok(
            "create",
            &key,
            self.store
                .create(&key, Bytes::from_static(b"second!"))
                .await,
        );
        assert_eq!(again, Create::Exists, "second create of {key}");
        assert_eq!(
            ok("get", &key, self.store.get(&key, u64::MAX).await),
            body,
            "the second create changed {key}"
        );
        let meta = ok("head", &key, self.store.head(&key).await);
        assert_eq!((meta.key.as_str(), meta.size), (key.as_str(), 5), "head");
        self.delete(&key).await;
    }

    async fn bodies(self) {
        for size in [0, 1, 4095, 65_536, 1_000_003] {
            let body = noise(size, size as u64);
            let key = self.put(&format!("size-{size}"), &body).await;
            assert!(
                ok("get", &key, self.store.get(&key, u64::MAX).await) == body,
                "body of {size} bytes changed"
            );
            assert_eq!(
                ok("head", &key, self.store.head(&key).await).size,
                size as u64,
                "size in head"
            );
            self.delete(&key).await;
        }
    }

    async fn absent(self) {
        let key = self.key("nothing");
        let errors = [
            self.store.get(&key, u64::MAX).await.err(),
            self.store.get_fresh(&key, u64::MAX).await.err(),
            self.store.head(&key).await.err(),
            self.store.get_range(&key, 0..1).await.err(),
            self.store.open_range(&key, 0..1, true).await.err(),
        ];
        for error in errors {
            let Some(error) = error else {
                panic!("{key} was never made, but is there")
            };
            assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
            assert_eq!(error.effect, Effect::DidNot, "{error}");
            assert!(
                error.location.contains(&key),
                "the key is not named: {error}"
            );
        }
    }

    async fn ranges(self) {
        let body = noise(3_000_000, 7);
        let size = body.len() as u64;
        let key = self.put("ranges", &body).await;
        for range in [0..size, 5..5, size..size, 999_999..2_000_001] {
            let expected = body.slice(range.start as usize..range.end as usize);
            assert!(
                self.read(&key, range.clone()).await == expected,
                "bytes {range:?} differ"
            );
        }
        for range in [
            0..size + 1,
            size..size + 1,
            size + 5..size + 9,
            10..u64::MAX,
        ] {
            let error = tools::opened(&*self.store, &key, range.clone()).await.err();
            let kind = error.as_ref().map(|error| error.kind);
            assert_eq!(kind, Some(ErrorKind::Range), "open {range:?}: {error:?}");
            let error = self.store.get_range(&key, range.clone()).await.err();
            let kind = error.as_ref().map(|error| error.kind);
            assert_eq!(
                kind,
                Some(ErrorKind::Range),
                "{range:?} of {size} bytes: {error:?}"
            );
        }
        self.delete(&key).await;
    }

    async fn lists(self) {
        let mut expected: Vec<String> = (0..LISTED)
            .map(|at| self.key(&format!("x/{:02}/k{at}", at % 7)))
            .collect();
        // Names that sort differently as strings and as paths, and a neighbour of the prefix.
        expected.extend(["x/03-b/k", "x/03.b/k", "x/a", "x/z"].map(|name| self.key(name)));
        let neighbour = self.key("x-not-listed");
        let made = stream::iter(expected.iter().chain([&neighbour]).cloned());
        made.for_each_concurrent(32, |key| {
            let store = &self.store;
            async move {
                let created = ok(
                    "create",
                    &key,
                    store.create(&key, Bytes::from_static(b"12")).await,
                );
                assert_eq!(created, Create::Created, "{key}");
            }
        })
        .await;
        expected.sort();
        assert_eq!(
            all(&*self.store, &self.key("x/")).await,
            expected,
            "listing over several pages"
        );
        order::check(&*self.store, &self.key("x/"), &expected).await;
        let third: Vec<_> = expected
            .iter()
            .filter(|key| key.contains("/x/03/"))
            .cloned()
            .collect();
        assert_eq!(
            all(&*self.store, &self.key("x/03/")).await,
            third,
            "listing of one folder"
        );
        assert!(
            all(&*self.store, &self.key("none/")).await.is_empty(),
            "listing of nothing"
        );
        let gone = stream::iter(expected.iter().chain([&neighbour]));
        gone.for_each_concurrent(32, |key| self.delete(key)).await;
    }

    async fn deletes(self) {
        let key = self.put("once", &Bytes::from_static(b"1")).await;
        self.delete(&key).await;
        self.delete(&key).await;
        let error = self.store.get(&key, u64::MAX).await.err();
        assert_eq!(
            error.map(|error| error.kind),
            Some(ErrorKind::NotFound),
            "{key} was deleted"
        );
        let key = self.put("once", &Bytes::from_static(b"2")).await;
        self.delete(&key).await;
    }

    async fn uploads(self) {
        let body = noise(100_000, 3);
        let key = self.key("data.tgb");
        for (try_, body, answer) in [
            ("first", body.clone(), Create::Created),
            ("repeated", body.clone(), Create::Created),
            ("of another size", body.slice(1..), Create::Exists),
        ] {
            let uploaded = ok("upload", &key, self.store.upload(&key, body).await);
            assert_eq!(uploaded, answer, "{try_} upload of {key}");
        }
        assert!(
            ok("get", &key, self.store.get(&key, u64::MAX).await) == body,
            "an upload replaced {key}"
        );
        self.delete(&key).await;
    }

    async fn large(self) {
        let body = noise(LARGE_BYTES + 12_345, 4);
        let key = self.key("large.tgb");
        for try_ in ["first", "repeated"] {
            let uploaded = ok("upload", &key, self.store.upload(&key, body.clone()).await);
            assert_eq!(uploaded, Create::Created, "{try_} upload of a large body");
        }
        let shorter = ok(
            "upload",
            &key,
            self.store.upload(&key, body.slice(9..)).await,
        );
        assert_eq!(
            shorter,
            Create::Exists,
            "upload of another large body under the same key"
        );
        assert!(
            self.read(&key, 0..body.len() as u64).await == body,
            "the large body changed"
        );
        let middle = 16_000_000..17_000_000;
        assert!(
            self.read(&key, middle).await == body.slice(16_000_000..17_000_000),
            "across two parts"
        );
        self.delete(&key).await;
    }

    async fn invalid_keys(self) {
        for key in ["", "/a", "a/", "a//b", "../a", "a/./b", "a b", "a\nb", "ä"] {
            let errors = [
                self.store.create(key, Bytes::new()).await.err(),
                self.store.upload(key, Bytes::new()).await.err(),
                self.store.get(key, u64::MAX).await.err(),
                self.store.get_range(key, 0..1).await.err(),
                self.store.open_range(key, 0..1, false).await.err(),
                self.store.head(key).await.err(),
                self.store.delete(key).await.err(),
            ];
            for error in errors {
                assert_eq!(
                    error.map(|error| error.kind),
                    Some(ErrorKind::Invalid),
                    "key {key:?}"
                );
            }
        }
        let error = self.store.list("no-slash", None).await.err();
        assert_eq!(
            error.map(|error| error.kind),
            Some(ErrorKind::Invalid),
            "prefix without slash"
        );
    }

    /// 32 tasks create one key; every answer must fit one winner, whose bytes are there.
    async fn races(self, rounds: usize) {
        for round in 0..rounds {
            let key = self.key(&format!("race-{round}"));
            let body = |racer: usize| noise(100 + racer, (round * RACERS + racer) as u64);
            let racers = (0..RACERS).map(|racer| {
                let (store, key, body) = (Arc::clone(&self.store), key.clone(), body(racer));
                tokio::spawn(async move { store.create(&key, body).await })
            });
            let answers = futures::future::join_all(racers).await;
            let mut winners = Vec::new();
            for (racer, answer) in answers.into_iter().enumerate() {
                match answer {
                    Ok(Ok(Create::Created)) => winners.push(racer),
                    Ok(Ok(Create::Exists)) => {}
                    // Some stores answer losers 409 instead of 412.
                    Ok(Err(error)) if error.kind == ErrorKind::Conflict => {}
                    other => panic!("round {round}, racer {racer}: {other:?}"),
                }
            }
            assert_eq!(winners.len(), 1, "round {round}: winners {winners:?}");
            let there = ok("get", &key, self.store.get(&key, u64::MAX).await);
            assert!(
                there == body(winners[0]),
                "round {round}: not the bytes of racer {}",
                winners[0]
            );
            self.delete(&key).await;
        }
    }

    /// Uploads of one size under one key all succeed; this is what a repeated upload looks like.
    async fn upload_races(self) {
        let key = self.key("same.tgb");
        let body = noise(50_000, 5);
        let tries =
            futures::future::join_all((0..4).map(|_| self.store.upload(&key, body.clone()))).await;
        for answer in tries {
            assert_eq!(
                ok("upload", &key, answer),
                Create::Created,
                "concurrent uploads of the same bytes"
            );
        }
        assert!(
            ok("get", &key, self.store.get(&key, u64::MAX).await) == body,
            "{key}"
        );
        self.delete(&key).await;
    }
}
