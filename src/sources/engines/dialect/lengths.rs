//! The histogram of the lengths of finished requests.
//!
//! Separate because it is the one value that several samples make together, each with its own bound. Several label sets
//! of one rank are summed bound by bound, which is right for cumulative buckets with the same bounds; where the bounds
//! differ a sum would invent requests, so there is none.

use std::collections::BTreeMap;

use crate::model::engine::Lengths;
use crate::sources::exposition::Sample;

/// Bounds that are kept: vLLM has about twenty, SGLang some forty.
const MAX_BUCKETS: usize = 256;

/// Buckets by the bits of their bound, which for numbers that are not negative have the order of the numbers; each with
/// how many label sets had it.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    by_bound: BTreeMap<u64, (f64, usize)>,
    problem: Option<&'static str>,
}

impl Buckets {
    /// Takes one bucket.
    pub(super) fn take(&mut self, sample: &Sample<'_>) {
        let bound = sample.labels.get("le").and_then(|text| text.parse::<f64>().ok());
        match bound {
            Some(bound) if bound >= 0.0 && sample.value.is_finite() && sample.value >= 0.0 => {
                if self.by_bound.len() >= MAX_BUCKETS && !self.by_bound.contains_key(&bound.to_bits()) {
                    self.problem = Some("too many buckets");
                    return;
                }
                let (sum, sets) = self.by_bound.entry(bound.abs().to_bits()).or_default();
                *sum += sample.value;
                *sets += 1;
            }
            _ => self.problem = Some("a bucket whose bound or value is no number"),
        }
    }

    /// All of them; `None` where there was none.
    pub(super) fn finish(self) -> Result<Option<Lengths>, &'static str> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let Some(&(_, sets)) = self.by_bound.values().next() else { return Ok(None) };
        let Some(&(count, _)) = self.by_bound.get(&f64::INFINITY.to_bits()) else {
            return Err("there is no bucket +Inf");
        };
        let mut buckets = Vec::new();
        let mut before = 0.0;
        for (bound, (below, of)) in self.by_bound {
            if of != sets {
                return Err("its label sets have different bounds");
            }
            if below < before {
                return Err("its buckets are not cumulative");
            }
            before = below;
            let bound = f64::from_bits(bound);
            if bound.is_finite() {
                buckets.push((bound, below));
            }
        }
        Ok(Some(Lengths { buckets, count }))
    }
}
