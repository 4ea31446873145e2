//! Tests of the clouds' stores with a tiny server of scripted answers: what each fault leaves open, and what is retried.
//! `make test-clouds` runs the conformance suite with emulators.

mod answers;
mod reads;
mod uploads;

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use batchweave_store::{AccessKeys, OpenOptions, Store};

use crate::script::{Answer, Seen, served};

/// The clouds whose answers the tests know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cloud {
    Google,
    Azure,
}

pub(crate) const BOTH: [Cloud; 2] = [Cloud::Google, Cloud::Azure];

impl Cloud {
    /// Serves the answers in order, the last one repeatedly, to a store in this cloud.
    pub(crate) async fn scripted(self, answers: Vec<Answer>) -> (Arc<dyn Store>, Seen) {
        let (endpoint, seen) = served(answers);
        (self.at(endpoint).await, seen)
    }

    /// Opens a store at an endpoint of our own, independent of the environment.
    pub(crate) async fn at(self, endpoint: String) -> Arc<dyn Store> {
        let options = OpenOptions {
            endpoint: Some(endpoint),
            keys: Some(AccessKeys {
                id: "acme".to_owned(),
                secret: BASE64_STANDARD.encode("secret"),
            }),
            ..OpenOptions::default()
        };
        let url = match self {
            Self::Google => "gs://batchweave/p",
            Self::Azure => "az://batchweave/p",
        };
        batchweave_store::open(url, &options).await.unwrap()
    }

    /// Returns an answer with the cloud's error document.
    pub(crate) fn refusal(self, status: &str, code: &str) -> Answer {
        let (kind, body) = match self {
            Self::Google => (
                "application/json",
                format!(
                    "{{\"error\": {{\"message\": \"made up\", \"errors\": [{{\"reason\": \"{code}\"}}]}}}}"
                ),
            ),
            Self::Azure => (
                "application/xml",
                format!(
                    "<Error><Code>{code}</Code><Message>made up\nRequestId:1</Message></Error>"
                ),
            ),
        };
        let length = body.len();
        Answer::Bytes(
            format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
                 Connection: close\r\n\r\n{body}"
            )
            .into_bytes(),
        )
    }

    /// Returns the answer to a create of an object that exists.
    pub(crate) fn exists(self) -> Answer {
        match self {
            Self::Google => self.refusal("412 Precondition Failed", "conditionNotMet"),
            Self::Azure => self.refusal("409 Conflict", "BlobAlreadyExists"),
        }
    }

    /// Returns the description of an object of this size.
    pub(crate) fn described(self, size: usize) -> Answer {
        match self {
            Self::Google => plain(
                "200 OK",
                "",
                &format!("{{\"name\": \"p/k\", \"size\": \"{size}\"}}"),
            ),
            Self::Azure => Answer::Bytes(
                format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n")
                    .into_bytes(),
            ),
        }
    }
}

/// Returns an answer with these headers and body.
pub(crate) fn plain(status: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    Answer::Bytes(
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")
            .into_bytes(),
    )
}

/// Returns the first lines of the requests, without their queries.
pub(crate) fn requests(seen: &Seen) -> Vec<String> {
    let seen = seen.lock().unwrap();
    let first = seen.iter().filter_map(|head| head.lines().next());
    let short = first.map(|line| line.split(['?', ' ']).take(2).collect::<Vec<_>>().join(" "));
    short.collect()
}
