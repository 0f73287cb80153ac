//! Recordings that are cut, damaged, of another kind or of the future.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;

use super::support::sidecar::{LIMIT, Scene};
use super::support::{Process, wait_for};

#[test]
fn a_recording_is_its_owners_alone_and_a_file_that_is_there_stays_as_it_is() {
    let scene = Scene::new();
    scene.put("longhaul.yml", "jobs_dir: null\njobs: [{job_name: job, progress: [{log: /nonexistent}]}]\n");
    let (config, new, old) = (scene.shown("longhaul.yml"), scene.shown("new"), scene.shown("old"));
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let done = scene.run(&["record", &new, "--duration", "1s", "--config.file", &config]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(mode(&new), 0o600);
    scene.put("old", "mine\n");
    fs::set_permissions(&old, Permissions::from_mode(0o644)).unwrap();
    let (code, said) = scene.fails(&["record", &old, "--duration", "1s", "--config.file", &config]);
    assert!(code == 1 && said.contains("not overwritten"), "{said}");
    assert_eq!((mode(&old), fs::read_to_string(&old).unwrap().as_str()), (0o644, "mine\n"));
}

#[test]
fn what_is_no_recording_is_refused_with_the_place_and_the_reason() {
    let scene = Scene::new();
    let path = scene.shown("good");
    scene.put("longhaul.yml", "jobs_dir: null\njobs: [{job_name: job, progress: [{log: /nonexistent}]}]\n");
    let config = scene.shown("longhaul.yml");
    let done = scene.run(&["record", &path, "--duration", "2s", "--config.file", &config]);
    assert!(done.status.success(), "{done:?}");
    let good = fs::read(&path).unwrap();
    assert!(scene.run(&["replay", &path]).status.success());
    let head_end = good.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let head = String::from_utf8(good[..head_end].to_vec()).unwrap();
    let future = head.replacen("\"longhaul_recording\":1", "\"longhaul_recording\":99", 1);
    assert_ne!(future, head);

    // Cut anywhere in its last line it is whole up to there.
    for cut in [good.len() - 1, good.len() - 10, head_end] {
        scene.put("cut", &good[..cut]);
        let output = scene.run(&["replay", &scene.shown("cut"), "--json"]);
        assert!(output.status.success(), "cut at {cut}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for (name, content, words) in [
        ("empty", Vec::new(), "line 1 is not the head"),
        ("half_a_head", good[..head_end / 2].to_vec(), "line 1 is not the head"),
        ("binary", vec![0xff; 5000], "line 1 is not the head"),
        ("json", b"{\"a\": 1}\n".to_vec(), "line 1 is not the head"),
        ("future", future.into_bytes(), "version 99"),
        ("no_end", vec![b'x'; 20 << 20], "longer than 8 MiB"),
        ("long_line", [head.as_bytes(), &vec![b'x'; 20 << 20]].concat(), "longer than 8 MiB"),
        (
            "damaged",
            [head.as_bytes(), b"{\"at\": 1, \"fact\": \"no such\"}\n"].concat(),
            "line 2 is not an observation",
        ),
        ("noise", [head.as_bytes(), b"\xff\xfe\n"].concat(), "line 2 is not an observation"),
        ("deep", [head.as_bytes(), "[".repeat(1 << 20).as_bytes(), b"\n"].concat(), "line 2 is not an observation"),
    ] {
        scene.put(name, content);
        let path = scene.shown(name);
        let (code, said) = scene.fails(&["replay", &path]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(words) && said.contains(&path), "{name}: {said}");
        assert!(said.len() < 1000, "short: {}", said.len());
    }
    for (path, words) in [
        (scene.shown(""), "directory"),
        (scene.shown("none"), "No such file"),
        ("/dev/zero".to_owned(), "longer than 8 MiB"),
        ("/dev/null".to_owned(), "line 1 is not the head"),
    ] {
        let (code, said) = scene.fails(&["replay", &path]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(words) && said.contains(&path), "{path}: {said}");
    }
    // A recording is not overwritten.
    let (code, said) = scene.fails(&["record", &path, "--duration", "1s", "--config.file", &config]);
    assert!(code == 1 && said.contains("not overwritten") && said.contains(&path), "{said}");
    assert_eq!(fs::read(&path).unwrap(), good);

    // A FIFO is read like any stream: `longhaul replay <(zstdcat …)`.
    let fifo = scene.fifo("fifo");
    let writer = std::thread::Builder::new()
        .spawn(move || fs::OpenOptions::new().write(true).open(fifo).unwrap().write_all(&good).unwrap())
        .unwrap();
    assert!(scene.run(&["replay", &scene.shown("fifo")]).status.success());
    writer.join().unwrap();
}

#[test]
fn times_that_no_clock_has_do_not_bring_a_replay_down() {
    let scene = Scene::new();
    let path = scene.shown("good");
    scene.put("longhaul.yml", "jobs_dir: null\n");
    let done = scene.run(&["record", &path, "--duration", "2s", "--config.file", &scene.shown("longhaul.yml")]);
    assert!(done.status.success());
    let text = fs::read_to_string(&path).unwrap();
    let tick = text.lines().find(|line| line.contains("\"fact\":\"tick\"")).unwrap();
    let at: serde_json::Value = serde_json::from_str(tick).unwrap();
    let at = at["at"].to_string();
    for odd in [i64::MAX, i64::MIN, -1, 0] {
        let odd = tick.replacen(&at, &odd.to_string(), 1);
        let wall = odd.replacen("\"fact\":\"tick\"", "\"fact\":\"wall_clock\",\"offset\":1e300", 1);
        scene.put("odd", format!("{text}{odd}\n{tick}\n{wall}\n{odd}\n{tick}\n"));
        // What it says is nonsense in, nonsense out; that it ends is the point.
        for arguments in [&["replay"][..], &["replay", "--json"]] {
            scene.run(&[arguments, &[&scene.shown("odd")]].concat());
        }
    }
}

#[test]
fn a_recording_on_a_full_disk_ends_and_says_so_and_the_rest_goes_on() {
    let scene = Scene::new();
    scene.put(
        "longhaul.yml",
        format!("jobs_dir: null\npoll_interval: 100ms\nstorage: {{path: {}}}\n", scene.shown("storage")),
    );
    let mut command = scene.command();
    // The size of a file is limited instead of the disk: the same error of the same call, for any user.
    let limited = format!(
        "trap '' XFSZ; ulimit -f 128; exec {:?} run --config.file {} --web.listen-address 127.0.0.1:0 --record {} 2>{}",
        command.get_program(),
        scene.shown("longhaul.yml"),
        scene.shown("recording"),
        scene.shown("log"),
    );
    command = std::process::Command::new("sh");
    let mut process = Process(command.arg("-c").arg(limited).spawn().unwrap());
    let log = || fs::read_to_string(scene.path("log")).unwrap_or_default();
    wait_for("it says so", LIMIT, || log().contains("cannot write the recording").then_some(()));
    let address = log();
    let address = address.lines().find_map(|line| line.split_once("listening address=")).unwrap().1;
    super::support::get(address, "/-/ready");
    assert_eq!(log().matches("cannot write the recording").count(), 1, "{}", log());
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait(super::support::sidecar::END), Some(0));
    assert!(!log().contains("panicked"));
}
