//! Who is watched: a task an engine, the plans of the workers. Follows the configuration as it is reloaded.
//!
//! An engine whose configuration stays keeps its task, and with it its connection and its rhythm. A worker is replaced
//! when anything in its plan changed.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::clock::Clock;
use crate::config::{self, Config};
use crate::model::Observation;
use crate::sources::engines;
use crate::worker::{GpuPlan, Plan};

/// All that a task depends on.
#[derive(Debug, Clone, PartialEq)]
struct Watched {
    what: Engines,
    response_limit: u64,
}

/// Where engines are.
#[derive(Debug, Clone, PartialEq)]
enum Engines {
    One(config::Engine),
    Pool(config::Pool),
}

/// Watches what the current configuration names, until `configs` or `out` is closed.
pub async fn follow(
    mut configs: watch::Receiver<Arc<Config>>,
    plan: watch::Sender<Plan>,
    gpu_plan: watch::Sender<GpuPlan>,
    clock: Clock,
    out: mpsc::Sender<Observation>,
) {
    // Dropped with this future, and all tasks end.
    let mut tasks = JoinSet::new();
    let mut running: Vec<(Watched, AbortHandle)> = Vec::new();
    loop {
        let config = Arc::clone(&configs.borrow_and_update());
        let response_limit = config.limits.response;
        let single = config.engines.iter().cloned().map(Engines::One);
        let all = single.chain(config.pools.iter().cloned().map(Engines::Pool));
        let mut wanted: Vec<Watched> = all.map(|what| Watched { what, response_limit }).collect();
        running.retain(|(watched, task)| match wanted.iter().position(|wanted| wanted == watched) {
            Some(index) => {
                wanted.swap_remove(index);
                true
            }
            None => {
                task.abort();
                false
            }
        });
        for watched in wanted {
            let out = out.clone();
            let task = match watched.what.clone() {
                Engines::One(engine) => tasks.spawn(engines::watch(engine, response_limit, clock, out)),
                Engines::Pool(pool) => tasks.spawn(engines::watch_pool(pool, response_limit, clock, out)),
            };
            running.push((watched, task));
        }
        renew(&plan, Plan::new(&config, clock.anchor()));
        renew(&gpu_plan, GpuPlan::new(&config, clock.anchor()));
        // Tasks that ended are forgotten; theirs is never a reason to stop.
        while tasks.try_join_next().is_some() {}
        if configs.changed().await.is_err() {
            return;
        }
    }
}

/// Sends a plan on if it is another one.
fn renew<P: PartialEq>(plan: &watch::Sender<P>, fresh: P) {
    plan.send_if_modified(|plan| {
        let other = *plan != fresh;
        *plan = fresh;
        other
    });
}
