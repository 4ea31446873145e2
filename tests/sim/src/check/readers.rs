//! Checks that every reader saw a prefix of the stream, and at the end all of it.

use super::oracle::Log;
use crate::evidence::{Evidence, Violation};
use crate::world::content::digest;

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    for (number, reads) in evidence.reads.iter().enumerate() {
        let mut wrong = |text: String| {
            found.push(Violation::new("prefix", None, format!("r{number} {text}")));
        };
        for (step, (read, tgb)) in reads.iter().zip(&log.steps).enumerate() {
            let same = (&read.producer, read.seq, read.epoch, read.version)
                == (&tgb.producer, tgb.seq, tgb.epoch, tgb.version);
            if !same || read.digest != digest(&tgb.producer, tgb.seq) {
                wrong(format!("saw {}/{} as step {step}", read.producer, read.seq));
                break;
            }
            if read.version >= read.head {
                wrong(format!(
                    "saw step {step} of version {} too early",
                    read.version
                ));
                break;
            }
        }
        if reads.len() != log.steps.len() {
            let (seen, all) = (reads.len(), log.steps.len());
            wrong(format!("saw {seen} of {all} steps"));
        }
    }
}
