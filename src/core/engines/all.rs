//! All engines of a run: those of the configuration, and those that its pools have at the moment.
//!
//! Separate from the single engine because here engines come and go.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Engine;
use crate::config;
use crate::model::engine::shown_url;
use crate::model::observation::Target;
use crate::model::{EngineName, Time};

/// The engines of a run: those of the configuration, and what its pools have at the moment.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Engines {
    all: Vec<Engine>,
    /// When engines that are not there yet answered an earlier run of ours.
    #[serde(skip)]
    remembered: BTreeMap<EngineName, Time>,
}

/// What became of engines.
#[derive(Debug, Default)]
pub struct Changes {
    /// Those that are not there any more.
    pub gone: Vec<EngineName>,
    /// Those that went, came, or are others under the same name: as jobs name them, so by their pools as well.
    pub named: BTreeSet<EngineName>,
}

impl Engines {
    /// Those of the configuration.
    pub fn new(config: &config::Config) -> Self {
        Self { all: config.engines.iter().map(Engine::new).collect(), remembered: BTreeMap::new() }
    }

    /// Another configuration: what is in both goes on.
    pub fn reconfigure(&mut self, before: &config::Config, config: &config::Config) -> Changes {
        let mut known = std::mem::take(&mut self.all);
        for engine in &config.engines {
            let stays = before.engines.iter().any(|other| other.is_recorded_as(engine));
            let same = |known: &Engine| stays && known.pool.is_none() && known.name == engine.name;
            let index = known.iter().position(same);
            self.all.push(index.map_or_else(|| Engine::new(engine), |index| known.remove(index)));
        }
        // The targets of a pool that is another one come with the next look at its files.
        let stays = |pool: &config::Pool| config.pools.contains(pool);
        let pools: Vec<&EngineName> = before.pools.iter().filter(|pool| stays(pool)).map(|pool| &pool.name).collect();
        let (stay, go) = known
            .into_iter()
            .partition::<Vec<_>, _>(|engine| engine.pool.as_ref().is_some_and(|pool| pools.contains(&pool)));
        self.all.extend(stay);
        // One that is new under a name of its own is named by jobs that begin anew with it.
        self.changes(&go, Vec::new())
    }

    /// `went` are not among us any more, unless there are others of that name, and `came` are new.
    fn changes(&self, went: &[Engine], came: Vec<EngineName>) -> Changes {
        let missing = |name: &&EngineName| !self.all.iter().any(|other| other.name == **name);
        let names = || went.iter().map(|engine| &engine.name);
        let pools = went.iter().filter_map(|engine| engine.pool.as_ref());
        Changes {
            gone: names().filter(missing).cloned().collect(),
            named: names().chain(pools).cloned().chain(came).collect(),
        }
    }

    /// Goes on with what an earlier run of ours knew of those that are still what they were, and of the targets of
    /// pools, which come with the first look at their files.
    pub fn resume(&mut self, before: Self, config: &config::Config) {
        for known in before.all {
            match &known.pool {
                None => {
                    if let Some(engine) = self.get_mut(&known.name).filter(|engine| engine.url == known.url) {
                        engine.resume(known);
                    }
                }
                Some(pool) => {
                    if let Some(pool) = config.pools.iter().find(|other| other.name == *pool)
                        && self.get_mut(&known.name).is_none()
                    {
                        let mut engine = Engine::target(pool, known.name.clone(), known.url.clone());
                        engine.resume(known);
                        self.all.push(engine);
                    }
                }
            }
        }
    }

    /// All of them, those of the configuration first.
    pub fn iter(&self) -> impl Iterator<Item = &Engine> {
        self.all.iter()
    }

    /// One of them.
    pub fn get_mut(&mut self, name: &EngineName) -> Option<&mut Engine> {
        self.all.iter_mut().find(|engine| engine.name == *name)
    }

    /// Those of a job, in the order in which it names them.
    pub fn of<'e, 'j>(&'e self, job: &'j config::Job) -> impl Iterator<Item = &'e Engine> + use<'e, 'j> {
        job.engines.iter().flat_map(move |name| {
            self.all.iter().filter(move |engine| engine.name == *name || engine.pool.as_ref() == Some(name))
        })
    }

    /// The targets of a pool, all of them; who is not among them any more is gone.
    pub fn retarget(&mut self, pool: &config::Pool, targets: &[Target]) -> Changes {
        let is_target = |engine: &Engine| {
            targets.iter().any(|target| target.engine == engine.name && shown_url(&target.url) == engine.url)
        };
        let (kept, gone) = std::mem::take(&mut self.all)
            .into_iter()
            .partition::<Vec<_>, _>(|engine| engine.pool.as_ref() != Some(&pool.name) || is_target(engine));
        self.all = kept;
        let mut came = Vec::new();
        for target in targets {
            if self.all.iter().any(|engine| engine.name == target.engine) {
                continue;
            }
            let mut engine = Engine::target(pool, target.engine.clone(), target.url.clone());
            if let Some(at) = self.remembered.remove(&target.engine) {
                engine.answered_before(at);
            }
            self.all.push(engine);
            came.extend([target.engine.clone(), pool.name.clone()]);
        }
        self.changes(&gone, came)
    }

    /// Goes on with what an earlier run knew.
    pub fn remember(&mut self, name: &EngineName, at: Time) {
        match self.get_mut(name) {
            Some(engine) => engine.answered_before(at),
            None => drop(self.remembered.insert(name.clone(), at)),
        }
    }
}
