//! The specification of random faults: `error=0.01,slow=0.02,put.lost=0.005`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::Fault;
use crate::{Error, Op};

/// The probability of each fault for each kind of request. A value for one kind (`put.lost=0.01`)
/// replaces the general one (`lost=0.001`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FaultSpec {
    chances: BTreeMap<(Option<Op>, Fault), f64>,
}

impl FaultSpec {
    /// Returns true if no request ever fails.
    pub fn is_empty(&self) -> bool {
        self.chances.is_empty()
    }

    pub(crate) fn chance(&self, op: Op, fault: Fault) -> f64 {
        let special = self.chances.get(&(Some(op), fault));
        special
            .or_else(|| self.chances.get(&(None, fault)))
            .copied()
            .unwrap_or(0.0)
    }

    fn check_sums(&self, text: &str) -> Result<(), Error> {
        for op in Op::ALL {
            let sum: f64 = Fault::ALL.iter().map(|&fault| self.chance(op, fault)).sum();
            if sum > 1.0 + 1e-9 {
                let reason =
                    format!("the chances of a {op} request add up to {sum:.3}, more than 1");
                return Err(Error::Faults {
                    item: text.to_owned(),
                    reason,
                });
            }
        }
        Ok(())
    }
}

impl FromStr for FaultSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut spec = Self::default();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            let (what, chance) = parse_item(item).map_err(|reason| Error::Faults {
                item: item.to_owned(),
                reason,
            })?;
            if spec.chances.insert(what, chance).is_some() {
                return Err(Error::Faults {
                    item: item.to_owned(),
                    reason: "given twice".to_owned(),
                });
            }
        }
        spec.check_sums(text)?;
        Ok(spec)
    }
}

fn parse_item(item: &str) -> Result<((Option<Op>, Fault), f64), String> {
    let (name, value) = item
        .split_once('=')
        .ok_or("no `=` between the fault and its chance")?;
    let (op, fault) = match name.split_once('.') {
        None => (None, name),
        Some((op, fault)) => (Some(Op::parse(op).ok_or_else(|| unknown_op(op))?), fault),
    };
    let fault = Fault::ALL
        .into_iter()
        .find(|known| known.name() == fault)
        .ok_or_else(|| unknown_fault(fault))?;
    let chance: f64 = value
        .parse()
        .map_err(|_| format!("`{value}` is not a number"))?;
    if !(0.0..=1.0).contains(&chance) {
        return Err(format!("the chance {value} is not between 0 and 1"));
    }
    Ok(((op, fault), chance))
}

fn unknown_op(name: &str) -> String {
    let known: Vec<_> = Op::ALL.iter().map(|op| op.name()).collect();
    format!(
        "unknown kind of request `{name}`, known are {}",
        known.join(", ")
    )
}

fn unknown_fault(name: &str) -> String {
    let known: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
    format!("unknown fault `{name}`, known are {}", known.join(", "))
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, ((op, fault), chance)) in self.chances.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let prefix = op.map(|op| format!("{op}.")).unwrap_or_default();
            write!(f, "{comma}{prefix}{}={chance}", fault.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_special_chance_replaces_the_general_one() {
        let spec: FaultSpec = "error=0.01, lost=0.5,put.lost=0.25".parse().unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(spec.chance(Op::Get, Fault::Error), 0.01));
        assert!(close(spec.chance(Op::Get, Fault::Lost), 0.5));
        assert!(close(spec.chance(Op::Put, Fault::Lost), 0.25));
        assert!(close(spec.chance(Op::Put, Fault::Stall), 0.0));
        assert_eq!(spec.to_string().parse::<FaultSpec>().unwrap(), spec);
        assert!("".parse::<FaultSpec>().unwrap().is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("error", "no `=`"),
            ("eror=0.1", "unknown fault `eror`"),
            ("push.error=0.1", "unknown kind of request `push`"),
            ("error=often", "`often` is not a number"),
            ("error=1.5", "not between 0 and 1"),
            ("error=NaN", "not between 0 and 1"),
            ("error=0.1,error=0.2", "given twice"),
            ("error=0.7,put.slow=0.7", "a put request add up to 1.4"),
        ] {
            let message = text.parse::<FaultSpec>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
