//! Codec, refusals, and where pieces lie.

use proptest::prelude::*;

use super::*;

fn piece(unit: u64, skip: u64, items: u64, new_row: bool) -> Piece {
    Piece {
        pass: 0,
        file: 3,
        unit,
        skip,
        items,
        new_row,
    }
}

fn any_piece() -> impl Strategy<Value = Piece> {
    let small = prop_oneof![0..9_u64, any::<u64>()];
    (
        0..3_u64,
        0..3_u32,
        small,
        0..NUMBER_MAX - 5,
        0..5_u64,
        any::<bool>(),
    )
        .prop_map(|(pass, file, unit, skip, items, new_row)| Piece {
            pass,
            file,
            unit,
            skip: if skip % 3 == 0 { skip } else { 0 },
            items,
            new_row,
        })
}

fn any_provenance() -> impl Strategy<Value = Provenance> {
    let form = prop_oneof![Just(Form::Sequence), Just(Form::Rows)];
    let sources = (form, prop::collection::vec(any_piece(), 0..20))
        .prop_map(|(form, pieces)| Sources { form, pieces });
    (
        any::<[u8; 32]>(),
        any::<u64>(),
        prop::collection::vec(sources, 0..5),
    )
        .prop_map(|(inputs, first_seq, tgbs)| Provenance {
            inputs: Hash(inputs),
            first_seq,
            tgbs,
        })
}

/// The last token of a sequence's batch is the first of the next one.
#[test]
fn shared_tokens_count_once() {
    let of = |form, pieces| Sources { form, pieces };
    let counted = |sources: &Sources| -> Vec<(u64, u64)> {
        let pieces = sources.counted(8);
        pieces.map(|piece| (piece.unit, piece.items)).collect()
    };
    let pieces = vec![
        piece(0, 0, 6, false),
        piece(1, 0, 2, false),
        piece(2, 0, 1, false),
    ];
    assert_eq!(
        counted(&of(Form::Sequence, pieces.clone())),
        [(0, 6), (1, 2)]
    );
    assert_eq!(counted(&of(Form::Rows, pieces)), [(0, 6), (1, 2), (2, 1)]);
    let padded = vec![piece(0, 0, 6, false)];
    assert_eq!(counted(&of(Form::Sequence, padded)), [(0, 6)]);
}

/// Such sums would lie beyond every TGB, and adding to them would overflow.
#[test]
fn counts_that_can_not_be_are_malformed() {
    let most = NUMBER_MAX - 1;
    let one = |pieces: Vec<Piece>| {
        let form = Form::Rows;
        let provenance = Provenance {
            inputs: Hash([0; 32]),
            first_seq: 7,
            tgbs: vec![Sources { form, pieces }],
        };
        Provenance::decode(&provenance.encode())
    };
    assert!(one(vec![piece(0, 0, most, false)]).is_ok());
    assert!(one(vec![piece(0, most, 0, false)]).is_ok());
    for pieces in [
        vec![piece(0, 0, NUMBER_MAX, false)],
        vec![piece(0, 1, most, false)],
        vec![piece(0, 0, most, false), piece(1, 0, 1, false)],
        vec![piece(0, u64::MAX, 1, false)],
    ] {
        let refused = Err(ProvenanceError::Malformed { seq: 7 });
        assert_eq!(one(pieces), refused);
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(provenance in any_provenance()) {
        let bytes = provenance.encode();
        prop_assert_eq!(Provenance::decode(&bytes), Ok(provenance));
    }

    #[test]
    fn no_damage_goes_unseen(provenance in any_provenance(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = provenance.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Provenance::decode(&bytes).is_err());
        prop_assert!(Provenance::decode(&bytes[..at]).is_err());
    }

    #[test]
    fn a_sequence_is_cut_as_rows_are(lengths in prop::collection::vec(0..9_u64, 1..12), stride in 1..6_u64, rows in 1..9_u64) {
        let pieces: Vec<Piece> = (0..).zip(&lengths).map(|(n, &items)| piece(n, 0, items, false)).collect();
        let tokens: Vec<(u64, u64)> = pieces.iter().flat_map(|p| (0..p.items).map(|n| (p.unit, n))).collect();
        let sources = Sources { form: Form::Sequence, pieces };
        let mut found = Vec::new();
        for (row, at, part) in sources.placed(stride, rows) {
            found.extend((0..part.items).map(|n| (row, at + n, (part.unit, part.skip + n))));
        }
        let mut expected = Vec::new();
        for row in 0..rows {
            for at in 0..=stride {
                if let Some(token) = tokens.get((row * stride + at) as usize) {
                    expected.push((row, at, *token));
                }
            }
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn documents_in_a_row_cost_two_or_three_bytes() {
    let pieces: Vec<Piece> = (0..1000)
        .map(|n| piece(4 * n, 0, 100 + n % 300, n % 2 == 0))
        .collect();
    let sources = Sources {
        form: Form::Rows,
        pieces,
    };
    let bytes = sources.encode().len();
    assert!(bytes < 3 * 1000 + 8, "{bytes}");
}

#[test]
fn rows_hold_their_pieces_side_by_side() {
    let pieces = vec![
        piece(0, 0, 5, true),
        piece(7, 0, 3, false),
        piece(1, 4, 8, true),
    ];
    let sources = Sources {
        form: Form::Rows,
        pieces: pieces.clone(),
    };
    let expected = [(0, 0, pieces[0]), (0, 5, pieces[1]), (1, 0, pieces[2])];
    assert_eq!(sources.placed(8, 2), expected);
}

#[test]
fn each_rule_has_its_error() {
    let sources = Sources {
        form: Form::Rows,
        pieces: vec![piece(0, 0, 5, true)],
    };
    let provenance = Provenance {
        inputs: Hash([7; 32]),
        first_seq: 40,
        tgbs: vec![sources],
    };
    assert_eq!(provenance.get(40), provenance.tgbs.first());
    assert_eq!((provenance.get(39), provenance.get(41)), (None, None));
    let good = provenance.encode();
    let broken = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        edit(&mut bytes);
        Provenance::decode(&bytes).unwrap_err()
    };
    // A block under its right checksum.
    let block = |block: &[u8]| {
        let mut bytes = good[..HEADER_BYTES].to_vec();
        bytes.extend_from_slice(&(block.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c(block).to_le_bytes());
        bytes.extend_from_slice(block);
        Provenance::decode(&bytes).unwrap_err()
    };
    assert_eq!(broken(&|b| b.truncate(20)), ProvenanceError::Truncated);
    assert_eq!(
        broken(&|b| b.truncate(b.len() - 1)),
        ProvenanceError::Truncated
    );
    assert_eq!(broken(&|b| b[0] = b'X'), ProvenanceError::Magic);
    assert_eq!(broken(&|b| b[3] = 2), ProvenanceError::Version(2));
    assert_eq!(broken(&|b| b[9] ^= 1), ProvenanceError::HeaderCrc);
    assert_eq!(broken(&|b| b.push(0)), ProvenanceError::Trailing);
    let last = good.len() - 1;
    assert_eq!(
        broken(&|b| b[last] ^= 1),
        ProvenanceError::BlockCrc { seq: 40 }
    );
    let malformed = ProvenanceError::Malformed { seq: 40 };
    // No form, an unknown form, a step from nowhere, a number cut short, one with idle bytes.
    for bytes in [
        &[][..],
        &[9],
        &[1, 0, 5],
        &[1, 2, 0, 0, 0],
        &[1, 2, 0, 0, 0x80, 0, 5],
    ] {
        assert_eq!(block(bytes), malformed, "{bytes:?}");
    }
}
