//! Objects with the names of marks and progress that are empty, or hold those of another attempt.

use batchweave_core::retention::Mark;

use super::*;

/// Makes a forged body from the genuine mark.
type Forge = fn(Mark) -> Vec<u8>;

/// Stores objects under the names of both coordinates' marks, with forged bodies.
async fn forge(scene: &Scene, step: Step, body: impl Fn(Mark) -> Vec<u8>) {
    for at in 0..2 {
        let mark = scene.a_mark(0, step, at);
        let (key, body) = (mark.key(), body(mark));
        let _ = scene.store.create(&key, body.into()).await.unwrap();
    }
}

#[tokio::test]
async fn marks_and_progress_that_are_none_give_up_nothing() {
    let forgeries: [(&str, Forge); 5] = [
        ("empty", |_| Vec::new()),
        ("another step's", |mark| Mark { step: 20, ..mark }.to_json()),
        ("another attempt's", |mark| {
            let id = batchweave_core::ids::AttemptId([9; 16]);
            Mark { id, ..mark }.to_json()
        }),
        ("of another mesh", |mark| {
            Mark { dp_size: 8, ..mark }.to_json()
        }),
        ("damaged", |mark| {
            let mut body = mark.to_json();
            body[20] ^= 1;
            body
        }),
    ];
    for (what, body) in forgeries {
        let scene = marked().await;
        forge(&scene, 30, body).await;
        forge(&scene, 39, body).await;
        // Progress claims all steps below the head, so that only the marks retain data.
        scene.progress(0, 40).await;
        let report = pass(&scene).await;
        assert_eq!((report.watermark, report.steps()), (14, 14), "{what}");
        readable(&scene).await;
        let quiet = pass(&scene).await;
        assert_eq!(quiet.deleted_in_all().objects, 0, "{what}");
    }
}

/// One rank's mark claims to be of all ranks while another rank still reads: its progress retains the floor.
#[tokio::test]
async fn false_progress_does_not_delete_what_a_rank_still_reads() {
    let (mut scene, _) = Scene::with(10).await;
    scene.open_job(1, None).await;
    scene.open_attempt(0).await;
    scene.progress(0, 9).await;
    forge(&scene, 30, |mark| mark.to_json()).await;
    let false_key = keys::progress(&job(), scene.opened, 0, 35, (0, 1), "n");
    let _ = scene.store.create(&false_key, "{}".into()).await.unwrap();
    let report = pass(&scene).await;
    assert_eq!(report.watermark, 9);
    let keys = scene.memory.keys();
    let left = keys
        .iter()
        .filter(|key| keys::parse_progress(key).is_some());
    assert_eq!(
        left.count(),
        2,
        "the true one is not replaced by the false one"
    );
    readable(&scene).await;
}

#[tokio::test]
async fn what_was_read_once_is_not_read_again() {
    let scene = marked().await;
    let mut log = scene.log(90).await;
    let mut reclaimer = Reclaimer::new();
    let mut gets = Vec::new();
    for step in [26, 32, 38] {
        scene.mark(0, step).await;
        let report = reclaimer.pass(&mut log, Limits::default()).await.unwrap();
        gets.push(report.requests.gets);
    }
    // Two marks of each of two points and the progress; then those of one more point.
    assert_eq!(gets, [5, 3, 3]);
}
