//! The reader of JSON as Python accepts it.

use std::borrow::Cow;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde_json::Error;

use super::beyond::Beyond;

/// The deepest nesting, which is that of `serde_json`.
const DEPTH_MAX: usize = 128;
/// The most digits of an integer that Python reads.
const DIGITS_MAX: usize = 4300;
/// Begins the strings that stand for numbers which values of `serde_json` cannot hold. No text has this character.
pub(super) const NUMBER: char = '\u{ffff}';

/// The form in which numbers that are not finite are given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NonFinite {
    Float,
    Text,
}

/// Reads JSON of valid UTF-8.
pub(super) struct Reader<'de> {
    text: &'de [u8],
    at: usize,
    depth: usize,
    non_finite: NonFinite,
    pub(super) beyond: Beyond,
}

impl<'de> Reader<'de> {
    pub(super) fn new(text: &'de [u8], non_finite: NonFinite) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            non_finite,
            beyond: Beyond::default(),
        }
    }

    fn fault<T>(&self, what: &str) -> Result<T, Error> {
        let column = self.at + 1;
        Err(Error::custom(format!("{what} at line 1 column {column}")))
    }

    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let found = rest.starts_with(word.as_bytes());
        self.at += if found { word.len() } else { 0 };
        found
    }

    pub(super) fn end(&mut self) -> Result<(), Error> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fault("trailing characters"),
        }
    }

    /// Reads a string behind its first quotation mark.
    fn string(&mut self) -> Result<Cow<'de, str>, Error> {
        let mut owned: Option<String> = None;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
            let Some(end) = rest.iter().position(special) else {
                return self.fault("EOF while parsing a string");
            };
            let Ok(plain) = std::str::from_utf8(&rest[..end]) else {
                return self.fault("invalid UTF-8");
            };
            self.at += end + 1;
            match (rest[end], &mut owned) {
                (b'"', None) => return Ok(Cow::Borrowed(plain)),
                (b'"', Some(_)) => {
                    let mut whole = owned.unwrap_or_default();
                    whole.push_str(plain);
                    return Ok(Cow::Owned(whole));
                }
                (b'\\', _) => {
                    let c = self.escape()?;
                    let whole = owned.get_or_insert_default();
                    whole.push_str(plain);
                    whole.push(c);
                }
                _ => {
                    self.at -= 1;
                    return self.fault("control character in a string");
                }
            }
        }
    }

    /// Reads an escape behind its backslash.
    fn escape(&mut self) -> Result<char, Error> {
        let Some(letter) = self.text.get(self.at) else {
            return self.fault("EOF while parsing a string");
        };
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.code_point(),
            _ => return self.fault("invalid escape"),
        })
    }

    fn code_point(&mut self) -> Result<char, Error> {
        let Some(first) = self.digits() else {
            return self.fault("invalid escape");
        };
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        let behind = self.at;
        if first < 0xdc00
            && self.take("\\u")
            && let Some(second @ 0xdc00..0xe000) = self.digits()
            && let Some(c) = char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
        {
            return Ok(c);
        }
        self.at = behind;
        self.beyond.surrogates += 1;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    /// Reads four hexadecimal digits.
    fn digits(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..)?.first_chunk::<4>()?;
        let add = |code: u32, digit: &u8| Some((code << 4) | char::from(*digit).to_digit(16)?);
        let code = digits.iter().try_fold(0, add)?;
        self.at += 4;
        Some(code)
    }

    /// Reads a number: an integer, or its text where it has a fraction or an exponent.
    fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        let from = self.at;
        let digits = |reader: &mut Self| {
            let rest = reader.text.get(reader.at..).unwrap_or_default();
            let n = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            reader.at += n;
            n
        };
        self.take("-");
        let zero = self.take("0");
        let whole = if zero { 1 } else { digits(self) };
        if whole == 0 {
            return self.fault("invalid number");
        }
        let mut is_integer = true;
        let behind = self.at;
        if self.take(".") && digits(self) > 0 {
            is_integer = false;
        } else {
            self.at = behind;
        }
        let behind = self.at;
        if self.take("e") || self.take("E") {
            let _sign = self.take("-") || self.take("+");
            if digits(self) > 0 {
                is_integer = false;
            } else {
                self.at = behind;
            }
        }
        let text = self.text.get(from..self.at).unwrap_or_default();
        let text = std::str::from_utf8(text).unwrap_or_default();
        if is_integer {
            if whole > DIGITS_MAX {
                return self.fault("number out of range");
            }
            if let Ok(n) = text.parse::<u64>() {
                return visitor.visit_u64(n);
            }
            // serde_json has -0 as a fraction, because integers have one zero.
            if let Ok(n) = text.parse::<i64>()
                && n != 0
            {
                return visitor.visit_i64(n);
            }
        }
        match text.parse::<f64>() {
            Ok(n) if n.is_finite() => visitor.visit_f64(n),
            Ok(n) => self.non_finite(visitor, "out of range", n),
            Err(_) => self.fault("invalid number"),
        }
    }

    fn non_finite<V: Visitor<'de>>(
        &mut self,
        visitor: V,
        name: &str,
        n: f64,
    ) -> Result<V::Value, Error> {
        self.beyond.numbers += 1;
        match self.non_finite {
            NonFinite::Float => visitor.visit_f64(n),
            NonFinite::Text => visitor.visit_string(format!("{NUMBER}{name}")),
        }
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == DEPTH_MAX {
            return self.fault("recursion limit exceeded");
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn close(&mut self, mark: u8) -> Result<(), Error> {
        if self.peek() != Some(mark) {
            return self.fault("expected the end of a list or an object");
        }
        self.at += 1;
        Ok(())
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            None => self.fault("EOF while parsing a value"),
            Some(b'n') if self.take("null") => visitor.visit_unit(),
            Some(b't') if self.take("true") => visitor.visit_bool(true),
            Some(b'f') if self.take("false") => visitor.visit_bool(false),
            Some(b'N') if self.take("NaN") => self.non_finite(visitor, "NaN", f64::NAN),
            Some(b'I') if self.take("Infinity") => {
                self.non_finite(visitor, "Infinity", f64::INFINITY)
            }
            Some(b'-') if self.take("-Infinity") => {
                self.non_finite(visitor, "-Infinity", f64::NEG_INFINITY)
            }
            Some(b'-' | b'0'..=b'9') => self.number(visitor),
            Some(b'"') => {
                self.at += 1;
                match self.string()? {
                    Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                    Cow::Owned(text) => visitor.visit_string(text),
                }
            }
            Some(b'[') => self.nested(|reader| {
                let value = visitor.visit_seq(Parts::new(reader, b']'))?;
                reader.close(b']').map(|()| value)
            }),
            Some(b'{') => self.nested(|reader| {
                let value = visitor.visit_map(Parts::new(reader, b'}'))?;
                reader.close(b'}').map(|()| value)
            }),
            Some(_) => self.fault("expected value"),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.peek() == Some(b'n') && self.take("null") {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The items of a list, or the entries of an object.
struct Parts<'r, 'de> {
    reader: &'r mut Reader<'de>,
    close: u8,
    first: bool,
}

impl<'r, 'de> Parts<'r, 'de> {
    fn new(reader: &'r mut Reader<'de>, close: u8) -> Self {
        Self {
            reader,
            close,
            first: true,
        }
    }

    /// Goes to the next part; false at the end.
    fn next(&mut self) -> Result<bool, Error> {
        let first = std::mem::take(&mut self.first);
        match self.reader.peek() {
            Some(mark) if mark == self.close => Ok(false),
            _ if first => Ok(true),
            Some(b',') => {
                self.reader.at += 1;
                match self.reader.peek() {
                    Some(mark) if mark == self.close => self.reader.fault("trailing comma"),
                    _ => Ok(true),
                }
            }
            _ => self.reader.fault("expected a comma"),
        }
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if !self.next()? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        if !self.next()? {
            return Ok(None);
        }
        if self.reader.peek() != Some(b'"') {
            return self.reader.fault("key must be a string");
        }
        self.reader.at += 1;
        let key = self.reader.string()?;
        seed.deserialize(IntoDeserializer::<Error>::into_deserializer(key))
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        if self.reader.peek() != Some(b':') {
            return self.reader.fault("expected a colon");
        }
        self.reader.at += 1;
        seed.deserialize(&mut *self.reader)
    }
}
