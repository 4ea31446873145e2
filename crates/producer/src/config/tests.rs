//! The shipped file lists every key with its default; contradictions are found.

use batchweave_daemon::config::{parse, unlisted_keys};

use super::*;

mod stages;

const SHIPPED: &str = include_str!("../../../../config/producer.toml");

#[test]
fn the_shipped_file_lists_every_key_with_its_default() {
    assert_eq!(
        unlisted_keys::<ProducerConfig>(SHIPPED),
        Vec::<String>::new()
    );
    let shipped: ProducerConfig =
        parse("config/producer.toml", SHIPPED).unwrap_or_else(|e| panic!("{e}"));
    let mut expected = ProducerConfig::default();
    // The keys without a default.
    expected.store.url.clone_from(&shipped.store.url);
    expected.producer.name.clone_from(&shipped.producer.name);
    expected.source.paths.clone_from(&shipped.source.paths);
    assert_eq!(shipped, expected);
}

fn report(text: &str) -> String {
    let base = "[store]\nurl = \"file:///x\"\n[source]\npaths = [\"x\"]\n";
    parse::<ProducerConfig>("f.toml", &format!("{base}{text}"))
        .unwrap_err()
        .to_string()
}

#[test]
fn all_problems_are_in_one_report_with_their_lines() {
    let why = report(
        "[producer]\nname = \"Bad Name\"\nindex = 3\nof = 2\n[tokenizer]\nkind = \"file\"\nnmae = \"gpt2\"\n\
         [packing]\npad_token = 3\nobject_bytes = 5\n[stream]\norder = \"lanes\"\nslices = 0\n",
    );
    for part in [
        "f.toml:6:1: producer.name: \"Bad Name\" is not a valid name",
        "producer.index: must be below producer.of",
        "tokenizer.path: must be given with tokenizer.kind = \"file\"",
        "`tokenizer.name`?",
        "packing.pad_token: is for packing.last_batch = \"pad\" only",
        "packing.object_bytes: 5 has no unit",
        "stream.producers: must list the lanes",
        "stream.slices: must be at least 1",
    ] {
        assert!(why.contains(part), "{part} in {why}");
    }
}

#[test]
fn a_shuffle_of_one_source_is_checked_and_names_its_keys() {
    for (text, part) in [
        ("windw = 3", "source.shuffle.windw: unknown key"),
        (
            "window = \"1KiB\"",
            "source.shuffle.window: must be at least 1MiB",
        ),
        (
            "window = \"3GiB\"",
            "the windows of 1 shuffled sources need 6GiB",
        ),
    ] {
        let why = report(&format!(
            "[source.shuffle]\n{text}\n[producer]\nname = \"a\"\n"
        ));
        assert!(why.contains(part), "{part} in {why}");
    }
}

#[test]
fn shuffled_rows_are_checked_and_name_their_keys() {
    for (text, part) in [
        (
            "[packing.shuffle_rows]\nsed = 3",
            "packing.shuffle_rows.sed: unknown key",
        ),
        (
            "[packing.shuffle_rows]\ntokens = 0",
            "packing.shuffle_rows.tokens: must be 1 to 268435456: two windows wait in memory, 5 bytes a token",
        ),
        (
            "[packing]\nmode = \"opaque\"\nshuffle_rows = {}",
            "packing.shuffle_rows: is for rows of tokens",
        ),
        (
            "[packing]\nmode = \"best_fit\"\nshuffle_rows = {}\narrays = [{ name = \"a\", dtype = \"U8\", shape = [] }]",
            "packing.shuffle_rows: can't be combined with packing.arrays",
        ),
    ] {
        let why = report(&format!("{text}\n[producer]\nname = \"a\"\n"));
        assert!(why.contains(part), "{part} in {why}");
    }
}

#[test]
fn an_empty_table_sets_an_optional_one_to_its_defaults() {
    let base = "store.url = \"file:///x\"\n[stream]\nslices = 1\nrows_per_slice = 1\nseq_len = 8\n\
                producers = [\"a\"]\n[producer]\nname = \"a\"\n";
    let of = |text: &str| parse::<ProducerConfig>("f.toml", &format!("{base}{text}")).unwrap();
    let one = of("[source]\npaths = [\"x\"]\nshuffle = {}\n[packing]\nshuffle_rows = {}\n");
    assert_eq!(one.packing.shuffle_rows, Some(ShuffleRowsConfig::default()));
    assert_eq!(one.source.shuffle, Some(ShuffleConfig::default()));
    let several =
        of("[[sources]]\nname = \"w\"\npaths = [\"x\"]\nshuffle = {}\n[packing.shuffle_rows]\n");
    assert_eq!(several.sources[0].shuffle, Some(ShuffleConfig::default()));
    assert!(several.packing.shuffle_rows.is_some());
}

#[test]
fn a_shuffle_of_one_source_beside_several_is_refused() {
    let text = "[source.shuffle]\nseed = 1\n[[sources]]\nname = \"x\"\npaths = [\"y\"]\n";
    let why = parse::<ProducerConfig>("f.toml", text).unwrap_err();
    let part = "sources: can't be combined with source.shuffle";
    assert!(why.to_string().contains(part), "{why}");
}

#[test]
fn required_keys_are_demanded() {
    let why = parse::<ProducerConfig>("f.toml", "")
        .unwrap_err()
        .to_string();
    for part in [
        "store.url: must be given",
        "source.paths: must be given",
        "producer.name: ",
    ] {
        assert!(why.contains(part), "{part} in {why}");
    }
}

#[test]
fn a_producer_must_be_among_the_named_ones() {
    let why = report("[producer]\nname = \"c\"\n[stream]\nproducers = [\"a\", \"b\"]\n");
    assert!(
        why.contains("stream.producers: does not list this producer, \"c\""),
        "{why}"
    );
}

/// Returns the configuration of these tables and what else must be given.
pub(super) fn parsed_sources(text: &str) -> ProducerConfig {
    let name = if text.contains("[producer]") {
        ""
    } else {
        "[producer]\nname = \"a\"\n"
    };
    let base = format!("[store]\nurl = \"file:///x\"\n{name}");
    parse("f.toml", &(base + text)).unwrap_or_else(|e| panic!("{e}"))
}

fn sources_report(text: &str) -> String {
    let base = "[store]\nurl = \"file:///x\"\n[producer]\nname = \"a\"\n";
    parse::<ProducerConfig>("f.toml", &format!("{base}{text}"))
        .map_or_else(|why| why.to_string(), |_| String::new())
}

fn source_table(name: &str, more: &str) -> String {
    format!("[[sources]]\nname = \"{name}\"\npaths = [\"x\"]\n{more}\n")
}

#[test]
fn several_sources_take_the_place_of_one() {
    let web = source_table("web", "weight = 0.6\nshuffle = { seed = 3 }");
    let two = format!("{web}{}", source_table("code", "weight = 1\nepochs = 0"));
    assert_eq!(sources_report(&two), "");
    let mixture = "[mixture]\nunit = \"documents\"\nwhen_source_ends = \"finish\"\n";
    assert_eq!(sources_report(&format!("{mixture}{web}")), "");
}

#[test]
fn bad_sources_are_refused_in_one_line() {
    let cases = [
        (
            source_table("web", "weight = -1.0"),
            "the weight -1 is not a number from 0",
        ),
        (
            source_table("web", "weight = nan"),
            "the weight NaN is not a number from 0",
        ),
        (
            source_table("web", "weight = 0"),
            "all weights are 0, so no source would be read",
        ),
        (
            source_table("web", "weight = 1e-12"),
            "is too small: at most nine decimals count",
        ),
        (source_table("Web", ""), "\"Web\" is not a valid name"),
        (
            source_table("web", "") + &source_table("web", ""),
            "the name \"web\" is given twice",
        ),
        (
            source_table("web", "field = \"\""),
            "sources.web.field: must not be empty",
        ),
        (
            source_table("web", "shuffle = { window = \"1KiB\" }"),
            "sources.web.shuffle.window: must be at least 1MiB",
        ),
        (
            source_table("web", "shuffle = { window = \"3GiB\" }"),
            "set each window to at most 2GiB, or source.memory to 6GiB",
        ),
    ];
    for (text, part) in cases {
        refused_in_one_line(&text, part);
    }
}

#[test]
fn keys_of_sources_that_are_unknown_or_of_another_type_are_refused_in_one_line() {
    let cases = [
        (
            source_table("web", "weigth = 2"),
            "sources.web.weigth: unknown key; did you mean `sources.weight`?",
        ),
        (
            source_table("web", "proportion = 2"),
            "sources.web.proportion: unknown key: the share of a source is `weight`",
        ),
        (
            source_table("web", "epochs = 0.5"),
            "sources.web.epochs: expected a whole number, found 0.5; 0 repeats it for ever, and a part of a pass is `producer.limit`",
        ),
        (
            "[[sources]]\nname = \"web\"\npaths = \"x\"\n".to_owned(),
            "sources.web.paths: expected a list, found the string \"x\"",
        ),
        (
            "[sources]\nname = \"web\"\npaths = [\"x\"]\n".to_owned(),
            "sources: expected a list, found a table; write each source as a table [[sources]]",
        ),
        (
            "[[sources]]\npaths = [\"x\"]\n".to_owned(),
            "sources.1.name: must be given: each source has its own",
        ),
        (
            format!("[source]\npaths = [\"x\"]\n{}", source_table("web", "")),
            "can't be combined with source.paths",
        ),
        (
            format!("[source]\nfollow = true\n{}", source_table("web", "")),
            "can't be combined with source.follow",
        ),
        (
            "[[sources]]\nname = \"web\"\npaths = []\n".to_owned(),
            "sources.web.paths: must be given",
        ),
    ];
    for (text, part) in cases {
        refused_in_one_line(&text, part);
    }
}

fn refused_in_one_line(text: &str, part: &str) {
    let why = sources_report(text);
    assert!(why.contains(part), "{part} in {why}");
    assert_eq!(
        why.lines().filter(|line| line.contains("sources")).count(),
        1,
        "{why}"
    );
}

#[test]
fn what_a_webdataset_can_not_hold_is_refused() {
    let arrays = |arrays: &str| {
        format!(
            "format = \"webdataset\"\n[producer]\nname = \"a\"\n[stream]\nseq_len = 1\n[packing]\nmode = \"opaque\"\narrays = [{arrays}]\n"
        )
    };
    for (text, expected) in [
        (
            "format = \"webdataset\"\ncontent = \"ids\"\n[producer]\nname = \"a\"\n".to_owned(),
            "source.content: \"ids\" is not for source.format = \"webdataset\"",
        ),
        (
            arrays("{ name = \"image\", from = \"jpg;npy\", dtype = \"U8\" }"),
            "packing.arrays: takes \"image\" from files that are read differently",
        ),
        (
            arrays("{ name = \"png\", dtype = \"F32\" }"),
            "packing.arrays: makes F32 of \"png\", whose files hold bytes; set dtype = \"U8\"",
        ),
    ] {
        let why = report(&text);
        assert!(why.contains(expected), "{expected} in {why}");
    }
    let good = arrays("{ name = \"box\", from = \"box.json\", dtype = \"F32\" }");
    let base = "[store]\nurl = \"file:///x\"\n[source]\npaths = [\"x\"]\n";
    parse::<ProducerConfig>("f.toml", &format!("{base}{good}")).unwrap_or_else(|e| panic!("{e}"));
}
