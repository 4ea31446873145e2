//! Answers of a cloud and what they mean: the kind of a failure, and whether a write may have taken effect. Decided by
//! status and error code; the message decides only how a missing bucket is named.

use std::fmt::Write;

use bytes::Bytes;
use http::HeaderMap;

use super::dialect::{Dialect, Refusal};
use crate::message::{chain, find, innermost, one_line, quote};
use crate::{Effect, ErrorKind, Op};

/// An answer whose body is in memory.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// Returns the answer to a HEAD, whose length is that of a body that does not come.
    pub(crate) fn of_head(answer: &reqwest::Response) -> Self {
        Self {
            status: answer.status().as_u16(),
            headers: answer.headers().clone(),
            body: Bytes::new(),
        }
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The failure of a request, and whether it may have taken effect.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    /// It had no effect and will not have one.
    pub(crate) sure: bool,
    pub(crate) detail: String,
}

impl Fault {
    /// Returns the fault of a request that was never sent.
    pub(crate) fn unsent(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            sure: true,
            detail: detail.into(),
        }
    }

    /// Returns whether a write may have taken effect.
    pub(crate) fn effect(&self, op: Op) -> Effect {
        let writes = matches!(op, Op::Create | Op::Upload | Op::Delete);
        // The last of several tries of an upload tells nothing about the earlier ones.
        let sure = self.sure && !(op == Op::Upload && self.kind.is_transient());
        if writes && !sure {
            Effect::Unknown
        } else {
            Effect::DidNot
        }
    }
}

/// Returns the meaning of a refusal.
pub(crate) fn refused(dialect: &dyn Dialect, op: Op, answer: &Answer) -> Fault {
    let refusal = dialect.refusal(&answer.headers, &answer.body);
    let kind = kind_of(op, answer.status, dialect.kind(answer.status, &refusal));
    Fault {
        kind,
        sure: is_final(answer.status, kind),
        detail: described(answer, &refusal),
    }
}

fn described(answer: &Answer, refusal: &Refusal) -> String {
    let mut detail = format!("HTTP {}", answer.status);
    if !refusal.code.is_empty() {
        let _ = write!(detail, " {}", one_line(&refusal.code));
    }
    if !refusal.message.is_empty() {
        let _ = write!(detail, ": {}", one_line(&refusal.message));
    } else if refusal.code.is_empty() {
        quote(&mut detail, &answer.body);
    }
    if let Some(id) = &refusal.request_id {
        let _ = write!(detail, " (request id {})", one_line(id));
    }
    detail
}

fn kind_of(op: Op, status: u16, told: Option<ErrorKind>) -> ErrorKind {
    if let Some(kind) = told {
        return kind;
    }
    match status {
        401 | 403 => ErrorKind::Denied,
        // An object is never missing for these.
        404 if matches!(op, Op::Create | Op::Upload | Op::List) => ErrorKind::NoBucket,
        404 => ErrorKind::NotFound,
        408 => ErrorKind::Timeout,
        409 => ErrorKind::Conflict,
        // A read met another version of the object that it had begun to read, but objects are immutable.
        412 if matches!(op, Op::Get | Op::GetRange) => ErrorKind::Contract,
        416 => ErrorKind::Range,
        429 | 503 => ErrorKind::Throttled,
        507 => ErrorKind::Full,
        // Redirects are not followed: they would carry credentials elsewhere.
        300..=399 | 501 => ErrorKind::Contract,
        500.. => ErrorKind::Server,
        _ => ErrorKind::Other,
    }
}

/// Returns whether a refusal excludes an effect. A 5xx does not: gateways send them after it.
fn is_final(status: u16, kind: ErrorKind) -> bool {
    let refused =
        (300..500).contains(&status) || matches!(kind, ErrorKind::Contract | ErrorKind::Full);
    refused && !kind.is_transient()
}

/// Returns the meaning of a request without an answer.
pub(crate) fn unanswered(error: &reqwest::Error, endpoint: &str) -> Fault {
    if let Some(tokio_rustls::rustls::Error::InvalidCertificate(_)) = find(error) {
        let detail = format!("no connection to {endpoint}: {}", innermost(error));
        return Fault::unsent(ErrorKind::Untrusted, detail);
    }
    if error.is_connect() {
        let detail = format!("no connection to {endpoint}: {}", innermost(error));
        return Fault::unsent(ErrorKind::Unreachable, detail);
    }
    if error.is_builder() {
        return Fault::unsent(ErrorKind::Other, chain(error));
    }
    Fault {
        kind: ErrorKind::Timeout,
        sure: false,
        detail: format!("no answer from {endpoint}: {}", innermost(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_answers_leave_the_outcome_of_a_write_open() {
        for status in [408, 409, 429, 500, 502, 503, 504] {
            let kind = kind_of(Op::Create, status, None);
            assert!(kind.is_transient() && !is_final(status, kind), "{status}");
        }
        for status in [301, 400, 401, 403, 404, 412, 501, 507] {
            let kind = kind_of(Op::Create, status, None);
            assert!(!kind.is_transient() && is_final(status, kind), "{status}");
        }
        let fault = Fault::unsent(ErrorKind::Unreachable, "");
        assert_eq!(fault.effect(Op::Create), Effect::DidNot);
        assert_eq!(fault.effect(Op::Upload), Effect::Unknown);
        assert_eq!(fault.effect(Op::Get), Effect::DidNot);
    }

    #[test]
    fn the_operation_tells_what_is_missing() {
        assert_eq!(kind_of(Op::Get, 404, None), ErrorKind::NotFound);
        assert_eq!(kind_of(Op::Delete, 404, None), ErrorKind::NotFound);
        for op in [Op::Create, Op::Upload, Op::List] {
            assert_eq!(kind_of(op, 404, None), ErrorKind::NoBucket);
        }
    }
}
