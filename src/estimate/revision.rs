//! The history of a forecast's own revisions, each with the reason: "2.8 h became 5 h: tokens per item rose from 650 to
//! 1,066".
//!
//! A forecast of the time left is a product: items left, times tokens an item, over tokens a second. So a change of it
//! is a sum of logarithms, and the largest part that goes in its direction is the reason. A forecast that moves by a few
//! percent is no news; one that moves by a fifth is remembered, and measured against from then on. Everything is
//! relative to the run, so that it means the same for a job of minutes and one of weeks.
//!
//! The first forecasts of a run and the latest revisions are kept, and a count of those between.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::snapshot::{EstimateMode, RevisionCause, RevisionView};

/// The part of the time left by which the end has to move to be news.
const NEWS: f64 = 0.2;

/// And of the whole run, or the last minutes would be full of it.
const NEWS_OF_ALL: f64 = 0.03;

/// A part of the change that is smaller than this share of it is no reason.
const REASON: f64 = 0.3;

/// How many are kept from the beginning, and how many from the end.
const FIRST: usize = 4;
const LAST: usize = 12;

/// A forecast with what it is made of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Unix seconds.
    pub at: f64,
    /// When the run began.
    pub started: Option<f64>,
    /// Seconds left.
    pub left: f64,
    /// Items in all.
    pub total: f64,
    /// Items that are not done.
    pub items_left: f64,
    /// Tokens per item over all items.
    pub tokens_per_item: Option<f64>,
    /// How it was found.
    pub mode: EstimateMode,
    /// Seconds since the start of our watch in which nothing could move.
    pub paused: f64,
}

/// What became of the forecasts of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Revisions {
    base: Option<Picture>,
    first: Vec<RevisionView>,
    last: VecDeque<RevisionView>,
}

impl Revisions {
    /// Takes a forecast as it stands.
    pub fn record(&mut self, now: Picture) {
        let Some(base) = self.base else {
            self.base = Some(now);
            return;
        };
        let was = base.at + base.left - now.at;
        let moved = now.left - was;
        let all = now.left.max(was) + (now.at - now.started.unwrap_or(base.at)).max(0.0);
        // What was forecast to be over by now is late by whatever is left.
        if moved.abs() <= NEWS * was.max(now.left) || moved.abs() <= NEWS_OF_ALL * all {
            return;
        }
        let revision = RevisionView {
            at: now.at,
            was_seconds: was.max(0.0),
            is_seconds: now.left,
            cause: cause(&base, &now, was, moved),
        };
        self.base = Some(now);
        if self.first.len() < FIRST {
            self.first.push(revision);
            return;
        }
        self.last.push_back(revision);
        if self.last.len() > LAST {
            self.last.pop_front();
        }
    }

    /// The wall clock was set: all moments are by it.
    pub fn shift(&mut self, seconds: f64) {
        if let Some(base) = &mut self.base {
            base.at += seconds;
            base.started = base.started.map(|started| started + seconds);
        }
        self.first.iter_mut().chain(&mut self.last).for_each(|revision| revision.at += seconds);
    }

    /// Oldest first.
    pub fn list(&self) -> Vec<RevisionView> {
        self.first.iter().chain(&self.last).copied().collect()
    }
}

/// Why the end moved by `moved` seconds from `was`.
fn cause(base: &Picture, now: &Picture, was: f64, moved: f64) -> RevisionCause {
    let paused = now.paused - base.paused;
    if moved > 0.0 && paused > 0.5 * moved {
        return RevisionCause::Pause { seconds: paused };
    }
    if was <= 0.0 {
        return RevisionCause::Overrun;
    }
    let change = (now.left / was).ln();
    // What would be left had items been done as that forecast had it.
    let should_be = base.items_left * (was / base.left.max(1e-9)).clamp(0.0, 1.0);
    let other_total = now.total - base.total;
    let by_total = ((should_be + other_total).max(1e-9) / should_be.max(1e-9)).ln();
    let by_items = (now.items_left.max(1e-9) / (should_be + other_total).max(1e-9)).ln();
    let by_length = match (base.tokens_per_item, now.tokens_per_item) {
        (Some(from), Some(to)) if from > 0.0 && to > 0.0 => (to / from).ln(),
        _ => 0.0,
    };
    let speed = |picture: &Picture| {
        let work = picture.items_left * picture.tokens_per_item.unwrap_or(1.0);
        (picture.left > 0.0).then(|| work / picture.left)
    };
    let both_in_tokens = base.tokens_per_item.is_some() == now.tokens_per_item.is_some();
    let speeds = speed(base).zip(speed(now)).filter(|_| both_in_tokens);
    let by_speed = speeds.map_or(0.0, |(from, to)| -(to.max(1e-300) / from.max(1e-300)).ln());
    let parts = [
        (by_total, RevisionCause::Total { from: base.total, to: now.total }),
        (
            by_length,
            RevisionCause::TokensPerItem {
                from: base.tokens_per_item.unwrap_or(0.0),
                to: now.tokens_per_item.unwrap_or(0.0),
            },
        ),
        (by_items, RevisionCause::ItemsLeft { from: should_be + other_total, to: now.items_left }),
        match (speeds, now.tokens_per_item) {
            (Some((from, to)), Some(_)) => (by_speed, RevisionCause::TokensPerSecond { from, to }),
            (Some((from, to)), None) => (by_speed, RevisionCause::ItemsPerSecond { from, to }),
            (None, _) => (0.0, RevisionCause::Overrun),
        },
    ];
    let (share, largest) = parts.into_iter().map(|(part, cause)| (part / change, cause)).fold(
        (0.0, RevisionCause::Unexplained),
        |a, b| {
            if b.0 > a.0 { b } else { a }
        },
    );
    if base.mode != now.mode && (share < 0.7 || !both_in_tokens) {
        return RevisionCause::Method { from: base.mode, to: now.mode };
    }
    if share >= REASON { largest } else { RevisionCause::Unexplained }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn picture(at: f64, left: f64, items_left: f64, tokens_per_item: f64) -> Picture {
        Picture {
            at,
            started: Some(0.0),
            left,
            total: 25_000.0,
            items_left,
            tokens_per_item: Some(tokens_per_item),
            mode: EstimateMode::LengthsAndEngine,
            paused: 0.0,
        }
    }

    fn only(revisions: &Revisions) -> RevisionView {
        let list = revisions.list();
        assert_eq!(list.len(), 1, "{list:?}");
        list[0]
    }

    #[test]
    fn tokens_per_item_rose() {
        let mut revisions = Revisions::default();
        revisions.record(picture(60.0, 2.8 * 3600.0, 24_950.0, 650.0));
        revisions.record(picture(90.0, 2.9 * 3600.0, 24_930.0, 660.0));
        assert!(revisions.list().is_empty(), "a few percent are no news");
        revisions.record(picture(408.0, 5.0 * 3600.0, 24_700.0, 1066.0));
        let revision = only(&revisions);
        assert_eq!(revision.cause, RevisionCause::TokensPerItem { from: 650.0, to: 1066.0 });
        assert!((revision.was_seconds - (2.8 * 3600.0 - 348.0)).abs() < 1e-6 && revision.is_seconds == 18_000.0);
    }

    #[test]
    fn the_engine_slowed_down_the_total_grew_it_paused() {
        let begin = picture(1000.0, 10_000.0, 20_000.0, 1000.0);
        let then = |now: Picture| {
            let mut revisions = Revisions::default();
            revisions.record(begin);
            revisions.record(now);
            only(&revisions).cause
        };
        let RevisionCause::TokensPerSecond { from, to } = then(picture(2000.0, 15_000.0, 18_000.0, 1000.0)) else {
            panic!()
        };
        assert!((from, to) == (2000.0, 1200.0), "{from} {to}");
        let grown = Picture { total: 45_000.0, ..picture(2000.0, 19_000.0, 38_000.0, 1000.0) };
        assert_eq!(then(grown), RevisionCause::Total { from: 25_000.0, to: 45_000.0 });
        let paused = Picture { paused: 3000.0, ..picture(4000.0, 10_000.0, 20_000.0, 1000.0) };
        assert_eq!(then(paused), RevisionCause::Pause { seconds: 3000.0 });
        let other =
            Picture { mode: EstimateMode::Items, tokens_per_item: None, ..picture(2000.0, 14_000.0, 18_000.0, 0.0) };
        assert_eq!(
            then(other),
            RevisionCause::Method { from: EstimateMode::LengthsAndEngine, to: EstimateMode::Items }
        );
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_all_is_finite(
            pictures in proptest::collection::vec((0.0..1e5f64, 0.0..1e7f64, 0.0..1e6f64, 0.0..1e5f64, 0.0..1e3f64), 0..200),
        ) {
            let mut revisions = Revisions::default();
            let (mut at, mut paused) = (0.0, 0.0);
            for (more, left, items_left, tokens, pause) in pictures {
                at += more;
                paused += pause;
                revisions.record(Picture { paused, ..picture(at, left, items_left, tokens) });
            }
            let list = revisions.list();
            prop_assert!(list.len() <= FIRST + LAST);
            for revision in list {
                let numbers = match revision.cause {
                    RevisionCause::TokensPerItem { from, to }
                    | RevisionCause::TokensPerSecond { from, to }
                    | RevisionCause::ItemsPerSecond { from, to }
                    | RevisionCause::ItemsLeft { from, to }
                    | RevisionCause::Total { from, to } => [from, to],
                    RevisionCause::Pause { seconds } => [seconds; 2],
                    _ => [0.0; 2],
                };
                prop_assert!(numbers.iter().all(|number| number.is_finite()), "{revision:?}");
                prop_assert!(revision.was_seconds >= 0.0 && revision.is_seconds >= 0.0);
            }
        }

        #[test]
        fn another_unit_of_time_is_the_same_history(
            lefts in proptest::collection::vec(1.0..1e6f64, 1..20), unit in 0.01..100.0f64,
        ) {
            let run = |unit: f64| {
                let mut revisions = Revisions::default();
                for (step, left) in lefts.iter().enumerate() {
                    #[allow(clippy::cast_precision_loss)]
                    let at = step as f64 * 1000.0;
                    revisions.record(picture(at * unit, left * unit, 1000.0, 500.0));
                }
                revisions.list().len()
            };
            prop_assert_eq!(run(1.0), run(unit));
        }
    }
}
