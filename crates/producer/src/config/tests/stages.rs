//! Stages: what may follow what, and what has room in a cursor.

use super::*;

#[test]
fn stages_are_checked_as_a_whole() {
    let long = "[[stages]]\nname = \"long\"\nseq_len = 64\nrows_per_slice = 1\n";
    let base = "[producer]\nname = \"a\"\n";
    parse::<ProducerConfig>(
        "f.toml",
        &format!("[store]\nurl = \"file:///x\"\n[source]\npaths = [\"x\"]\n{base}{long}packing = {{ mode = \"best_fit\" }}\n"),
    )
    .unwrap();
    let twice = format!("{long}{long}");
    for (text, part) in [
        (twice.as_str(), "has the name \"long\" twice"),
        (
            "[[stages]]\nname = \"Long\"\nseq_len = 4\nrows_per_slice = 1\n",
            "is not a valid name",
        ),
        (
            "[[stages]]\nname = \"x\"\nrows_per_slice = 1\n",
            "\"x\": seq_len must be at least 1",
        ),
        (
            "[[stages]]\nname = \"x\"\nseq_len = 4\n",
            "\"x\": rows_per_slice must be at least 1",
        ),
        (
            "[[stages]]\nname = \"x\"\nseqlen = 4\n",
            "stages.x.seqlen: unknown key",
        ),
        (
            "[[stages]]\nname = \"x\"\nseq_len = 4000000\nrows_per_slice = 4000\n",
            "more than 2^30 tokens per batch",
        ),
        (
            "[[stages]]\nname = \"x\"\nseq_len = 4\nrows_per_slice = 1\npacking = { mode = \"pairs\" }\n",
            "must be one that takes the same documents",
        ),
        (
            "[[stages]]\nname = \"x\"\nseq_len = 1\nrows_per_slice = 1\npacking = { mode = \"balanced\" }\n",
            "\"x\": seq_len must be at least 2",
        ),
        (
            "[[stages]]\nname = \"x\"\nseq_len = 40000000\nrows_per_slice = 4\npacking = { mode = \"balanced\" }\n",
            "\"x\": packing.balanced.window 8 batches of",
        ),
        (
            "[[stages]]\nname = \"x\"\nseq_len = 40\nrows_per_slice = 4\npacking = { mode = \"balanced\", look_ahead = 3 }\n",
            "\"x\": packing.look_ahead is for packing.mode = \"best_fit\" and \"chat\" only",
        ),
        (
            "[[stages]]\nname = \"x\"\nseq_len = 4\nrows_per_slice = 1\nweights = { web = 1.0 }\n",
            "weights are for [[sources]] only",
        ),
    ] {
        let why = report(&format!("{base}{text}"));
        assert!(why.contains(part), "{part} in {why}");
    }
    for (packing, part) in [
        (
            "mode = \"opaque\"",
            "are for packing.mode = \"concat\", \"best_fit\", \"chat\" and \"balanced\" of texts",
        ),
        ("mode = \"pairs\"", "are for packing.mode"),
        (
            "mode = \"balanced\"\nbalanced.long = \"bad\"",
            "need packing.balanced.long = \"split\"",
        ),
        (
            "balanced = { window = 2, tokens = 99 }",
            "packing.balanced.tokens: is for packing.mode = \"balanced\" only",
        ),
        (
            "shuffle_rows = { tokens = 100 }",
            "cannot be combined with packing.shuffle_rows",
        ),
        (
            "mode = \"best_fit\"\narrays = [{ name = \"image\", dtype = \"U8\", shape = [4] }]",
            "cannot be combined with packing.arrays",
        ),
    ] {
        let why = report(&format!("{base}[packing]\n{packing}\n{long}"));
        assert!(why.contains(part), "{part} in {why}");
    }
    let far = "packing = { mode = \"best_fit\", look_ahead = 8192 }\n";
    let many = (0..7).map(|n| format!("{}{far}", long.replace("long", &format!("l{n}"))));
    let why = report(&format!("{base}{}", many.collect::<String>()));
    assert!(
        why.contains("may take 14336 bytes of a cursor")
            && why.contains("lower look_ahead, of [packing]"),
        "{why}"
    );
}

#[test]
fn bins_and_rows_of_the_same_documents_follow_each_other() {
    let base = "store.url = \"file:///x\"\nsource.paths = [\"x\"]\nproducer.name = \"a\"\n";
    let stage = |n: u32, packing: &str| {
        format!(
            "[[stages]]\nname = \"s{n}\"\nseq_len = 64\nrows_per_slice = 2\n[stages.packing]\n{packing}\n"
        )
    };
    let bins = stage(0, "mode = \"balanced\"");
    let chat = "chat.template = \"t\"\n";
    let parsed = |text: &str| parse::<ProducerConfig>("f.toml", &format!("{base}{text}"));
    let rows = stage(1, "mode = \"concat\"") + &stage(2, "mode = \"best_fit\"\nlook_ahead = 9");
    for text in [
        format!("packing.balanced = {{ window = 2, crossover = 9 }}\n{bins}"),
        format!("packing = {{ mode = \"best_fit\", look_ahead = 9 }}\n{bins}"),
        format!("packing = {{ mode = \"balanced\", balanced.tokens = 9 }}\n{rows}{bins}"),
        format!(
            "source.content = \"ids\"\nsource.mask = \"m\"\npacking.mode = \"best_fit\"\n{bins}"
        ),
        format!("{chat}packing.mode = \"chat\"\n{bins}"),
        format!(
            "{chat}source.content = \"conversations\"\npacking.mode = \"balanced\"\n{bins}{}",
            stage(1, "mode = \"chat\"\nlook_ahead = 9")
        ),
    ] {
        parsed(&text).unwrap_or_else(|why| panic!("{text}: {why}"));
    }
    for (text, part) in [
        (
            format!("packing.balanced.tokens = 9\n{bins}"),
            "packing.balanced.tokens: is that of the stream, whose batches are rows",
        ),
        (
            format!("packing.balanced = {{ cost = \"tokens\", crossover = 9 }}\n{bins}"),
            "packing.balanced.crossover: is for packing.balanced.cost = \"attention\" only",
        ),
        (
            format!(
                "{chat}packing.mode = \"chat\"\n{}",
                stage(1, "mode = \"concat\"")
            ),
            "must be one that takes the same documents",
        ),
        (
            format!(
                "source.content = \"ids\"\nsource.mask = \"m\"\npacking.mode = \"balanced\"\n{rows}"
            ),
            "\"s1\": source.mask needs packing.mode = \"best_fit\" or \"balanced\"",
        ),
    ] {
        let why = parsed(&text).unwrap_err().to_string();
        assert!(why.contains(part), "{part} in {why}");
    }
}

/// Two windows of the default size fit in a cursor, and three do not.
#[test]
fn what_windows_carry_has_room_in_a_cursor() {
    let stage =
        |n: u32| format!("[[stages]]\nname = \"s{n}\"\nseq_len = 16384\nrows_per_slice = 4\n");
    let text = |stages: u32| {
        let stages: String = (0..stages).map(stage).collect();
        format!(
            "[store]\nurl = \"file:///x\"\n[source]\npaths = [\"x\"]\n[producer]\nname = \"a\"\n[stream]\nslices = 64\n[packing]\nmode = \"balanced\"\n{stages}"
        )
    };
    parse::<ProducerConfig>("f.toml", &text(1)).unwrap();
    let why = parse::<ProducerConfig>("f.toml", &text(2))
        .unwrap_err()
        .to_string();
    assert!(
        why.contains("bytes of a cursor") && why.contains("packing.balanced.window"),
        "{why}"
    );
}

/// Sums and products of numbers that are out of their range are still computed, for the other problems.
#[test]
fn the_largest_numbers_are_problems_like_others() {
    let base = "[producer]\nname = \"a\"\n[stream]\nslices = 4294967295\nseq_len = 4294967295\nrows_per_slice = 4294967295\n";
    for mode in ["concat", "best_fit", "balanced"] {
        let own = match mode {
            "best_fit" => "look_ahead = 9223372036854775807\n",
            "balanced" => "balanced = { window = 4294967295 }\n",
            _ => "",
        };
        let packing = format!("[packing]\nmode = \"{mode}\"\n{own}");
        let stage = |n: u32| {
            format!(
                "[[stages]]\nname = \"s{n}\"\nseq_len = 4294967295\nrows_per_slice = 4294967295\n"
            )
        };
        let stages: String = (0..64).map(stage).collect();
        for text in [packing.clone(), format!("{packing}{stages}")] {
            let why = report(&format!("{base}{text}"));
            assert!(why.contains("tokens per batch"), "{mode}: {why}");
        }
    }
}
