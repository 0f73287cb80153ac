//! What is said of a job after a restart, beside what a sidecar says that was never stopped.

use longhaul::model::snapshot::JobState;
use longhaul::model::{Fact, Observation, SourceId};

use super::machine::{RATE, STEP, Sidecar, TOKENS_PER_ITEM, World};
use super::support::random::Random;

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;

/// In the gate; `tests/long` asks for more.
fn kills() -> u32 {
    std::env::var("LONGHAUL_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(50)
}

fn tick(world: &World) -> Vec<Observation> {
    vec![Observation { at: world.now(), source: SourceId::own(), took: None, fact: Fact::Tick }]
}

/// A machine and a sidecar that will be killed, beside one that will not.
struct Twins {
    _folders: [tempfile::TempDir; 2],
    world: World,
    killed: Sidecar,
    whole: Sidecar,
}

impl Twins {
    fn new(seconds: f64) -> Self {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let world = World::new();
        let [killed, whole] = folders.each_ref().map(|folder| Sidecar::start(folder.path(), &world));
        let mut twins = Self { _folders: folders, killed, whole, world };
        twins.run(seconds);
        twins
    }

    fn step(&mut self) {
        self.world.pass(STEP);
        let seen = self.world.observe();
        assert!(self.killed.take(&seen) && self.whole.take(&seen));
    }

    fn run(&mut self, seconds: f64) {
        let until = self.world.seconds + seconds;
        while self.world.seconds < until {
            self.step();
        }
    }

    /// Killed, and started again `away` seconds later; the other one watched all the time.
    fn kill(self, away: f64) -> Self {
        let Self { _folders, mut world, killed, mut whole } = self;
        let until = world.seconds + away;
        while world.seconds < until {
            world.pass(STEP.min(until - world.seconds));
            assert!(whole.take(&world.observe()));
        }
        let mut killed = killed.restart(&world);
        // The first tick comes before anything was read.
        assert!(killed.take(&tick(&world)) && whole.take(&tick(&world)));
        Self { _folders, world, killed, whole }
    }

    /// Nobody who reads both can tell which was stopped.
    fn agree(&self, context: &str) {
        let (ours, theirs) = (self.killed.job(), self.whole.job());
        let context = format!("{context}, at {}", self.world.seconds);
        let near = |what: &str, ours: Option<f64>, theirs: Option<f64>, tolerance: f64| {
            let (Some(one), Some(other)) = (ours, theirs) else { panic!("{context}: {what} {ours:?} {theirs:?}") };
            assert!((one / other - 1.0).abs() <= tolerance, "{context}: {what} {one} {other}");
        };
        near("items/s", ours.items_per_second.get(), theirs.items_per_second.get(), 0.03);
        near("tokens/s", ours.tokens_per_second.get(), theirs.tokens_per_second.get(), 0.03);
        let eta = |job: &longhaul::model::snapshot::JobView| job.eta_seconds.get().map(|eta| eta.mid);
        near("eta", eta(ours), eta(theirs), 0.02);
        near("patience", Some(ours.stall_threshold_seconds), Some(theirs.stall_threshold_seconds), 0.0);
        assert_eq!((ours.state, ours.estimate_mode.get()), (theirs.state, theirs.estimate_mode.get()), "{context}");
        assert_eq!(ours.started_at, theirs.started_at, "{context}");
        assert_eq!(self.killed.firing(), self.whole.firing(), "{context}");
        // What nobody has read yet is what was last read.
        let behind = theirs.done.get().unwrap() - ours.done.get().unwrap();
        assert!((0.0..=RATE * 60.0).contains(&behind), "{context}: {behind}");
    }
}

#[test]
fn killed_at_random_moments_it_goes_on_without_a_jump() {
    let mut random = Random::new(11);
    let mut twins = Twins::new(900.0);
    twins.agree("before");
    for kill in 0..kills() {
        twins.run(STEP * f64::from(u32::try_from(1 + random.below(24)).unwrap()));
        let away = f64::from(u32::try_from(1 + random.below(30)).unwrap());
        twins = twins.kill(away);
        let context = format!("kill {kill}, {away} s away");
        twins.agree(&context);
        for _ in 0..3 {
            twins.step();
            assert_eq!(twins.killed.job().done, twins.whole.job().done, "{context}");
            twins.agree(&context);
        }
    }
    assert!(twins.killed.mails.is_empty() && twins.whole.mails.is_empty(), "{:?}", twins.killed.subjects());
}

#[test]
fn what_pends_and_fires_goes_on_from_the_first_tick() {
    let mut twins = Twins::new(600.0);
    twins.world.moves = false;
    twins.run(600.0);
    assert!(twins.whole.firing().contains(&"JobStalled"), "{:?}", twins.whole.firing());
    for _ in 0..10 {
        twins = twins.kill(10.0);
        assert_eq!(twins.killed.firing(), twins.whole.firing());
        assert_eq!(twins.killed.job().state, JobState::Stalled);
        assert_eq!(twins.killed.job().stall_cause, twins.whole.job().stall_cause);
        let idle = |sidecar: &Sidecar| sidecar.job().idle_seconds.get().unwrap();
        assert!((idle(&twins.killed) - idle(&twins.whole)).abs() <= 40.0, "{}", idle(&twins.killed));
        twins.run(60.0);
        assert_eq!(idle(&twins.killed), idle(&twins.whole));
    }
    assert_eq!(twins.killed.subjects(), twins.whole.subjects());
}

#[test]
fn down_for_a_day_the_gap_is_a_gap() {
    // The job worked on, or stood still as well.
    for worked in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World { total: 400_000.0, ..World::new() };
        let mut sidecar = Sidecar::start(folder.path(), &world);
        sidecar.run(&mut world, 1200.0);
        let (done, started) = (sidecar.job().done.get(), sidecar.job().started_at.get());
        if worked {
            world.pass(DAY)
        } else {
            world.seconds += DAY
        }
        let mut sidecar = sidecar.restart(&world);
        assert!(sidecar.take(&tick(&world)));
        let job = sidecar.job();
        assert!(job.done.get() >= Some(done.unwrap() - RATE * 60.0), "{:?}", job.done);
        for unknown in [job.items_per_second.reason(), job.eta_seconds.reason(), job.stalled.reason()] {
            assert_eq!(unknown, Some("its progress has not been read for 1 d"), "worked: {worked}");
        }
        for _ in 0..240 {
            world.pass(STEP);
            assert!(sidecar.take(&world.observe()));
            let job = sidecar.job();
            assert_eq!(job.done.get(), Some(world.done));
            assert_eq!(job.started_at.get(), started);
            for (rate, truth) in
                [(job.items_per_second.get(), RATE), (job.tokens_per_second.get(), RATE * TOKENS_PER_ITEM)]
            {
                if let Some(rate) = rate {
                    assert!((rate / truth - 1.0).abs() < 0.1, "{rate} is not {truth} at {}", world.seconds);
                }
            }
            if let Some(eta) = job.eta_seconds.get() {
                let truth = (world.total - world.done) / RATE;
                assert!((eta.mid / truth - 1.0).abs() < 0.1, "{} is not {truth} at {}", eta.mid, world.seconds);
            }
            assert_ne!(job.state, JobState::Stalled, "{}", job.message);
        }
        assert!(sidecar.job().items_per_second.get().is_some() && sidecar.job().eta_seconds.get().is_some());
        assert!(sidecar.mails.is_empty(), "{:?}", sidecar.subjects());
    }
}

#[test]
fn a_new_run_that_began_while_we_were_down_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new();
    let mut sidecar = Sidecar::start(folder.path(), &world);
    sidecar.run(&mut world, 600.0);
    let before = sidecar.job().started_at.get().unwrap();
    world.seconds += 100.0;
    (world.done, world.elapsed) = (20.0, 10.0);
    let mut sidecar = sidecar.restart(&world);
    sidecar.run(&mut world, 60.0);
    let started = sidecar.job().started_at.get().unwrap();
    assert!(started > before + 600.0, "{started} {before}");
    let rate = sidecar.job().items_per_second.get().unwrap();
    assert!((rate / RATE - 1.0).abs() < 0.05, "{rate}");
}
