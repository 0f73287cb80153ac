//! Configurations, rule files and addresses that cannot be used: each ends the start with what, where and what to do.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use super::support::sidecar::{Scene, is_root};

#[test]
fn a_configuration_that_cannot_be_read_ends_it_with_78() {
    let scene = Scene::of_ordinary_user();
    let unreadable = scene.put("unreadable.yml", "jobs: []\n");
    fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o000)).unwrap();
    scene.fifo("fifo.yml");
    scene.put("binary.yml", [0xff, 0xfe, 0, 1, 2]);
    scene.put("elf.yml", b"\x7fELF\x02\x01\x01\0\0\0");
    scene.put("wrong.yml", "jbos: []\nengines: 3\n");
    scene.put("bomb.yml", {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 10].join(", ");
            text += &format!("a{level}: &a{level} [{items}]\n");
        }
        text
    });
    scene.put("deep.yml", format!("jobs: {}\n", "[".repeat(100_000)));
    let files = [
        ("unreadable.yml", "may not be read by user"),
        ("fifo.yml", "not a regular file"),
        ("jobs", "is a folder"),
        ("none.yml", "does not exist"),
        ("binary.yml", "UTF-16"),
        ("elf.yml", "elf.yml:"),
        ("wrong.yml", "did you mean `jobs`?"),
        ("bomb.yml", "bomb.yml:"),
        ("deep.yml", "deep.yml:"),
    ];
    for (name, words) in files.map(|(name, words)| (scene.shown(name), words)).into_iter().chain([
        ("/dev/zero".to_owned(), "not a regular file"),
        ("/dev/full".to_owned(), "not a regular file"),
        ("/dev/null/x".to_owned(), "cannot be read"),
    ]) {
        for arguments in [&["run", "--config.file"][..], &["check-config"]] {
            let (code, said) = scene.fails(&[arguments, &[&name]].concat());
            assert_eq!(code, 78, "{name}: {said}");
            assert!(said.contains(words) && said.contains(&name), "{name}: {said}");
        }
    }
}

#[test]
fn a_rule_file_that_cannot_be_used_ends_it_with_78() {
    let scene = Scene::of_ordinary_user();
    let unreadable = scene.put("unreadable.rules", "groups: []\n");
    fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o000)).unwrap();
    scene.fifo("fifo.rules");
    scene.put("binary.rules", [0xff, 0xfe, 0, 1, 2]);
    scene.put(
        "broken.rules",
        "groups:\n  - name: g\n    rules:\n      - {alert: A, expr: \"longhaul_job_stalled >\"}\n",
    );
    scene.put(
        "other.rules",
        "groups:\n  - name: g\n    rules:\n      - {alert: A, expr: \"quantile_over_time(0.9, up[5m])\"}\n",
    );
    scene.put("text.rules", "no rules\n");
    for (name, words) in [
        (scene.shown("unreadable.rules"), "may not be read"),
        (scene.shown("fifo.rules"), "not a regular file"),
        (scene.shown("jobs"), "is a folder"),
        (scene.shown("none.rules"), "does not exist: check the path"),
        (scene.shown("binary.rules"), "not UTF-8"),
        (scene.shown("broken.rules"), "A"),
        (scene.shown("other.rules"), "A"),
        (scene.shown("text.rules"), "groups"),
        ("/dev/zero".to_owned(), "not a regular file"),
    ] {
        scene.put("longhaul.yml", format!("alerting: {{rule_files: [{name}]}}\n"));
        let config = scene.shown("longhaul.yml");
        for arguments in [&["run", "--config.file"][..], &["check-config"]] {
            let (code, said) = scene.fails(&[arguments, &[&config]].concat());
            assert_eq!(code, 78, "{name}: {said}");
            assert!(said.contains(words) && said.contains(&name), "{name}: {said}");
        }
    }
}

#[test]
fn an_address_that_is_taken_or_not_ours_ends_it_with_1_and_a_wrong_one_with_2() {
    let scene = Scene::of_ordinary_user();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).unwrap();
    let _socket = UnixListener::bind(scene.path("s.sock")).unwrap();
    scene.put("file.sock", "precious");
    scene.put("longhaul.yml", format!("jobs_dir: null\nstorage: {{path: {}}}\n", scene.shown("storage")));
    let config = scene.shown("longhaul.yml");
    let unix = |path: &str| format!("unix:{path}");
    let mut cases = vec![
        (taken.1.clone(), 1, "the port is in use"),
        (unix(&scene.shown("file.sock")), 1, "no socket"),
        (unix(&scene.shown("none/s.sock")), 1, "its folder does not exist"),
        (unix(&scene.shown("jobs")), 1, "no socket"),
        ("192.0.2.1:10787".to_owned(), 1, "no interface of this machine"),
        ("127.0.0.1".to_owned(), 2, "port is missing"),
        ("http://127.0.0.1:1".to_owned(), 2, "it is a URL"),
        ("127.0.0.1:99999".to_owned(), 2, "no number"),
    ];
    if is_root() {
        // Nobody may not even connect to root's socket, nor bind where root's folder is.
        cases.push((unix(&scene.shown("s.sock")), 1, "not permitted"));
        cases.push((unix("/etc/longhaul-test.sock"), 1, "not permitted"));
    } else {
        cases.push((unix(&scene.shown("s.sock")), 1, "another process answers"));
    }
    let lowest = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    if lowest.trim().parse::<u16>().unwrap() > 7 {
        cases.push(("127.0.0.1:7".to_owned(), 1, "CAP_NET_BIND_SERVICE"));
    }
    for (address, expected, words) in cases {
        let (code, said) = scene.fails(&["run", "--config.file", &config, "--web.listen-address", &address]);
        assert_eq!(code, expected, "{address}: {said}");
        assert!(said.contains(words) && said.contains(&address), "{address}: {said}");
    }
    assert_eq!(fs::read(scene.path("file.sock")).unwrap(), b"precious");
    drop(taken);
    for (path, words) in [("metrics", "does not begin with /"), ("/-/ready", "something else"), ("/a?b", "characters")]
    {
        let (code, said) = scene.fails(&["run", "--config.file", &config, "--web.telemetry-path", path]);
        assert!(code == 2 && said.contains(words) && said.contains(path), "{code} {said}");
    }
}
