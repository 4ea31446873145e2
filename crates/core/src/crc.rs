//! CRC32C (Castagnoli, as in iSCSI and in S3's own checksums), of whole slices of bytes or piece by piece; and
//! CRC-64/NVME.

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the CRC32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Returns the CRC-64/NVME of pieces, one after another.
pub(crate) fn crc64(pieces: [&[u8]; 2]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize()
}

/// CRC32C of bytes that arrive in pieces.
#[derive(Clone, Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// Returns the checksum of no bytes.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Continues with the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Continues with bytes whose checksum was computed apart: the pieces of one frame arrive by several
    /// requests.
    pub fn append(&mut self, next: &Self) {
        if next.bytes() > 0 {
            self.0.combine(&next.0);
        }
    }

    /// Returns the number of bytes that it covers.
    pub fn bytes(&self) -> u64 {
        self.0.get_amount()
    }

    /// Returns the checksum of all pieces.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// Returns the CRC32C of bytes whose checksum is `crc`, followed by `count` zeros.
pub(crate) fn followed_by_zeros(crc: u32, count: usize) -> u32 {
    if count == 0 {
        return crc;
    }
    let zeros = crc32c(&vec![0; count]);
    let all = crc_fast::checksum_combine(
        CrcAlgorithm::Crc32Iscsi,
        crc.into(),
        zeros.into(),
        count as u64,
    );
    all as u32
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The algorithm as its definition reads, a bit at a time.
    fn slow(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |c, _| {
                (c >> 1) ^ ((c & 1) * 0x82f6_3b78)
            })
        })
    }

    #[test]
    fn published_vectors() {
        // RFC 3720, appendix B.4, and the check value of the algorithm.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b""), 0);
        assert_eq!(Crc32c::new().value(), 0);
        // The check value of CRC-64/NVME.
        assert_eq!(crc64([b"123456789", b""]), 0xae8b_1486_0a79_9888);
        assert_eq!(crc64([b"1234", b"56789"]), 0xae8b_1486_0a79_9888);
    }

    proptest! {
        #[test]
        fn pieces_and_definition_agree(bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 0..600_usize) {
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            let mut crc = Crc32c::new();
            crc.update(a);
            crc.update(b);
            prop_assert_eq!(crc.value(), slow(&bytes));
            prop_assert_eq!(crc32c(&bytes), slow(&bytes));
            let (mut apart, mut rest) = (Crc32c::new(), Crc32c::new());
            apart.update(a);
            rest.update(b);
            apart.append(&rest);
            prop_assert_eq!((apart.value(), apart.bytes()), (slow(&bytes), bytes.len() as u64));
            apart.update(a);
            prop_assert_eq!(apart.value(), slow(&[&bytes, a].concat()));
        }

        #[test]
        fn zeros_behind(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0..64_usize) {
            let whole = [&bytes[..], &vec![0; count]].concat();
            prop_assert_eq!(followed_by_zeros(crc32c(&bytes), count), slow(&whole));
        }
    }
}
