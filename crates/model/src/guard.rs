//! The guards of correct writers. The model's writers (never the product) can be built without one
//! of them; each must then lead to a broken property, or the model would see nothing.

use clap::ValueEnum;

use crate::property::Property;

/// A rule that a correct writer keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Guard {
    /// Judge the candidate again after a lost version.
    Rejudge,
    /// Read the object at v after a 412.
    ReadExists,
    /// Stay at the version while the outcome there is unknown.
    StayAtVersion,
    /// Send the same bytes again after an unknown outcome.
    SameBytes,
    /// Fold the winner's record, not only read it.
    FoldWinner,
    /// Commit all TGBs of an object or none.
    WholeObjects,
    /// Judge others' intents before taking them along.
    JudgeIntents,
    /// Start from the cursor and sequence at one's own `opened` record.
    StartAtRecord,
    /// Know one's own opening by its nonce.
    OwnNonce,
    /// Stop when a newer epoch was folded.
    HeedFence,
    /// Stop when a seal was folded.
    HeedSeal,
    /// Delete by one fold.
    OneFold,
    /// Publish the watermark, then delete.
    PublishFirst,
    /// Delete what no record names only when its epoch is over or its sequence passed.
    SpareUncommitted,
    /// Keep TGBs that wait for their turn.
    SpareWaiting,
    /// Restart points of earlier attempts count too.
    EarlierAttempts,
    /// Marks above the start of a later attempt don't count.
    DropAbandoned,
    /// Read marks again after a lost version.
    RereadMarks,
}

impl Guard {
    /// All of them.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The smallest configuration in which its lack shows, and the property that breaks first.
    pub fn shows(self) -> (&'static str, Property) {
        match self {
            Self::ReadExists | Self::StayAtVersion => ("commit", Property::ReadBeforePut),
            Self::SameBytes => ("commit", Property::SameBytes),
            Self::Rejudge | Self::FoldWinner | Self::HeedFence => ("fence", Property::NoVoid),
            Self::WholeObjects => ("shared", Property::NoVoid),
            Self::JudgeIntents => ("combine", Property::NoVoid),
            Self::StartAtRecord | Self::OwnNonce => ("fence", Property::NoSurprise),
            Self::HeedSeal => ("seal", Property::NoVoid),
            Self::OneFold | Self::PublishFirst => ("reclaim", Property::LiveData),
            Self::SpareUncommitted => ("reclaim", Property::FutureData),
            Self::SpareWaiting => ("lanes", Property::LiveData),
            Self::EarlierAttempts | Self::DropAbandoned | Self::RereadMarks => {
                ("marks", Property::Watermark)
            }
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
