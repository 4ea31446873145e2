//! The parts of an S3 server's answers that are parsed here instead of by the SDK: the head of the answer
//! to a large read, and the names in a listing. Pure, without imports from this crate, because
//! `tests/fuzz` includes the file.

/// Most headers of an answer; S3 servers send about 15.
const HEADERS_MAX: usize = 64;
/// The headers that are kept.
const KEPT: [&str; 7] = [
    "content-length",
    "content-range",
    "transfer-encoding",
    "connection",
    "etag",
    "x-amz-request-id",
    "x-amz-bucket-region",
];

/// The status line and headers of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    version: u8,
    kept: Vec<(&'static str, String)>,
}

/// Parses the head at the start of `bytes` and returns it with its length; `None` while it is incomplete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let length = match answer.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(why) => return Err(format!("the answer is not HTTP: {why}")),
    };
    let kept = answer.headers.iter().filter_map(|header| {
        let known = |name: &&str| header.name.eq_ignore_ascii_case(name);
        let name = KEPT.into_iter().find(known)?;
        Some((
            name,
            String::from_utf8_lossy(header.value).trim().to_owned(),
        ))
    });
    let head = Head {
        status: answer.code.unwrap_or_default(),
        version: answer.version.unwrap_or_default(),
        kept: kept.collect(),
    };
    // Two different lengths are a sign of response smuggling.
    if head
        .all("content-length")
        .any(|other| Some(other) != head.value("content-length"))
    {
        return Err("the answer has two lengths".to_owned());
    }
    Ok(Some((head, length)))
}

impl Head {
    fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        let named = self.kept.iter().filter(move |(known, _)| *known == name);
        named.map(|(_, value)| value.as_str())
    }

    /// Returns the value of a kept header.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.kept
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the length of the body in bytes; `None` for a chunked body or one without a length.
    pub(crate) fn length(&self) -> Option<u64> {
        if self.in_chunks() {
            return None;
        }
        self.value("content-length")?.parse().ok()
    }

    /// Returns whether the body is chunked.
    pub(crate) fn in_chunks(&self) -> bool {
        self.value("transfer-encoding").is_some()
    }

    /// Returns whether the connection can be reused once the body is read.
    pub(crate) fn keeps_open(&self) -> bool {
        let close = self
            .value("connection")
            .is_some_and(|value| value.to_ascii_lowercase().contains("close"));
        self.version == 1 && !close && self.length().is_some()
    }
}

/// Decodes a name of a listing. Stores that do not support the encoding send plain names and do not set
/// `encoded`. Invalid UTF-8 is replaced: our keys are ASCII.
pub(crate) fn decoded(name: &str, encoded: bool) -> String {
    String::from_utf8_lossy(&bytes(name, encoded)).into_owned()
}

/// Decodes a name of a listing of keys that may have any characters; `None` for invalid UTF-8.
pub(crate) fn decoded_exactly(name: &str, encoded: bool) -> Option<String> {
    String::from_utf8(bytes(name, encoded)).ok()
}

fn bytes(name: &str, encoded: bool) -> Vec<u8> {
    if !encoded || !name.contains(['%', '+']) {
        return name.as_bytes().to_vec();
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.first_chunk::<2>().filter(|_| *first == b'%');
        let value = digits.and_then(|digits| Some(hex(digits[0])? << 4 | hex(digits[1])?));
        rest = if value.is_some() {
            &behind[2..]
        } else {
            behind
        };
        bytes.push(match value {
            Some(value) => value,
            None if *first == b'+' => b' ',
            None => *first,
        });
    }
    bytes
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "HTTP/1.1 206 Partial Content\r\nServer: x\r\nETag: \"e\"\r\n\
                          Content-Range: bytes 2-5/9\r\nContent-Length: 4\r\n\r\n";

    fn head(text: &str) -> Head {
        parse(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn a_head_is_parsed_once_it_is_complete() {
        let whole = format!("{ANSWER}body");
        let (head, length) = parse(whole.as_bytes()).unwrap().unwrap();
        assert_eq!((head.status, length), (206, ANSWER.len()));
        assert_eq!(head.length(), Some(4));
        assert_eq!(head.value("content-range"), Some("bytes 2-5/9"));
        assert_eq!(head.value("etag"), Some("\"e\""));
        assert!(head.keeps_open() && !head.in_chunks());
        for length in 0..ANSWER.len() {
            assert_eq!(parse(&ANSWER.as_bytes()[..length]), Ok(None), "{length}");
        }
    }

    #[test]
    fn connections_that_cannot_be_reused() {
        let close = ANSWER.replace("Server: x", "Connection: Close");
        let old = ANSWER.replace("HTTP/1.1", "HTTP/1.0");
        let open_end = ANSWER.replace("Content-Length: 4\r\n", "");
        let chunks = ANSWER.replace("Server: x", "Transfer-Encoding: chunked");
        for text in [&close, &old, &open_end, &chunks] {
            assert!(!head(text).keeps_open(), "{text}");
        }
        assert_eq!(head(&chunks).length(), None);
    }

    #[test]
    fn malformed_answers_are_refused() {
        for text in ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 2x6 ?\r\n\r\n", "\0\0\0\0"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let two = ANSWER.replace("Server: x", "content-length: 5");
        assert!(parse(two.as_bytes()).unwrap_err().contains("two lengths"));
        let same = ANSWER.replace("Server: x", "content-length: 4");
        assert!(parse(same.as_bytes()).unwrap().is_some());
    }

    #[test]
    fn names() {
        for (sent, name) in [
            ("log/7.json", "log/7.json"),
            ("p%40x/%3D%2f", "p@x/=/"),
            ("a+b%2Bc", "a b+c"),
            ("%01", "\u{1}"),
            ("%C3%A4", "ä"),
            ("%ff", "\u{fffd}"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%zz%é", "%zz%é"),
        ] {
            assert_eq!(decoded(sent, true), name);
            assert_eq!(decoded(sent, false), sent);
            let exactly = decoded_exactly(sent, true);
            assert_eq!(exactly.as_deref(), (sent != "%ff").then_some(name));
        }
    }
}
