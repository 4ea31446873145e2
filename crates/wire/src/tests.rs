//! One rejection for each rule of docs/socket.md, and golden bytes.

use super::*;

mod golden;
mod properties;

/// Returns a message with a correct header for any body.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(PROTOCOL.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(((HEADER_BYTES + body.len()) as u32).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// Returns the refusal of a good message with some bytes replaced.
fn broken(good: &DaemonMessage, at: usize, with: &[u8]) -> String {
    let mut bytes = good.encode().unwrap();
    bytes[at..at + with.len()].copy_from_slice(with);
    DaemonMessage::decode(&bytes).unwrap_err().to_string()
}

#[test]
fn each_rule_of_the_header_has_its_error() {
    let good = DaemonMessage::Marked(7);
    assert!(broken(&good, 0, b"GET ").contains("not a BatchWeave message"));
    assert!(broken(&good, 4, &[2, 0]).contains("speaks socket protocol 2"));
    assert!(broken(&good, 6, &[1, 0]).contains("message type 1 is not one that a client"));
    assert!(broken(&good, 8, &[25]).contains("message of 24 bytes, but its header states 25"));
    assert!(broken(&good, 12, &[1]).contains("reserved"));
}

#[test]
fn each_rule_of_a_batch_has_its_error() {
    let slice = SliceRef {
        slice: 1,
        segment: 2,
        layout: 3,
        frame: 4,
        offset: 128,
        length: 64,
    };
    let good = DaemonMessage::Batch(BatchMessage {
        step: 9,
        first: 1,
        of: 2,
        slices: vec![slice],
    });
    let slice_at = HEADER_BYTES + batch::BATCH_HEAD_BYTES;
    for (at, with, says) in [
        (
            HEADER_BYTES + 8,
            &2_u32.to_le_bytes()[..],
            "slices 2 and 1 more of 2",
        ),
        (HEADER_BYTES + 16, &0_u32.to_le_bytes(), "40 bytes follow"),
        (HEADER_BYTES + 16, &2_u32.to_le_bytes(), "missing"),
        (
            HEADER_BYTES + 16,
            &2000_u32.to_le_bytes(),
            "2000 slices, at most 1024",
        ),
        (HEADER_BYTES + 20, &[1], "reserved"),
        (slice_at + 8, &64_u32.to_le_bytes(), "layout 64"),
        (slice_at + 12, &[1], "reserved"),
        (slice_at + 24, &[1], "at offset"),
        (
            slice_at + 32,
            &u64::MAX.to_le_bytes(),
            "of 18446744073709551615 bytes",
        ),
    ] {
        let error = broken(&good, at, with);
        assert!(error.contains(says), "{error}");
    }
    let none = DaemonMessage::Batch(BatchMessage {
        step: 0,
        first: 0,
        of: 1,
        slices: Vec::new(),
    });
    assert!(none.encode().unwrap_err().to_string().contains("0 slices"));
}

#[test]
fn a_large_step_goes_in_parts() {
    let slice = |i| SliceRef {
        slice: i,
        segment: 0,
        layout: 0,
        frame: i.into(),
        offset: 0,
        length: 0,
    };
    let slices: Vec<_> = (0..2500).map(slice).collect();
    let parts: Vec<BatchMessage> = BatchMessage::split(5, &slices).collect();
    assert_eq!(
        parts.iter().map(|p| (p.first, p.of)).collect::<Vec<_>>(),
        [(0, 2500), (1024, 2500), (2048, 2500)]
    );
    assert_eq!(
        parts
            .iter()
            .flat_map(|p| p.slices.clone())
            .collect::<Vec<_>>(),
        slices
    );
    for part in parts {
        assert!(DaemonMessage::Batch(part).encode().unwrap().len() <= MESSAGE_BYTES_MAX);
    }
}

#[test]
fn each_rule_of_a_layout_has_its_error() {
    let array = |name: &str, offset, shape: &[u64]| ArrayLayout {
        name: name.into(),
        dtype: Dtype::I64,
        shape: shape.to_vec(),
        offset,
    };
    let check = |arrays| {
        Layout { length: 64, arrays }
            .check()
            .map_err(|e| e.to_string())
    };
    check(vec![array("a", 0, &[8]), array("b", 64, &[0])]).unwrap();
    for (arrays, says) in [
        (vec![array("a", 8, &[8])], "outside the frame's 64 bytes"),
        (vec![array("a", 0, &[u64::MAX, 2])], "outside"),
        (vec![array("a", u64::MAX - 7, &[1])], "outside"),
        (vec![array("a", 4, &[1])], "not aligned"),
        (vec![array("a", 0, &[1]), array("a", 8, &[1])], "twice"),
    ] {
        let error = check(arrays).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let json = br#"{"length":0,"arrays":[],"extra":1}"#;
    let body = [&[0; 8][..], json].concat();
    assert!(
        DaemonMessage::decode(&message(66, &body))
            .unwrap_err()
            .to_string()
            .contains("unknown field")
    );
}

#[test]
fn hello_contradictions_are_named() {
    let good = Hello {
        dp_rank: 3,
        dp_size: 4,
        ..Hello::new("test", 0)
    };
    good.check().unwrap();
    for (bad, says) in [
        (
            Hello {
                dp_rank: 4,
                ..good.clone()
            },
            "dp_rank 4 must be below dp_size 4",
        ),
        (
            Hello {
                dp_size: 0,
                ..good.clone()
            },
            "below dp_size 0",
        ),
        (
            Hello {
                credits: 1,
                ..good.clone()
            },
            "credits is 1; 2 to 1024",
        ),
        (
            Hello {
                credits: 9999,
                ..good.clone()
            },
            "credits is 9999",
        ),
        (
            Hello {
                next_step: u64::MAX,
                ..good.clone()
            },
            "is not a step",
        ),
        (
            Hello {
                next_step: 1,
                begin: Begin::Unstated,
                ..good.clone()
            },
            "begin is given beside a position",
        ),
        (
            Hello {
                mode: Mode::Resume,
                begin: Begin::Latest,
                ..good.clone()
            },
            "begin is given beside a position",
        ),
        (
            Hello {
                attempt: Some("xyz".into()),
                ..good.clone()
            },
            "32 hexadecimal digits",
        ),
        (
            Hello {
                parent: Some(Parent {
                    attempt: 0,
                    id: "AB".repeat(16),
                    step: 1,
                }),
                ..good.clone()
            },
            "32 hexadecimal digits",
        ),
    ] {
        let error = bad.check().unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_refused_mark_names_its_step() {
    let none = DaemonMessage::MarkRefused(Fault::new(ErrorName::MarkInFuture, "x"));
    assert!(none.encode().unwrap_err().to_string().contains("no step"));
    let body = serde_json::to_vec(&Fault::new(ErrorName::MarkInFuture, "x")).unwrap();
    let error = DaemonMessage::decode(&message(73, &body)).unwrap_err();
    assert!(error.to_string().contains("no step"), "{error}");
}

/// Numbers and names are part of the protocol, as docs/socket.md and the Python client list them.
#[test]
fn the_page_lists_every_error_and_cause() {
    let page = include_str!("../../../docs/socket.md");
    for error in ErrorName::ALL {
        assert!(
            page.contains(&format!("| {} | `{error}` |", error.code())),
            "{error}"
        );
        assert_eq!(ErrorName::from_code(error.code()), Some(*error));
        assert!(!error.remedy().is_empty());
    }
    for cause in WaitCause::ALL {
        assert!(
            page.contains(&format!("| {} | `{cause}` |", cause.number())),
            "{cause}"
        );
    }
}

/// The bytes of protocol 1, so that every change is detected.
#[test]
fn golden_bytes() {
    let release = ClientMessage::Release(Release {
        next_step: 2,
        frames: vec![0x0102],
    });
    let golden = "42 57 53 4b 01 00 02 00 28 00 00 00 00 00 00 00 \
                  02 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 02 01 00 00 00 00 00 00";
    assert_eq!(hex(&release.encode().unwrap()), golden);
    let slice = SliceRef {
        slice: 1,
        segment: 2,
        layout: 3,
        frame: 4,
        offset: 64,
        length: 5,
    };
    let batch = DaemonMessage::Batch(BatchMessage {
        step: 6,
        first: 0,
        of: 1,
        slices: vec![slice],
    });
    let golden = "42 57 53 4b 01 00 43 00 50 00 00 00 00 00 00 00 \
                  06 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 01 00 00 00 00 00 00 00 \
                  01 00 00 00 02 00 00 00 03 00 00 00 00 00 00 00 \
                  04 00 00 00 00 00 00 00 40 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00";
    assert_eq!(hex(&batch.encode().unwrap()), golden);
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}
