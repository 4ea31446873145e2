//! Checksums of bodies, those that a client sends among them, and ETags.

use hyper::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto::Checksum;
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

/// The known checksums of an object, in base64 as in S3's headers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Checksums {
    pub crc32: Option<String>,
    pub crc32c: Option<String>,
    pub crc64nvme: Option<String>,
    pub sha1: Option<String>,
    pub sha256: Option<String>,
}

impl Checksums {
    fn fields(&self) -> [(&'static str, Option<&String>); 5] {
        [
            ("crc32", self.crc32.as_ref()),
            ("crc32c", self.crc32c.as_ref()),
            ("crc64nvme", self.crc64nvme.as_ref()),
            ("sha1", self.sha1.as_ref()),
            ("sha256", self.sha256.as_ref()),
        ]
    }

    /// Adds the checksums that arrived after the body, as trailing headers.
    pub(crate) fn merge_trailers(&mut self, trailers: &HeaderMap) {
        let get = |name: &str| {
            let value = trailers.get(format!("x-amz-checksum-{name}"))?;
            value.to_str().ok().map(str::to_owned)
        };
        self.crc32 = self.crc32.take().or_else(|| get("crc32"));
        self.crc32c = self.crc32c.take().or_else(|| get("crc32c"));
        self.crc64nvme = self.crc64nvme.take().or_else(|| get("crc64nvme"));
        self.sha1 = self.sha1.take().or_else(|| get("sha1"));
        self.sha256 = self.sha256.take().or_else(|| get("sha256"));
    }

    /// Compares each checksum that the client sent with the body.
    pub(crate) fn verify(&self, body: &[u8]) -> S3Result<()> {
        let mut hasher = ChecksumHasher {
            crc32: self.crc32.as_ref().map(|_| Crc32::new()),
            crc32c: self.crc32c.as_ref().map(|_| Crc32c::new()),
            sha1: self.sha1.as_ref().map(|_| Sha1::new()),
            sha256: self.sha256.as_ref().map(|_| Sha256::new()),
            crc64nvme: self.crc64nvme.as_ref().map(|_| Crc64Nvme::new()),
        };
        hasher.update(body);
        let actual = Self::from(hasher.finalize());
        for ((name, sent), (_, computed)) in self.fields().into_iter().zip(actual.fields()) {
            if sent != computed {
                return Err(s3_error!(
                    BadDigest,
                    "The {name} you specified, {sent:?}, did not match the calculated checksum, {computed:?}."
                ));
            }
        }
        Ok(())
    }

    /// Returns the checksum of the named algorithm over `body`, or none for an unknown algorithm.
    pub(crate) fn of(algorithm: &str, body: &[u8]) -> Self {
        let mut hasher = ChecksumHasher::default();
        match algorithm {
            "CRC32" => hasher.crc32 = Some(Crc32::new()),
            "CRC32C" => hasher.crc32c = Some(Crc32c::new()),
            "CRC64NVME" => hasher.crc64nvme = Some(Crc64Nvme::new()),
            "SHA1" => hasher.sha1 = Some(Sha1::new()),
            "SHA256" => hasher.sha256 = Some(Sha256::new()),
            _ => {}
        }
        hasher.update(body);
        Self::from(hasher.finalize())
    }
}

impl From<Checksum> for Checksums {
    fn from(sums: Checksum) -> Self {
        Self {
            crc32: sums.checksum_crc32,
            crc32c: sums.checksum_crc32c,
            crc64nvme: sums.checksum_crc64nvme,
            sha1: sums.checksum_sha1,
            sha256: sums.checksum_sha256,
        }
    }
}

/// Returns the ETag of a body: its MD5 if the client sent that, which must agree, and otherwise a value that is faster
/// to compute. S3 promises an MD5 for plain puts without encryption only; the dash tells clients that this is none.
pub(crate) fn etag(body: &[u8], content_md5: Option<&str>) -> S3Result<String> {
    let Some(sent) = content_md5 else {
        let sum = Crc64Nvme::checksum(body);
        return Ok(format!("{}{:016x}-1", hex(&sum), body.len()));
    };
    let digest = Md5::checksum(body);
    verify_md5(sent, digest)?;
    Ok(hex(&digest))
}

/// Returns the ETag of an object of parts with these ETags.
pub(crate) fn etag_of_parts<'a>(parts: impl ExactSizeIterator<Item = &'a str>) -> String {
    let (count, mut sum) = (parts.len(), Md5::new());
    for part in parts {
        sum.update(part.as_bytes());
    }
    format!("{}-{count}", hex(&sum.finalize()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// Compares a `Content-MD5` header with the body's MD5.
fn verify_md5(header: &str, digest: [u8; 16]) -> S3Result<()> {
    if header == base64(&digest) {
        return Ok(());
    }
    Err(s3_error!(
        BadDigest,
        "The Content-MD5 you specified did not match what we received."
    ))
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0, |word, at| {
            word << 8 | u32::from(chunk.get(at).copied().unwrap_or(0))
        });
        for at in 0..4 {
            let index = (word >> (18 - 6 * at)) as usize & 63;
            text.push(if at > chunk.len() {
                '='
            } else {
                ALPHABET[index] as char
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_checksums_are_compared() {
        let good = Checksums::of("CRC32C", b"123456789");
        assert_eq!(good.crc32c.as_deref(), Some("4waSgw=="));
        good.verify(b"123456789").unwrap();
        assert!(good.verify(b"123456788").is_err());
        Checksums::default().verify(b"anything").unwrap();
    }

    #[test]
    fn an_etag_without_md5_differs_with_the_bytes_and_looks_like_none() {
        let tag = etag(b"123456789", None).unwrap();
        assert_eq!(tag, "ae8b14860a7998880000000000000009-1");
        assert_ne!(tag, etag(b"123456788", None).unwrap());
        assert_ne!(etag(b"", None).unwrap(), etag(b"\0", None).unwrap());
        let both = etag_of_parts([&*tag, &*tag].into_iter());
        assert_ne!(both, etag_of_parts([&*tag].into_iter()));
        assert!(both.ends_with("-2"));
    }

    #[test]
    fn content_md5_is_base64() {
        let tag = etag(b"", Some("1B2M2Y8AsgTpgAmY7PhCfg==")).unwrap();
        assert_eq!(tag, "d41d8cd98f00b204e9800998ecf8427e");
        assert!(etag(b"", Some("1B2M2Y8AsgTpgAmY7PhCfA==")).is_err());
        assert_eq!(
            (base64(b"M"), base64(b"Ma"), base64(b"Man")),
            ("TQ==".into(), "TWE=".into(), "TWFu".into())
        );
    }
}
