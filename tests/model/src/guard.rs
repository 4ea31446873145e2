//! The rules that correct writers and the fold keep. The model's writers (never the product) can run
//! without one of them; each removal must break a property, which shows that the model tests the rule.

use clap::ValueEnum;

use crate::property::Property;

/// A rule that correct writers or the fold keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Guard {
    /// Validate the candidate again after a lost version.
    Rejudge,
    /// Read the object at version v after a 412.
    ReadExists,
    /// Stay at the version while the outcome is unknown.
    StayAtVersion,
    /// Send the same bytes again after an unknown outcome.
    SameBytes,
    /// Fold the winner's record instead of only reading it.
    FoldWinner,
    /// Commit all TGBs of an object or none.
    WholeObjects,
    /// Validate other producers' intents before committing them.
    JudgeIntents,
    /// Start from the cursor and sequence number at the own `opened` record.
    StartAtRecord,
    /// Recognise the own opening by its nonce.
    OwnNonce,
    /// Stop opening when an instance that began later has opened.
    HeedNewer,
    /// Stop when a newer epoch was folded.
    HeedFence,
    /// Stop when a seal was folded.
    HeedSeal,
    /// Use one fold for a whole deletion pass.
    OneFold,
    /// Publish the watermark before deleting.
    PublishFirst,
    /// Delete unreferenced data only when its epoch is over or its sequence number passed.
    SpareUncommitted,
    /// Keep TGBs that wait for their lane's turn.
    SpareWaiting,
    /// Count restart points of earlier attempts.
    EarlierAttempts,
    /// Ignore marks above the start of a later attempt.
    DropAbandoned,
    /// Read marks again after a lost version.
    RereadMarks,
    /// Count a mark only when all data coordinates have made it.
    CompleteMarks,
    /// Hold the watermark for a job with fewer restart points than it keeps.
    FewerHold,
    /// Keep the floor at or below the step that every rank has received.
    HeedProgress,
    /// Ignore marks of an earlier incarnation.
    OwnIncarnation,
    /// Compute the watermark from every job that holds data.
    AllJobs,
    /// Limit a person's watermark by the jobs that hold data.
    HeedAsked,
    /// Keep an object while any of its TGBs is needed.
    SpareShared,
    /// The fold rejects a watermark that does not grow.
    FoldGrows,
    /// The fold rejects a watermark whose list of jobs and attempts differs from its own.
    FoldLists,
    /// The fold rejects an attempt that starts below the watermark.
    FoldStarts,
}

impl Guard {
    /// Returns all guards and rules.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Returns the smallest configuration that needs the guard, and the property that breaks first
    /// without it.
    pub fn needed_by(self) -> (&'static str, Property) {
        match self {
            Self::ReadExists | Self::StayAtVersion => ("commit", Property::ReadBeforePut),
            Self::SameBytes => ("commit", Property::SameBytes),
            Self::Rejudge | Self::FoldWinner | Self::HeedFence => ("fence", Property::NoVoid),
            Self::WholeObjects => ("shared", Property::NoVoid),
            Self::JudgeIntents => ("combine", Property::NoVoid),
            Self::StartAtRecord | Self::OwnNonce => ("fence", Property::NoSurprise),
            Self::HeedNewer => ("fence", Property::Newest),
            Self::HeedSeal => ("seal", Property::NoVoid),
            Self::OneFold | Self::PublishFirst => ("reclaim", Property::LiveData),
            Self::SpareUncommitted => ("reclaim", Property::FutureData),
            Self::SpareWaiting => ("lanes", Property::LiveData),
            Self::EarlierAttempts | Self::DropAbandoned | Self::RereadMarks => {
                ("marks", Property::Watermark)
            }
            Self::CompleteMarks => ("mesh", Property::Watermark),
            Self::FewerHold | Self::AllJobs => ("jobs", Property::Watermark),
            Self::HeedProgress => ("slow", Property::Watermark),
            Self::OwnIncarnation | Self::HeedAsked => ("reopen", Property::Watermark),
            Self::SpareShared => ("sharing", Property::LiveData),
            Self::FoldGrows => ("reclaimers", Property::LiveData),
            Self::FoldLists | Self::FoldStarts => ("marks", Property::Watermark),
        }
    }

    /// Returns true for a rule of the fold, which the model can remove.
    pub fn is_of_fold(self) -> bool {
        matches!(self, Self::FoldGrows | Self::FoldLists | Self::FoldStarts)
    }

    /// Returns true for a rule of the watermark computation. Without it the model computes by its
    /// own rules, otherwise by the product's.
    pub fn is_of_floor(self) -> bool {
        matches!(
            self,
            Self::EarlierAttempts
                | Self::DropAbandoned
                | Self::CompleteMarks
                | Self::FewerHold
                | Self::HeedProgress
                | Self::OwnIncarnation
                | Self::AllJobs
        )
    }

    /// Returns true for a rule of deletion. Without it the model deletes by its own rules.
    pub fn is_of_deletion(self) -> bool {
        self.is_of_fold()
            || matches!(
                self,
                Self::OneFold
                    | Self::PublishFirst
                    | Self::SpareUncommitted
                    | Self::SpareWaiting
                    | Self::SpareShared
            )
    }

    /// Returns its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
