//! Every message survives a round trip, other lengths are refused, and no bytes make a decoder panic.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::*;
use super::message;

fn optional<T: std::fmt::Debug>(s: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(s)
}

fn known() -> impl Strategy<Value = Option<u64>> {
    optional(0..u64::MAX)
}

fn hello() -> impl Strategy<Value = ClientMessage> {
    let who = (
        ".{0,20}",
        optional("[a-z]{1,9}"),
        optional("[0-9a-f]{32}"),
        optional(("[0-9a-f]{32}", any::<(u64, u64)>())),
        any::<(u32, u32)>(),
    );
    let place = (
        any::<bool>(),
        any::<u64>(),
        optional("[0-9a-f-]{36}"),
        any::<u32>(),
        optional(any::<u32>()),
    );
    let replaces = optional(("[0-9a-f]{32}", any::<u64>()));
    (who, place, replaces).prop_map(
        |((client, job, attempt, parent, (dp_rank, dp_size)), place, replaces)| {
            let (join, next_step, stream, credits, slices) = place;
            ClientMessage::Hello(Hello {
                job,
                attempt,
                parent: parent.map(|(id, (attempt, step))| Parent { attempt, id, step }),
                dp_rank,
                dp_size,
                global_rank: slices,
                shared: slices.is_some() && dp_rank % 2 == 1,
                yields: dp_rank % 3 == 1,
                begin: [Begin::Stated, Begin::Unstated, Begin::Latest][dp_size as usize % 3],
                mode: if join { Mode::Join } else { Mode::Resume },
                stream,
                credits,
                slices,
                replaces: replaces.map(|(instance, session)| Replaces { instance, session }),
                ..Hello::new(client, next_step)
            })
        },
    )
}

fn client_message() -> impl Strategy<Value = ClientMessage> {
    let release = (
        any::<u64>(),
        proptest::collection::vec(any::<u64>(), 0..=FRAMES_MAX),
    );
    prop_oneof![
        hello(),
        release
            .prop_map(|(next_step, frames)| ClientMessage::Release(Release { next_step, frames })),
        (any::<u64>(), ".{0,200}")
            .prop_map(|(step, state)| ClientMessage::Checkpoint(Checkpoint { step, state })),
        any::<(u64, u64, bool)>().prop_map(|(next_step, waited_us, waiting)| {
            ClientMessage::Progress(Progress {
                next_step,
                waited_us,
                waiting,
            })
        }),
        report(),
        Just(ClientMessage::Bye),
        Just(ClientMessage::Describe),
    ]
}

fn report() -> impl Strategy<Value = ClientMessage> {
    let states = (0..1_u64 << 50, 1..1_u64 << 50, optional("[ -~é]{1,32}"));
    let states = states.prop_map(|(from, long, left_out)| StepStates {
        from,
        to: from + long,
        left_out,
    });
    (
        any::<u64>(),
        proptest::collection::vec(states, 1..=STATES_MAX),
        proptest::collection::vec(values(), 0..8),
    )
        .prop_map(|(next_step, states, mut values)| {
            // Of trained steps, each once.
            let trained = states.iter().filter(|one| one.left_out.is_none());
            let steps: BTreeSet<u64> = trained.map(|one| one.from).collect();
            values.truncate(steps.len());
            for (one, step) in values.iter_mut().zip(steps) {
                one.step = step;
            }
            ClientMessage::Report(Report {
                next_step,
                states,
                values,
            })
        })
}

fn values() -> impl Strategy<Value = StepValues> {
    let loss = || (-1e9_f32..1e9, 0_f32..1e9);
    let sources = proptest::collection::btree_map(any::<u16>(), loss(), 0..16);
    let details = proptest::collection::vec(loss(), 0..32);
    let dropped = any::<(bool, bool, bool)>();
    (
        sources,
        details,
        dropped,
        any::<u32>(),
        -1e300..1e300_f64,
        0.0..1e30,
    )
        .prop_map(
            |(
                sources,
                details,
                (part, details_dropped, sources_dropped),
                nonfinite,
                sum,
                weight,
            )| {
                let source = |(source, (sum, weight))| SourceLoss {
                    source,
                    sum,
                    weight,
                };
                let of = [DetailOf::None, DetailOf::Row, DetailOf::Document];
                let of = of[usize::from(!details.is_empty()) * (1 + usize::from(part))];
                StepValues {
                    step: 0,
                    of,
                    part,
                    details_dropped,
                    sources_dropped,
                    nonfinite,
                    sum,
                    weight,
                    sources: sources.into_iter().map(source).collect(),
                    details: details
                        .into_iter()
                        .map(|(mean, weight)| DetailLoss { mean, weight })
                        .collect(),
                }
            },
        )
}

fn slice() -> impl Strategy<Value = SliceRef> {
    (any::<(u32, u32, u64, u32)>(), 0..LAYOUTS_MAX, any::<u32>()).prop_map(
        |((slice, segment, frame, blocks), layout, length)| SliceRef {
            slice,
            segment,
            layout,
            frame,
            offset: u64::from(blocks) * ALIGN,
            length: length.into(),
        },
    )
}

fn batch() -> impl Strategy<Value = DaemonMessage> {
    let slices = proptest::collection::vec(slice(), 1..=FRAMES_MAX);
    (any::<u64>(), 0..1000_u32, 0..1000_u32, slices).prop_map(|(step, first, more, slices)| {
        let of = first + slices.len() as u32 + more;
        DaemonMessage::Batch(BatchMessage {
            step,
            first,
            of,
            slices,
        })
    })
}

fn layout() -> impl Strategy<Value = DaemonMessage> {
    let array = |i: usize, n: u64| ArrayLayout {
        name: format!("a{i}"),
        dtype: Dtype::U32,
        shape: vec![n, 2],
        offset: i as u64 * 4,
    };
    (0..LAYOUTS_MAX, proptest::collection::vec(0..1000_u64, 0..9)).prop_map(move |(id, counts)| {
        let arrays = counts
            .into_iter()
            .enumerate()
            .map(|(i, n)| array(i, n))
            .collect();
        DaemonMessage::Layout(LayoutMessage {
            id,
            layout: Layout {
                length: 10_000,
                arrays,
            },
        })
    })
}

fn welcome() -> impl Strategy<Value = DaemonMessage> {
    let ids = any::<([u8; 16], [u8; 16], [u8; 16])>();
    (
        ids,
        any::<(u64, u64, u32, u32, u32)>(),
        (known(), known()),
        0..1000_u32,
        1..1000_u32,
    )
        .prop_map(
            |(
                (instance, stream, attempt),
                (session, next_step, seq_len, rows_per_slice, credits),
                (end_step, attempt_number),
                a,
                b,
            )| {
                DaemonMessage::Welcome(Welcome {
                    session,
                    instance,
                    stream,
                    attempt,
                    attempt_number,
                    next_step,
                    end_step,
                    slices: a + b,
                    seq_len,
                    rows_per_slice,
                    first_slice: a,
                    slice_count: b,
                    credits,
                })
            },
        )
}

fn daemon_message() -> impl Strategy<Value = DaemonMessage> {
    let fault = (
        0..ErrorName::ALL.len(),
        ".{0,99}",
        optional(any::<u64>()),
        optional(".{0,99}"),
    );
    let waiting = (any::<u64>(), 0..WaitCause::ALL.len(), ".{0,99}");
    prop_oneof![
        welcome(),
        any::<(u32, u64)>()
            .prop_map(|(id, bytes)| DaemonMessage::Segment(SegmentMessage { id, bytes })),
        layout(),
        batch(),
        any::<u64>().prop_map(DaemonMessage::EndOfStream),
        waiting.prop_map(|(step, cause, detail)| {
            DaemonMessage::Waiting(Waiting {
                step,
                cause: WaitCause::ALL[cause],
                detail,
            })
        }),
        fault.prop_map(|(name, message, step, key)| {
            DaemonMessage::Error(Fault {
                step,
                key,
                ..Fault::new(ErrorName::ALL[name], message)
            })
        }),
        any::<u32>().prop_map(DaemonMessage::RetireSegment),
        any::<u64>().prop_map(DaemonMessage::Marked),
        (any::<(u64, u32, u32)>(), ".{0,63}", ".{0,99}").prop_map(|(numbers, name, form)| {
            let (id, rows_per_slice, seq_len) = numbers;
            DaemonMessage::Stage(Stage {
                id,
                name,
                rows_per_slice,
                seq_len,
                form,
            })
        }),
        (any::<u64>(), ".{0,99}").prop_map(|(step, message)| {
            DaemonMessage::MarkRefused(Fault::new(ErrorName::MarkInFuture, message).at_step(step))
        }),
        stream_info(),
        any::<u64>().prop_map(DaemonMessage::Reported),
    ]
}

fn stream_info() -> impl Strategy<Value = DaemonMessage> {
    let texts = (".{0,200}", prop::option::of("[a-z]{1,9}"));
    let rest = (
        any::<(Option<u32>, Option<u64>)>(),
        prop::option::of(".{0,99}"),
    );
    (any::<(u32, u32, u32)>(), texts, rest).prop_map(
        |(shape, (name, builtin), ((vocabulary, file_bytes), missing))| {
            let (slices, seq_len, rows_per_slice) = shape;
            DaemonMessage::StreamInfo(StreamInfo {
                stream: "0d3f9f0e-6a57-4a0c-9a0e-5f2f0c9b6d11".to_owned(),
                slices,
                seq_len,
                rows_per_slice,
                tokenizer: Tokenizer {
                    name,
                    fingerprint: "5c".repeat(32),
                    builtin,
                    vocabulary,
                    file_bytes,
                    missing,
                },
                reports: slices.is_multiple_of(2).then(|| "5c".repeat(16)),
                stages: Vec::new(),
            })
        },
    )
}

proptest! {
    #[test]
    fn client_messages_come_back(message in client_message(), cut in any::<prop::sample::Index>()) {
        let bytes = message.encode().unwrap();
        prop_assert_eq!(ClientMessage::decode(&bytes), Ok(message));
        refuses_other_lengths(&bytes, cut.index(bytes.len()), |b| ClientMessage::decode(b).is_err())?;
        prop_assert!(DaemonMessage::decode(&bytes).is_err(), "the other direction refuses it");
    }

    #[test]
    fn daemon_messages_come_back(message in daemon_message(), cut in any::<prop::sample::Index>()) {
        let bytes = message.encode().unwrap();
        prop_assert_eq!(DaemonMessage::decode(&bytes), Ok(message));
        refuses_other_lengths(&bytes, cut.index(bytes.len()), |b| DaemonMessage::decode(b).is_err())?;
        prop_assert!(ClientMessage::decode(&bytes).is_err(), "the other direction refuses it");
    }

    #[test]
    fn bytes_from_nowhere_never_panic(kind in 0..80_u16, body in proptest::collection::vec(any::<u8>(), 0..600)) {
        let bytes = message(kind, &body);
        let _ = ClientMessage::decode(&bytes);
        let _ = DaemonMessage::decode(&bytes);
        let _ = ClientMessage::decode(&body);
    }

    #[test]
    fn a_flipped_bit_never_panics(message in daemon_message(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = message.encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let _ = DaemonMessage::decode(&bytes);
    }
}

/// Short and long messages are refused, with the packet's true length in the header or the old one.
fn refuses_other_lengths(
    bytes: &[u8],
    cut: usize,
    refuses: impl Fn(&[u8]) -> bool,
) -> Result<(), TestCaseError> {
    prop_assert!(refuses(&bytes[..cut]), "cut at {cut}");
    let kind = u16::from_le_bytes([bytes[6], bytes[7]]);
    if cut >= HEADER_BYTES {
        prop_assert!(
            refuses(&message(kind, &bytes[HEADER_BYTES..cut])),
            "cut at {cut}, with that length"
        );
    }
    let longer = [&bytes[HEADER_BYTES..], b"x"].concat();
    prop_assert!(refuses(&message(kind, &longer)), "one byte too many");
    Ok(())
}
