//! Wrong answers: the object is whole, the returned body is not, and the rest of the answer matches the
//! object.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue};
use s3s::Body;

use crate::Fault;

/// Returns the answer with wrong bytes, by a random number; errors and empty bodies stay unchanged. `other`: the
/// object whose bytes a foreign answer has.
pub(crate) async fn falsify(
    response: Response<Body>,
    how: Fault,
    random: u64,
    other: Option<Bytes>,
) -> Response<Body> {
    if !response.status().is_success() {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let from = range_start(&head.headers);
    let bytes = match body.collect().await {
        Ok(collected) => {
            let right = collected.to_bytes();
            match other {
                Some(other) => part_of(&other, from, right.len()),
                None => wrong(&right, how, random),
            }
        }
        Err(error) => {
            tracing::error!(%error, "a body could not be read");
            Bytes::new()
        }
    };
    let length = HeaderValue::from(bytes.len());
    head.headers.insert(CONTENT_LENGTH, length);
    Response::from_parts(head, Body::from(bytes))
}

/// Returns the first byte of a ranged answer, as it says; `None` for a whole object.
fn range_start(headers: &HeaderMap) -> Option<usize> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (first, _) = range.strip_prefix("bytes ")?.split_once('-')?;
    first.parse().ok()
}

/// Returns the whole object, or as much of the same range as it has.
fn part_of(other: &Bytes, from: Option<usize>, length: usize) -> Bytes {
    let Some(from) = from else {
        return other.clone();
    };
    let from = from.min(other.len());
    other.slice(from..(from + length).min(other.len()))
}

fn wrong(bytes: &Bytes, how: Fault, random: u64) -> Bytes {
    let mut body = BytesMut::from(bytes.as_ref());
    match how {
        _ if bytes.is_empty() => {}
        Fault::Short => body.truncate(bytes.len() - 1),
        Fault::Long => body.extend_from_slice(b"\n"),
        // Without another object in the folder, the answer stays right.
        Fault::Foreign => {}
        Fault::Rotate => {
            let tail = body.split_off((random % bytes.len() as u64) as usize);
            body = [tail, body].concat().as_slice().into();
        }
        _ => body[(random % bytes.len() as u64) as usize] ^= 1 << (random >> 61),
    }
    body.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(status: u16, how: Fault, random: u64) -> (Option<usize>, Bytes) {
        let response = Response::builder()
            .status(status)
            .body(Body::from(Bytes::from_static(b"whole")));
        let answer = falsify(response.unwrap(), how, random, None).await;
        let length = answer
            .headers()
            .get(CONTENT_LENGTH)
            .map(|length| length.to_str().unwrap().parse().unwrap());
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
        let rotated = answered(206, Fault::Rotate, 2).await;
        assert_eq!(rotated, (Some(5), "olewh".into()));
        let error = answered(404, Fault::Flip, 0).await;
        assert_eq!(error, (None, "whole".into()));
    }

    #[test]
    fn a_range_of_another_object_is_as_long_as_it_has_bytes() {
        let other = Bytes::from_static(b"other");
        assert_eq!(part_of(&other, None, 2), "other");
        assert_eq!(part_of(&other, Some(1), 3), "the");
        assert_eq!(part_of(&other, Some(4), 3), "r");
        assert_eq!(part_of(&other, Some(9), 3), "");
        let mut headers = HeaderMap::new();
        assert_eq!(range_start(&headers), None);
        headers.insert(CONTENT_RANGE, HeaderValue::from_static("bytes 7-9/20"));
        assert_eq!(range_start(&headers), Some(7));
    }
}
