//! Templates compared with what transformers' Jinja2 renders: `tests/chat/jinja_golden.py` writes the table.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use super::super::special_tokens::{GENERATION_BEGINS, GENERATION_ENDS};
use super::{Bounds, Date, Jinja};

#[derive(Deserialize)]
struct Golden {
    context: BTreeMap<String, minijinja::Value>,
    date: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    /// `None` where Jinja2 fails.
    text: Option<String>,
    /// The characters of generation blocks.
    #[serde(default)]
    marks: Vec<(usize, usize)>,
}

/// Returns the text without marks, and their places in characters.
fn unmarked(text: &str) -> (String, Vec<(usize, usize)>) {
    let mut plain = String::new();
    let mut marks = Vec::new();
    let mut began = 0;
    let mut at = 0;
    for c in text.chars() {
        match c {
            GENERATION_BEGINS => began = at,
            GENERATION_ENDS if began < at => marks.push((began, at)),
            GENERATION_ENDS => {}
            _ => {
                plain.push(c);
                at += 1;
            }
        }
    }
    (plain, marks)
}

#[test]
fn every_template_is_rendered_as_by_jinja2_or_refused() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chat/jinja_golden.json");
    let golden: Golden = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let values = golden.context.iter();
    let context: BTreeMap<&str, minijinja::Value> = values
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    let bounds = Bounds {
        fuel: 1_000_000,
        bytes: 1 << 20,
    };
    let mut equal = 0;
    let mut both = 0;
    let mut refused = Vec::new();
    let mut different = Vec::new();
    for case in &golden.cases {
        let made = Jinja::parse(&case.template)
            .and_then(|jinja| jinja.render(&context, Date::parse(&golden.date), bounds));
        match (made, &case.text) {
            (Ok(made), Some(text)) if unmarked(&made) == (text.clone(), case.marks.clone()) => {
                equal += 1;
            }
            (Err(_), None) => both += 1,
            (Err(why), Some(_)) => refused.push(format!("{}: {why}", case.template)),
            (made, text) => different.push(format!("{}: {made:?}, not {text:?}", case.template)),
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    let counts = (equal, both, refused.len());
    assert_eq!(
        counts,
        COUNTS,
        "equal, refused by both, refused by name: {}",
        refused.join("\n")
    );
}

const COUNTS: (usize, usize, usize) = (804, 148, 22);
