//! A held-out part of the input: a document belongs to one side by the name of its file, as the input list has it, and its
//! place alone, so that streams of both sides, made by different producers at different times, share no document.

use super::keyed::{Key, Purpose, mix};

/// Decides which documents of the input are held out: one of every `every`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    every: u64,
}

/// Decides which documents of one file are held out.
#[derive(Debug, Clone, Copy)]
pub struct FileSplit {
    key: Key,
    every: u64,
}

impl Split {
    /// Returns the split that holds one of `every` documents out; `None` below 2, which would leave nothing.
    pub fn new(every: u64) -> Option<Self> {
        (every >= 2).then_some(Self { every })
    }

    /// Returns the split of the file `name`, as the input list has it.
    pub fn file(self, name: &str) -> FileSplit {
        FileSplit {
            key: Key::new(Purpose::Split, name, &[]),
            every: self.every,
        }
    }
}

impl FileSplit {
    /// Returns whether the document at `place` is held out: the byte at which a line begins, or the number of a row.
    pub fn holds_out(self, place: u64) -> bool {
        let [a, b, ..] = self.key.0;
        mix(a ^ mix(b.wrapping_add(place))).is_multiple_of(self.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_every_hundred_is_held_out_in_each_file() {
        let split = Split::new(100).unwrap();
        for name in ["a.jsonl", "s3://corpus/b.parquet"] {
            let file = split.file(name);
            let held = (0..100_000).filter(|&place| file.holds_out(place)).count();
            // Expected 1,000, standard deviation 31.
            assert!((870..1130).contains(&held), "{held} of {name}");
        }
        let places = |name: &str| -> Vec<u64> {
            let file = split.file(name);
            (0..1000).filter(|&place| file.holds_out(place)).collect()
        };
        assert_ne!(places("a.jsonl"), places("b.jsonl"));
        assert_eq!(
            places("a.jsonl"),
            [
                162, 188, 189, 209, 306, 376, 478, 711, 732, 803, 821, 884, 965
            ]
        );
        assert_eq!(Split::new(1), None);
    }
}
