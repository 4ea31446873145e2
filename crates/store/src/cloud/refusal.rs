//! The meaning of a refusal by a cloud. Decided by status and error code; the message decides only how a missing bucket is named.

use std::fmt::Write;

use super::answer::{Answer, Fault};
use super::dialect::{Dialect, Refusal};
use crate::message::{one_line, quote};
use crate::{ErrorKind, Op};

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
