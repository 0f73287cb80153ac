//! The shell around the core: starts everything, moves observations in and snapshots out, and stops in order.
//!
//! One thread of its own owns the core and is the only writer (`spine`): it takes observations from one channel,
//! writes them to the recording, and on each tick publishes the snapshot and hands messages to the outbox. Sources are
//! tasks and worker processes; outputs read the last snapshot from a watch channel.
//!
//! A reload ([`Running::reload`]) is checked before anything changes. Then the core takes the new configuration between
//! two observations, and the sources follow it ([`watching`]); what stayed the same is not touched.
//!
//! Stopping: sources and listeners first, so that nothing new enters; then the core, which saves its state; then the
//! sender, whose messages are on disk already, and who waits a moment for a server that has a mail and has not said so.
//! Nothing waits for what can hang: a worker in an uninterruptible call is left behind, and whoever calls [`Running::stop`]
//! exits after [`SHUTDOWN_DEADLINE`] whatever is left.

mod alertmanagers;
mod heartbeat;
mod keeping;
mod source_log;
mod spine;
mod storage;
mod watching;

pub use alertmanagers::probe as probe_alertmanager;
pub use storage::saved_forecasts;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::alerts::Rules;
use crate::clock::{Clock, Since};
use crate::config::Config;
use crate::model::{Fact, Failure, FailureKind, Observation, Snapshot, SourceId, Time};
use crate::recording::Head;
use crate::rest::Rest;
use crate::web;
use crate::worker::{self, GpuPlan, Kept, Plan, WorkerSpec};

/// SIGTERM ends us in this time whatever hangs.
pub const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);

/// Between snapshots.
const TICK: Duration = Duration::from_secs(1);

/// Between the first ones: what the sources answer at once is shown at once, and not a second later.
const FIRST_TICKS: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(200)];

/// Observations on their way to the core. When it is full, sources wait: they are the ones that can.
const CHANNEL: usize = 4096;

/// The wall clock has to be set by more than this before it is a fact; slewing by NTP stays far below.
const WALL_STEP_SECONDS: f64 = 1.0;

/// What to run.
#[derive(Debug)]
pub struct Options {
    /// Checked.
    pub config: Config,
    /// The rule files, name and text.
    pub rules: Vec<(String, String)>,
    /// Where to serve; empty for a run that only records.
    pub listen: Vec<web::Listen>,
    /// The path of the metrics.
    pub telemetry_path: String,
    /// Every observation is written here.
    pub record: Option<PathBuf>,
    /// Evaluate alerts, mail and keep state; false for a run that only records.
    pub act: bool,
    /// Who may have the configuration reloaded over HTTP.
    pub lifecycle: Option<web::Lifecycle>,
}

/// A run that has started.
#[derive(Debug)]
pub struct Running {
    /// The latest snapshot; `None` before the first.
    pub snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    /// The addresses that are served, as bound.
    pub addresses: Vec<String>,
    /// The label `instance` where the configuration has none.
    instance: String,
    clock: Clock,
    started: Time,
    configs: watch::Sender<Arc<Config>>,
    heads: std::sync::mpsc::Sender<spine::Reconfiguration>,
    observations: mpsc::Sender<Observation>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    spine: std::thread::JoinHandle<()>,
}

/// Starts everything; returns once all addresses are bound.
pub async fn start(options: Options) -> anyhow::Result<Running> {
    let Options { config, rules: rule_files, listen, telemetry_path, record, act, lifecycle } = options;
    let rules = parse(&rule_files).map_err(anyhow::Error::msg)?;
    let bound = web::bind(&listen).await?;
    let addresses: Vec<String> = bound.iter().map(|bound| bound.at().to_string()).collect();
    let instance = instance(&bound);

    let mut storage = if act { Some(storage::Storage::open(&config.storage)?) } else { None };
    let (clock, since) = keeping::clock(storage.as_mut());
    let started = clock.now();
    let head = head(started, &instance, &config, rule_files);
    let config = Arc::new(config);
    let (heads, reconfigurations) = std::sync::mpsc::channel();
    let (observations, inbox) = mpsc::channel(CHANNEL);
    let (publish, snapshots) = watch::channel(None);
    let (stop, stopping) = watch::channel(false);
    let (spine, kept) = spine::start(spine::Parts {
        head,
        config: config.clone(),
        rules,
        clock,
        inbox,
        reconfigurations,
        back: observations.clone().downgrade(),
        publish,
        record,
        storage,
        since,
    })?;
    // Files are dated by the wall clock: how far it is away from a line that goes on is the first thing to know.
    // Of a line that begins it is nothing; one that goes on was perhaps kept under another.
    let offset = Some(clock.wall_offset()).filter(|_| since != Since::Ever);
    if let Some(offset) = offset {
        if offset.abs() > WALL_STEP_SECONDS {
            tracing::info!(seconds = offset, "the wall clock was set since our time line began");
        }
        observations.send(own(&clock, Fact::WallClock { offset })).await?;
    }

    let mut tasks = JoinSet::new();
    let (plan, plans) = watch::channel(Plan::new(&config, clock.anchor()));
    let (gpu_plan, gpu_plans) = watch::channel(GpuPlan::new(&config, clock.anchor()));
    let (configs, followed) = watch::channel(config);
    if act {
        let beating = heartbeat::follow(configs.subscribe(), snapshots.clone(), clock, observations.clone());
        tasks.spawn(until(stopping.clone(), beating));
        let posting = alertmanagers::follow(configs.subscribe(), snapshots.clone(), clock, observations.clone());
        tasks.spawn(until(stopping.clone(), posting));
    }
    let watching = watching::follow(followed, plan, gpu_plan, clock, observations.clone());
    tasks.spawn(until(stopping.clone(), watching));
    tasks.spawn(worker::supervise(WorkerSpec::files(), plans, kept, clock, observations.clone(), stopping.clone()));
    tasks.spawn(worker::supervise(
        WorkerSpec::gpus(),
        gpu_plans,
        Kept::default(),
        clock,
        observations.clone(),
        stopping.clone(),
    ));
    tasks.spawn(until(stopping.clone(), ticks(clock, offset.unwrap_or(0.0), observations.clone())));
    let (silencer, changes) = web::Silencer::new(snapshots.clone());
    let state = web::State::new(snapshots.clone(), &telemetry_path, lifecycle)?.silenced_by(silencer);
    tasks.spawn(until(stopping.clone(), pass_on(changes, clock, observations.clone())));
    tasks.spawn(web::serve(bound, state, stopped(stopping)));
    Ok(Running { snapshots, addresses, instance, clock, started, configs, heads, observations, stop, tasks, spine })
}

fn parse(rule_files: &[(String, String)]) -> Result<Rules, String> {
    Rules::parse(rule_files).map_err(|problems| {
        let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
        format!("the alert rules have problems:\n{}", list.join("\n"))
    })
}

fn head(started: Time, instance: &str, config: &Config, rules: Vec<(String, String)>) -> Head {
    Head {
        longhaul_recording: crate::recording::VERSION,
        started,
        instance: config.alerting.instance.clone().unwrap_or_else(|| instance.to_owned()),
        config: config.clone(),
        rules,
        before: None,
    }
}

impl Running {
    /// Goes on with another configuration and other rules, or says why the ones before stay; so does the log. `read` is
    /// what came of reading them.
    pub async fn reload(&self, read: Result<(Config, Vec<(String, String)>), String>) -> Result<(), String> {
        let outcome = read.and_then(|(config, rules)| self.reconfigure(config, rules));
        let failure = match &outcome {
            Ok(()) => {
                tracing::info!("the configuration was reloaded");
                None
            }
            Err(reason) => {
                tracing::error!(%reason, "the configuration was not reloaded; the one before stays in use");
                Some(Failure::new(FailureKind::Config, reason.clone()))
            }
        };
        let fact = Fact::Reload { failure };
        self.observations.send(own(&self.clock, fact)).await.map_err(|_| "longhaul is stopping".to_owned())?;
        outcome
    }

    /// All or nothing: what can fail comes first.
    fn reconfigure(&self, config: Config, rule_files: Vec<(String, String)>) -> Result<(), String> {
        let before = Arc::clone(&self.configs.borrow());
        if config.storage != before.storage {
            return Err(format!(
                "storage.path is {} now and was {}: state does not move under a running longhaul, restart it",
                config.storage.display(),
                before.storage.display()
            ));
        }
        let rules = parse(&rule_files)?;
        let head = head(self.started, &self.instance, &config, rule_files);
        self.heads.send(spine::Reconfiguration { head, rules }).map_err(|_| "longhaul is stopping".to_owned())?;
        self.configs.send_replace(Arc::new(config));
        Ok(())
    }

    /// Returns when the core is gone, which before [`stop`](Self::stop) only a bug brings about. What is served from then on
    /// is the past, and no alert comes any more: whoever runs this ends, so that a service manager starts another.
    pub async fn broke_off(&self) {
        let mut snapshots = self.snapshots.clone();
        while snapshots.changed().await.is_ok() {}
    }

    /// Stops in order. Returns when all is done; what hangs is not waited for beyond [`SHUTDOWN_DEADLINE`].
    pub async fn stop(mut self) {
        // Nobody listening any more is fine.
        let _ = self.stop.send(true);
        drop(self.observations);
        let orderly = async {
            while self.tasks.join_next().await.is_some() {}
            // All senders are gone now, so the spine comes to the end of its channel.
            let _ = tokio::task::spawn_blocking(move || self.spine.join()).await;
        };
        if tokio::time::timeout(SHUTDOWN_DEADLINE.saturating_sub(Duration::from_secs(1)), orderly).await.is_err() {
            tracing::warn!("something hangs and is left behind");
        }
    }
}

/// A tick a second, and a fact when somebody set the wall clock.
async fn ticks(clock: Clock, mut known_offset: f64, out: mpsc::Sender<Observation>) {
    let mut interval = tokio::time::interval(TICK);
    // After a suspend one tick is enough.
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut first = FIRST_TICKS.into_iter();
    let mut rest = Rest::default();
    interval.tick().await;
    loop {
        rest.look(clock.now());
        let offset = clock.wall_offset();
        let mut facts = Vec::new();
        if (offset - known_offset).abs() > WALL_STEP_SECONDS {
            tracing::warn!(seconds = offset - known_offset, "the wall clock was set");
            known_offset = offset;
            facts.push(Fact::WallClock { offset });
        }
        facts.push(Fact::Tick);
        for fact in facts {
            if out.send(own(&clock, fact)).await.is_err() {
                return;
            }
        }
        match first.next() {
            Some(pause) => tokio::time::sleep(pause).await,
            None => _ = interval.tick().await,
        }
    }
}

/// Changes of silences become observations.
async fn pass_on(mut changes: web::silences::Changes, clock: Clock, out: mpsc::Sender<Observation>) {
    while let Some(fact) = changes.recv().await {
        if out.send(own(&clock, fact)).await.is_err() {
            return;
        }
    }
}

/// What Longhaul itself says.
fn own(clock: &Clock, fact: Fact) -> Observation {
    Observation { at: clock.now(), source: SourceId::own(), took: None, fact }
}

/// Runs `work` until it ends or all stops.
async fn until(stopping: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = stopped(stopping) => {}
    }
}

/// After a post or a heartbeat that failed.
const RETRY: Duration = Duration::from_secs(10);

/// The configuration as it is reloaded.
type Configs = watch::Receiver<Arc<Config>>;
/// What the core makes of each tick; `None` before the first.
type Snapshots = watch::Receiver<Option<Arc<Snapshot>>>;

/// Does `work` with a part of the configuration, and begins anew when that part is another one; what else changes is no
/// reason. Ends with the work, or when `configs` is closed.
async fn with_each<P, F>(mut configs: Configs, part: impl Fn(&Config) -> P, work: impl Fn(P) -> F)
where
    P: Clone + PartialEq,
    F: Future<Output = ()>,
{
    loop {
        let current = part(&configs.borrow_and_update());
        tokio::select! {
            () = work(current.clone()) => return,
            changed = configs.wait_for(|config| part(config) != current) => if changed.is_err() { return },
        }
    }
}

/// Returns when all stops.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is the same.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// `host:port`, as Prometheus names the target that it scrapes.
fn instance(bound: &[web::Bound]) -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let host = host.unwrap_or_else(|| "localhost".to_owned());
    match bound.iter().find_map(|bound| bound.at().port()) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_answers_at_once_is_shown_within_a_fraction_of_a_second() {
        let began = tokio::time::Instant::now();
        let (out, mut inbox) = mpsc::channel(1);
        let ticks = tokio::spawn(ticks(Clock::start(), 0.0, out));
        let mut millis = Vec::new();
        while millis.len() < 7 {
            assert_eq!(inbox.recv().await.unwrap().fact, Fact::Tick);
            millis.push(began.elapsed().as_millis());
        }
        assert_eq!(millis, [0, 50, 100, 200, 400, 1000, 2000]);
        ticks.abort();
    }

    #[tokio::test]
    async fn a_core_that_is_gone_is_noticed() {
        let clock = Clock::start();
        let config = crate::config::parse("", "").config.unwrap();
        let (publish, snapshots) = watch::channel(None);
        let running = Running {
            snapshots,
            addresses: Vec::new(),
            instance: String::new(),
            clock,
            started: clock.now(),
            configs: watch::channel(Arc::new(config)).0,
            heads: std::sync::mpsc::channel().0,
            observations: mpsc::channel(1).0,
            stop: watch::channel(false).0,
            tasks: JoinSet::new(),
            spine: std::thread::Builder::new().spawn(|| ()).unwrap(),
        };
        let mut noticed = Box::pin(running.broke_off());
        publish.send_replace(None);
        tokio::select! {
            biased;
            () = &mut noticed => panic!("it lives"),
            () = std::future::ready(()) => {}
        }
        drop(publish);
        noticed.await;
        running.stop().await;
    }
}
