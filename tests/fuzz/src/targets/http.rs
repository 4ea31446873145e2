//! Answers of an S3 server that are parsed without its SDK.

use self::answer::{decoded, decoded_exactly, parse};
use crate::check::good;

#[path = "../../../../crates/store/src/answer.rs"]
mod answer;

/// The head of an answer that arrives in pieces.
pub(super) fn head(input: &[u8]) {
    let Ok(Some((head, length))) = parse(input) else {
        return;
    };
    assert!(length <= input.len());
    let again = good(parse(&input[..length]), "the head alone");
    assert_eq!(again, Some((head, length)));
    let Some((head, _)) = again else { return };
    let before = parse(&input[..length - 1]);
    assert!(!matches!(before, Ok(Some(_))), "it was whole a byte before");
    if head.keeps_open() {
        assert!(head.length().is_some() && !head.in_chunks());
    }
    for name in ["content-range", "etag", "x-amz-request-id", "none"] {
        let _ = head.value(name);
    }
    let _ = head.status;
}

/// A name in a listing.
pub(super) fn name(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    assert_eq!(decoded(&text, false), text);
    let plain = decoded(&text, true);
    assert!(plain.len() <= 3 * text.len());
    if let Some(exact) = decoded_exactly(&text, true) {
        assert_eq!(plain, exact);
    }
    if !text.contains(['%', '+']) {
        assert_eq!(plain, text);
    }
}
