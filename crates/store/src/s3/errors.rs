//! The meaning of an S3 failure: its kind, and whether a write may have taken effect. Decided by status
//! and error code, never by message text.

use std::error::Error;
use std::fmt::Write;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::message::{chain, find, innermost, one_line, quote};
use crate::{Effect, ErrorKind, Op};

pub(super) type Sdk<E> = SdkError<E, HttpResponse>;

/// The common traits of every operation's error type.
pub(super) trait Failure: ProvideErrorMetadata + Error + Send + Sync + 'static {}
impl<E: ProvideErrorMetadata + Error + Send + Sync + 'static> Failure for E {}

pub(super) struct Fault {
    pub(super) kind: ErrorKind,
    pub(super) effect: Effect,
    pub(super) detail: String,
}

/// Returns the HTTP status, where there was an answer.
pub(super) fn status<E>(error: &Sdk<E>) -> Option<u16> {
    error.raw_response().map(|raw| raw.status().as_u16())
}

pub(super) fn classify<E: Failure>(op: Op, error: &Sdk<E>) -> Fault {
    let (kind, sure, detail) = match error.raw_response() {
        Some(raw) => answered(op, error, raw),
        None => unanswered(error),
    };
    let writes = matches!(op, Op::Create | Op::Upload | Op::Delete);
    // The last of several tries of an upload tells nothing about the earlier ones.
    let sure = sure && !(op == Op::Upload && kind.is_transient());
    Fault {
        kind,
        effect: if writes && !sure {
            Effect::Unknown
        } else {
            Effect::DidNot
        },
        detail,
    }
}

fn answered<E: Failure>(op: Op, error: &Sdk<E>, raw: &HttpResponse) -> (ErrorKind, bool, String) {
    let status = raw.status().as_u16();
    let meta = error.as_service_error().map(ProvideErrorMetadata::meta);
    let code = meta.and_then(|meta| meta.code()).unwrap_or_default();
    let kind = kind_of(op, status, code);
    let message = meta.and_then(|meta| meta.message());
    let mut detail = refusal(status, code, message);
    let unread = (200..300).contains(&status) && code.is_empty();
    if unread && find::<std::io::Error>(error).is_some() {
        let text = format!("the answer (HTTP {status}) broke off: {}", chain(error));
        return (ErrorKind::Timeout, false, text);
    }
    if unread {
        detail = format!(
            "cannot read the store's answer (HTTP {status}): {}",
            chain(error)
        );
    } else if meta.is_none() {
        let _ = write!(detail, ": {}", chain(error));
    }
    if code.is_empty() {
        quote(&mut detail, raw.body().bytes().unwrap_or_default());
    }
    note(&mut detail, |header| raw.headers().get(header));
    (kind, is_final(status, kind), detail)
}

fn refusal(status: u16, code: &str, message: Option<&str>) -> String {
    let mut detail = format!("HTTP {status}");
    if !code.is_empty() {
        let _ = write!(detail, " {}", one_line(code));
    }
    if let Some(message) = message {
        let _ = write!(detail, ": {}", one_line(message));
    }
    detail
}

fn note<'a>(detail: &mut String, value_of: impl Fn(&str) -> Option<&'a str>) {
    for (header, label) in [
        ("x-amz-bucket-region", "bucket's region"),
        ("x-amz-request-id", "request id"),
    ] {
        if let Some(value) = value_of(header) {
            let _ = write!(detail, " ({label} {})", one_line(value));
        }
    }
}

/// Returns the meaning of a refused direct read, by its status, document and headers.
pub(super) fn from_answer<'a>(
    op: Op,
    status: u16,
    document: &str,
    header: impl Fn(&str) -> Option<&'a str>,
) -> (ErrorKind, String) {
    let code = element(document, "Code").unwrap_or_default();
    let mut detail = refusal(status, code, element(document, "Message"));
    if code.is_empty() {
        quote(&mut detail, document.as_bytes());
    }
    note(&mut detail, header);
    (kind_of(op, status, code), detail)
}

/// Returns the text of an element without children; S3's error documents have no others.
fn element<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let rest = document.split_once(&format!("<{name}>"))?.1;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// Returns the meaning of a refusal without a status of its own: one key of a bulk delete.
pub(super) fn from_code(op: Op, code: Option<&str>, message: Option<&str>) -> Fault {
    let code = code.unwrap_or_default();
    let status = match code {
        "AccessDenied" => 403,
        "NoSuchKey" => 404,
        "InternalError" => 500,
        "NotImplemented" => 501,
        "SlowDown" | "ServiceUnavailable" => 503,
        _ => 400,
    };
    let kind = kind_of(op, status, code);
    let effect = if is_final(status, kind) {
        Effect::DidNot
    } else {
        Effect::Unknown
    };
    let detail = format!(
        "{}: {}",
        one_line(code),
        one_line(message.unwrap_or_default())
    );
    Fault {
        kind,
        effect,
        detail,
    }
}

fn kind_of(op: Op, status: u16, code: &str) -> ErrorKind {
    match (status, code) {
        (_, "NoSuchBucket") => ErrorKind::NoBucket,
        (_, "RequestTimeTooSkewed" | "RequestExpired") => ErrorKind::ClockSkew,
        (301 | 307 | 308, _)
        | (
            _,
            "PermanentRedirect"
            | "AuthorizationHeaderMalformed"
            | "IllegalLocationConstraintException",
        ) => ErrorKind::WrongRegion,
        (_, "SignatureDoesNotMatch" | "InvalidAccessKeyId") => ErrorKind::WrongKeys,
        (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") | (401 | 403, _) => {
            ErrorKind::Denied
        }
        (507, _) | (_, "QuotaExceeded" | "InsufficientStorage" | "XMinioStorageFull") => {
            ErrorKind::Full
        }
        (429 | 503, _)
        | (_, "SlowDown" | "ServiceUnavailable" | "Throttling" | "RequestLimitExceeded") => {
            ErrorKind::Throttled
        }
        (408, _) | (_, "RequestTimeout") => ErrorKind::Timeout,
        (404, _) => ErrorKind::NotFound,
        (409, _) => ErrorKind::Conflict,
        (416, _) => ErrorKind::Range,
        // A read met another version of the object that it had begun to read, but objects are immutable.
        (412, _) if matches!(op, Op::Get | Op::GetRange) => ErrorKind::Contract,
        // The store does not support conditional puts, or this operation.
        (501, _) => ErrorKind::Contract,
        // The end of a multipart upload answers 200 before it knows that it fails.
        (500.., _) | (_, "InternalError") => ErrorKind::Server,
        _ => ErrorKind::Other,
    }
}

/// Returns whether a refusal excludes an effect. A 5xx does not: gateways send them after it.
fn is_final(status: u16, kind: ErrorKind) -> bool {
    let refused =
        (300..500).contains(&status) || kind == ErrorKind::Contract || kind == ErrorKind::Full;
    refused && !kind.is_transient()
}

fn unanswered<E: Failure>(error: &Sdk<E>) -> (ErrorKind, bool, String) {
    if let Some(missing) = find::<CredentialsError>(error) {
        return (
            ErrorKind::Denied,
            true,
            format!(
                "no credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY ({})",
                chain(missing)
            ),
        );
    }
    let text = chain(error);
    if let Some(tokio_rustls::rustls::Error::InvalidCertificate(_)) = find(error) {
        return (ErrorKind::Untrusted, true, innermost(error));
    }
    match error {
        SdkError::ConstructionFailure(_) => (ErrorKind::Other, true, text),
        SdkError::DispatchFailure(_) if never_sent(error) => {
            (ErrorKind::Unreachable, true, innermost(error))
        }
        SdkError::DispatchFailure(failure) if failure.is_user() => (ErrorKind::Other, false, text),
        // Timed out, or broken after the request was sent.
        _ => (ErrorKind::Timeout, false, text),
    }
}

/// Returns whether the connection failed, so that no byte of the request was sent.
fn never_sent(error: &(dyn Error + 'static)) -> bool {
    find::<hyper_util::client::legacy::Error>(error)
        .is_some_and(hyper_util::client::legacy::Error::is_connect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_reads() {
        let id = |header: &str| (header == "x-amz-request-id").then_some("R1");
        let document = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code>\
                        <Message>Reduce your\n rate</Message></Error>";
        let (kind, detail) = from_answer(Op::GetRange, 503, document, id);
        assert_eq!(kind, ErrorKind::Throttled);
        assert_eq!(
            detail,
            "HTTP 503 SlowDown: Reduce your rate (request id R1)"
        );
        for (status, document, kind) in [
            (404, "", ErrorKind::NotFound),
            (404, "<Code>NoSuchBucket</Code>", ErrorKind::NoBucket),
            (412, "<Code>PreconditionFailed</Code>", ErrorKind::Contract),
            (500, "<html>", ErrorKind::Server),
            (503, "<Code>Slow", ErrorKind::Throttled),
        ] {
            assert_eq!(
                from_answer(Op::GetRange, status, document, |_| None).0,
                kind
            );
        }
    }

    #[test]
    fn which_answers_leave_the_outcome_of_a_write_open() {
        for (status, code) in [
            (500, ""),
            (502, ""),
            (503, "SlowDown"),
            (504, ""),
            (409, "ConditionalRequestConflict"),
            (408, ""),
            (429, ""),
            (400, "RequestTimeout"),
            (200, "InternalError"),
            (200, "ServiceUnavailable"),
        ] {
            let kind = kind_of(Op::Create, status, code);
            assert!(
                kind.is_transient() && !is_final(status, kind),
                "{status} {code} {kind:?}"
            );
        }
        for (status, code) in [
            (403, "AccessDenied"),
            (403, "SignatureDoesNotMatch"),
            (404, "NoSuchBucket"),
            (400, "InvalidArgument"),
            (400, "ExpiredToken"),
            (501, "NotImplemented"),
            (301, ""),
            (507, ""),
        ] {
            let kind = kind_of(Op::Create, status, code);
            assert!(
                !kind.is_transient() && is_final(status, kind),
                "{status} {code} {kind:?}"
            );
        }
    }
}
