//! Lengths with what earlier runs of the same job had, as long as this run does not contradict.
//!
//! That this run's answers are like those of an earlier one is a hypothesis beside "nothing is known". Under it the
//! earlier answers are data too, though never more than [`MOST`] of them: no two runs are quite alike. How well each
//! hypothesis explains what is seen of this run, the requests in flight included, decides what it is worth. So an
//! earlier run that was like this one makes the first forecasts, and one that was not is left within some dozens of
//! answers, without a rule for when to leave it.

use super::super::curve::Curve;
use super::super::histogram::Histogram;
use super::super::random::{Random, weighted_at};
use super::LengthModel;

/// Answers that an earlier run counts for, in competition with each other: alike in every respect, or roughly.
const MOST: [(f64, f64); 2] = [(1000.0, 0.5), (60.0, 0.5)];

/// From so many finished answers on those of other runs add nothing.
const ENOUGH: f64 = 3000.0;

/// The model of a run by itself has its centre from the data that it is judged by. Before them it could have been anywhere:
/// the variance of the logarithm of typical lengths over jobs, against that of the lengths of one.
const ANYWHERE: f64 = 4.6;

/// Models that compete.
#[derive(Debug, Clone)]
pub(in crate::estimate::eta) struct Mixed {
    models: Vec<LengthModel>,
    weights: Vec<f64>,
    guessed: bool,
}

impl Mixed {
    /// From the finished, the ages of the unfinished, and the lengths of earlier runs with the weight of each before
    /// anything of this run is seen. Lengths may be `guessed` from counters.
    pub(in crate::estimate::eta) fn fit<'a>(
        finished: &Histogram,
        ages: &Histogram,
        most: Option<f64>,
        guessed: bool,
        earlier: impl Iterator<Item = (&'a Histogram, f64)>,
    ) -> Self {
        let own = LengthModel::fit(finished, ages, most);
        let (mut models, mut logs, mut rest) = (Vec::new(), Vec::new(), 1.0);
        for (lengths, weight) in earlier.filter(|_| finished.count() < ENOUGH) {
            rest -= weight;
            for (count, share) in MOST {
                let before = lengths.scaled((count / lengths.count()).min(1.0));
                let mut all = finished.clone();
                all.merge(&before);
                let bins = LengthModel::bins(&all, ages, most);
                let alone = bins.filled(&before, &Histogram::default());
                let both = LengthModel::of(bins);
                logs.push((weight * share).ln() + both.evidence() - LengthModel::of(alone).evidence());
                models.push(both);
            }
        }
        let centre = -0.5 * (1.0 + (finished.count() + 1.0) * ANYWHERE).ln();
        logs.push(rest.max(1e-3).ln() + own.evidence() + centre);
        models.push(own);
        let best = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logs.iter().map(|log| (log - best).exp()).sum();
        let weights = logs.iter().map(|log| (log - best).exp() / sum).collect();
        Self { models, weights, guessed }
    }

    /// Models that were made to find it.
    pub(in crate::estimate::eta) fn fits(&self) -> u64 {
        // One of each earlier run's answers alone too.
        u64::try_from(self.models.len() * 2 - 1).unwrap_or(1)
    }

    /// One distribution of lengths that could be the true one; `share` chooses.
    pub(in crate::estimate::eta) fn draw(&self, random: &mut Random, share: f64) -> Curve {
        let place = weighted_at(&self.weights, share);
        let below: f64 = self.weights.iter().take(place).sum();
        let inside = self.weights.get(place).map_or(0.5, |weight| ((share - below) / weight).clamp(0.0, 1.0));
        match self.models.get(place) {
            Some(model) => model.draw(random, inside, self.guessed),
            None => Curve::new(&[1.0], std::iter::once(1.0)),
        }
    }

    /// The most likely one.
    pub(in crate::estimate::eta) fn mode(&self) -> Curve {
        let best = self.weights.iter().zip(&self.models).max_by(|a, b| a.0.total_cmp(b.0));
        best.map_or_else(|| Curve::new(&[1.0], std::iter::once(1.0)), |(_, model)| model.mode())
    }
}

impl LengthModel {
    /// The logarithm of how well it explains the data.
    fn evidence(&self) -> f64 {
        let best = self.fits.iter().map(|fit| fit.evidence).fold(f64::NEG_INFINITY, f64::max);
        best + self.fits.iter().map(|fit| (fit.evidence - best).exp()).sum::<f64>().ln()
    }
}
