//! Answers of a cloud, and failures: their kind, and whether a write may have taken effect.

use bytes::Bytes;
use http::HeaderMap;

use crate::message::{chain, find, innermost};
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
    fn a_request_that_was_not_sent_had_no_effect_unless_it_ends_an_upload() {
        let fault = Fault::unsent(ErrorKind::Unreachable, "");
        assert_eq!(fault.effect(Op::Create), Effect::DidNot);
        assert_eq!(fault.effect(Op::Upload), Effect::Unknown);
        assert_eq!(fault.effect(Op::Get), Effect::DidNot);
    }
}
