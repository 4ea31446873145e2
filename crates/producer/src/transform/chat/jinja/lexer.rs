//! From the text of a template to tokens, as Jinja2's lexer makes them with `trim_blocks` and `lstrip_blocks`.

use super::literals;
use super::text::is_space;
use super::token::{Kind, Token};

/// Operators, the longest first.
const OPERATORS: [&str; 27] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";", "!",
];

type Lexed<T> = Result<T, String>;

/// Returns the tokens of a template.
pub(super) fn tokens(source: &str) -> Lexed<Vec<Token>> {
    let mut text = source.replace("\r\n", "\n").replace('\r', "\n");
    if text.ends_with('\n') {
        text.pop();
    }
    let mut lexer = Lexer {
        source: &text,
        at: 0,
        line: 1,
        line_starting: true,
        out: Vec::new(),
    };
    lexer.root()?;
    let line = lexer.line;
    let mut out = lexer.out;
    out.push(Token {
        kind: Kind::End,
        line,
    });
    Ok(out)
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: u32,
    /// Whether the text before this place ended a line.
    line_starting: bool,
    out: Vec<Token>,
}

/// The end of a tag.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Variable,
    Block,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    /// Moves on by a number of bytes, and counts lines.
    fn skip(&mut self, bytes: usize) {
        let text = &self.source[self.at..self.at + bytes];
        let lines = text.bytes().filter(|b| *b == b'\n').count();
        self.line += u32::try_from(lines).unwrap_or(u32::MAX);
        self.at += bytes;
    }

    fn push(&mut self, kind: Kind) {
        let line = self.line;
        self.out.push(Token { kind, line });
    }

    fn fail<T>(&self, why: &str) -> Lexed<T> {
        Err(format!("{why} (line {})", self.line))
    }

    fn root(&mut self) -> Lexed<()> {
        while !self.rest().is_empty() {
            let rest = self.rest();
            let begin = next_tag(rest);
            let Some(begin) = begin else {
                self.push(Kind::Data(rest.into()));
                self.skip(rest.len());
                break;
            };
            let tag = &rest[begin + 2..];
            let sign = sign(tag);
            let kind = &rest[begin..begin + 2];
            self.data(&rest[..begin], sign, kind != "{{");
            self.skip(2 + usize::from(sign.is_some()));
            match kind {
                "{#" => self.comment()?,
                "{{" => self.inside(End::Variable)?,
                _ => {
                    if let Some(length) = raw_tag(self.rest(), "raw", false) {
                        self.skip(length);
                        self.line_starting = self.source[..self.at].ends_with('\n');
                        self.raw()?;
                    } else {
                        self.inside(End::Block)?;
                    }
                }
            }
            self.line_starting = self.source[..self.at].ends_with('\n');
        }
        Ok(())
    }

    /// Adds the text before a tag, trimmed as the tag says.
    fn data(&mut self, text: &str, sign: Option<char>, strips_line: bool) {
        let kept = match sign {
            Some('-') => text.trim_end_matches(is_space),
            None if strips_line => {
                let line = text.rfind('\n').map_or(0, |at| at + 1);
                let begins = line > 0 || self.line_starting;
                if begins && text[line..].chars().all(is_space) {
                    &text[..line]
                } else {
                    text
                }
            }
            _ => text,
        };
        if !kept.is_empty() {
            self.push(Kind::Data(kept.into()));
        }
        self.skip(text.len());
    }

    fn comment(&mut self) -> Lexed<()> {
        let Some(end) = self.rest().find("#}") else {
            return self.fail("a comment without its end");
        };
        let sign = self.rest()[..end].chars().next_back();
        self.skip(end + 2);
        self.trim_after(sign, true);
        Ok(())
    }

    /// Skips the text after a tag that its sign, or `trim_blocks`, removes.
    fn trim_after(&mut self, sign: Option<char>, newline: bool) {
        let rest = self.rest();
        let bytes = match sign {
            Some('-') => rest.len() - rest.trim_start_matches(is_space).len(),
            Some('+') => 0,
            _ => usize::from(newline && rest.starts_with('\n')),
        };
        self.skip(bytes);
    }

    fn raw(&mut self) -> Lexed<()> {
        let rest = self.rest();
        let mut from = 0;
        while let Some(found) = rest[from..].find("{%") {
            let begin = from + found;
            let tag = &rest[begin + 2..];
            let sign = sign(tag);
            let inner = &tag[usize::from(sign.is_some())..];
            if let Some(length) = raw_tag(inner, "endraw", true) {
                self.data(&rest[..begin], sign, true);
                self.skip(2 + usize::from(sign.is_some()) + length);
                return Ok(());
            }
            from = begin + 2;
        }
        self.fail("a raw block without its end")
    }

    fn inside(&mut self, end: End) -> Lexed<()> {
        self.push(match end {
            End::Variable => Kind::VariableBegin,
            End::Block => Kind::BlockBegin,
        });
        let mut open: Vec<char> = Vec::new();
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start_matches(is_space).len();
            self.skip(blanks);
            if self.rest().is_empty() {
                return self.fail("a tag without its end");
            }
            if open.is_empty() && self.ends(end) {
                return Ok(());
            }
            self.token(&mut open)?;
        }
    }

    /// Takes the end of a tag, if it is here.
    fn ends(&mut self, end: End) -> bool {
        let rest = self.rest();
        let mark = if end == End::Block { "%}" } else { "}}" };
        let signed = rest.strip_prefix(['-', '+']);
        let sign = match signed {
            _ if rest.starts_with(mark) => None,
            Some(after) if after.starts_with(mark) => rest.chars().next(),
            _ => return false,
        };
        if sign == Some('+') && end == End::Variable {
            return false;
        }
        self.push(match end {
            End::Variable => Kind::VariableEnd,
            End::Block => Kind::BlockEnd,
        });
        self.skip(2 + usize::from(sign.is_some()));
        self.trim_after(sign, end == End::Block);
        true
    }

    fn token(&mut self, open: &mut Vec<char>) -> Lexed<()> {
        let rest = self.rest();
        let first = rest.chars().next().unwrap_or_default();
        let after_dot = self.source[..self.at].ends_with('.');
        if first.is_ascii_digit() {
            let number = literals::number(rest, after_dot);
            let Some((kind, length)) = number else {
                return self.fail("a number beyond 127 bits, which is not supported");
            };
            self.push(kind);
            self.skip(length);
            return Ok(());
        }
        if first == '_' || first.is_alphabetic() {
            let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
            let name = &rest[..end.unwrap_or(rest.len())];
            self.push(Kind::Name(name.into()));
            self.skip(name.len());
            return Ok(());
        }
        if first == '\'' || first == '"' {
            return self.text(first);
        }
        let Some(op) = OPERATORS.iter().find(|op| rest.starts_with(**op)) else {
            return self.fail(&format!("unexpected character {first:?}"));
        };
        match first {
            '(' | '[' | '{' => open.push(first),
            ')' | ']' | '}' => {
                let wanted = match first {
                    ')' => '(',
                    ']' => '[',
                    _ => '{',
                };
                if open.pop() != Some(wanted) {
                    return self.fail(&format!("unexpected {first:?}"));
                }
            }
            _ => {}
        }
        self.push(Kind::Op(op));
        self.skip(op.len());
        Ok(())
    }

    fn text(&mut self, quote: char) -> Lexed<()> {
        let rest = self.rest();
        let mut escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            if escaped {
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if c == quote {
                let text = literals::unescape(&rest[1..at])
                    .map_err(|why| format!("{why} (line {})", self.line))?;
                self.push(Kind::Text(text));
                self.skip(at + 1);
                return Ok(());
            }
        }
        self.fail("a string without its end")
    }
}

/// Returns where the next tag begins.
fn next_tag(text: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = text[from..].find('{') {
        let at = from + found;
        if matches!(text.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Returns the sign of whitespace control with which a tag begins.
fn sign(tag: &str) -> Option<char> {
    tag.chars().next().filter(|c| matches!(c, '-' | '+'))
}

/// Returns the length of the rest of a `raw` or `endraw` tag, with the text after it that the tag removes.
fn raw_tag(text: &str, name: &str, ends: bool) -> Option<usize> {
    let after_name = text.trim_start_matches(is_space).strip_prefix(name)?;
    let rest = after_name.trim_start_matches(is_space);
    if let Some(after) = rest.strip_prefix("-%}") {
        return Some(text.len() - after.trim_start_matches(is_space).len());
    }
    if ends && let Some(after) = rest.strip_prefix("+%}") {
        return Some(text.len() - after.len());
    }
    let after = rest.strip_prefix("%}")?;
    // Only the end of a raw block removes the line's end, as in Jinja2.
    let newline = usize::from(ends && after.starts_with('\n'));
    Some(text.len() - after.len() + newline)
}
