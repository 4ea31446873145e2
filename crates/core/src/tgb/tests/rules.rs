//! Every rule of docs/format.md about objects, broken alone: checksums are made right again, so
//! that only the named rule can refuse the bytes.

use super::*;
use crate::crc::Crc32c;

/// Puts right the header checksum of a frame.
fn seal_header(frame: &mut [u8]) {
    let crc = crc32c(&frame[..60]);
    frame[60..64].copy_from_slice(&crc.to_le_bytes());
}

/// Puts right the checksum of the index entry at `at`.
fn seal_entry(bytes: &mut [u8], at: usize) {
    let crc = crc32c(&bytes[at..at + 36]);
    bytes[at + 36..at + 40].copy_from_slice(&crc.to_le_bytes());
}

/// Puts right the trailer's checksum.
fn seal_trailer(bytes: &mut [u8]) {
    let at = bytes.len() - 64;
    let crc = crc32c(&bytes[at..at + 56]);
    bytes[at + 56..at + 60].copy_from_slice(&crc.to_le_bytes());
}

type Break = fn(&mut Vec<u8>);

fn refused<T: std::fmt::Debug>(case: usize, result: Result<T, TgbError>, fault: &str) {
    let error = result.unwrap_err();
    assert!(
        format!("{:?}", error.fault).starts_with(fault),
        "case {case}: not {fault}: {error:?}"
    );
    assert!(error.to_string().starts_with('k'), "{error}");
}

#[test]
fn frames() {
    let object = object(&equal());
    let good = &object.bytes[..object.runs[0].part.frame_bytes.unwrap() as usize];
    assert!(verify(good, &expect()).is_ok());
    let cases: Vec<(Break, &str)> = vec![
        (|f| f.truncate(63), r#"Truncated { what: "a frame header""#),
        (|f| f[0] = b'X', "Magic"),
        (
            |f| f[3] = 2,
            r#"Version { what: "a frame header", found: 2"#,
        ),
        (|f| f[50] ^= 1, r#"Crc { what: "a frame header""#),
        (|f| f[60] ^= 1, r#"Crc { what: "a frame header""#),
        (|f| f[8] ^= 1, "Crc"),
        (|f| flip(f, 8), "Stream"),
        (|f| flip(f, 24), "Producer"),
        (|f| flip(f, 32), "Epoch { expected: 2, found: 3 }"),
        (
            |f| flip(f, 40),
            r#"Seq { what: "the frame", expected: 7, found: 6 }"#,
        ),
        (
            |f| flip(f, 4),
            r#"Slice { what: "the frame", expected: 0, found: 1 }"#,
        ),
        (|f| flip(f, 49), r#"Length { what: "the frame""#),
        (
            |f| f.truncate(f.len() - 64),
            r#"Length { what: "the frame""#,
        ),
        (
            |f| f.resize(f.len() + 64, 0),
            r#"Length { what: "the frame""#,
        ),
        (|f| flip(f, 56), "PayloadCrc"),
        (|f| f[64] ^= 1, "PayloadCrc"),
        (|f| *f.last_mut().unwrap() = 1, "NotZero"),
    ];
    for (case, (break_it, fault)) in cases.into_iter().enumerate() {
        let mut frame = good.to_vec();
        break_it(&mut frame);
        refused(case, verify(&frame, &expect()), fault);
        let summed = summed(&frame);
        refused(case, verify_summed(&frame, &summed, &expect()), fault);
    }
}

/// The checksum of what follows a frame's header, as a reader makes it of two pieces.
fn summed(frame: &[u8]) -> Crc32c {
    let body = frame.get(64..).unwrap_or_default();
    let (a, b) = body.split_at(body.len() / 3);
    let (mut sum, mut rest) = (Crc32c::new(), Crc32c::new());
    sum.update(a);
    rest.update(b);
    sum.append(&rest);
    sum
}

#[test]
fn a_frame_that_was_summed_as_it_came_is_not_read_again() {
    let object = object(&equal());
    let good = &object.bytes[..object.runs[0].part.frame_bytes.unwrap() as usize];
    let sum = summed(good);
    assert_eq!(
        verify_summed(good, &sum, &expect()),
        verify(good, &expect())
    );
    let mut later = good.to_vec();
    later[70] ^= 1;
    assert!(verify_summed(&later, &sum, &expect()).is_ok());
    // A wrong sum, or one of too few bytes, decides nothing: the payload does.
    for doubtful in [summed(&later), summed(&good[..good.len() - 64])] {
        assert!(verify_summed(good, &doubtful, &expect()).is_ok());
        refused(0, verify_summed(&later, &doubtful, &expect()), "PayloadCrc");
    }
}

fn flip(frame: &mut [u8], at: usize) {
    frame[at] ^= 1;
    seal_header(frame);
}

/// Changes the second index entry of an object.
fn entry(bytes: &mut [u8], at: usize, mask: u8) {
    let start = Trailer::decode(bytes).unwrap().index_offset as usize + 40;
    bytes[start + at] ^= mask;
    seal_entry(bytes, start);
}

fn trailer(bytes: &mut [u8], at: usize, mask: u8) {
    let start = bytes.len() - 64;
    bytes[start + at] ^= mask;
    seal_trailer(bytes);
}

#[test]
fn index_and_trailer() {
    let good = object(&equal()).bytes;
    assert!(check_object(&good, "k").is_ok());
    let cases: Vec<(Break, &str)> = vec![
        (|b| b.truncate(63), r#"Truncated { what: "a trailer""#),
        (
            |b| *b = b[b.len() - 64..].to_vec(),
            r#"Length { what: "the object""#,
        ),
        (|b| drop(b.drain(..1)), r#"Length { what: "the object""#),
        (|b| b.push(0), r#"Magic { what: "a trailer""#),
        (|b| trailer(b, 60, 1), r#"Magic { what: "a trailer""#),
        (
            |b| trailer(b, 63, 2),
            r#"Version { what: "a trailer", found: 3"#,
        ),
        (|b| trailer(b, 0, 1), "Stream"),
        (|b| trailer(b, 16, 1), "Producer"),
        (|b| trailer(b, 24, 1), "Epoch"),
        (
            |b| trailer(b, 32, 1),
            r#"Seq { what: "an index entry", expected: 6, found: 7 }"#,
        ),
        (|b| trailer(b, 41, 1), r#"Length { what: "the object""#),
        (|b| trailer(b, 48, 1), "Counts"),
        (|b| trailer(b, 52, 1), r#"Length { what: "the object""#),
        // Says TGB 8, which begins at slice 0; then TGB 5, which can't follow 7.
        (
            |b| entry(b, 0, 0x0f),
            r#"Slice { what: "an index entry", expected: 0, found: 1 }"#,
        ),
        (
            |b| entry(b, 0, 0x02),
            r#"Seq { what: "an index entry", expected: 8, found: 5 }"#,
        ),
        (|b| entry(b, 8, 0x40), "Offset"),
        (|b| entry(b, 16, 0x80), "Offset"),
        (|b| entry(b, 23, 0x80), "Offset"),
        (
            |b| entry(b, 24, 2),
            r#"Slice { what: "an index entry", expected: 1, found: 3 }"#,
        ),
        (|b| entry(b, 16, 1), "Disagree"),
        (|b| entry(b, 28, 1), "Disagree"),
        (|b| entry(b, 32, 1), "NotZero"),
    ];
    for (case, (break_it, fault)) in cases.into_iter().enumerate() {
        let mut bytes = good.to_vec();
        break_it(&mut bytes);
        refused(case, check_object(&bytes, "k"), fault);
    }
}

#[test]
fn checksums_of_index_and_trailer() {
    let good = object(&equal()).bytes;
    let index = Trailer::decode(&good).unwrap().index_offset as usize;
    for (at, what) in [
        (index, "an index entry"),
        (index + 36, "an index entry"),
        (good.len() - 64, "a trailer"),
    ] {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        refused(
            at,
            check_object(&bytes, "k"),
            &format!("Crc {{ what: {what:?}"),
        );
    }
}

#[test]
fn an_object_without_frames_is_none() {
    let trailer = Trailer {
        identity: identity(),
        first_seq: 0,
        tgbs: 0,
        frames: 0,
        index_offset: 0,
    };
    refused(0, check_object(&trailer.encode(), "k"), "Counts");
    // Frames that the index does not reach.
    let good = object(&equal()).bytes;
    let mut t = Trailer::decode(&good).unwrap();
    let frames = &good[..t.index_offset as usize];
    let index = &good[frames.len()..good.len() - 64];
    t.index_offset += 64;
    let bytes = [frames, &[0; 64], index, &t.encode()].concat();
    refused(1, check_object(&bytes, "k"), "Counts");
}

#[test]
fn messages_name_place_reason_and_remedy() {
    let object = object(&equal());
    let frame = &object.bytes[..object.runs[0].part.frame_bytes.unwrap() as usize];
    let text = |frame: &[u8], expect: Expect<'_>| verify(frame, &expect).unwrap_err().to_string();
    assert_eq!(
        text(
            frame,
            Expect {
                slice: 1,
                ..expect()
            }
        ),
        "k (step 4, seq 7, slice 1): the frame is of slice 0, not 1; \
         read it again; if that gives the same, restore the object or quarantine the step"
    );
    let mut newer = frame.to_vec();
    newer[3] = 9;
    assert!(text(&newer, expect()).ends_with("this build reads version 1; upgrade BatchWeave"));
    let error = check_object(&object.bytes[1..], "k")
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("k: the object is "), "{error}");
}
