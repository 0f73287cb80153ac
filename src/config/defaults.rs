//! The configuration of somebody who configured nothing, and of one who configured a part.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::checked::{Alerting, AlertingMode, Config, Engine, Limits, Notify};
use crate::model::EngineName;

impl Default for Config {
    /// A file without keys: no engine, no job but those that drop in, all volumes.
    fn default() -> Self {
        Self {
            engines: Vec::new(),
            pools: Vec::new(),
            volumes: Vec::new(),
            gpus_expected: None,
            jobs_dir: Some("/run/longhaul/jobs".into()),
            jobs: Vec::new(),
            storage: super::DEFAULT_STORAGE.into(),
            alerting: Alerting::default(),
            notify: Notify::default(),
            limits: Limits::default(),
            poll_interval: Duration::from_secs(5),
            retain_finished: Duration::from_secs(24 * 3600),
            procfs: "/proc".into(),
            rootfs: PathBuf::from("/"),
        }
    }
}

impl Config {
    /// No configuration file at all: the same, and a vLLM where it usually is, whose absence is no failure. A file,
    /// even one without `engines`, says what there is, and then nothing is guessed.
    pub fn default_discovery() -> Self {
        Self {
            engines: vec![Engine {
                name: EngineName::new("vllm"),
                url: "http://127.0.0.1:8000/metrics".into(),
                bearer_token_file: None,
                ca_file: None,
                interval: Duration::from_secs(5),
                timeout: Duration::from_secs(10),
                discovered: true,
            }],
            ..Self::default()
        }
    }
}

impl Default for Alerting {
    fn default() -> Self {
        Self {
            mode: AlertingMode::Standalone,
            rule_files: Vec::new(),
            evaluation_interval: Duration::from_secs(15),
            labels: BTreeMap::new(),
            instance: None,
        }
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self {
            email: None,
            heartbeat: None,
            alertmanagers: Vec::new(),
            group_wait: Duration::from_secs(30),
            repeat_critical: Duration::from_secs(4 * 3600),
            repeat_warning: Duration::from_secs(24 * 3600),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { jobs: 200, response: 16 << 20, line: 1 << 20 }
    }
}
