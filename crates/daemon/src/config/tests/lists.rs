//! Lists of tables, broken lines beside others, and unknown keys of a command line.

use super::*;

#[test]
fn each_key_of_a_list_of_tables_is_checked_and_named_by_its_table() {
    let text = "[[items]]\nname = \"web\"\npaths = \"x\"\nshare = \"half\"\nproportion = 1\n\
                [[items]]\nshare = true\ninner = { slots = \"9\", slts = 1 }\n[[items]]\n";
    let found = problems(&format!("name = \"\"\n{text}"));
    let places: Vec<(usize, &str)> = found.iter().map(|(l, _, k, _)| (*l, k.as_str())).collect();
    assert_eq!(
        places,
        [
            (4, "items.web.paths"),
            (5, "items.web.share"),
            (6, "items.web.proportion"),
            (8, "items.2.share"),
            (9, "items.2.inner.slots"),
            (9, "items.2.inner.slts"),
        ],
        "the missing name is excused: {found:?}"
    );
    assert!(found[0].3.contains("[\"x\"]"), "{found:?}");
    assert!(
        found[2].3.contains("known here: inner, name, paths, share"),
        "{found:?}"
    );
    assert!(
        found[5].3.contains("did you mean `items.inner.slots`?"),
        "{found:?}"
    );
    let good: Sample = parse(
        "f.toml",
        "[[items]]\nname = \"a\"\n[[items]]\nshare = 2\n[[items]]\n",
    )
    .unwrap();
    assert_eq!((good.items.len(), good.items[1].share), (3, 2.0));
    let (.., message) = one("items = [1]\n");
    assert!(message.contains("expected a table, found 1"), "{message}");
}

#[test]
fn a_broken_line_is_one_problem_among_problems_of_other_lines() {
    let found = problems("items = [{ name = \"a\", share = 70% }]\narena.slots = \"8\"\n");
    let messages: Vec<&str> = found.iter().map(|(.., message)| message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "syntax: a number has no percent sign; write 70",
            "expected a whole number, found the string \"8\"; write it without quotes: 8",
        ]
    );
}

#[test]
fn an_unknown_key_of_a_command_line_is_refused() {
    let overrides = Overrides {
        ignored: Vec::new(),
        set: vec!["arena.slts=7".to_owned()],
    };
    let why = parse_with::<Sample>("f.toml", "", &overrides).unwrap_err();
    assert!(
        why.to_string()
            .contains("--set arena.slts=7: arena.slts: unknown key"),
        "{why}"
    );
}
