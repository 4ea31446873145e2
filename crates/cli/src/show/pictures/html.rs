//! The page of `show --pictures`: one file without scripts or anything from elsewhere. All text of the stream is
//! escaped.

use std::fmt::Write as _;

use super::image::Picture;

/// Characters of a document's text, at most.
const CHARS_MAX: usize = 4_000;

/// One row or sample.
pub(super) struct Row {
    pub(super) title: String,
    pub(super) documents: Vec<Document>,
    /// Lines about documents or pictures that the page leaves out.
    pub(super) more: Vec<String>,
}

/// One document of a row.
#[derive(Default)]
pub(super) struct Document {
    /// Its place in the input, and its tokens.
    pub(super) caption: String,
    /// Its text in order; `false`: tokens that are not learned.
    pub(super) text: Vec<(bool, String)>,
    pub(super) pictures: Vec<Picture>,
    /// Name, type and shape, and the first values of other arrays.
    pub(super) values: Vec<[String; 3]>,
    /// Lines about documents or pictures that the page leaves out.
    pub(super) more: Vec<String>,
}

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>
:root{color-scheme:light dark;--line:#d8dde3;--quiet:#5c6670;--off:#a1430f;--back:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--line:#363d45;--quiet:#98a2ad;--off:#f0a35e;--back:#1c2126}}
body{font:15px/1.5 system-ui,sans-serif;max-width:75em;margin:0 auto;padding:1.5em}
h1{font-size:1.4em;margin:0}
h2{font-size:1em;margin:2em 0 .4em}
.quiet,figcaption,th{color:var(--quiet);font-size:.85em;font-weight:400}
article{border:1px solid var(--line);border-radius:6px;padding:.7em 1em;margin:.5em 0}
.both{display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start}
figure{margin:0}
.pictures{display:flex;flex-wrap:wrap;gap:.8em;max-width:100%}
img{display:block;max-width:100%;min-width:3em;image-rendering:pixelated;border-radius:3px}
pre{font:13px/1.5 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:0;flex:1 1 24em}
.off{color:var(--off)}
table{border-collapse:collapse;font-size:.85em;margin-top:.4em}
th,td{text-align:left;vertical-align:baseline;padding:.1em 1.2em .1em 0;overflow-wrap:anywhere}
code{font:13px ui-monospace,monospace}
</style>
"#;

/// Returns the beginning of the page.
pub(super) fn head(title: &str, lines: &[String]) -> String {
    let title = escaped(title);
    let mut page = format!("{HEAD}<title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n");
    for line in lines {
        quiet(&mut page, line);
    }
    page
}

/// The end of the page.
pub(super) const END: &str = "</body>\n</html>\n";

/// Returns the markup of one row or sample, with its title.
pub(super) fn row(row: &Row) -> String {
    let mut out = format!("<h2>{}</h2>\n", escaped(&row.title));
    for part in &row.documents {
        document(&mut out, part);
    }
    for line in &row.more {
        quiet(&mut out, line);
    }
    out
}

fn document(out: &mut String, part: &Document) {
    let _ = write!(
        out,
        "<article>\n<div class=\"quiet\">{}</div>\n",
        escaped(&part.caption)
    );
    if !part.pictures.is_empty() || !part.text.is_empty() {
        *out += "<div class=\"both\">\n";
        if !part.pictures.is_empty() {
            *out += "<div class=\"pictures\">\n";
            for one in &part.pictures {
                figure(out, one);
            }
            *out += "</div>\n";
        }
        text(out, &part.text);
        *out += "</div>\n";
    }
    if !part.values.is_empty() {
        *out += "<table>\n";
        for [name, shape, values] in &part.values {
            let (name, shape, values) = (escaped(name), escaped(shape), escaped(values));
            let _ = writeln!(
                out,
                "<tr><th>{name}</th><th>{shape}</th><td><code>{values}</code></td></tr>"
            );
        }
        *out += "</table>\n";
    }
    for line in &part.more {
        quiet(out, line);
    }
    *out += "</article>\n";
}

fn figure(out: &mut String, one: &Picture) {
    let caption = escaped(&one.caption);
    let image = one.address.as_ref();
    // An address has letters, digits and the signs of base64 only.
    let image = image
        .map(|url| format!("<img alt=\"{caption}\" src=\"{url}\">"))
        .unwrap_or_default();
    let _ = writeln!(
        out,
        "<figure>{image}<figcaption>{caption}</figcaption></figure>"
    );
}

/// Writes the text, with what is not learned in another colour, up to a number of characters.
fn text(out: &mut String, runs: &[(bool, String)]) {
    if runs.is_empty() {
        return;
    }
    *out += "<pre>";
    let (mut left, mut hidden) = (CHARS_MAX, 0);
    for (is_learned, run) in runs {
        let cut = run.char_indices().nth(left).map_or(run.len(), |(at, _)| at);
        let (shown, rest) = run.split_at(cut);
        left -= shown.chars().count().min(left);
        hidden += rest.chars().count();
        match is_learned {
            _ if shown.is_empty() => {}
            true => *out += &escaped(shown),
            false => {
                let _ = write!(out, "<span class=\"off\">{}</span>", escaped(shown));
            }
        }
    }
    *out += "</pre>\n";
    if hidden > 0 {
        quiet(out, &format!("{hidden} more characters"));
    }
}

fn quiet(out: &mut String, line: &str) {
    let _ = writeln!(out, "<div class=\"quiet\">{}</div>", escaped(line));
}

/// Escapes text for HTML, attributes included.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // Browsers replace it, and validators complain.
            '\0' => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
    out
}
