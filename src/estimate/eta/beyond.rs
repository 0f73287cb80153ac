//! How the hazard of answers may go on beyond the longest age seen, where no data are.
//!
//! Early in a run this is most of the forecast: at 2 % of it the longest age is often below the average length. Data say
//! nothing there, so it is a prior over what lengths of real tasks do, drawn anew for each play. In the hazard per
//! e-fold of age, which is age times hazard per token, they are much alike:
//!
//! * before their bulk it is a tenth or two (refusals, short answers), and within one e-fold or two it rises to one to
//!   three in the bulk. A hazard that is still low when the data end is therefore drawn upwards: to stay as low would be
//!   answers that are many times as long as any seen.
//! * from there on most go on with about the hazard per token that they had, which is a rise per e-fold, up to a cap.
//! * some turn: a twentieth of the answers is a task of its own and ten times as long (a two-mode mix, a power law). So in
//!   a share of the draws the hazard falls by a power of the age, once most answers have ended: before that is the bulk. The
//!   share is smaller where the hazard per token still rose when the data end: those are answers that lie around a middle.
//! * a hazard per token that was falling when the data end often goes on falling: that is how a tail looks that is only begun.
//! * and where exactly the data end, it may jump.
//!
//! The falls and the jump fade with the square of the share of answers that is beyond everything seen: when that is one in a
//! hundred, the run has shown its own bulk and tail.

use super::random::Random;

/// Hazard per e-fold in the bulk: its middle, and the deviation of its logarithm from task to task; most of how far they
/// differ is in how unevenly it rises.
const BULK: f64 = 1.3;
const BULK_DEVIATION: f64 = 0.2;

/// How fast it rises there: over an e-fold all but e to the minus this of the way; and how unevenly.
const RISE: f64 = 2.5;
const RISE_NOISE: f64 = 1.5;

/// In the bulk and behind it, how far the logarithm of the hazard per token wanders over an e-fold.
const WANDER: f64 = 0.4;

/// The share of draws in which it falls, the greatest power, and the share of answers that is left where it begins to.
const FALLS: f64 = 0.8;
const STEEPEST: f64 = 3.5;
const BEHIND_BULK: f64 = 0.22;

/// A hazard that rose by this power of the age where the data end falls half as often; over a few times `SOFTLY` more or
/// less of it the share goes from all to none.
const HALF_RISES: f64 = 0.7;
const SOFTLY: f64 = 0.4;

/// Of the fall that was seen so much goes on at least.
const LEAST_GOES_ON: f64 = 0.5;

/// The deviation of the jump.
const JUMP: f64 = 1.0;

/// Shares of unseen answers at which falls are half as frequent, jumps half as large, and of the fall that was seen half as
/// much goes on as where all is unseen.
const HALF_FALLS: f64 = 0.11;
const HALF_JUMP: f64 = 0.3;
const HALF_GOES_ON: f64 = 0.03;

/// The fall that was seen is that of the last ages that differ by this factor; over less than this (in its logarithm) it is noise.
const LAST_AGES: f64 = 2.0;
const NOISE: f64 = 0.3;

/// The last bin with data, and the share of answers beyond it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DataEnd {
    pub bin: usize,
    pub unseen: f64,
}

/// Draws what follows where the data end in the logarithms of hazards of bins that end at `edges`; `fall` is by which power
/// of the age they were falling, less than 0 where they rose.
pub(super) fn draw(logs: &mut [f64], edges: &[f64], end: DataEnd, fall: f64, random: &mut Random) {
    let open = |half: f64| end.unseen.powi(2) / (end.unseen.powi(2) + half * half);
    let bulk = BULK.ln() + BULK_DEVIATION * random.normal();
    let falls = FALLS * open(HALF_FALLS) / (1.0 + (-(fall + HALF_RISES) / SOFTLY).exp());
    let chance = random.uniform();
    let falls_by = if chance < falls { STEEPEST * chance / falls } else { 0.0 };
    let goes_on = LEAST_GOES_ON + (1.0 - LEAST_GOES_ON) * random.uniform();
    let goes_on_by = fall.clamp(0.0, STEEPEST) * open(HALF_GOES_ON) * goes_on;
    let jump = JUMP * open(HALF_JUMP) * random.normal();
    let mut places = logs.iter_mut().zip(edges).skip(end.bin);
    let Some((last, edge)) = places.next() else { return };
    let (mut before, mut from, mut left) = (*last + jump, *edge, end.unseen);
    for (log, &edge) in places {
        let step = (edge / from).ln();
        let per_e_fold = before + from.ln();
        *log = if per_e_fold < bulk {
            let lasts = (-RISE * step).exp();
            let noise = RISE_NOISE * ((1.0 - lasts * lasts) / (2.0 * RISE)).sqrt();
            bulk + (per_e_fold - bulk) * lasts + noise * random.normal() - edge.ln()
        } else {
            let power = if left < BEHIND_BULK { falls_by.max(goes_on_by) } else { goes_on_by };
            before + WANDER * step.sqrt() * random.normal() - power * step
        };
        left *= (-log.exp() * (edge - from)).exp();
        (before, from) = (*log, edge);
    }
}

/// By which power of the age the hazard fell over the last ages that were seen; less than 0 if it rose.
pub(super) fn fall(logs: &[f64], edges: &[f64], end: DataEnd) -> f64 {
    let place = |bin: usize| logs.get(bin).zip(edges.get(bin));
    let Some((last, edge)) = place(end.bin) else { return 0.0 };
    let Some((before, from)) = place(edges.partition_point(|from| *from < edge / LAST_AGES)) else { return 0.0 };
    let span = (edge / from).ln();
    if span < NOISE { 0.0 } else { (before - last) / span }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges that grow by a quarter, and hazards that are constant per e-fold.
    fn bins(per_e_fold: f64) -> (Vec<f64>, Vec<f64>) {
        let edges: Vec<f64> = (0..30).map(|bin| 100.0 * 1.25_f64.powi(bin)).collect();
        let logs = edges.iter().map(|edge| (per_e_fold / edge).ln()).collect();
        (edges, logs)
    }

    #[test]
    fn a_hazard_that_was_falling_goes_on_so_and_one_that_was_not_does_not() {
        // In the bulk, where nothing makes it rise; 8 is the bin that is half as old.
        let (seen, unseen) = (11, 0.06);
        let median = |power: f64| {
            let mut ratios: Vec<f64> = (0..400)
                .map(|seed| {
                    let (edges, _) = bins(1.0);
                    let at = |edge: f64| (4.0 / 100.0_f64).ln() - power * (edge / 100.0).ln();
                    let mut logs: Vec<f64> = edges.iter().map(|edge| at(*edge)).collect();
                    let end = DataEnd { bin: seen, unseen };
                    let fall = fall(&logs, &edges, end);
                    draw(&mut logs, &edges, end, fall, &mut Random::new(seed));
                    logs[20] - logs[seen]
                })
                .collect();
            ratios.sort_by(f64::total_cmp);
            ratios[200]
        };
        let (rose, level, fell) = (median(-1.0), median(0.0), median(0.8));
        assert!((rose - level).abs() < 0.2 && fell < level - 0.3, "{rose} {level} {fell}");
        assert_eq!(fall(&[0.0, -1.0], &[100.0, 300.0], DataEnd { bin: 1, unseen: 0.5 }), 0.0, "one bin is no fall");
    }

    #[test]
    fn what_was_seen_stays_a_low_hazard_rises_and_a_high_one_stays_or_falls() {
        let (seen, draws) = (5, 400);
        let median = |per_e_fold: f64, unseen: f64| {
            let mut last: Vec<f64> = (0..draws)
                .map(|seed| {
                    let (edges, mut logs) = bins(per_e_fold);
                    let before = logs.clone();
                    let end = DataEnd { bin: seen, unseen };
                    draw(&mut logs, &edges, end, 0.0, &mut Random::new(seed));
                    assert_eq!(logs[..=seen], before[..=seen]);
                    assert!(logs.iter().all(|log| log.is_finite()));
                    logs[15].exp() * edges[15]
                })
                .collect();
            last.sort_by(f64::total_cmp);
            (last[40], last[200], last[360])
        };
        let (low, mid, high) = median(0.1, 0.8);
        assert!(low > 0.3 && (0.8..8.0).contains(&mid) && high < 40.0, "{low} {mid} {high}");
        let (falling, mid, _) = median(2.0, 0.8);
        assert!(falling < 2.0 && mid > 2.0, "{falling} {mid}");
        // With next to nothing unseen it goes on as it was: ten bins are nine times the age.
        let (low, mid, high) = median(2.0, 0.001);
        assert!(low > 5.0 && (12.0..28.0).contains(&mid) && high < 80.0, "{low} {mid} {high}");
    }

    #[test]
    fn a_hazard_falls_behind_the_bulk_and_not_within_it_and_seldom_where_it_rose() {
        // By more than chance moves it over half an e-fold.
        let falls = |unseen: f64, before: f64| {
            let fell = |seed: &u64| {
                let (edges, mut logs) = bins(2.0);
                draw(&mut logs, &edges, DataEnd { bin: 5, unseen }, before, &mut Random::new(*seed));
                logs[8] - logs[6] < -0.7
            };
            (0..400).filter(fell).count()
        };
        let (within, behind, risen) = (falls(0.9, 0.0), falls(0.2, 0.0), falls(0.2, -1.5));
        // Were there no bulk, 96 would fall within it.
        assert!(within < 60 && behind > 60 && risen < 30, "{within} {behind} {risen} of 400");
    }
}
