//! Mail servers that refuse, hang or do not match the configuration: said by kind, and every mail arrives once.

use super::support::free_port;
use super::support::sidecar::{Scene, Sidecar, at_once};
use super::support::smtp::{Fault, Mode, Options, Received, Server};

/// The one alert that these tests are about, at once; the shipped rules would also mail about the small full volumes
/// that other tests mount meanwhile.
pub fn rules(scene: &Scene) -> String {
    let rule = "{alert: JobStalled, expr: longhaul_job_stalled == 1, for: 1s, labels: {severity: critical}, \
                annotations: {summary: \"{{ $labels.job_name }} has not moved\"}}";
    let file = scene.put("rules.yml", format!("groups: [{{name: g, rules: [{rule}]}}]\n"));
    // The port of the next start is another one, and an alert of another instance would be another alert.
    format!("alerting: {{evaluation_interval: 1s, instance: \"test:1\", rule_files: [{}]}}\n", file.display())
}

/// Mail to that server, with more of the keys of `notify.email`.
pub fn notify(server: &Server, more: &str) -> String {
    notify_port(server.port, more)
}

fn notify_port(port: u16, more: &str) -> String {
    let tls = if more.contains("tls:") { "" } else { "tls: none, " };
    format!(
        "notify:\n  group_wait: 0s\n  email: {{smarthost: \"127.0.0.1:{port}\", {tls}from: a@example.org, \
         to: [me@example.org]{more}}}\n"
    )
}

/// A drop-in job that was last written yesterday: it stalls as soon as it is seen.
pub fn put_stalled_job(scene: &Scene) {
    scene.put("jobs/stale.json", "{\"done\": 3, \"total\": 10, \"updated_at\": 1700000000}");
}

/// A scene with a stalled job and the configuration around the given mail.
fn stalled(notify: &str) -> (Scene, String) {
    let scene = Scene::new();
    put_stalled_job(&scene);
    let yaml = format!("jobs_dir: {}\n{}{notify}", scene.shown("jobs"), rules(&scene));
    (scene, yaml)
}

/// The failure is counted by its kind, said on the page, and the mail waits.
fn assert_said(sidecar: &Sidecar, kind: &str, words: &str) {
    let series = format!("longhaul_notifications_failed_total{{integration=\"email\",kind=\"{kind}\"}}");
    sidecar.until_metric(&series, |count| count >= 1.0);
    let page = sidecar.page();
    assert!(page.contains("notifications by email") && page.contains(words), "{words}: {page}");
    assert_eq!(sidecar.metric("longhaul_outbox_length"), Some(1.0));
    assert_eq!(sidecar.metric("longhaul_outbox_durable"), Some(1.0));
    sidecar.assert_well();
}

/// It has left the outbox, and came once.
fn assert_once(sidecar: &Sidecar, server: &Server) -> Vec<Received> {
    sidecar.until_metric("longhaul_outbox_length", |length| length == 0.0);
    sidecar.until_metric("longhaul_notifications_total{integration=\"email\"}", |count| count == 1.0);
    let received = server.received();
    let subjects: Vec<_> = received.iter().map(|mail| mail.header("Subject").unwrap()).collect();
    assert_eq!(subjects.len(), 1, "{subjects:?}");
    assert!(subjects[0].contains("JobStalled"), "{subjects:?}");
    received
}

#[test]
fn a_server_that_is_not_there_is_tried_again_and_gets_the_mail_once() {
    let port = free_port();
    let (scene, yaml) = stalled(&notify_port(port, ""));
    let sidecar = scene.start(&yaml);
    assert_said(&sidecar, "refused", "127.0.0.1");
    // It comes up elsewhere: a restart with the right port has the mail still.
    sidecar.kill();
    let server = Server::start(Options::default());
    let sidecar = scene.start(&yaml.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{}", server.port)));
    assert_once(&sidecar, &server);
    sidecar.end();
    assert_eq!(server.received().len(), 1);
}

#[test]
fn servers_that_are_slow_to_trust_or_silent_get_the_mail_once_in_the_end() {
    // The program waits as long as it waits: 15 s after a refusal for now, 20 s for a word.
    at_once([greylisting_passes_by_itself, silence_is_given_up_in_time]);
}

fn greylisting_passes_by_itself() {
    let server = Server::start(Options { fault: Fault::Greylist, ..Options::default() });
    let (scene, yaml) = stalled(&notify(&server, ""));
    let sidecar = scene.start(&yaml);
    assert_said(&sidecar, "status", "451");
    assert_once(&sidecar, &server);
    sidecar.end();
}

fn silence_is_given_up_in_time() {
    let server = Server::start(Options { fault: Fault::Silent, ..Options::default() });
    let (scene, yaml) = stalled(&notify(&server, ""));
    let sidecar = scene.start(&yaml);
    assert_said(&sidecar, "timeout", "127.0.0.1");
    server.set_fault(Fault::None);
    sidecar.end();
    let sidecar = scene.start(&yaml);
    assert_once(&sidecar, &server);
    sidecar.end();
}

#[test]
fn a_wrong_password_is_said_without_it_and_the_right_one_delivers() {
    let auth = Some(("me".to_owned(), "right horse".to_owned()));
    let server = Server::start(Options { mode: Mode::Starttls, auth, ..Options::default() });
    let (scene, yaml) = stalled("");
    scene.put("password", "wr0ng horse\n");
    let more = format!(
        ", tls: starttls, ca_file: {}, username: me, password_file: {}",
        server.ca_file.display(),
        scene.shown("password")
    );
    let yaml = yaml + &notify(&server, &more);
    let sidecar = scene.start(&yaml);
    assert_said(&sidecar, "auth", "password_file");
    let log = sidecar.end();
    assert!(!log.contains("wr0ng") && log.contains("password_file"), "{log}");
    for (path, words) in [(scene.shown("jobs"), "password_file"), (scene.shown("none"), "password_file")] {
        let sidecar = scene.start(&yaml.replace(&scene.shown("password"), &path));
        sidecar.until("it is said", |snapshot| {
            let reason = snapshot["notifications"]["integrations"]["email"]["reason"].as_str()?;
            (reason.contains(words) && reason.contains(&path)).then_some(())
        });
        sidecar.end();
    }
    scene.put("password", "right horse\n");
    let sidecar = scene.start(&yaml);
    let mail = assert_once(&sidecar, &server);
    assert!(mail[0].tls && mail[0].user.as_deref() == Some("me"));
    sidecar.end();
}

#[test]
fn tls_that_does_not_match_says_what_to_change() {
    at_once(
        [
            (Mode::Plain, "starttls", true, "STARTTLS"),
            (Mode::Starttls, "starttls", false, "ca_file"),
            (Mode::Plain, "implicit", true, "tls"),
            (Mode::Implicit, "implicit", false, "ca_file"),
        ]
        .map(|(mode, tls, ca, words)| {
            move || {
                let server = Server::start(Options { mode, ..Options::default() });
                let ca = if ca { format!(", ca_file: {}", server.ca_file.display()) } else { String::new() };
                let (scene, yaml) = stalled(&notify(&server, &format!(", tls: {tls}{ca}")));
                let sidecar = scene.start(&yaml);
                assert_said(&sidecar, "tls", words);
                sidecar.end();
                assert!(server.received().is_empty());
            }
        }),
    );
}
