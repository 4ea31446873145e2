//! Rules on language: phrases and names that hide the actor or the quantity, comments that say nothing,
//! public items without documentation.

use std::path::Path;

use crate::assert_none;
use crate::files::{of_a_crate, sources};

/// A piece of text that a person reads, with the line where it begins.
struct Piece {
    line: usize,
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `///`: documentation of an item.
    Doc,
    /// `//!`: the header of a file.
    Header,
    /// Any other comment.
    Comment,
    /// A string literal of several words.
    Message,
    /// A paragraph of a page.
    Paragraph,
}

/// The comment that a line holds, without its marker.
fn comment(line: &str) -> Option<(Kind, &str)> {
    [
        ("///", Kind::Doc),
        ("//!", Kind::Header),
        ("//", Kind::Comment),
    ]
    .into_iter()
    .find_map(|(marker, kind)| Some((kind, line.strip_prefix(marker)?.trim())))
}

/// String literals of a line of Rust, without those of a single word.
fn messages(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('"').skip(1).step_by(2);
    quoted.filter(|text| text.trim().contains(' '))
}

fn rust(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut open, mut code) = (None, false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        match comment(line) {
            // Examples in documentation are code.
            Some((_, said)) if code || said.starts_with("```") => {
                code ^= said.starts_with("```");
                open = None;
            }
            Some((kind, said)) if !said.is_empty() => {
                if open == Some(kind)
                    && let Some(last) = pieces.last_mut()
                {
                    last.text.push(' ');
                    last.text.push_str(said);
                } else {
                    pieces.push(Piece {
                        line: at + 1,
                        kind,
                        text: said.to_owned(),
                    });
                }
                open = Some(kind);
            }
            Some(_) => open = None,
            None => {
                open = None;
                pieces.extend(messages(line).map(|text| Piece {
                    line: at + 1,
                    kind: Kind::Message,
                    text: text.to_owned(),
                }));
            }
        }
    }
    pieces
}

/// Paragraphs, list items, headings and cells; blocks of code are left out.
fn markdown(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut open, mut code) = (false, false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            (open, code) = (false, !code);
            continue;
        }
        if code || line.is_empty() {
            open = false;
            continue;
        }
        let marker = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let item = line.starts_with(['-', '*', '#', '|']) || marker.starts_with(". ");
        let texts: Vec<&str> = match line.strip_prefix('|') {
            Some(row) => row.split('|').collect(),
            None => vec![marker.trim_start_matches(['-', '*', '#', '.', '>', ' '])],
        };
        for text in texts {
            if open
                && !item
                && let Some(last) = pieces.last_mut()
            {
                last.text.push(' ');
                last.text.push_str(text);
            } else {
                let text = text.trim().trim_start_matches('*').to_owned();
                pieces.push(Piece {
                    line: at + 1,
                    kind: Kind::Paragraph,
                    text,
                });
            }
        }
        open = true;
    }
    pieces
}

/// Python by line, of other files what stands behind a `#`.
fn lines(name: &str, text: &str) -> Vec<Piece> {
    let read = |line: &str| {
        let line = line.trim();
        if Path::new(name).extension().is_some_and(|e| e == "py") {
            return Some(line.trim_start_matches(['#', '"', ' ']).to_owned());
        }
        line.split_once("# ").map(|(_, said)| said.to_owned())
    };
    let piece = |(at, line)| {
        let text = read(line)?;
        Some(Piece {
            line: at + 1,
            kind: Kind::Paragraph,
            text,
        })
    };
    text.lines().enumerate().filter_map(piece).collect()
}

/// Words in order; code between backticks counts as one.
fn words(text: &str) -> Vec<String> {
    let outside = |(at, part): (usize, &str)| {
        if at % 2 == 0 {
            part.to_owned()
        } else {
            "x".to_owned()
        }
    };
    let plain: String = text.split('`').enumerate().map(outside).collect();
    plain.split_whitespace().map(str::to_owned).collect()
}

fn bare(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase()
}

/// "Who is held says so": the actor has no name.
fn hides_the_actor(words: &[String]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let begins = at == 0 || words[at - 1].ends_with(['.', ':', ';', '!']);
        let subject = matches!(word.as_str(), "Who" | "Whoever" | "Whose");
        let asks = words[at..].iter().any(|w| w.ends_with('?'));
        bare(word) == "whoever" || (begins && subject && !asks)
    })
}

/// "tried so often": how often is not said.
fn hides_the_quantity(words: &[String]) -> bool {
    words.windows(2).enumerate().any(|(at, pair)| {
        let quantity = ["long", "often", "many", "much"].contains(&bare(&pair[1]).as_str());
        let compares = words.get(at + 2).is_some_and(|next| next == "as");
        bare(&pair[0]) == "so" && quantity && !compares
    })
}

/// "is no size" says what a thing is not.
fn says_what_it_is_not(words: &[String]) -> bool {
    const FINE: [&str; 9] = [
        "longer", "more", "other", "such", "less", "fewer", "better", "worse", "one",
    ];
    words.windows(3).enumerate().any(|(at, three)| {
        let there = at > 0 && bare(&words[at - 1]) == "there";
        let is = ["is", "are", "was", "were"].contains(&three[0].as_str());
        let next = bare(&three[2]);
        let noun = next.starts_with(char::is_alphabetic) && !FINE.contains(&next.as_str());
        is && three[1] == "no" && noun && !there
    })
}

fn findings(name: &str, pieces: &[Piece]) -> Vec<String> {
    let mut found = Vec::new();
    for piece in pieces {
        let words = words(&piece.text);
        let doc = matches!(piece.kind, Kind::Doc | Kind::Header);
        let rules = [
            ("name the actor", hides_the_actor(&words)),
            ("say the quantity", hides_the_quantity(&words)),
            (
                "say what it is, not what it is not",
                says_what_it_is_not(&words),
            ),
            (
                "begin with a noun or a verb",
                doc && words.first().is_some_and(|w| w == "What"),
            ),
            (
                "a sentence that stands alone, or nothing",
                piece.kind == Kind::Doc && words.len() <= 3,
            ),
        ];
        let broken = rules.iter().filter(|(_, broken)| *broken);
        let line = piece.line;
        found.extend(broken.map(|(rule, _)| format!("{name}:{line}: {rule}: {}", piece.text)));
    }
    found
}

#[test]
fn phrases_are_plain() {
    let mut found = Vec::new();
    for (name, text) in sources(&[
        "rs", "py", "md", "toml", "service", "timer", "yaml", "yml", "sh",
    ]) {
        // This file quotes them.
        if name.starts_with("tests/golden") || name == "tests/tidy/words.rs" {
            continue;
        }
        let pieces = match name.rsplit_once('.') {
            Some((_, "rs")) => rust(&text),
            Some((_, "md")) => markdown(&text),
            _ => lines(&name, &text),
        };
        found.extend(findings(&name, &pieces));
    }
    assert_none("plain words", &found);
}

#[test]
fn the_rules_see_what_they_are_for() {
    let broken = |text: &str| !findings("x.rs", &rust(text)).is_empty();
    for text in [
        "/// Who is held says so, at once.",
        "// It ends. Whoever waits goes on.",
        "/// The reason is looked at so often.",
        "/// These bytes are no provenance at all.",
        "/// What a rank is told of it.",
        "/// Its name.",
        "let e = \"abc is no size\";",
    ] {
        assert!(broken(text), "{text}");
    }
    for text in [
        "/// A held-back producer logs it once a minute.",
        "// Who waits, and why?",
        "/// There is no room for it, as long as it is mapped.",
        "/// A key that is no longer listed.",
        "let e = \"invalid size\";",
    ] {
        assert!(!broken(text), "{text}");
    }
}

/// The name of the function that a line of Rust or Python declares.
fn function(line: &str) -> Option<&str> {
    const BEFORE: [&str; 5] = ["async", "const", "unsafe", "extern", "\"C\""];
    let mut words = line.split_whitespace();
    let declares = words.find(|word| !word.starts_with("pub") && !BEFORE.contains(word))?;
    let name = words.next().filter(|_| ["fn", "def"].contains(&declares))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

/// `who_is_held_says_so`: the actor has no name. `whose` is fine as a relative pronoun.
fn name_hides_the_actor(name: &str) -> bool {
    const NAMELESS: [&str; 9] = [
        "who",
        "whom",
        "whoever",
        "whatever",
        "whichever",
        "those",
        "nobody",
        "somebody",
        "everybody",
    ];
    name.split('_').any(|word| NAMELESS.contains(&word))
}

fn nameless_functions(name: &str, text: &str) -> Vec<String> {
    let nameless = |(at, line)| {
        let function = function(line).filter(|function| name_hides_the_actor(function))?;
        Some(format!("{name}:{}: name the actor: {function}", at + 1))
    };
    text.lines().enumerate().filter_map(nameless).collect()
}

#[test]
fn names_of_functions_are_plain() {
    let mut found = Vec::new();
    for (name, text) in sources(&["rs", "py"]) {
        found.extend(nameless_functions(&name, &text));
    }
    assert_none("names of functions say which actor is meant", &found);
}

#[test]
fn the_rule_on_names_sees_what_it_is_for() {
    for line in [
        "    fn who_is_held_says_so() {",
        "pub(crate) async fn an_error_stops_nobody<T>(of: T) {",
        "def test_images_are_those_of_pil(path: Path) -> None:",
        "pub const unsafe extern \"C\" fn whatever() {",
    ] {
        assert_eq!(nameless_functions("x", line).len(), 1, "{line}");
    }
    for line in [
        "fn a_whole_step_whose_frames_are_held() {",
        "async def whole(key: str) -> int:",
        "let who = |held: &str| held.len();",
        "// fn who_is_held_says_so() {",
    ] {
        assert!(nameless_functions("x", line).is_empty(), "{line}");
    }
}

/// A public item, by the words with which its line begins.
fn public_item(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("pub ") else {
        return false;
    };
    [
        "fn", "async", "struct", "enum", "trait", "type", "const", "static", "unsafe",
    ]
    .iter()
    .any(|word| rest.starts_with(&format!("{word} ")))
}

/// The compiler's own lint also asks for words on each field and variant; that gave comments that said
/// nothing.
#[test]
fn public_items_are_documented() {
    let mut found = Vec::new();
    for (name, text) in sources(&["rs"]) {
        if !of_a_crate(&name) {
            continue;
        }
        let (mut documented, mut attribute) = (false, false);
        for (at, line) in text.lines().map(str::trim).enumerate() {
            // Documentation of a macro's items comes with their names.
            if public_item(line) && !documented && !line.contains('$') {
                found.push(format!("{name}:{}: {line}", at + 1));
            }
            // Attributes stand between an item and its documentation, over one line or several.
            let inside = attribute || line.starts_with("#[");
            attribute = inside && !line.ends_with(']');
            documented = line.starts_with("///") || (documented && inside);
        }
    }
    assert_none("public items say what they are", &found);
}
