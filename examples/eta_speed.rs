//! What a forecast costs: `cargo run --release --example eta_speed`.
//!
//! One job with a million finished items and 2,048 requests in flight, polled each five seconds: the time of one update
//! (a scrape, its new lines, a new forecast). Then a thousand small jobs: the time of one tick over all of them. What is
//! printed is the median and the slowest of the last hundred. The seconds of the wall clock, so the machine should be idle.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
#![allow(clippy::disallowed_methods, reason = "a stopwatch")]

use std::time::Instant;

use longhaul::estimate::eta::{Eta, Evidence, Look, Settings};
use longhaul::model::Time;

/// A job in a steady state whose answers have lengths around a thousand tokens.
struct Job {
    eta: Eta,
    slots: f64,
    total: f64,
    polls: u32,
    done: f64,
    tokens: f64,
    state: u64,
}

impl Job {
    fn new(seed: u64, slots: f64, total: f64) -> Self {
        let eta = Eta::new(Settings { lengths: true, max_tokens: None, seed: 1 });
        Self { eta, slots, total, polls: 0, done: 0.0, tokens: 0.0, state: seed }
    }

    fn length(&mut self) -> u32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((self.state >> 33) as f64 + 0.5) / f64::from(1_u32 << 31);
        (1000.0 * -uniform.ln()).ceil() as u32
    }

    /// A poll with `new` finished items.
    fn poll(&mut self, new: u32) {
        let at = Time::from_seconds(5.0 * f64::from(self.polls));
        self.polls += 1;
        let lengths: Vec<u32> = (0..new).map(|_| self.length()).collect();
        self.done += f64::from(new);
        self.tokens += lengths.iter().copied().map(f64::from).sum::<f64>();
        let held = self.slots * 1000.0;
        self.eta.look(
            Look {
                generated: self.tokens + held,
                running: self.slots,
                waiting: 0.0,
                finished: Some(self.done),
                finished_tokens: Some(self.tokens),
                aborted: Some(0.0),
                held: Some(held),
                by_length: None,
                lost: 0.0,
            },
            at,
        );
        self.eta.lengths(0, &lengths, at);
        self.eta.record(Evidence { settled: self.done, failed: 0.0, own_clock: None }, at);
    }

    fn refresh(&mut self) {
        let at = Time::from_seconds(5.0 * f64::from(self.polls - 1));
        self.eta.refresh(Some(self.total), at);
        assert!(self.eta.read(Some(self.total), at).known().is_some(), "a forecast");
    }
}

fn report(what: &str, mut millis: Vec<f64>) {
    millis.sort_by(f64::total_cmp);
    let median = millis.get(millis.len() / 2).copied().unwrap_or(f64::NAN);
    println!("{what}: median {median:.2} ms, slowest {:.2} ms", millis.last().copied().unwrap_or(f64::NAN));
}

fn timed(mut work: impl FnMut()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1e3
}

fn main() {
    let mut big = Job::new(1, 2048.0, 2_000_000.0);
    (0..2000).for_each(|_| big.poll(500));
    let updates = (0..100).map(|_| {
        timed(|| {
            big.poll(500);
            big.refresh();
        })
    });
    report("1,000,000 items done, 2,048 in flight, an update", updates.collect());

    let mut jobs: Vec<Job> = (0..1000).map(|seed| Job::new(seed, 32.0, 5000.0)).collect();
    for job in &mut jobs {
        (0..50).for_each(|_| job.poll(8));
    }
    let one = jobs.iter_mut().take(100).map(|job| timed(|| job.refresh()));
    report("32 in flight, a forecast", one.collect());
    let read = |jobs: &[Job]| {
        jobs.iter().filter(|job| job.eta.read(Some(job.total), Time::from_seconds(245.0)).known().is_some()).count()
    };
    report(
        "1,000 jobs, a tick that makes no new forecast",
        (0..100)
            .map(|_| {
                timed(|| {
                    read(&jobs);
                })
            })
            .collect(),
    );
}
