//! A machine with GPUs, or what looks like one to the program.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

pub use super::support::nvml::Library;
use super::support::nvml::build;
use super::support::sidecar::{LIMIT, Scene, Sidecar, find};
use super::support::wait_for;

/// A folder with the state of the GPUs, and the program in it.
pub struct Machine {
    pub scene: Scene,
    state: BTreeMap<String, String>,
}

impl Machine {
    /// No library yet.
    pub fn bare() -> Self {
        let mut scene = Scene::new();
        std::fs::create_dir(scene.path("lib")).unwrap();
        scene.environment = vec![("LD_LIBRARY_PATH", scene.path("lib")), ("FAKE_NVML_STATE", scene.path("state"))];
        let mut machine = Self { scene, state: BTreeMap::new() };
        machine.set(&[]);
        machine
    }

    /// With this library and this state.
    pub fn with(library: Library, state: &[(&str, &str)]) -> Self {
        let mut machine = Self::bare();
        machine.set(state);
        machine.install(&build(library));
        machine
    }

    pub fn new(state: &[(&str, &str)]) -> Self {
        Self::with(Library::Today, state)
    }

    /// Puts the library of today in its place.
    pub fn install_today(&self) {
        self.install(&build(Library::Today));
    }

    pub fn install(&self, library: &Path) {
        self.scene.put("lib/libnvidia-ml.so.1", std::fs::read(library).unwrap());
    }

    /// Changes the state.
    pub fn set(&mut self, state: &[(&str, &str)]) {
        self.state.extend(state.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        self.write();
    }

    pub fn unset(&mut self, keys: &[&str]) {
        self.state.retain(|key, _| !keys.contains(&key.as_str()));
        self.write();
    }

    fn write(&self) {
        let text: String = self.state.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        self.scene.put("state", text);
    }

    /// Starts the program, which looks five times a second.
    pub fn start(&self) -> Sidecar {
        self.start_with("")
    }

    pub fn start_with(&self, yaml: &str) -> Sidecar {
        self.scene.start(&format!("alerting: {{evaluation_interval: 1s}}\n{yaml}"))
    }
}

/// The series of a metric for one GPU, named as its UUID ends.
pub fn of(metric: &str, index: u32) -> String {
    format!("{metric}{{gpu=\"{index}\",uuid=\"GPU-{index}\"}}")
}

/// The same with one more label.
pub fn of_with(metric: &str, index: u32, label: &str) -> String {
    format!("{metric}{{gpu=\"{index}\",uuid=\"GPU-{index}\",{label}}}")
}

/// A GPU of the snapshot.
pub fn gpu(sidecar: &Sidecar, index: usize) -> Value {
    sidecar.snapshot()["gpus"]["list"][index].clone()
}

/// Waits until what the snapshot says of a GPU at a JSON pointer has these words. A reason may change with the next poll: a GPU
/// that is taken away while it is read fails first, and is not listed only then.
pub fn until_told(sidecar: &Sidecar, index: usize, pointer: &str, words: &str) {
    wait_for(&format!("GPU {index}, {pointer}: {words}"), LIMIT, || {
        let gpu = gpu(sidecar, index);
        gpu.pointer(pointer)?.as_str()?.contains(words).then_some(())
    });
}

/// Waits until so many GPUs answer.
pub fn until_present(sidecar: &Sidecar, count: f64) {
    sidecar.until_metric("longhaul_gpus_present", |present| present == count);
}

/// Waits until an alert is pending or fires.
pub fn until_alert(sidecar: &Sidecar, name: &str) -> Value {
    sidecar.until(name, |snapshot| find(snapshot, "alerts", "name", name))
}

/// Shows that a GPU is still read: a value that is put is seen.
pub fn assert_fresh(machine: &mut Machine, sidecar: &Sidecar, index: u32) {
    let was = sidecar.metric(&of("longhaul_gpu_temperature_celsius", index)).unwrap_or(0.0);
    let value = if was == 33.0 { 34.0 } else { 33.0 };
    machine.set(&[(&format!("Temperature.{index}"), &value.to_string())]);
    sidecar.until_metric(&of("longhaul_gpu_temperature_celsius", index), |seen| seen == value);
}
