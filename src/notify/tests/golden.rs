//! Whole mails, compared with `tests/golden/mail`. To rewrite them on purpose: `LONGHAUL_BLESS=1 cargo test`.

use std::path::PathBuf;

use super::*;

fn compare(name: &str, message: &Message) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mail");
    let shown = format!(
        "Message-ID: {}\nThread: {}\nSubject: {}\nSeverity: {}\n\n{}\n=== as HTML ===\n{}",
        message.message_id,
        message.thread.as_deref().unwrap_or("-"),
        message.subject,
        message.severity.as_str(),
        message.text,
        message.html.as_deref().unwrap()
    );
    let file = format!("{name}.txt");
    if std::env::var_os("LONGHAUL_BLESS").is_some() {
        crate::state::save(&folder, &file, shown.as_bytes()).unwrap();
    }
    let golden = std::fs::read_to_string(folder.join(&file)).unwrap_or_default();
    assert!(golden == shown, "{file} differs; it is now:\n{shown}");
}

fn stalled() -> World {
    let mut world = World::new();
    world.snapshot.jobs[0].last_line = Some("Retrying POST /v1/completions with Bearer abcdef123456".into());
    world.fire("JobStalled", &[("job_name", "synth_25k"), ("severity", "warning")]);
    let stall = &mut world.snapshot.alerts[0];
    stall.annotations.insert("summary".into(), "synth_25k stands still: nothing moved for 6 min".into());
    stall.annotations.insert(
        "description".into(),
        "No item, token or output byte of synth_25k moved for longer than its threshold of 5 min. Likely cause: \
         engine stuck."
            .into(),
    );
    world.run(60);
    world
}

#[test]
fn stall_and_resolved() {
    let mut world = stalled();
    compare("stalled", world.last());
    world.run(1_380);
    world.end("JobStalled", &[("job_name", "synth_25k")]);
    world.run(60);
    compare("resolved", world.last());
}

#[test]
fn full_volume_with_the_stall_that_it_explains() {
    let mut world = World::new();
    world.fire("VolumeFull", &[("mountpoint", "/data"), ("device", "/dev/vdb"), ("severity", "critical")]);
    world.fire("JobStalled", &[("job_name", "synth_25k"), ("severity", "warning")]);
    world.run(60);
    compare("volume_full", world.last());
}

#[test]
fn finished() {
    let mut world = World::new();
    world.snapshot.jobs[0].message = "synth_25k: finished, 25,000 of 25,000 in 9 h 12 min.".into();
    world.fire("JobFinished", &[("job_name", "synth_25k"), ("severity", "info"), ("notify", "once")]);
    world.run(60);
    compare("finished", world.last());
}

#[test]
fn two_alerts() {
    let mut world = World::new();
    world.fire("VolumeFilling", &[("mountpoint", "/shared"), ("severity", "warning")]);
    world.run(15);
    world.fire("EngineDown", &[("engine", "vllm0"), ("severity", "critical")]);
    world.run(60);
    compare("two_alerts", world.last());
}
