//! Ranks that returned, and attempts that may still continue.

use super::*;

#[test]
fn a_rank_that_came_back_is_believed_only_with_its_word() {
    let mut run = honest();
    // Recorded again from the index after a daemon's crash, and a rank that returned by itself.
    let mut run_with = |attempt, dp_rank, from, to, flip: u32| {
        let mut entry = run.entry(attempt, dp_rank, from, to);
        entry.resumed = true;
        entry.crcs[0] ^= flip;
        run.push(attempt, 7, vec![entry]);
        run.prove(None, true)
    };
    let proven = run_with(5, 1, 1800, 1956, 0).unwrap();
    assert_eq!((proven[5].again, proven[5].recorded_again), (156, 0));
    let error = run_with(5, 1, 1900, 1956, 1).unwrap_err().to_string();
    assert!(
        error.contains("step 1900: slice 2 has the checksum"),
        "{error}"
    );
    let mut run = honest();
    run.of(5, 1).for_each(|e| e.resumed = true);
    assert_eq!(run.prove(None, true).unwrap()[5].recorded_again, 390);
    let first = run.of(5, 1).next().unwrap();
    first.to = 1750;
    first.crcs.truncate(100);
    first.skipped.clear();
    assert_eq!(run.holes(), [(5, 1, 1760..1956)]);
}

/// Entries before the return sort after it by first step, even where a flush split them.
#[test]
fn a_return_reaches_beyond_entries_split_by_a_flush() {
    let mut run = honest();
    run.of(0, 1).nth(1).unwrap().to = 300;
    run.of(0, 1).nth(1).unwrap().crcs.truncate(88);
    let rest = run.entry(0, 1, 300, 512);
    let mut back = run.entry(0, 1, 280, 512);
    back.resumed = true;
    run.push(0, 7, vec![back, rest]);
    let proven = run.prove(None, true).unwrap();
    assert_eq!((proven[0].end, proven[0].again), (600, 20 + 212));
    let twice = run.entry(0, 1, 300, 512);
    run.push(0, 8, vec![twice]);
    run.fails(&["doubled step", "step 300 again", "stood at step 512"]);
}

#[test]
fn the_newest_attempt_may_end_unevenly_while_it_can_still_run() {
    let mut run = honest();
    let last = run.of(5, 3).last().unwrap();
    last.to = 2000;
    last.crcs.truncate(88);
    assert_eq!(run.holes(), [(5, 3, 2000..2100)], "the stream ended");
    let proven = run.prove(None, false).unwrap();
    assert_eq!(proven[5].end, 2000);
    assert_eq!(proven[5].tail, [(0, 2100), (1, 2100), (2, 2100)]);
    assert_eq!(run.prove(Some(2000), true).unwrap()[5].end, 2000);
    assert_eq!(run.prove(Some(1650), true).unwrap().len(), 5);
    run.attempt(2100, 4, 2100, &[]);
    assert_eq!(
        run.holes(),
        [(5, 3, 2000..2100)],
        "a parent is never uneven"
    );
    let mut run = honest();
    run.attempt(2100, 4, 2100, &[]);
    let proven = run.prove(None, false).unwrap();
    assert_eq!((proven[6].end, proven[6].steps), (2100, 0));
}
