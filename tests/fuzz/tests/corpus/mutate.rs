//! Mutations without a fuzzer: bytes, numbers, pieces of one input in another.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt};

/// Numbers at which arithmetic overflows.
const NUMBERS: [&str; 10] = [
    "0",
    "1",
    "-1",
    "4294967295",
    "4294967296",
    "9007199254740991",
    "9007199254740992",
    "18446744073709551614",
    "18446744073709551615",
    "1e400",
];
/// The same numbers as bytes of fixed fields.
const FIELDS: [u64; 6] = [0, 1, u32::MAX as u64, 1 << 53, u64::MAX - 1, u64::MAX];

/// An input and its mutation.
pub(crate) fn one(kept: &[(String, Vec<u8>)], random: &mut SmallRng) -> (String, Vec<u8>) {
    let (name, input) = &kept[random.random_range(0..kept.len())];
    let (_, other) = &kept[random.random_range(0..kept.len())];
    let mut input = input.clone();
    for _ in 0..random.random_range(1..4) {
        change(&mut input, other, random);
    }
    (name.clone(), input)
}

fn change(input: &mut Vec<u8>, other: &[u8], random: &mut SmallRng) {
    let at = random.random_range(0..=input.len());
    let some = random.random_range(1..16);
    let end = input.len().min(at + some);
    match random.random_range(0..8) {
        0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
        1 if at < input.len() => input[at] = random.next_u32() as u8,
        2 => drop(input.drain(at..end)),
        3 => {
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece);
        }
        4 if !other.is_empty() => {
            let from = random.random_range(0..other.len());
            let piece = other[from..other.len().min(from + some * 4)].to_vec();
            input.splice(at..end, piece);
        }
        5 => number(input, at, random),
        6 => {
            let field = FIELDS[random.random_range(0..FIELDS.len())].to_le_bytes();
            let at = at - at % 4;
            let width = if random.random() { 4 } else { 8 };
            if let Some(place) = input.get_mut(at..at + width) {
                place.copy_from_slice(&field[..width]);
            }
        }
        _ => input.truncate(at),
    }
}

/// Replaces the number that begins at or after `at`.
fn number(input: &mut Vec<u8>, at: usize, random: &mut SmallRng) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = input[at..].iter().position(digit).map(|n| at + n) else {
        return;
    };
    let length = input[start..].iter().take_while(|byte| digit(byte)).count();
    let number = NUMBERS[random.random_range(0..NUMBERS.len())];
    input.splice(start..start + length, number.bytes());
}
