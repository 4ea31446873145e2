//! Wrong answers: the object is whole, the returned body is not, and the rest of the answer matches the
//! object.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use s3s::Body;

use crate::Fault;

/// Returns the answer with wrong bytes, by a random number; errors and empty bodies stay unchanged.
pub(crate) async fn falsify(response: Response<Body>, how: Fault, random: u64) -> Response<Body> {
    if !response.status().is_success() {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(collected) => wrong(&collected.to_bytes(), how, random),
        Err(error) => {
            tracing::error!(%error, "a body could not be read");
            Bytes::new()
        }
    };
    let length = HeaderValue::from(bytes.len());
    head.headers.insert(CONTENT_LENGTH, length);
    Response::from_parts(head, Body::from(bytes))
}

fn wrong(bytes: &Bytes, how: Fault, random: u64) -> Bytes {
    let mut body = BytesMut::from(bytes.as_ref());
    match how {
        _ if bytes.is_empty() => {}
        Fault::Short => body.truncate(bytes.len() - 1),
        Fault::Long => body.extend_from_slice(b"\n"),
        _ => body[(random % bytes.len() as u64) as usize] ^= 1 << (random >> 61),
    }
    body.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(status: u16, how: Fault, random: u64) -> (Option<usize>, Bytes) {
        let response = Response::builder().status(status);
        let response = response.body(Body::from(Bytes::from_static(b"whole")));
        let answer = falsify(response.unwrap(), how, random).await;
        let length = answer.headers().get(CONTENT_LENGTH);
        let length = length.map(|length| length.to_str().unwrap().parse().unwrap());
        (
            length,
            answer.into_body().collect().await.unwrap().to_bytes(),
        )
    }

    #[tokio::test]
    async fn the_length_is_that_of_the_lie() {
        let short = answered(200, Fault::Short, 0).await;
        assert_eq!(short, (Some(4), "whol".into()));
        let long = answered(206, Fault::Long, 0).await;
        assert_eq!(long, (Some(6), "whole\n".into()));
        let flipped = answered(200, Fault::Flip, 7 | 1 << 61).await;
        assert_eq!(flipped, (Some(5), "wholg".into()));
        let error = answered(404, Fault::Flip, 0).await;
        assert_eq!(error, (None, "whole".into()));
    }
}
