//! Flow control between processes: two producers and a job that exists only in the store.

use std::time::Duration;

use batchweave_core::ids::Step;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::JobClosed;
use batchweave_log::{Log, LogOptions};
use batchweave_store::OpenOptions;
use batchweave_testkit::TestJob;
use batchweave_tests::eventually;

use crate::scene::{MINUTE, Scene};

const MOST: u64 = 400;
const AHEAD: &str = "[ahead]\nmax_steps = 400\nwhen_no_job = \"wait\"\n";

/// A job that exists only in the store.
struct Job {
    log: Log,
    job: TestJob,
}

impl Job {
    async fn open(url: &str, name: &str, start: Step) -> Self {
        let store = batchweave_store::open(url, &OpenOptions::default()).await;
        let options = LogOptions::new(rand::random());
        let mut log = Log::open(store.unwrap(), &options).await.unwrap();
        let job = TestJob::open(&mut log, name, |job| {
            (job.start, job.paces) = (start, true);
        })
        .await;
        Self { log, job }
    }

    async fn publish(&self, step: Step) {
        self.job.progress(step).await;
    }

    async fn head(&mut self) -> Step {
        self.log.catch_up().await.unwrap();
        self.log.manifest().next_step()
    }

    /// Waits until the producers are at the bound of a job at `at`, and checks that they stay
    /// there.
    async fn is_bound(&mut self, at: Step) {
        // Entries are whole: at most eight batches each, and two producers.
        let full = at + MOST - 16;
        let began = std::time::Instant::now();
        while self.head().await < full {
            assert!(began.elapsed() < MINUTE, "{} steps", self.head().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let head = self.head().await;
            assert!(head <= at + MOST, "{head} steps, the job is at {at}");
        }
    }

    async fn close(mut self) {
        let request = self.log.new_request();
        let entry = Entry::JobClosed(JobClosed {
            request,
            job: self.job.attempt().job.clone(),
            opened: self.job.attempt().opened,
            reason: "done".into(),
        });
        let make = |_: &_| entry.clone();
        self.log.commit_entry("test", make).await.unwrap();
    }
}

#[test]
fn two_producers_wait_for_a_job_and_never_run_further_ahead_than_they_may() {
    let scene = Scene::new();
    let names = ["p0", "p1"];
    let mut producers = names.map(|name| scene.producer_of("paced", name, &names, AHEAD));
    let log_text = |name: &str| scene.log_text(&format!("paced-{name}.log"));
    for name in names {
        eventually("without a job they wait", || {
            log_text(name).contains("held back: no open job paces")
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut job = Job::open(&scene.url("paced"), "llm", 0).await;
        job.is_bound(0).await;
        for at in [150, 151, 500] {
            job.publish(at).await;
            job.is_bound(at).await;
        }
        // Another job that begins far ahead releases all producers.
        let free = Job::open(&scene.url("paced"), "next", 1 << 40).await;
        job.close().await;
        drop(free);
    });
    for (name, producer) in names.iter().zip(&mut producers) {
        assert_eq!(producer.wait(MINUTE), Some(0), "{}", log_text(name));
        let log_text = log_text(name);
        assert!(
            log_text.contains("held back by job llm, whose attempt 0 is at step 0"),
            "{log_text}"
        );
    }
    assert!(scene.steps("paced") > 1100, "{}", scene.steps("paced"));
}

/// The number of objects with batches of stream `stopped`.
fn objects(scene: &Scene) -> usize {
    let made = scene.stream("stopped").join("data/p0");
    let Ok(epochs) = std::fs::read_dir(made) else {
        return 0;
    };
    let files = epochs.flat_map(|epoch| std::fs::read_dir(epoch.unwrap().path()).unwrap());
    let names = files.map(|file| file.unwrap().path());
    names
        .filter(|path| path.extension().is_some_and(|end| end == "tgb"))
        .count()
}

#[test]
fn a_held_producer_has_a_few_objects_ready_and_stops_at_once() {
    let scene = Scene::new();
    let settings = format!("{AHEAD}[upload]\nconcurrency = 1\n");
    let mut producer = scene.producer_of("stopped", "p0", &["p0"], &settings);
    let log_text = || scene.log_text("stopped-p0.log");
    eventually("it waits", || log_text().contains("held back"));
    eventually("objects are ready", || objects(&scene) >= 4);
    std::thread::sleep(Duration::from_millis(300));
    // Four that wait for the commit, and at most the one that was under way, and one more that was taken.
    assert!(objects(&scene) <= 6, "{}", objects(&scene));
    producer.signal("TERM");
    assert_eq!(producer.wait(MINUTE), Some(0), "{}", log_text());
    let log_text = log_text();
    assert!(
        log_text.contains("a restart continues from here"),
        "{log_text}"
    );
    assert!(!log_text.contains("before shutdown.deadline"), "{log_text}");
}
