//! Each clause of the rule, and all of it against a simple oracle.

use proptest::prelude::*;

use super::*;
use crate::ids::{AttemptId, JobName};
use crate::keys;

fn name() -> JobName {
    "llm".parse().unwrap()
}

fn job(keep: u32, starts: &[Step]) -> JobState {
    let attempts = starts
        .iter()
        .zip(0_u64..)
        .map(|(&start, number)| AttemptState {
            number,
            id: AttemptId([number as u8; 16]),
            opened: 10 + number,
            parent: None,
            start,
            dp_size: 2,
            mesh: Vec::new(),
            head: None,
        });
    JobState {
        opened: 4,
        start: 0,
        keep,
        holds: true,
        paces: true,
        lease_seconds: None,
        attempts: attempts.collect(),
    }
}

const HEAD: Step = 10_000;

/// Returns complete marks at these steps of each attempt; the newest has received everything.
fn signs(marks: &[&[Step]]) -> JobObjects {
    let mut signs = JobObjects::new();
    for (number, steps) in (0_u64..).zip(marks) {
        let attempt = signs.entry(number).or_default();
        for step in *steps {
            for at in 0..2 {
                attempt.note(&keys::mark(&name(), 4, number, *step, Some(at)), 2, HEAD);
            }
        }
        received(attempt, number, HEAD, (0, 1));
    }
    signs
}

fn received(signs: &mut AttemptObjects, attempt: u64, step: Step, range: (u32, u32)) {
    let key = keys::progress(&name(), 4, attempt, step, range, "n");
    signs.note(&key, 2, HEAD);
}

fn points(job: &JobState, signs: &JobObjects) -> Vec<Step> {
    restart_points(job, signs).into_iter().collect()
}

#[test]
fn the_newest_attempt_gives_its_start_and_its_complete_marks() {
    let signs = signs(&[&[100, 200, 300]]);
    assert_eq!(points(&job(2, &[50]), &signs), [50, 100, 200, 300]);
    assert_eq!(floor(&job(2, &[50]), &signs), Some(200));
    assert_eq!(floor(&job(4, &[50]), &signs), Some(50));
}

/// Marks of an abandoned future would push the floor above where the newest attempt restarts.
#[test]
fn marks_of_all_attempts_are_not_pooled() {
    let job = job(2, &[0, 100]);
    let signs = signs(&[&[100, 200, 300], &[]]);
    assert_eq!(points(&job, &signs), [0, 100]);
    assert_eq!(floor(&job, &signs), Some(0));
}

/// A restart far ahead of its predecessor's start must not forget where it came from.
#[test]
fn marks_of_earlier_attempts_count_up_to_the_start_of_later_ones() {
    let job = job(3, &[0, 200]);
    let signs = signs(&[&[100, 200, 300], &[250]]);
    assert_eq!(points(&job, &signs), [0, 100, 200, 250]);
    assert_eq!(floor(&job, &signs), Some(100));
}

/// The start of a middle attempt cuts the first one off as well, and is cut off itself.
#[test]
fn any_later_start_cuts_off_what_is_above_it() {
    let job = job(1, &[0, 50, 120]);
    let signs = signs(&[&[40, 100], &[110, 130], &[]]);
    assert_eq!(points(&job, &signs), [0, 40, 50, 110, 120]);
    let back = super::tests::job(1, &[0, 500, 120]);
    assert_eq!(points(&back, &signs), [0, 40, 100, 120]);
}

#[test]
fn a_mark_counts_when_all_coordinates_have_made_it() {
    let job = job(1, &[0]);
    let mut signs = signs(&[&[]]);
    let attempt = signs.get_mut(&0).unwrap();
    attempt.note(&keys::mark(&name(), 4, 0, 70, Some(1)), 2, HEAD);
    assert_eq!(attempt.incomplete(2), [(70, vec![0])]);
    assert_eq!(points(&job, &signs), [0]);
    let attempt = signs.get_mut(&0).unwrap();
    attempt.note(&keys::mark(&name(), 4, 0, 80, None), 2, HEAD);
    assert_eq!(points(&job, &signs), [0, 80]);
    let attempt = signs.get_mut(&0).unwrap();
    attempt.note(&keys::mark(&name(), 4, 0, 70, Some(0)), 2, HEAD);
    assert_eq!(attempt.incomplete(2), []);
    assert_eq!(points(&job, &signs), [0, 70, 80]);
}

#[test]
fn with_fewer_than_k_restart_points_nothing_moves() {
    assert_eq!(floor(&job(1, &[]), &signs(&[])), None);
    assert_eq!(floor(&job(2, &[30]), &signs(&[&[]])), None);
    assert_eq!(floor(&job(2, &[30, 30]), &signs(&[&[30], &[30]])), None);
    assert_eq!(floor(&job(1, &[30]), &signs(&[&[]])), Some(30));
    assert_eq!(floor(&job(1, &[30]), &JobObjects::new()), Some(30));
}

#[test]
fn the_floor_is_never_above_the_slowest_coordinate() {
    let job = job(1, &[50]);
    let mut signs = signs(&[&[100, 200]]);
    let attempt = signs.get_mut(&0).unwrap();
    attempt.progress.clear();
    assert_eq!(floor(&job, &signs), Some(50), "no progress: the start");
    let attempt = signs.get_mut(&0).unwrap();
    received(attempt, 0, 180, (0, 0));
    assert_eq!(
        floor(&job, &signs),
        Some(50),
        "coordinate 1 has said nothing"
    );
    let attempt = signs.get_mut(&0).unwrap();
    received(attempt, 0, 150, (1, 1));
    received(attempt, 0, 120, (0, 1));
    assert_eq!(floor(&job, &signs), Some(150), "each one's newest counts");
}

#[test]
fn names_that_say_nothing_are_ignored_and_counted() {
    let mut attempt = AttemptObjects::default();
    for key in [
        keys::mark(&name(), 4, 0, 11, Some(0)),
        keys::mark(&name(), 4, 0, 11, None),
        keys::mark(&name(), 4, 0, 5, Some(2)),
        keys::progress(&name(), 4, 0, 11, (0, 1), "n"),
        keys::progress(&name(), 4, 0, 5, (0, 2), "n"),
        "jobs/llm@4/0/marks/notes.txt".to_owned(),
    ] {
        attempt.note(&key, 2, 10);
    }
    let expected = AttemptObjects {
        ignored: 6,
        ..AttemptObjects::default()
    };
    assert_eq!(attempt, expected);
    attempt.note(&keys::mark(&name(), 4, 0, 10, None), 2, 10);
    assert_eq!(attempt.for_all.len(), 1, "the head itself may be marked");
}

#[test]
fn a_mark_below_the_start_of_its_attempt_is_ignored() {
    assert_eq!(points(&job(1, &[50]), &signs(&[&[20, 60]])), [50, 60]);
}

/// The rule word by word as in protocol.md, without regard to cost.
fn naive(starts: &[Step], marks: &[Vec<Step>], keep: usize, position: Step) -> Option<Step> {
    let newest = starts.len().checked_sub(1)?;
    let mut points = Vec::new();
    for point in 0..=HEAD.min(60) {
        let is_one = (0..starts.len()).any(|i| {
            let own = point == starts[i] || (marks[i].contains(&point) && point > starts[i]);
            own && (i == newest || (i + 1..=newest).all(|later| point <= starts[later]))
        });
        if is_one {
            points.push(point);
        }
    }
    let kept = points.len().checked_sub(keep)?;
    Some(points[kept].min(position.max(starts[newest])))
}

proptest! {
    #[test]
    fn the_floor_equals_that_of_a_naive_oracle(
        history in prop::collection::vec((0_u64..50, prop::collection::vec(0_u64..50, 0..6)), 0..5),
        keep in 1_u32..5,
        received_to in prop::option::of((0_u64..60, 0_u64..60)),
    ) {
        let (starts, marks): (Vec<_>, Vec<_>) = history.into_iter().unzip();
        let job = job(keep, &starts);
        let slices: Vec<_> = marks.iter().map(Vec::as_slice).collect();
        let mut signs = signs(&slices);
        let mut position = HEAD;
        if let (Some(newest), Some((one, other))) = (starts.len().checked_sub(1), received_to) {
            let attempt = signs.entry(newest as u64).or_default();
            attempt.progress = [(0, one), (1, other)].into();
            position = one.min(other);
        }
        prop_assert_eq!(floor(&job, &signs), naive(&starts, &marks, keep as usize, position));
    }

    /// Deleting marks below a published watermark does not change the next watermark.
    #[test]
    fn marks_below_the_watermark_may_go(
        history in prop::collection::vec((0_u64..50, prop::collection::vec(0_u64..50, 0..6)), 1..5),
        keep in 1_u32..4,
        watermark in 0_u64..50,
    ) {
        let (starts, marks): (Vec<_>, Vec<_>) = history.into_iter().unzip();
        let job = job(keep, &starts);
        let less: Vec<Vec<_>> = marks
            .iter()
            .map(|steps| steps.iter().copied().filter(|s| *s >= watermark).collect())
            .collect();
        let of = |marks: &[Vec<Step>]| {
            let slices: Vec<_> = marks.iter().map(Vec::as_slice).collect();
            floor(&job, &signs(&slices)).filter(|floor| *floor > watermark)
        };
        prop_assert_eq!(of(&marks), of(&less));
    }
}
