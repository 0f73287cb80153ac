//! What servers, files and a damaged state may say and no run does: it costs neither hours nor all memory, and stops
//! nothing.

use super::*;

fn at(seconds: f64) -> Time {
    Time::from_seconds(1e9 + seconds)
}

fn look(finished: f64, running: f64) -> Look {
    Look {
        generated: 1000.0 * (finished + running),
        running,
        waiting: 0.0,
        finished: Some(finished),
        finished_tokens: Some(1000.0 * finished),
        aborted: Some(0.0),
        held: Some(1000.0 * running),
        by_length: None,
        lost: 0.0,
    }
}

fn settled(settled: f64) -> Evidence {
    Evidence { settled, failed: 0.0, own_clock: None }
}

/// Took a point for each of 1e15 answers.
#[test]
fn a_histogram_may_count_more_than_the_engine_finished() {
    let mut eta = Eta::new(Settings::default());
    let by_length = ByLength::new(&[(10.0, 1e15), (1000.0, 2e15)], 3e15);
    eta.record(settled(100.0), at(0.0));
    eta.look(Look { by_length: Some(by_length), ..look(100.0, 10.0) }, at(1.0));
    eta.look(look(101.0, 10.0), at(2.0));
    assert!(eta.order.all().count() <= MOST_POINTS + 3.0, "{}", eta.order.all().count());
}

/// Had a place in memory for each of 1e12 requests.
#[test]
fn an_engine_may_run_more_than_there_are() {
    let mut eta = Eta::new(Settings::default());
    for step in 0..20 {
        let finished = 100.0 * f64::from(step);
        eta.record(settled(finished), at(5.0 * f64::from(step)));
        eta.look(look(finished, 1e12), at(5.0 * f64::from(step)));
    }
    eta.refresh(Some(1e13), at(100.0));
    let forecast = *eta.read(Some(1e13), at(100.0)).known().unwrap();
    assert!(forecast.seconds.mid > 0.0, "{forecast:?}");
}

/// Chose the ended ones of 8,192 requests 8,192 at a time, for each of 512 looks.
#[test]
fn an_engine_may_finish_what_no_line_ever_tells() {
    let mut eta = Eta::new(Settings { lengths: true, ..Settings::default() });
    for step in 0..600 {
        let now = at(5.0 * f64::from(step));
        eta.look(look(8192.0 * f64::from(step), 1e9), now);
        if step < 10 {
            eta.lengths(0, &[700, 800, 900, 1100], now);
            eta.record(settled(4.0 * f64::from(step + 1)), now);
        }
    }
    eta.record(settled(41.0), at(3000.0));
    eta.look(look(8192.0 * 600.0, 1e9), at(3000.0));
    eta.refresh(Some(1e6), at(3000.0));
    assert_eq!(eta.by_engine(1e6, &[]).map(|(forecast, _)| forecast.mode), None);
}

/// Doubled nothing for ever.
#[test]
fn blocks_of_no_size_in_a_damaged_state_are_made_anew() {
    let mut order: Order = serde_json::from_str("{\"size\":0.0}").unwrap();
    order.add(100.0, Some(1000.0));
    assert_eq!(order.all().count(), 1.0);
}

/// Panicked: a range ended before it began.
#[test]
fn lengths_below_nothing_in_a_damaged_state_are_survived() {
    let mut eta = Eta::new(Settings { lengths: true, ..Settings::default() });
    // Lines come fifty answers late.
    let see = |eta: &mut Eta, step: u32| {
        let now = at(5.0 * f64::from(step));
        eta.look(look(10.0 * f64::from(step), 20.0), now);
        if let Some(told) = step.checked_sub(5) {
            eta.record(settled(10.0 * f64::from(told)), now);
            eta.lengths(0, &[700, 800, 900, 1000, 1100, 1200, 1300, 1400, 1500, 1600], now);
        }
    };
    (0..60).for_each(|step| see(&mut eta, step));
    assert!(eta.by_engine(1e5, &[]).is_some());
    let mut kept = serde_json::to_value(&eta).unwrap();
    kept["order"]["all"]["total"] = (-1e9).into();
    kept["throughput"]["joined"] = u32::MAX.into();
    kept["items"]["every"] = u32::MAX.into();
    let mut eta: Eta = serde_json::from_value(kept).unwrap();
    for step in 60..80 {
        see(&mut eta, step);
        eta.refresh(Some(1e5), at(5.0 * f64::from(step)));
    }
}
