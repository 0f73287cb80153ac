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
//!   a share of the draws the hazard falls by a power of the age.
//! * and where exactly the data end, it may jump.
//!
//! The fall and the jump fade with the share of answers that is beyond everything seen: when that is one in a hundred, the
//! run has shown its own bulk and tail.

use super::random::Random;

/// Hazard per e-fold in the bulk: its middle, and the deviation of its logarithm from task to task.
const BULK: f64 = 1.3;
const BULK_DEVIATION: f64 = 0.7;

/// How fast it rises there: over an e-fold all but e to the minus this of the way; and how unevenly.
const RISE: f64 = 3.0;
const RISE_NOISE: f64 = 1.5;

/// In the bulk and behind it, how far the logarithm of the hazard per token wanders over an e-fold.
const WANDER: f64 = 0.6;

/// The share of draws in which it falls, and the greatest power.
const FALLS: f64 = 0.6;
const STEEPEST: f64 = 2.0;

/// The deviation of the jump.
const JUMP: f64 = 1.0;

/// Shares of unseen answers at which falls are half as frequent and jumps half as large as where all is unseen.
const HALF_FALLS: f64 = 0.12;
const HALF_JUMP: f64 = 0.2;

/// Draws what follows the bin `seen` in the logarithms of hazards of bins that end at `edges`; this share of answers is
/// `unseen`.
pub(super) fn draw(logs: &mut [f64], edges: &[f64], seen: usize, unseen: f64, random: &mut Random) {
    let bulk = BULK.ln() + BULK_DEVIATION * random.normal();
    let falls = FALLS * unseen / (unseen + HALF_FALLS);
    let chance = random.uniform();
    let power = if chance < falls { STEEPEST * chance / falls } else { 0.0 };
    let jump = JUMP * unseen / (unseen + HALF_JUMP) * random.normal();
    let mut places = logs.iter_mut().zip(edges).skip(seen);
    let Some((last, edge)) = places.next() else { return };
    let (mut before, mut from) = (*last + jump, *edge);
    for (log, &edge) in places {
        let step = (edge / from).ln();
        let per_e_fold = before + from.ln();
        *log = if per_e_fold < bulk {
            let left = (-RISE * step).exp();
            let noise = RISE_NOISE * ((1.0 - left * left) / (2.0 * RISE)).sqrt();
            bulk + (per_e_fold - bulk) * left + noise * random.normal() - edge.ln()
        } else {
            before + WANDER * step.sqrt() * random.normal() - power * step
        };
        (before, from) = (*log, edge);
    }
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
    fn what_was_seen_stays_a_low_hazard_rises_and_a_high_one_stays_or_falls() {
        let (seen, draws) = (5, 400);
        let median = |per_e_fold: f64, unseen: f64| {
            let mut last: Vec<f64> = (0..draws)
                .map(|seed| {
                    let (edges, mut logs) = bins(per_e_fold);
                    let before = logs.clone();
                    draw(&mut logs, &edges, seen, unseen, &mut Random::new(seed));
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
}
