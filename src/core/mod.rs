//! The inside: observations in; snapshots, alerts and messages out. One owner, no locks, no I/O, no clock.
//!
//! [`Core::observe`] applies one fact. Only [`Fact::Tick`](crate::model::Fact::Tick) makes a [`Snapshot`], so a recording
//! that is replayed makes the same snapshots, and the same alerts and messages with them: everything here is a function
//! of the observations, the configuration and the rules, and two runs over one recording agree to the last byte.

mod ahead;
mod cause;
pub mod engines;
pub mod gpus;
pub mod histories;
pub mod jobs;
pub mod merge;
mod message;
mod owners;
mod process;
mod room;
mod roster;
pub mod sources;
mod trend;
pub mod volumes;
mod workers;
pub mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::alerts::{self, Machine, Rules};
use crate::config::Config;
use crate::estimate::earlier::EarlierRuns;
use crate::estimate::scorecard::Ledger;
use crate::model::snapshot::AlertView;
use crate::model::{EngineName, Fact, Observation, Snapshot, Time};
use crate::notify::{self, Message, Notifier};

pub use histories::Histories;
use world::World;

/// Everything that decides.
#[derive(Debug)]
pub struct Core {
    config: Arc<Config>,
    world: World,
    rules: Rules,
    machine: Machine,
    notifier: Notifier,
    mails: bool,
    alerts: Vec<AlertView>,
    evaluated_at: Option<Time>,
    ticked_at: Option<Time>,
}

/// What a restart must not forget.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct State {
    /// Pending and firing alerts.
    pub alerts: alerts::State,
    /// What was mailed.
    pub notifier: notify::State,
    /// When engines last answered, in Unix seconds: one that is down when we start is not one that never was there.
    #[serde(default)]
    pub engines: BTreeMap<EngineName, f64>,
    /// Forecasts of runs that go on, and the scores of those that ended.
    #[serde(default)]
    pub forecasts: Ledger,
    /// How far the wall clock, by which those moments are, was ahead of our time line.
    #[serde(default)]
    pub wall_offset: f64,
}

/// What one tick made.
#[derive(Debug)]
pub struct Outcome {
    /// The picture.
    pub snapshot: Snapshot,
    /// Messages that were decided.
    pub messages: Vec<Message>,
    /// Rules were evaluated, so [`State`] may have changed.
    pub evaluated: bool,
}

impl Core {
    /// Nothing is known of the world yet; alerts and messages go on from `state`.
    pub fn new(
        config: Arc<Config>,
        rules: Rules,
        instance: String,
        zone: TimeZone,
        started: Time,
        state: State,
    ) -> Self {
        let mut world = World::new(config.clone(), instance, started);
        world.wall_offset = state.wall_offset;
        world.remember_answers(&state.engines);
        world.remember_forecasts(state.forecasts);
        Self {
            world,
            rules,
            machine: Machine::restore(state.alerts),
            notifier: Notifier::new(config.alerting.mode, config.notify.clone(), zone, state.notifier),
            config,
            mails: true,
            alerts: Vec::new(),
            evaluated_at: None,
            ticked_at: None,
        }
    }

    /// Goes on with what an earlier run of ours saw, before anything is observed; false when it cannot be of our time
    /// line. After another boot volumes may have other numbers.
    pub fn resume(&mut self, mut before: Histories, another_boot: bool) -> bool {
        if another_boot {
            before.after_a_boot();
        }
        self.world.resume(before)
    }

    /// What ended runs taught: for a restart, whenever it changed.
    pub const fn earlier_runs(&self) -> &EarlierRuns {
        self.world.earlier_runs()
    }

    /// Goes on with what an earlier run of ours learned.
    pub fn remember_runs(&mut self, earlier: EarlierRuns) {
        self.world.remember_runs(earlier);
    }

    /// For a restart, besides [`Core::state`]: as of the last tick.
    pub fn histories(&self) -> histories::Kept<'_> {
        self.world.histories(self.ticked_at)
    }

    /// Another configuration and other rules from here on. What stayed keeps its state; an alert whose rule is gone is
    /// over.
    pub fn reconfigure(&mut self, config: Arc<Config>, rules: Rules, instance: String) {
        self.world.reconfigure(Arc::clone(&config), instance);
        self.notifier.reconfigure(config.alerting.mode, config.notify.clone());
        self.rules = rules;
        self.config = config;
        // The next tick evaluates the new rules.
        self.evaluated_at = None;
    }

    /// Whether messages are decided; not by a run that has no way to send them: nothing may count as mailed that was
    /// not, since whoever configures mail later wants to hear what fires by then. A replay shows what would have been
    /// sent.
    pub const fn decide_messages(&mut self, yes: bool) {
        self.mails = yes;
    }

    /// Applies one fact; a tick has an outcome.
    pub fn observe(&mut self, observation: &Observation) -> Option<Outcome> {
        match &observation.fact {
            Fact::Silenced { silence } => self.notifier.silence(silence, self.world.unix(observation.at)),
            Fact::SilenceExpired { id } => self.notifier.expire_silence(id, self.world.unix(observation.at)),
            _ => {}
        }
        let mut snapshot = self.world.observe(observation)?;
        let at = observation.at;
        self.ticked_at = Some(at);
        let due = self.evaluated_at.is_none_or(|last| at.since(last) >= self.config.alerting.evaluation_interval);
        let mut messages = Vec::new();
        if due {
            self.evaluated_at = Some(at);
            self.alerts = self.machine.evaluate(&self.rules, &snapshot, &self.config.alerting.labels, at);
        }
        snapshot.alerts.clone_from(&self.alerts);
        let silences = self.notifier.silences();
        for alert in &mut snapshot.alerts {
            alert.silenced_by = silences.muting(&alert.labels, snapshot.at).into_iter().map(str::to_owned).collect();
        }
        snapshot.silences = silences.list().to_vec();
        if due && self.mails {
            messages = self.notifier.step(&snapshot, at);
        }
        Some(Outcome { snapshot, messages, evaluated: due })
    }

    /// For a restart.
    pub fn state(&self) -> State {
        State {
            alerts: self.machine.state().clone(),
            notifier: self.notifier.state().clone(),
            engines: self.world.last_answers(),
            forecasts: self.world.forecasts().clone(),
            wall_offset: self.world.wall_offset,
        }
    }
}
