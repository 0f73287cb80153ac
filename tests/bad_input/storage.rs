//! The state folder: held by another, read-only, full, damaged. Longhaul watches and mails on, says so once, loses nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::mail::{notify, put_stalled_job, rules};
use super::support::sidecar::{LIMIT, Mounted, Scene, Sidecar, is_root, shell, without};
use super::support::smtp::{Fault, Options, Server};
use super::support::wait_for;

fn stalled(scene: &Scene, server: &Server, storage: &str) -> String {
    put_stalled_job(scene);
    format!("jobs_dir: {}\nstorage: {{path: {storage}}}\n{}{}", scene.shown("jobs"), rules(scene), notify(server, ""))
}

/// The one mail there may be, in all.
fn assert_only_one(server: &Server) {
    let subjects: Vec<_> = server.received().iter().map(|mail| mail.header("Subject").unwrap_or_default()).collect();
    assert_eq!(subjects.len(), 1, "{subjects:?}");
}

fn assert_one_mail(sidecar: &Sidecar, server: &Server) {
    wait_for("the mail", LIMIT, || (!server.received().is_empty()).then_some(()));
    sidecar.until_metric("longhaul_outbox_length", |length| length == 0.0);
    assert_only_one(server);
}

#[test]
fn a_folder_that_another_one_holds_is_refused_until_that_one_is_gone() {
    let scene = Scene::new();
    let sidecar = scene.start("");
    let config = scene.shown("longhaul.yml");
    let (code, said) = scene.fails(&["run", "--config.file", &config, "--web.listen-address", "127.0.0.1:0"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("another longhaul uses") && said.contains(&scene.shown("storage")), "{said}");
    sidecar.assert_well();
    sidecar.kill();
    scene.start("").end();
}

#[test]
fn a_folder_that_cannot_be_written_is_said_and_mails_go_out_from_memory() {
    let scene = Scene::of_ordinary_user();
    let server = Server::start(Options::default());
    let folder = scene.path("locked");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let sidecar = scene.start(&stalled(&scene, &server, &scene.shown("locked/below")));
    assert_one_mail(&sidecar, &server);
    assert_eq!(sidecar.metric("longhaul_outbox_durable"), Some(0.0));
    assert!(sidecar.page().contains("storage.path"));
    sidecar.assert_well();
    let log = sidecar.end();
    assert_eq!(log.matches("cannot write the state folder").count(), 1, "{log}");
    assert_eq!(log.matches("cannot save the state").count(), 0, "said already: {log}");
}

#[test]
fn what_lies_in_the_folder_and_is_no_state_is_set_aside_and_kept() {
    let scene = Scene::new();
    let server = Server::start(Options::default());
    let yaml = stalled(&scene, &server, &scene.shown("storage"));
    fs::create_dir_all(scene.path("storage/outbox")).unwrap();
    scene.put("storage/state.json", "{\"version\":1,\"state\":");
    scene.put("storage/outbox/torn.json", "{\"version\":1,");
    scene.put("storage/outbox/future.json", "{\"version\":77,\"state\":{}}");
    scene.fifo("storage/outbox/fifo.json");
    fs::create_dir(scene.path("storage/outbox/folder.json")).unwrap();
    symlink("/dev/zero", scene.path("storage/outbox/zero.json")).unwrap();
    let sidecar = scene.start(&yaml);
    assert_one_mail(&sidecar, &server);
    sidecar.assert_well();
    let log = sidecar.end();
    for words in ["state.json.unusable", "torn.json.unusable", "future.json.unusable", "not a regular file"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert_eq!(fs::read(scene.path("storage/state.json.unusable")).unwrap(), b"{\"version\":1,\"state\":");
    assert_eq!(fs::read(scene.path("storage/outbox/torn.json.unusable")).unwrap(), b"{\"version\":1,");
    // The next start has its state and does not mail it again.
    let sidecar = scene.start(&yaml);
    sidecar.until("the alert fires", |snapshot| {
        snapshot["alerts"]
            .as_array()?
            .iter()
            .find(|alert| alert["name"] == "JobStalled" && alert["state"] == "firing")?;
        Some(())
    });
    sidecar.until_polled("jobs_dir");
    sidecar.end();
    assert_only_one(&server);
    // A state that is a FIFO or a folder holds nothing up either.
    fs::remove_file(scene.path("storage/state.json")).unwrap();
    scene.fifo("storage/state.json");
    let sidecar = scene.start(&yaml);
    sidecar.assert_well();
    let log = sidecar.end();
    assert!(log.contains("cannot read the state"), "{log}");
}

/// A small file system under the state, with nothing left on it.
fn full(scene: &Scene) -> Mounted {
    let mounted = Mounted::new("-t tmpfs -o size=64k", &scene.path("storage"));
    // `cp` fails when nothing goes in any more, as it should.
    shell(&format!("! cp /dev/zero {}/filler 2>/dev/null", scene.shown("storage")));
    mounted
}

#[test]
fn a_full_disk_stops_no_mail_and_when_space_returns_everything_is_on_disk() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    let server = Server::start(Options { fault: Fault::Banner421, ..Options::default() });
    let yaml = stalled(&scene, &server, &scene.shown("storage"));
    let _mounted = full(&scene);
    let sidecar = scene.start(&yaml);
    sidecar.until_metric("longhaul_outbox_length", |length| length == 1.0);
    sidecar.until_metric("longhaul_outbox_durable", |durable| durable == 0.0);
    assert!(sidecar.page().contains("held in memory"));
    // Several more evaluations, each of which would like to save.
    sidecar.until_polled("jobs_dir");
    sidecar.until_said("cannot write the outbox");
    let log = sidecar.log();
    assert_eq!(log.matches("cannot write the outbox").count(), 1, "{log}");
    assert!(log.contains("No space left"), "{log}");
    sidecar.assert_well();

    fs::remove_file(scene.path("storage/filler")).unwrap();
    sidecar.until_metric("longhaul_outbox_durable", |durable| durable == 1.0);
    sidecar.until_said("the outbox is on disk again");
    wait_for("the state too", LIMIT, || scene.path("storage/state.json").exists().then_some(()));
    // Now nothing is lost any more, not even by kill -9.
    sidecar.kill();
    server.set_fault(Fault::None);
    let sidecar = scene.start(&yaml);
    assert_one_mail(&sidecar, &server);
    sidecar.end();
    assert_only_one(&server);
}

#[test]
fn a_stop_while_a_mail_is_only_in_memory_does_not_say_that_it_was_mailed() {
    let scene = Scene::new();
    let server = Server::start(Options { fault: Fault::Banner421, ..Options::default() });
    let yaml = stalled(&scene, &server, &scene.shown("storage"));
    fs::create_dir(scene.path("storage")).unwrap();
    scene.put("storage/outbox", "a file in the way");
    let sidecar = scene.start(&yaml);
    sidecar.until_metric("longhaul_outbox_length", |length| length == 1.0);
    assert_eq!(sidecar.metric("longhaul_outbox_durable"), Some(0.0));
    sidecar.end();
    fs::remove_file(scene.path("storage/outbox")).unwrap();
    server.set_fault(Fault::None);
    let sidecar = scene.start(&yaml);
    assert_one_mail(&sidecar, &server);
    sidecar.end();
    assert_only_one(&server);
}

#[test]
fn a_mail_that_was_only_in_memory_goes_out_and_is_not_sent_again() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    let server = Server::start(Options::default());
    let yaml = stalled(&scene, &server, &scene.shown("storage"));
    let _mounted = full(&scene);
    let sidecar = scene.start(&yaml);
    assert_one_mail(&sidecar, &server);
    sidecar.until_said("cannot save the state");
    fs::remove_file(scene.path("storage/filler")).unwrap();
    sidecar.until_said("the state is saved again");
    let log = sidecar.end();
    assert_eq!(log.matches("cannot save the state").count(), 1, "{log}");
    let sidecar = scene.start(&yaml);
    sidecar.until_polled("jobs_dir");
    sidecar.end();
    // The state remembers it.
    assert_only_one(&server);
}

#[test]
fn a_disk_that_is_mounted_late_keeps_its_state_and_its_mails_and_silences_go_on() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    let server = Server::start(Options { fault: Fault::Banner421, ..Options::default() });
    let yaml = stalled(&scene, &server, &scene.shown("disk"));
    let flags = ["--web.listen-address", "127.0.0.1:0", "--web.enable-lifecycle"];
    let sidecar = scene.start_with(&yaml, &flags);
    sidecar.until_metric("longhaul_outbox_length", |length| length == 1.0);
    let url = format!("http://{}", sidecar.address);
    let said = scene.run(&["silence", "add", "JobStalled", "-d", "2h", "-c", "maintenance", "--url", &url]);
    assert!(said.status.success(), "{said:?}");
    sidecar.end();
    let before = fs::read(scene.path("disk/state.json")).unwrap();

    // The next one finds an empty folder, and the disk comes over it.
    fs::remove_file(scene.path("jobs/stale.json")).unwrap();
    server.set_fault(Fault::None);
    let sidecar = scene.start_with(&yaml.replace(&scene.shown("disk"), &scene.shown("storage")), &flags);
    wait_for("a state of its own", LIMIT, || scene.path("storage/state.json").exists().then_some(()));
    let _mounted = Mounted::bind(&scene.path("disk"), &scene.path("storage"));
    sidecar.until_said("state.json.unusable");
    assert_eq!(fs::read(scene.path("storage/state.json.unusable")).unwrap(), before);
    // What waited there is sent, and who wanted not to be mailed is not.
    assert_one_mail(&sidecar, &server);
    put_stalled_job(&scene);
    sidecar.until("the alert fires under the silence", |snapshot| {
        let alerts = snapshot["alerts"].as_array()?;
        let alert = alerts.iter().find(|alert| alert["name"] == "JobStalled" && alert["state"] == "firing")?;
        (!alert["silenced_by"].as_array()?.is_empty()).then_some(())
    });
    sidecar.until_polled("jobs_dir");
    sidecar.end();
    assert_only_one(&server);
}

#[test]
fn a_disk_that_is_read_only_by_now_is_said_and_its_state_is_still_read() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    let server = Server::start(Options::default());
    let yaml = stalled(&scene, &server, &scene.shown("storage"));
    let _mounted = Mounted::new("-t tmpfs -o size=1m", &scene.path("storage"));
    let sidecar = scene.start(&yaml);
    assert_one_mail(&sidecar, &server);
    sidecar.end();
    shell(&format!("mount -o remount,ro {}", scene.shown("storage")));
    let sidecar = scene.start(&yaml);
    sidecar.assert_well();
    let log = sidecar.end();
    assert!(log.contains("Read-only file system"), "{log}");
    assert_only_one(&server);
}
