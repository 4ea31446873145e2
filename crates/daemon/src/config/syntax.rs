//! Sentences for texts that the TOML parser refuses: what the line has, and what to write instead.

use super::parser_messages::{BARE_VALUE, NO_ASSIGNMENT, TWO_KEYS, sentence};
use super::wording::boolean;

/// The sentence for a list that goes on into the next table; what follows it is its consequence.
pub(super) const UNCLOSED: &str = "the list above has no closing ]; write it behind the last item";

/// Returns the sentence for the parser's `message` about the byte `at` of `text`.
pub(super) fn explain(message: &str, text: &str, at: usize) -> String {
    let what = message.trim().split(", expected").next().unwrap_or(message);
    let line = Line::at(text, at);
    if let Some(sentence) = line.other_form() {
        return sentence;
    }
    match what {
        "duplicate key" => line.twice(),
        _ if what.starts_with("cannot extend value of type") => line.closed(what),
        _ if BARE_VALUE.contains(&what) => line.bare_value(),
        _ if NO_ASSIGNMENT.contains(&what) => line.no_assignment(),
        "unexpected key or value" | "unexpected content" => line.behind_the_value(),
        "extra assignment between key-value pairs" if !line.whole.contains("==") => {
            TWO_KEYS.to_owned()
        }
        "missing comma between array elements" if line.opens() => UNCLOSED.to_owned(),
        _ => sentence(what),
    }
}

/// Returns the language of a text that is not TOML, where its first line shows it.
pub(super) fn other_language(text: &str) -> Option<&'static str> {
    let mut lines = text.lines().map(str::trim_end);
    let first =
        lines.find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))?;
    let start = first.trim_start();
    if start.starts_with('{') || start.starts_with("[{") {
        return Some("JSON");
    }
    if start.starts_with('<') {
        return Some("XML");
    }
    if ["import ", "from ", "def "]
        .iter()
        .any(|word| start.starts_with(word))
    {
        return Some("Python");
    }
    if first == "---" || first.starts_with("- ") {
        return Some("YAML");
    }
    let (key, rest) = first.split_once(':')?;
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let yaml = !key.is_empty() && key.chars().all(word);
    (yaml && (rest.is_empty() || rest.starts_with(' '))).then_some("YAML")
}

/// The line of an error.
struct Line<'t> {
    whole: &'t str,
    /// Byte in the line at which the parser stopped.
    at: usize,
}

impl<'t> Line<'t> {
    fn at(text: &'t str, at: usize) -> Self {
        let at = (0..=at.min(text.len()))
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        let start = text[..at].rfind('\n').map_or(0, |before| before + 1);
        let whole = text[start..].lines().next().unwrap_or("");
        Self {
            whole,
            at: (at - start).min(whole.len()),
        }
    }

    /// Whether the line opens a table, or sets a key.
    fn opens(&self) -> bool {
        let line = self.whole.trim();
        line.starts_with('[') && !line.starts_with("[\"") || line.split_once(" = ").is_some()
    }

    /// A line in the form of another language.
    fn other_form(&self) -> Option<String> {
        let line = self.whole.trim_start();
        let comment = ["//", ";", "--", "/*", "REM "];
        if comment.iter().any(|sign| line.starts_with(sign)) {
            return Some("comments begin with #".to_owned());
        }
        if line.starts_with("- ") {
            return Some("a list is written as KEY = [A, B]".to_owned());
        }
        let command = line
            .strip_prefix("export ")
            .or_else(|| line.strip_prefix("set "))?;
        Some(format!(
            "a line is KEY = VALUE, without a command before it; write {}",
            command.trim_end()
        ))
    }

    /// The key before the first `=` or `:`.
    fn key(&self) -> &'t str {
        let end = self.whole.find(['=', ':']).unwrap_or(self.whole.len());
        self.whole[..end].trim()
    }

    fn twice(&self) -> String {
        let line = self.whole.trim();
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next())
        {
            let name = name.trim_matches(['[', ' ']);
            return format!(
                "the table {name} has keys above already; write all its keys in one place, below one [{name}], or each as {name}.KEY"
            );
        }
        let (key, value) = (self.key(), line.split_once('=').map(|(_, value)| value));
        if value.is_some_and(|value| value.trim_start().starts_with('{')) {
            return format!(
                "`{key}` has keys above already, and `{key} = {{...}}` is a whole table; write all its keys within the braces, or each as {key}.KEY"
            );
        }
        "duplicate key; remove one of the two".to_owned()
    }

    /// A key within a value that takes no more keys.
    fn closed(&self, what: &str) -> String {
        let key = self.key().trim_matches(['[', ']']);
        let table = key.split('.').next().unwrap_or(key);
        if what.contains("inline table") {
            return format!(
                "`{table} = {{...}}` above is a whole table, and `{key}` can't add to it; write all its keys within the braces, or each as {table}.KEY"
            );
        }
        format!(
            "`{table}` has a value above, so `{key}` can't be a key of it; write that value as {table}.KEY = VALUE too"
        )
    }

    /// The value that the parser stopped in.
    fn value(&self) -> &'t str {
        let before = &self.whole[..self.at];
        let start = before
            .rfind(['=', '[', '{', ','])
            .map_or(0, |sign| sign + 1);
        let value = &self.whole[start..];
        let comment = value.find(" #").unwrap_or(value.len());
        let end = if self.listed() {
            value.find([',', ']', '}']).unwrap_or(value.len())
        } else {
            value.len()
        };
        value[..end.min(comment)].trim()
    }

    /// Whether the parser stopped within brackets or braces.
    fn listed(&self) -> bool {
        let before = &self.whole[..self.at];
        before.matches(['[', '{']).count() > before.matches([']', '}']).count()
    }

    fn bare_value(&self) -> String {
        let value = self.value();
        if value.is_empty() || value.starts_with('#') {
            return format!(
                "`{}` has no value; write one, as \"text\" in quotes, 1, true or [\"a\", \"b\"], or remove the line",
                self.key()
            );
        }
        if value.ends_with(';') {
            return "a line has no semicolon at its end; remove it".to_owned();
        }
        if let Some(boolean) = boolean(value) {
            return format!("{value} is not a value of TOML; write {boolean}");
        }
        if ["none", "null", "nil", "~", "undefined"].contains(&value.to_ascii_lowercase().as_str())
        {
            return format!(
                "{value} is not a value of TOML; remove the key, which leaves its default"
            );
        }
        if let Some(number) = value.strip_suffix('%') {
            let number = number.trim_end();
            return format!("a number has no percent sign; write {number}");
        }
        if value.starts_with(['“', '”', '‘', '’', '«', '„']) {
            let text = value.trim_matches(|c| matches!(c, '“' | '”' | '‘' | '’' | '«' | '»' | '„'));
            return format!("{value} is in typographic quotes; write \"{text}\"");
        }
        if value.starts_with('$') {
            return format!(
                "{value}: variables of the environment are not replaced in the file; write the value itself"
            );
        }
        let first = value.split_whitespace().next().unwrap_or(value);
        if self.listed() && first != value && first.parse::<f64>().is_ok() {
            return "two items of the list have no comma between them; write [A, B]".to_owned();
        }
        let mut words = value.split_whitespace();
        if first != value && words.all(|word| word.parse::<f64>().is_ok()) {
            return "several values are a list in brackets; write KEY = [A, B]".to_owned();
        }
        Self::number(value).unwrap_or_else(|| {
            format!("{value} needs quotes; write \"{}\"", value.replace('"', ""))
        })
    }

    /// The sentence for a value that is meant to be a number.
    fn number(value: &str) -> Option<String> {
        let digits: String = value.chars().filter(|c| !matches!(c, '_' | ',')).collect();
        if let Ok(number) = digits.parse::<i64>() {
            return Some(format!("{value} is not a number of TOML; write {number}"));
        }
        let fraction: Option<f64> = digits.parse().ok();
        if let Some(number) = fraction.filter(|number| number.is_finite()) {
            return Some(format!("{value} is not a number of TOML; write {number:?}"));
        }
        let short = digits.strip_suffix(['k', 'K', 'm', 'M'])?;
        let number: u64 = short.parse().ok()?;
        let factor = if digits.ends_with(['k', 'K']) {
            1_000
        } else {
            1_000_000
        };
        Some(format!(
            "{value} is not a number; write it out, as {} or {}",
            number.checked_mul(factor)?,
            number.checked_mul(factor / 1_000 * 1_024)?
        ))
    }

    fn no_assignment(&self) -> String {
        let line = self.whole.trim();
        if let Some((key, value)) = line.split_once(':')
            && (!key.contains('=') || key.contains(['{', '[']))
        {
            let key = key
                .rsplit(['{', '[', ',', '='])
                .next()
                .unwrap_or(key)
                .trim();
            let value = value.split([',', '}', ']']).next().unwrap_or(value).trim();
            let shown = if value.is_empty() { "VALUE" } else { value };
            return format!("`{key}:` is not TOML; write {key} = {shown}");
        }
        let key = self.key();
        if !key.is_ascii() {
            return format!(
                "the key {key:?} has letters that keys need quotes for; names here are of a-z, 0-9 and _"
            );
        }
        if let (Some((first, rest)), false) =
            (line.split_once(char::is_whitespace), line.contains('='))
        {
            return format!(
                "there is no `=` between key and value; write {first} = {}",
                rest.trim()
            );
        }
        "a line is KEY = VALUE, [TABLE] or a comment that begins with #; a key is of letters, digits, - and _"
            .to_owned()
    }

    fn behind_the_value(&self) -> String {
        let rest = self.whole[self.at..].trim();
        let before = self.whole[..self.at].trim();
        if let Some(digits) = rest.strip_prefix(',') {
            let digits = digits.trim();
            if digits.is_empty() {
                return "a line has no comma at its end; remove it".to_owned();
            }
            if digits.starts_with(|c: char| c.is_ascii_digit())
                && before.ends_with(|c: char| c.is_ascii_digit())
            {
                return "a number has no commas; write its digits alone, or with _ between them"
                    .to_owned();
            }
            return "several values are a list in brackets; write KEY = [A, B]".to_owned();
        }
        if rest.starts_with(';') {
            return "a line has no semicolon at its end; remove it".to_owned();
        }
        if rest.starts_with("//") {
            return "comments begin with #".to_owned();
        }
        if rest.starts_with([']', '}', ')']) {
            return format!(
                "`{rest}` closes nothing; write [TABLE] for a table, [[LIST]] for a table of a list"
            );
        }
        if before.contains('(') || rest.starts_with("='") {
            return "a table is written as { KEY = VALUE }".to_owned();
        }
        let unit =
            before.ends_with(|c: char| c.is_ascii_digit()) && rest.starts_with(char::is_alphabetic);
        if rest.contains('=') && !unit {
            return format!("`{rest}` stands behind a value; write each key in a line of its own");
        }
        if rest.starts_with('[') {
            return format!("`{rest}` stands behind a value; write it in a line of its own");
        }
        if before.ends_with(['"', '\'']) {
            return format!(
                "`{rest}` stands behind the closing quote; write \\\" for a quote within \"...\", and a comment with #"
            );
        }
        self.bare_value()
    }
}

#[cfg(test)]
mod tests;
