//! The wall clock in all its moods, with restarts in between: what is said of a job runs on our own time line, and every
//! moment that leaves is by the wall clock as it stands.

use longhaul::model::snapshot::JobState;

use super::machine::{RATE, START, STEP, Sidecar, TOKENS_PER_ITEM, World};

const HOUR: f64 = 3600.0;

/// Runs two sidecars on two machines that differ in their clocks only.
struct Pair {
    _folders: [tempfile::TempDir; 2],
    odd: (World, Sidecar),
    plain: (World, Sidecar),
}

impl Pair {
    fn new(epoch: f64) -> Self {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let start = |folder: &tempfile::TempDir, world: World| {
            let sidecar = Sidecar::start(folder.path(), &world);
            (world, sidecar)
        };
        let (odd, plain) = (start(&folders[0], World::at(epoch)), start(&folders[1], World::new()));
        Self { _folders: folders, odd, plain }
    }

    fn run(&mut self, seconds: f64) {
        for (world, sidecar) in [&mut self.odd, &mut self.plain] {
            sidecar.run(world, seconds);
        }
        self.agree();
    }

    fn set_clock(&mut self, offset: f64) {
        let (world, sidecar) = &mut self.odd;
        assert!(sidecar.take(&world.set_clock(offset)));
    }

    /// Both are killed and start again; the program says first how the wall clock stands.
    fn restart(self) -> Self {
        let Self { _folders, odd: (mut odd_world, odd), plain: (plain_world, plain) } = self;
        let mut odd = odd.restart(&odd_world);
        let offset = odd_world.wall_offset;
        assert!(odd.take(&odd_world.set_clock(offset)));
        let plain = plain.restart(&plain_world);
        Self { _folders, odd: (odd_world, odd), plain: (plain_world, plain) }
    }

    fn agree(&self) {
        let ((world, odd), (other_world, plain)) = (&self.odd, &self.plain);
        let (ours, theirs) = (odd.job(), plain.job());
        // By how much the clock of the one is ahead of that of the other.
        let ahead = (world.epoch + world.wall_offset) - other_world.epoch;
        let near = |what: &str, one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => {
                assert!(
                    (one - other).abs() <= 1e-6 * other.abs().max(1e3),
                    "{what} at {}: {one} {other}",
                    world.seconds
                );
            }
            _ => assert_eq!(one, other, "{what} at {}", world.seconds),
        };
        let mid = |job: &longhaul::model::snapshot::JobView| job.eta_seconds.get().map(|eta| eta.mid);
        near("eta", mid(ours), mid(theirs));
        near("pace", ours.items_per_second.get(), theirs.items_per_second.get());
        near("idle", ours.idle_seconds.get(), theirs.idle_seconds.get());
        for (what, one, other) in [
            ("started", ours.started_at.get(), theirs.started_at.get()),
            ("moved", ours.last_progress_at.get(), theirs.last_progress_at.get()),
            ("ended", ours.ended_at.get(), theirs.ended_at.get()),
        ] {
            near(what, one.map(|at| at - ahead), other);
        }
        let revisions = |job: &longhaul::model::snapshot::JobView, ahead: f64| -> Vec<(i64, String)> {
            #[allow(clippy::cast_possible_truncation)]
            job.outlook
                .revisions
                .iter()
                .map(|one| ((one.at - ahead).round() as i64, format!("{:.1}", one.is_seconds)))
                .collect()
        };
        assert_eq!(revisions(ours, ahead), revisions(theirs, 0.0), "at {}", world.seconds);
        assert_eq!((ours.state, odd.firing()), (theirs.state, plain.firing()), "at {}", world.seconds);
    }
}

#[test]
fn a_clock_that_starts_in_1970_and_is_set_later_changes_moments_and_nothing_else() {
    for restarted in [false, true] {
        let mut pair = Pair::new(30.0);
        pair.run(900.0);
        let ours = pair.odd.1.job();
        assert!(ours.started_at.get().unwrap() < 0.0, "before the epoch, by that clock: {:?}", ours.started_at);
        if restarted {
            pair = pair.restart();
            pair.run(60.0);
        }
        // NTP has found the time.
        pair.set_clock(START - 30.0);
        pair.run(60.0);
        if restarted {
            pair = pair.restart();
        }
        for _ in 0..20 {
            pair.run(60.0);
        }
        assert_eq!(pair.odd.1.job().state, JobState::Running);
        assert!(pair.odd.1.mails.is_empty() && pair.plain.1.mails.is_empty(), "{:?}", pair.odd.1.subjects());
        let rate = pair.odd.1.job().tokens_per_second.get().unwrap();
        assert!((rate / (RATE * TOKENS_PER_ITEM) - 1.0).abs() < 0.05, "{rate}");
    }
}

#[test]
fn steps_back_and_forth_by_an_hour_through_restarts_make_no_jump_and_no_wrong_score() {
    let mut pair = Pair::new(START);
    for (world, _) in [&mut pair.odd, &mut pair.plain] {
        world.total = 9000.0;
    }
    pair.run(600.0);
    for (nth, offset) in [HOUR, -HOUR, 0.0, HOUR].into_iter().enumerate() {
        pair.set_clock(offset);
        pair.run(300.0);
        if nth % 2 == 1 {
            pair = pair.restart();
        }
        for _ in 0..10 {
            pair.run(30.0);
        }
    }
    // To the end: forecasts that were made under one clock are scored under another.
    while pair.plain.1.job().state != JobState::Finished {
        pair.run(STEP * 12.0);
    }
    let scores = |sidecar: &Sidecar| {
        let state = serde_json::to_value(sidecar.state()).unwrap();
        let run = state["forecasts"]["finished"][0].clone();
        let errors: Vec<String> = run["scores"]
            .as_array()
            .unwrap()
            .iter()
            .map(|score| format!("{} {:.3}", score["percent"], score["error"].as_f64().unwrap()))
            .collect();
        (errors, run["ended"].as_f64().unwrap() - run["started"].as_f64().unwrap())
    };
    let ((ours, lasted), (theirs, really)) = (scores(&pair.odd.1), scores(&pair.plain.1));
    assert!(ours.len() > 4, "{ours:?}");
    assert_eq!(ours, theirs);
    assert!((lasted - really).abs() < 1e-3, "{lasted} {really}");
    assert_eq!(pair.odd.1.subjects(), pair.plain.1.subjects());
}
