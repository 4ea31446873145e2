//! Reclamation on a memory store: undisturbed, raced, interrupted, refused.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use batchweave_core::ids::{RequestId, Step};
use batchweave_core::keys;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::JobClosed;
use batchweave_core::retention::{Due, WatermarkRefused};
use batchweave_store::testing::faults::{Fault, FaultStore};
use batchweave_store::{ErrorKind, Op, Store};

use super::*;
use crate::testing::{opened, options};
use crate::{Located, Log};
use scene::{Meddler, SHARED, Scene, job};

mod forged_objects;
mod scene;

async fn pass(scene: &Scene) -> ReclaimReport {
    let mut log = scene.log(90).await;
    let mut reclaimer = Reclaimer::new();
    reclaimer.pass(&mut log, Limits::default()).await.unwrap()
}

/// Every step from the watermark on can be read, and nothing is void.
async fn readable(scene: &Scene) {
    let mut log = scene.log(91).await;
    let (from, to) = (log.manifest().watermark(), log.manifest().next_step());
    for step in from..to {
        let Located::At(entry) = log.locate(step).await.unwrap() else {
            panic!("step {step} is not there");
        };
        for part in &entry.tgb.parts {
            scene.store.head(&part.key).await.unwrap();
        }
    }
    assert_eq!(log.manifest().void_entries(), 0);
}

/// Ten objects of four steps; the job can restart from 12 and from 20 and keeps both.
async fn marked() -> Scene {
    let (mut scene, _) = Scene::with(10).await;
    scene.open_job(2, None).await;
    scene.open_attempt(0).await;
    for step in [8, 14, 20] {
        scene.mark(0, step).await;
    }
    scene
}

#[tokio::test]
async fn the_watermark_is_recorded_before_unneeded_data_is_deleted() {
    let scene = marked().await;
    let mut log = scene.log(90).await;
    let mut reclaimer = Reclaimer::new();
    let plan = reclaimer.plan(&mut log, None).await.unwrap();
    assert_eq!((plan.watermark, plan.after, plan.steps()), (0, 14, 14));
    let dead = plan.totals[&Class::Data].dead;
    let bytes = 1024 * SHARED;
    assert_eq!((dead.objects, dead.bytes), (3, 3 * bytes));
    assert_eq!((plan.held[0].floor, plan.held[0].keep), (Some(14), 2));
    assert_eq!(scene.objects().len(), 10, "a plan does nothing");
    let report = reclaimer
        .apply(&mut log, &plan, Limits::default())
        .await
        .unwrap();
    assert_eq!(
        (report.steps(), report.watermark, report.more),
        (14, 14, false)
    );
    assert_eq!(report.deleted[&Class::Data].bytes, 3 * bytes);
    assert_eq!(
        report.deleted[&Class::Jobs].objects,
        4,
        "8's marks, two of progress"
    );
    assert_eq!(scene.objects(), [12, 16, 20, 24, 28, 32, 36]);
    readable(&scene).await;
    let quiet = pass(&scene).await;
    let held = Due::HeldBy {
        job: job(),
        floor: Some(14),
    };
    assert_eq!((quiet.published, &quiet.due), (None, &Some(held)));
    assert_eq!(
        (quiet.deleted_in_all().objects, quiet.requests.puts),
        (0, 0)
    );
}

#[tokio::test]
async fn orphans_go_and_what_may_still_be_committed_stays() {
    let (scene, producer) = Scene::with(2).await;
    let name = producer.name().clone();
    let object = |epoch, seqs| keys::data(&name, epoch, producer.nonce(), seqs, 9, 0);
    for key in [object(1, (0, 3)), object(1, (8, 11)), object(1, (6, 9))] {
        let _ = scene.store.upload(&key, "1".into()).await.unwrap();
    }
    let report = pass(&scene).await;
    assert_eq!(report.due, Some(Due::NoJob));
    assert_eq!(report.deleted[&Class::Data].objects, 1, "packed twice");
    assert_eq!(report.totals[&Class::Data].uncommitted.objects, 2);
    opened(&scene.store, "p0", 8).await;
    assert_eq!(pass(&scene).await.deleted[&Class::Data].objects, 2);
    assert_eq!(scene.objects(), [0, 4]);
    readable(&scene).await;
}

/// A watermark would cut off an attempt that opens between the read of the marks and its record.
#[tokio::test]
async fn a_lost_race_reads_jobs_and_marks_again() {
    let mut scene = marked().await;
    let meddler = Meddler::new(&scene);
    let back = scene.attempt(8);
    *meddler.first.lock().await = Some((scene.log(52).await, back));
    let store: Arc<dyn Store> = Arc::clone(&meddler) as Arc<dyn Store>;
    let mut log = Log::open(store, &options(90)).await.unwrap();
    let report = Reclaimer::new()
        .pass(&mut log, Limits::default())
        .await
        .unwrap();
    assert_eq!(report.lost_races, 1);
    assert_eq!(
        report.watermark, 0,
        "back at 8, the other point is its first start"
    );
    assert_eq!(scene.objects().len(), 10);
    readable(&scene).await;
    scene.mark(1, 16).await;
    assert_eq!(pass(&scene).await.watermark, 8);
    readable(&scene).await;
}

#[tokio::test]
async fn a_pass_is_capped_and_the_next_goes_on() {
    let scene = marked().await;
    let mut log = scene.log(90).await;
    let mut reclaimer = Reclaimer::new();
    let limits = Limits { max_delete: 2 };
    let mut left = Vec::new();
    for _ in 0..5 {
        let report = reclaimer.pass(&mut log, limits).await.unwrap();
        assert!(report.deleted_in_all().objects <= 2);
        left.push((scene.objects().len(), report.more));
    }
    assert_eq!(
        left,
        [(8, true), (7, true), (7, true), (7, false), (7, false)]
    );
    readable(&scene).await;
}

/// The next pass after a failed one deletes the rest, wherever that one stopped, and nothing else.
#[tokio::test]
async fn a_pass_may_die_anywhere() {
    let mut ends = Vec::new();
    for deletes in 0..9 {
        let scene = marked().await;
        let meddler = Meddler::new(&scene);
        meddler.deletes_left.store(deletes, Relaxed);
        let mut log = Log::open(meddler, &options(90)).await.unwrap();
        let report = Reclaimer::new()
            .pass(&mut log, Limits::default())
            .await
            .unwrap();
        assert_eq!(report.deleted_in_all().objects, deletes.min(7) as u64);
        assert_eq!(report.refused_keys > 0, deletes < 7, "{report:?}");
        if deletes == 0 {
            let stopped = report.stopped.unwrap();
            assert_eq!(stopped.kind, ErrorKind::Denied);
            assert!(report.refused[0].error.to_string().contains("data/p0/"));
        }
        readable(&scene).await;
        let rest = pass(&scene).await;
        assert_eq!(rest.deleted_in_all().objects, 7 - deletes.min(7) as u64);
        readable(&scene).await;
        ends.push((scene.objects(), scene.count(keys::JOBS)));
    }
    ends.dedup();
    assert_eq!(ends.len(), 1, "{ends:?}");
}

#[tokio::test]
async fn refusals_of_single_keys_are_told_and_tried_again_by_the_next_pass() {
    let scene = marked().await;
    let faulty = FaultStore::new(Arc::clone(&scene.store), 1, []);
    let key = scene
        .memory
        .keys()
        .into_iter()
        .find(|k| k.starts_with("data/"))
        .unwrap();
    faulty.inject(Op::Delete, &key, Fault::LostRequest);
    let store: Arc<dyn Store> = Arc::new(faulty);
    let mut log = Log::open(store, &options(90)).await.unwrap();
    let mut reclaimer = Reclaimer::new();
    let report = reclaimer.pass(&mut log, Limits::default()).await.unwrap();
    assert_eq!((report.refused_keys, report.more), (1, true));
    assert_eq!(report.refused[0].key, key);
    assert_eq!(report.deleted[&Class::Data].objects, 2);
    let report = reclaimer.pass(&mut log, Limits::default()).await.unwrap();
    assert_eq!((report.refused_keys, report.more), (0, false));
    assert_eq!(report.deleted[&Class::Data].objects, 1);
}

#[tokio::test]
async fn several_reclaimers_beside_a_producer_do_no_harm() {
    let (mut scene, mut producer) = Scene::with(4).await;
    scene.open_job(1, None).await;
    scene.open_attempt(0).await;
    let mut logs = [
        scene.log(80).await,
        scene.log(81).await,
        scene.log(82).await,
    ];
    for round in 1..12_u64 {
        scene.commit(&mut producer).await;
        scene.mark(0, 3 * round).await;
        let passes = logs.iter_mut().map(|log| async move {
            let mut reclaimer = Reclaimer::new();
            reclaimer.pass(log, Limits::default()).await.unwrap()
        });
        let reports = futures::future::join_all(passes).await;
        let published = reports.iter().filter(|r| r.published.is_some()).count();
        assert_eq!(published, 1, "round {round}");
        readable(&scene).await;
    }
    assert_eq!(scene.log(83).await.manifest().watermark(), 33);
    assert_eq!(scene.objects().first(), Some(&32));
}

#[tokio::test]
async fn whole_segments_are_kept_from_the_watermark_on() {
    let (mut scene, mut producer) = Scene::with(0).await;
    scene.open_job(1, None).await;
    scene.open_attempt(0).await;
    for _ in 0..640 {
        scene.commit(&mut producer).await;
    }
    producer.log_mut().settle_snapshots().await;
    let before = scene.count(keys::INDEX);
    assert_eq!(before, 1);
    scene.mark(0, 1500).await;
    let report = pass(&scene).await;
    // The segment, two marks and the progress.
    assert_eq!((report.watermark, report.requests.gets), (1500, 4));
    assert_eq!(
        scene.count(keys::INDEX),
        before - 1,
        "the other is not stored yet"
    );
    assert_eq!(scene.objects().first(), Some(&1500));
    assert_eq!(report.deleted[&Class::Data].objects, 375);
    readable(&scene).await;
}

#[tokio::test]
async fn a_person_moves_the_watermark_as_far_as_jobs_allow() {
    let mut scene = marked().await;
    let mut log = scene.log(90).await;
    let mut reclaimer = Reclaimer::new();
    let mut refused = async |log: &mut Log, to: Step| match reclaimer.plan(log, Some(to)).await {
        Err(ReclaimError::Asked(refused)) => refused,
        other => panic!("{other:?}"),
    };
    let needed = refused(&mut log, 15).await;
    assert!(
        matches!(
            needed,
            WatermarkRefused::Needed {
                floor: Some(14),
                ..
            }
        ),
        "{needed}"
    );
    assert!(matches!(
        refused(&mut log, 41).await,
        WatermarkRefused::BeyondHead { head: 40, .. }
    ));
    assert!(matches!(
        refused(&mut log, 0).await,
        WatermarkRefused::NotAbove { .. }
    ));
    let mut reclaimer = Reclaimer::new();
    let plan = reclaimer.plan(&mut log, Some(13)).await.unwrap();
    let report = reclaimer
        .apply(&mut log, &plan, Limits::default())
        .await
        .unwrap();
    assert_eq!(report.watermark, 13);
    // Applied again, the plan has nothing left to do.
    let report = reclaimer
        .apply(&mut log, &plan, Limits::default())
        .await
        .unwrap();
    assert_eq!((report.published, report.watermark), (None, 13));
    let closed = Entry::JobClosed(JobClosed {
        request: RequestId([99; 16]),
        job: job(),
        opened: scene.opened,
        reason: "done".into(),
    });
    log.commit_entry("t", |_| closed.clone()).await.unwrap();
    assert_eq!(pass(&scene).await.due, Some(Due::NoJob));
    let plan = reclaimer.plan(&mut log, Some(40)).await.unwrap();
    reclaimer
        .apply(&mut log, &plan, Limits::default())
        .await
        .unwrap();
    assert!(scene.objects().is_empty());
    scene.opened = 0;
    assert_eq!(
        scene.count(keys::JOBS),
        0,
        "a closed job's marks and progress"
    );
}

#[tokio::test]
async fn too_few_restart_points_hold_everything_and_the_plan_names_the_job() {
    let (mut scene, _) = Scene::with(4).await;
    scene.open_job(2, None).await;
    let held = Some(Due::HeldBy {
        job: job(),
        floor: None,
    });
    assert_eq!(pass(&scene).await.due, held, "no attempt yet");
    scene.open_attempt(3).await;
    let half = scene.a_mark(0, 9, 1);
    let made = scene.store.create(&half.key(), half.to_json().into()).await;
    let _ = made.unwrap();
    scene.progress(0, 11).await;
    let plan = Reclaimer::new()
        .plan(&mut scene.log(90).await, None)
        .await
        .unwrap();
    assert_eq!(Some(plan.due), held);
    assert_eq!(plan.held[0].restart_points, [3]);
    assert_eq!(plan.held[0].position, Some(11));
    assert_eq!(plan.held[0].incomplete_marks, [(9, vec![0])]);
    assert_eq!(scene.objects().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_lease_runs_out_on_the_reclaimers_own_clock() {
    let (mut scene, _) = Scene::with(4).await;
    scene.open_job(1, Some(10)).await;
    scene.open_attempt(0).await;
    let mut log = scene.log(90).await;
    let mut reclaimer = Reclaimer::new();
    let mut closed_after = async |seconds| {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        let report = reclaimer.pass(&mut log, Limits::default()).await.unwrap();
        report.closed
    };
    assert!(
        closed_after(100).await.is_empty(),
        "seen for the first time"
    );
    assert!(closed_after(9).await.is_empty());
    scene.progress(0, 1).await;
    assert!(closed_after(9).await.is_empty(), "progress");
    for beat in 1..4 {
        scene.alive(0, beat).await;
        assert!(closed_after(9).await.is_empty(), "connected ranks");
        let keys = scene.memory.keys();
        let beats = keys.iter().filter(|key| keys::parse_alive(key).is_some());
        assert_eq!(beats.count(), 1, "older ones are reclaimed");
    }
    assert!(closed_after(9).await.is_empty());
    scene.open_attempt(0).await;
    assert!(closed_after(9).await.is_empty(), "another attempt");
    assert!(closed_after(9).await.is_empty());
    assert_eq!(closed_after(1).await, [job()]);
    let m = scene.log(91).await;
    assert!(m.manifest().jobs().is_empty());
    scene.open_job(2, None).await;
    scene.open_attempt(0).await;
    assert!(closed_after(1000).await.is_empty(), "no lease");
    assert!(closed_after(1000).await.is_empty());
}
