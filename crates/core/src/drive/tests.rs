//! Drivers by numbers that an independent program computed, at the bounds, and in histories of runs.

mod model;
mod stored;

use std::collections::BTreeMap;

use super::*;

const FREE: Bounds = Bounds {
    floor: 1e-6,
    ceiling: 1.0,
    step: 1.0,
};

fn source(name: &str, sum: f64, weight: f64, share: f64) -> SourceBefore {
    SourceBefore {
        name: name.to_owned(),
        sums: SourceSums { sum, weight },
        share,
        reward: None,
    }
}

/// Runs changes of `odm` on sources with constant losses, whose tokens follow the shares. Returns the shares and rewards of
/// the last one.
fn driven(losses: &[f64], changes: u64, sum: bool) -> Vec<(f64, f64)> {
    let share = 1.0 / losses.len() as f64;
    let named = losses.iter().enumerate();
    let mut sources: Vec<_> = named
        .map(|(n, loss)| source(&n.to_string(), loss * share, share, share))
        .collect();
    let mut after = Vec::new();
    for change in 1..=changes {
        after = decide(&Rule::Odm { sum }, &FREE, change, &sources).unwrap();
        for ((one, after), loss) in sources.iter_mut().zip(&after).zip(losses) {
            (one.share, one.reward) = (after.share, after.reward);
            one.sums = SourceSums {
                sum: loss * after.share,
                weight: after.share,
            };
        }
    }
    let pair = |one: &SourceAfter| (one.share, one.reward.unwrap());
    after.iter().map(pair).collect()
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} {expected}");
}

/// The numbers are those of twenty lines of Python, from the formulas of docs/reports.md.
#[test]
fn odm_gives_the_shares_of_an_independent_program() {
    type Case = (&'static [f64], u64, bool, [f64; 2], [f64; 2]);
    #[rustfmt::skip]
    let cases: [Case; 10] = [
        (&[1.0, 2.0], 1, false, [0.5, 0.5], [0.2, 0.4]),
        (&[1.0, 2.0], 2, false, [0.492_070_185_215_385_15, 0.507_929_814_784_614_8], [0.38, 0.76]),
        (&[1.0, 2.0], 10, false, [0.465_609_643_498_026_8, 0.534_390_356_501_973_1], [1.367_851_193_988_434, 2.489_188_025_452_135]),
        (&[1.0, 2.0], 1000, false, [0.491_492_063_865_538_9, 0.508_507_936_134_461_1], [2.034_783_831_320_463_6, 3.932_770_870_050_377]),
        (&[0.5, 3.0], 10, false, [0.416_545_076_602_350_7, 0.583_454_923_397_649_3], [0.738_285_278_389_815_3, 3.515_239_447_176_800_7]),
        (&[0.5, 3.0], 100, false, [0.444_811_899_165_424_63, 0.555_188_100_834_575_3], [1.129_951_127_968_717_8, 5.381_141_234_250_827]),
        (&[0.5, 3.0], 1000, false, [0.478_891_111_951_698_5, 0.521_108_888_048_301_6], [1.044_290_235_078_571_7, 5.755_883_007_441_578]),
        (&[1.0, 2.0], 10, true, [0.448_297_055_182_043_66, 0.551_702_944_817_956_3], [2.112_280_384_502_821_7, 3.806_787_173_523_078_5]),
        (&[0.5, 3.0], 10, true, [0.377_193_803_142_059_97, 0.622_806_196_857_939_9], [1.152_276_195_749_169_6, 5.365_016_953_376_735]),
        (&[0.5, 3.0], 1000, true, [0.161_744_538_401_776_13, 0.838_255_461_598_223_8], [276.356_998_794_947_7, 370.050_910_501_309_26]),
    ];
    for (losses, changes, sum, shares, rewards) in cases {
        let found = driven(losses, changes, sum);
        for n in 0..2 {
            close(found[n].0, shares[n]);
            close(found[n].1, rewards[n]);
        }
    }
    for (losses, changes, percent) in [
        ([1.0, 2.0], 10, 47),
        ([0.5, 3.0], 10, 42),
        ([0.5, 3.0], 1000, 48),
    ] {
        let share = driven(&losses, changes, false)[0].0;
        assert_eq!((share * 100.0).round() as u64, percent);
    }
    let three = driven(&[1.0, 2.0, 4.0], 3, false);
    close(three[0].0, 1.0 / 3.0);
    close(three[2].1, 3.252);
}

#[test]
fn a_source_without_tokens_keeps_its_reward_and_share_and_a_new_one_begins_with_the_mean() {
    let odm = Rule::Odm { sum: false };
    let rewarded = |one: SourceBefore, reward| SourceBefore {
        reward: Some(reward),
        ..one
    };
    let sources = [
        rewarded(source("web", 10.0, 10.0, 0.4), 1.0),
        rewarded(source("ended", 0.0, 0.0, 0.2), 5.0),
        source("new", 30.0, 10.0, 0.4),
    ];
    let after = decide(&odm, &FREE, 7, &sources).unwrap();
    assert_eq!((after[1].reward, after[1].share), (Some(5.0), 0.2));
    assert_eq!(after[1].wanted, None);
    // Two sources are left, each with half of the tokens.
    close(after[0].reward.unwrap(), 0.9 * 1.0 + 0.1 * 1.0 / 0.5);
    close(after[2].reward.unwrap(), 0.9 * 3.0 + 0.1 * 3.0 / 0.5);
    close(after[0].share + after[2].share, 0.8);
    let none = [source("web", 0.0, 0.0, 1.0)];
    assert_eq!(decide(&odm, &FREE, 1, &none), Err(DriveError::NoSource));
    let only = [source("web", 3.0, 2.0, 1.0)];
    close(decide(&odm, &FREE, 3, &only).unwrap()[0].share, 1.0);
}

#[test]
fn targets_move_shares_towards_the_wanted_ratio_of_losses() {
    let of = |targets: &[(&str, f64)]| Rule::Target {
        targets: targets.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect(),
    };
    let sources = [
        source("web", 20.0, 10.0, 0.5),
        source("code", 30.0, 10.0, 0.5),
    ];
    let shares = |rule: &Rule| {
        let after = decide(rule, &FREE, 1, &sources);
        after.map(|all| [all[0].share, all[1].share])
    };
    let equal = shares(&of(&[("web", 2.0), ("code", 3.0)])).unwrap();
    close(equal[0], 0.5);
    // 2 against 1 and 3 against 3: web has twice its target, compared with code.
    let more = shares(&of(&[("web", 1.0), ("code", 3.0)])).unwrap();
    close(more[0], 2.0 / 3.0);
    let scaled = shares(&of(&[("web", 10.0), ("code", 30.0)])).unwrap();
    close(scaled[0], 2.0 / 3.0);
    for (targets, says) in [
        (of(&[("web", 1.0)]), "source code has no target"),
        (
            of(&[("web", 1.0), ("code", 1.0), ("wiki", 1.0)]),
            "no source is named wiki",
        ),
        (
            of(&[("web", f64::NAN), ("code", 1.0)]),
            "target of source web",
        ),
        (of(&[("web", 0.0), ("code", 1.0)]), "target of source web"),
    ] {
        let why = shares(&targets).unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn the_answer_of_a_function_is_checked() {
    let sources = [source("web", 2.0, 1.0, 0.5), source("code", 3.0, 1.0, 0.5)];
    let of = |answer: &[(&str, f64)]| {
        let answer = answer.iter().map(|(n, w)| ((*n).to_owned(), *w)).collect();
        decide(&Rule::Function { answer }, &FREE, 1, &sources)
    };
    close(of(&[("web", 3.0), ("code", 1.0)]).unwrap()[0].share, 0.75);
    close(
        of(&[("web", 1e300), ("code", 1e300)]).unwrap()[0].share,
        0.5,
    );
    for (answer, says) in [
        (&[("web", 1.0)][..], "no weight for source code"),
        (&[("web", 1.0), ("code", 1.0), ("x", 1.0)], "a weight for x"),
        (
            &[("web", f64::NAN), ("code", 1.0)],
            "source web a weight that is not",
        ),
        (
            &[("web", -1.0), ("code", 1.0)],
            "source web a weight that is not",
        ),
        (&[("web", 0.0), ("code", 0.0)], "all sources the weight 0"),
    ] {
        let why = of(answer).unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn shares_stay_within_floor_ceiling_and_step_bound() {
    let bounds = Bounds {
        floor: 0.1,
        ceiling: 0.7,
        step: 0.05,
    };
    let all = |bounds: &Bounds, wanted: &[f64], before: &[f64]| {
        let shares = bounds.apply(wanted, before).unwrap();
        close(shares.iter().sum(), 1.0);
        shares
    };
    let near = all(&bounds, &[0.9, 0.1], &[0.5, 0.5]);
    close(near[0], 0.55);
    let ceiling = all(&bounds, &[0.9, 0.1], &[0.68, 0.32]);
    close(ceiling[0], 0.7);
    let floor = all(&bounds, &[0.0, 0.3, 0.7], &[0.12, 0.3, 0.58]);
    close(floor[0], 0.1);
    // Floor and ceiling go before the step bound: these shares are beyond both.
    let beyond = all(&bounds, &[0.99, 0.01], &[0.99, 0.01]);
    close(beyond[0], 0.7);
    for (bad, says) in [
        (
            Bounds {
                floor: 0.0,
                ..bounds
            },
            "must be above 0",
        ),
        (
            Bounds {
                ceiling: 0.05,
                ..bounds
            },
            "must be above 0",
        ),
        (
            Bounds {
                step: f64::NAN,
                ..bounds
            },
            "must be above 0",
        ),
    ] {
        let why = bad.check().unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
    }
    let many = bounds.apply(&[0.05; 20], &[0.05; 20]).unwrap_err();
    assert!(
        many.to_string().contains("20 sources cannot all have"),
        "{many}"
    );
}

#[test]
fn values_without_sources_do_not_count() {
    use crate::values::{CoordinateLoss, CoordinateStep};
    let value = |sources: &[(u16, (f64, f64))], dropped| CoordinateStep {
        step: 3,
        dp_rank: 0,
        first_slice: 0,
        slices: 1,
        loss: CoordinateLoss {
            sum: 9.0,
            weight: 3.0,
            sources: sources.iter().copied().collect(),
            sources_dropped: dropped,
            ..CoordinateLoss::default()
        },
    };
    let mut sums = WindowSums::default();
    sums.add(&[
        value(&[(0, (4.0, 2.0)), (1, (5.0, 1.0))], false),
        value(&[], false),
        value(&[(0, (4.0, 2.0))], true),
        value(&[(1, (1.0, 1.0))], false),
    ]);
    let expected = [(0, (4.0, 2.0)), (1, (6.0, 2.0))];
    let expected = expected.map(|(n, (sum, weight))| (n, SourceSums { sum, weight }));
    assert_eq!((sums.counted, sums.sources), (2, BTreeMap::from(expected)));
    assert!(has_enough(95, 100) && !has_enough(94, 100) && !has_enough(0, 0));
}
