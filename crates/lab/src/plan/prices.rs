//! Price lists: TOML with a date and one table per store.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::simulated::Requests;
use batchweave_console::CliError;

const SHIPPED: &str = include_str!("../../../../config/prices.toml");

/// A price list with a date and a table for each kind of store.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Prices {
    pub(super) date: String,
    pub(super) currency: String,
    #[serde(flatten)]
    stores: BTreeMap<String, Tariff>,
}

/// The prices of one store.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tariff {
    pub(super) source: String,
    put_per_million: f64,
    list_per_million: f64,
    get_per_million: f64,
    delete_per_million: f64,
    #[serde(default)]
    pub(super) upload_per_gb: f64,
    #[serde(default)]
    pub(super) retrieval_per_gb: f64,
    pub(super) storage_per_gb_month: Option<f64>,
}

impl Prices {
    /// Returns the list of this release.
    pub(super) fn shipped() -> Result<Self, CliError> {
        Self::parse(SHIPPED).map_err(|why| CliError::Input(format!("config/prices.toml: {why}")))
    }

    /// Parses a list; prices must be finite and not negative.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let prices: Self = toml::from_str(text).map_err(|e| e.to_string().trim().to_owned())?;
        for (store, tariff) in &prices.stores {
            let bad = |price: &f64| !price.is_finite() || *price < 0.0;
            if tariff.all().iter().any(bad) {
                return Err(format!(
                    "[{store}] has a price that is negative or no number"
                ));
            }
        }
        Ok(prices)
    }

    /// Returns the prices of the store with this name.
    pub(super) fn for_store(&self, store: &str) -> Option<&Tariff> {
        self.stores.get(store)
    }
}

impl Tariff {
    fn all(&self) -> [f64; 7] {
        [
            self.put_per_million,
            self.list_per_million,
            self.get_per_million,
            self.delete_per_million,
            self.upload_per_gb,
            self.retrieval_per_gb,
            self.storage_per_gb_month.unwrap_or(0.0),
        ]
    }

    /// Returns the price of these requests.
    pub(super) fn requests(&self, count: Requests) -> f64 {
        let sum = count.put * self.put_per_million
            + count.get * self.get_per_million
            + count.list * self.list_per_million
            + count.delete * self.delete_per_million;
        sum / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Profile;
    use super::*;

    #[test]
    fn the_shipped_list_has_every_store_with_date_and_source() {
        let prices = Prices::shipped().unwrap();
        assert_eq!(prices.date.len(), "2026-11-21".len());
        for profile in Profile::ALL {
            let tariff = prices.for_store(profile.name()).unwrap();
            assert!(tariff.source.starts_with("https://"), "{tariff:?}");
        }
        let million = Requests {
            put: 1e6,
            get: 1e6,
            list: 1e6,
            delete: 1e6,
        };
        let cost = prices.for_store("s3-standard").unwrap().requests(million);
        assert!((cost - 10.4).abs() < 1e-9, "{cost}");
    }

    #[test]
    fn bad_lists_are_refused_with_their_fault() {
        let good = SHIPPED.to_owned();
        for (from, to, part) in [
            ("date = ", "dat = ", "date"),
            (
                "get_per_million = 0.40",
                "get_per_million = -1.0",
                "negative",
            ),
            (
                "get_per_million = 0.40",
                "get_per_million = nan",
                "no number",
            ),
            (
                "put_per_million = 5.00",
                "put_per_milion = 5.00",
                "put_per_milion",
            ),
            (
                "put_per_million = 5.00",
                "put_per_million = \"five\"",
                "string",
            ),
        ] {
            assert!(good.contains(from), "{from}");
            let why = Prices::parse(&good.replacen(from, to, 1)).unwrap_err();
            assert!(why.contains(part), "{to}: {why}");
        }
    }
}
