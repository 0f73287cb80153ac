//! File systems that hang: in `statfs`, in `stat`, in `read`, before the start and in the middle; two of ten for a while,
//! with everything else going on.
//!
//! "A while" is some seconds here and `LONGHAUL_HUNG_SECONDS` in `tests/long/run`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::hangfs::{Call, HangFs};
use super::support::sidecar::{END, LIMIT, Mounted, Scene, Sidecar, children_of, find, is_root, shell, without};
use super::support::smtp::{Options, Server};
use super::support::{ask, free_port, wait_for};
use super::{of_volume, rules, until_firing, until_volume, waiting_threads};

fn cannot_run() -> bool {
    without("fuse", is_root() && Path::new("/dev/fuse").exists())
}

fn log_of(path: &Path) -> String {
    format!("{{log: {}/run.log}}", path.display())
}

/// prometheus/node_exporter#475 and its siblings: whatever call hangs, and whenever it began.
#[test]
fn b01_a_call_that_hangs_is_said_and_hurts_nothing_else() {
    if cannot_run() {
        return;
    }
    let scene = Scene::new();
    let calls = [Call::Statfs, Call::Stat, Call::Read];
    let folders: Vec<PathBuf> = (0..6).map(|number| scene.path(&format!("fuse{number}"))).collect();
    let _healthy = Mounted::new("-t tmpfs -o size=2m", &scene.path("healthy"));
    scene.put("healthy/run.log", "Progress: 5/10 (0 errors), elapsed: 5s\n");
    let mut mounted = Vec::new();
    let mut jobs = format!("jobs:\n  - {{job_name: healthy, progress: [{}]}}\n", log_of(&scene.path("healthy")));
    for (number, folder) in folders.iter().enumerate() {
        std::fs::create_dir(folder).unwrap();
        mounted.push(HangFs::mount(folder));
        jobs += &format!("  - {{job_name: job{number}, progress: [{}]}}\n", log_of(folder));
    }
    // The first three hang before the start, the others in the middle.
    for (fuse, call) in mounted.iter().zip(calls) {
        fuse.hang_in(Some(call));
    }
    let sidecar = scene.start(&(rules(&scene) + &jobs));
    for number in 3..6 {
        sidecar.until_done(&format!("job{number}"), 300.0);
    }
    for (fuse, call) in mounted.iter().skip(3).zip(calls) {
        fuse.hang_in(Some(call));
    }
    for (number, folder) in folders.iter().enumerate() {
        // One lane a volume: what waits behind the call that hangs says so as well.
        let reason = sidecar.until_reason(&format!("progress/job{number}/log"), "has not answered for over");
        assert!(reason.contains(folder.to_str().unwrap()), "{reason}");
        until_volume(&sidecar, "longhaul_volume_up", folder, |up| up == 0.0);
        sidecar.assert_scrape_is_fast();
    }
    assert_eq!(sidecar.job("healthy")["done"], 5.0);
    sidecar.until_polled("progress/healthy/log");
    until_firing(&sidecar, "VolumeUnresponsive", ("mountpoint", folders[0].to_str().unwrap()));
    sidecar.assert_well();
    for fuse in &mounted {
        fuse.hang_in(None);
    }
    for (number, folder) in folders.iter().enumerate() {
        until_volume(&sidecar, "longhaul_volume_up", folder, |up| up == 1.0);
        sidecar.until_done(&format!("job{number}"), 300.0);
    }
    sidecar.end();
}

/// netdata/netdata#6839: a file server that answers once that nothing is available.
#[test]
fn b19_one_bad_answer_is_counted_and_neither_shown_nor_mailed() {
    if cannot_run() {
        return;
    }
    let scene = Scene::new();
    let folder = scene.path("fuse");
    std::fs::create_dir(&folder).unwrap();
    let fuse = HangFs::mount(&folder);
    let sidecar = scene.start(&rules(&scene));
    until_volume(&sidecar, "longhaul_volume_avail_bytes", &folder, |avail| avail == 1_024_000.0);
    for lie in [1.0, 2.0, 3.0] {
        fuse.lie_once_to(sidecar.worker());
        wait_for("it is passed over", LIMIT, || {
            let avail = of_volume(&sidecar, "longhaul_volume_avail_bytes", &folder);
            assert_eq!(avail, Some(1_024_000.0), "what was last borne out");
            of_volume(&sidecar, "longhaul_volume_suspect_samples_total", &folder).filter(|count| *count == lie)
        });
    }
    let alerts = sidecar.snapshot()["alerts"].clone();
    let about = |alert: &&Value| alert["labels"]["mountpoint"].as_str() == folder.to_str();
    assert_eq!(alerts.as_array().unwrap().iter().find(about), None, "not even pending");
    sidecar.assert_well();
    sidecar.end();
}

/// Processes, their threads besides one for each volume, and their open files.
fn resources(sidecar: &Sidecar) -> (usize, usize, usize) {
    let pids: Vec<u32> = std::iter::once(sidecar.pid()).chain(children_of(sidecar.pid())).collect();
    let count = |what: &str| {
        pids.iter()
            .map(|pid| std::fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count))
            .sum::<usize>()
    };
    let volumes = sidecar.snapshot()["volumes"].as_array().unwrap().len();
    (pids.len(), count("task").saturating_sub(volumes), count("fd"))
}

fn last_seen(snapshot: &Value, folder: &Path) -> Option<f64> {
    find(snapshot, "sources", "source", "mounts")?;
    let volume = find(snapshot, "volumes", "mountpoint", folder.to_str()?)?;
    volume["up"].as_bool()?.then(|| snapshot["at"].as_f64()).flatten()
}

/// prometheus/node_exporter#578, #3058 and microsoft/pai#2117: two of ten hang, for as long as it takes.
#[test]
fn b02_b03_b04_two_of_ten_mounts_hang_and_all_else_goes_on_through_a_restart() {
    if cannot_run() {
        return;
    }
    let scene = Scene::new();
    let mail = Server::start(Options::default());
    let healthy: Vec<PathBuf> = (0..8).map(|number| scene.path(&format!("tmpfs{number}"))).collect();
    let _tmpfs: Vec<Mounted> = healthy.iter().map(|path| Mounted::new("-t tmpfs -o size=1m", path)).collect();
    let hung = [scene.path("hung0"), scene.path("hung1")];
    let fuse = hung.each_ref().map(|path| {
        std::fs::create_dir(path).unwrap();
        HangFs::mount(path)
    });
    // The alerts of these ten alone, whatever else the test machine has.
    let listen = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "{}notify:\n  group_wait: 1s\n  email: {{smarthost: \"127.0.0.1:{}\", tls: none, from: l@example.org, to: [me@example.org]}}\n",
        rules(&scene),
        mail.port
    );
    let sidecar = scene.start_at(&config, &listen);
    for path in healthy.iter().chain(&hung) {
        until_volume(&sidecar, "longhaul_volume_up", path, |up| up == 1.0);
    }
    fuse.iter().for_each(|fuse| fuse.hang(true));
    for path in &hung {
        until_volume(&sidecar, "longhaul_volume_up", path, |up| up == 0.0);
        until_firing(&sidecar, "VolumeUnresponsive", ("mountpoint", path.to_str().unwrap()));
    }
    let named = |mails: &Server, path: &Path| {
        mails
            .received()
            .iter()
            .any(|mail| mail.text().contains("VolumeUnresponsive") && mail.text().contains(path.to_str().unwrap()))
    };
    for path in &hung {
        wait_for("a mail about it", LIMIT, || named(&mail, path).then_some(()));
    }
    let before = resources(&sidecar);
    let seconds: f64 = std::env::var("LONGHAUL_HUNG_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10.0);
    let begun = sidecar.metric("longhaul_snapshot_timestamp_seconds").unwrap();
    let mut round = 0_u32;
    wait_for("the hang lasts", Duration::from_secs_f64(seconds * 2.0 + 60.0), || {
        // The eight change all the time, and that is seen.
        let (volume, size) = (&healthy[round as usize % 8], 4096 * (1 + round % 100));
        shell(&format!("head -c {size} /dev/zero > {}/file", volume.display()));
        until_volume(&sidecar, "longhaul_volume_avail_bytes", volume, |avail| avail == f64::from((1 << 20) - size));
        sidecar.assert_scrape_is_fast();
        round += 1;
        (sidecar.metric("longhaul_snapshot_timestamp_seconds").unwrap() - begun > seconds).then_some(())
    });
    // Other tests mount and unmount beside this one: a thread each, and some files. A scrape of ours may be open at one of the
    // two looks.
    wait_for("processes, threads and open files are flat", LIMIT, || {
        let after = resources(&sidecar);
        ((after.0, after.1) == (before.0, before.1) && after.2 <= before.2 + 3).then_some(())
    });
    let stuck: usize = children_of(sidecar.pid()).into_iter().map(waiting_threads).sum();
    assert_eq!(stuck, 2, "no second call on a volume that hangs");
    assert_eq!(waiting_threads(sidecar.pid()), 0, "the main process touches none");
    let snapshot = sidecar.snapshot();
    assert!(healthy.iter().all(|path| last_seen(&snapshot, path).is_some()));

    // A mail about something else goes out in this state.
    shell(&format!("dd if=/dev/zero of={}/full bs=64k 2>/dev/null; true", healthy[0].display()));
    let full = |mails: &Server, path: &Path| {
        mails
            .received()
            .iter()
            .any(|mail| mail.text().contains("VolumeFull") && mail.text().contains(path.to_str().unwrap()))
    };
    wait_for("a mail while two hang", LIMIT, || full(&mail, &healthy[0]).then_some(()));

    // SIGTERM ends it in time, its port is free, and the next one listens and mails.
    let mut process = sidecar.process;
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait(END), Some(0));
    let next = scene.start_at(&config, &listen);
    assert_eq!(next.address, listen);
    for path in &hung {
        // Which volumes hang is known from the mount table, though nothing of them was ever read.
        until_volume(&next, "longhaul_volume_up", path, |up| up == 0.0);
    }
    shell(&format!("dd if=/dev/zero of={}/full bs=64k 2>/dev/null; true", healthy[1].display()));
    wait_for("a mail of the next one", LIMIT, || full(&mail, &healthy[1]).then_some(()));
    for path in &hung {
        until_firing(&next, "VolumeUnresponsive", ("mountpoint", path.to_str().unwrap()));
    }

    fuse.iter().for_each(|fuse| fuse.hang(false));
    for path in &hung {
        until_volume(&next, "longhaul_volume_up", path, |up| up == 1.0);
        until_volume(&next, "longhaul_volume_avail_bytes", path, |avail| avail == 1_024_000.0);
    }
    next.end();
}

/// A reload read its files in the main process, between everything else: until the file system answered, no signal did
/// anything, SIGTERM neither, and then the kernel kept the process.
#[test]
fn a_reload_from_a_file_system_that_hangs_fails_in_time_and_holds_nothing_up() {
    if cannot_run() {
        return;
    }
    let post = |sidecar: &Sidecar| {
        let request = "POST /-/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        ask(&sidecar.address, request).expect("an answer")
    };
    for call in [Call::Read, Call::Stat] {
        let scene = Scene::new();
        let folder = scene.path("fuse");
        std::fs::create_dir(&folder).unwrap();
        let log = scene.put("a.log", "Progress: 3/10 (0 errors), elapsed: 3s\n");
        let good = format!("jobs: [{{job_name: a, progress: [{{log: {}}}]}}]\n", log.display());
        let flags = ["--web.listen-address", "127.0.0.1:0", "--web.enable-lifecycle"];
        let mut sidecar = scene.start_with(&good, &flags);
        sidecar.until_done("a", 3.0);
        // Dropped before the sidecar, so that a failure ends too.
        let fuse = HangFs::mount(&folder);
        fuse.hang_in(Some(call));
        let config = scene.path("longhaul.yml");
        if call == Call::Read {
            std::fs::remove_file(&config).unwrap();
            std::os::unix::fs::symlink(folder.join("run.log"), &config).unwrap();
        } else {
            scene.configure(&format!("{good}alerting: {{rule_files: [{}]}}\n", folder.join("run.log").display()));
        }

        sidecar.process.signal(Signal::SIGHUP);
        wait_for("a process that reads it", LIMIT, || (children_of(sidecar.pid()).len() == 3).then_some(()));
        let (status, said) = post(&sidecar);
        assert!(status == 503 && said.contains("under way"), "{status} {said}");
        // Everything else goes on.
        scene.put("a.log", "Progress: 5/10 (0 errors), elapsed: 5s\n");
        sidecar.until_done("a", 5.0);
        sidecar.assert_scrape_is_fast();
        sidecar.until_said("could not be read within 10 s");
        sidecar.until_metric("longhaul_config_last_reload_successful", |successful| successful == 0.0);
        // The kernel has it still: not one more.
        let (status, said) = post(&sidecar);
        assert!(status == 500 && said.contains("still hangs"), "{status} {said}");
        assert_eq!(children_of(sidecar.pid()).len(), 3);

        if call == Call::Read {
            // It answers again, and so do reloads.
            fuse.hang_in(None);
            std::fs::remove_file(&config).unwrap();
            scene.configure(&good);
            wait_for("a reload", LIMIT, || (post(&sidecar).0 == 200).then_some(()));
            fuse.hang_in(Some(call));
            std::fs::remove_file(&config).unwrap();
            std::os::unix::fs::symlink(folder.join("run.log"), &config).unwrap();
            sidecar.process.signal(Signal::SIGHUP);
            wait_for("another process", LIMIT, || (children_of(sidecar.pid()).len() == 3).then_some(()));
            // A signal is remembered, since it gets no answer.
            sidecar.process.signal(Signal::SIGHUP);
            sidecar.until_said("another one follows it");
        }
        sidecar.process.signal(Signal::SIGTERM);
        assert_eq!(sidecar.process.wait(END), Some(0), "{call:?}");
    }
}
