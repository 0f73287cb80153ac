//! `notify`: where notifications go.
//!
//! Hazard: a file that promises notifications this version does not send. An integration that is not there yet is a
//! warning beside another way out, and a problem where it would be the only way that an alert leaves the machine.

use std::path::PathBuf;
use std::time::Duration;

use super::super::checked::{Alerting, AlertingMode, Alertmanager, Email, Heartbeat, Notify, SmtpTls};
use super::super::keys;
use super::super::problem::Problems;
use super::super::reader::{Field, Map};
use super::super::values::{self, Url};
use super::{set, span};

/// Reads `notify` over its defaults.
pub fn read(map: &Map<'_>, alerting: &Alerting, notify: &mut Notify, problems: &mut Problems) {
    let Some(map) = map.map("notify", &keys::NOTIFY, problems) else { return };
    if let Some(email) = map.map("email", &keys::EMAIL, problems) {
        notify.email = read_email(&email, problems);
    }
    for field in map.list("alertmanagers", problems) {
        notify.alertmanagers.extend(read_alertmanager(&field, problems));
    }
    for field in map.list("webhooks", problems) {
        target(&field, &keys::WEBHOOK, problems);
    }
    let is_told = map.field("email").is_some() || map.field("alertmanagers").is_some();
    if alerting.mode == AlertingMode::Standalone && !is_told && map.field("webhooks").is_some() {
        map.problem(
            "webhooks",
            problems,
            "this version sends to no webhook, so alerts would reach nobody: \
             add notify.email or notify.alertmanagers, or set alerting.mode to prometheus",
        );
    }
    if let Some(heartbeat) = map.map("heartbeat", &keys::HEARTBEAT, problems) {
        notify.heartbeat = read_heartbeat(&heartbeat, problems);
    }
    if alerting.mode == AlertingMode::Prometheus {
        if map.field("email").is_some() {
            map.warning("email", problems, "has no effect: with alerting.mode prometheus Longhaul mails nothing");
        }
        if map.field("alertmanagers").is_some() {
            let why = "has no effect: with alerting.mode prometheus it is Prometheus that posts alerts";
            map.warning("alertmanagers", problems, why);
        }
    }
    set(&mut notify.group_wait, map.value("group_wait", problems, span(Duration::ZERO, Duration::from_secs(3600))));
    if let Some(repeat) = map.map("repeat", &keys::REPEAT, problems) {
        let month = Duration::from_secs(31 * 24 * 3600);
        let minute = Duration::from_secs(60);
        set(&mut notify.repeat_critical, repeat.value("critical", problems, span(minute, month)));
        set(&mut notify.repeat_warning, repeat.value("warning", problems, span(minute, month)));
    }
}

/// A URL to post to, with what protects it.
fn target(
    field: &Field<'_>,
    section: &'static keys::Section,
    problems: &mut Problems,
) -> Option<(Url, Option<PathBuf>, Option<PathBuf>)> {
    let map = Map::open(field, section, problems)?;
    let url = map.required_value("url", problems, values::url);
    let token = map.value("bearer_token_file", problems, values::path);
    let ca_file = map.value("ca_file", problems, values::path);
    let url = url?;
    if token.is_some() && !url.secure && !url.is_loopback() {
        map.warning("bearer_token_file", problems, "the token is sent in the clear: use an https URL");
    }
    if ca_file.is_some() && !url.secure {
        map.warning("ca_file", problems, "has no effect: the URL is not https");
    }
    Some((url, token, ca_file))
}

fn read_alertmanager(field: &Field<'_>, problems: &mut Problems) -> Option<Alertmanager> {
    let (url, bearer_token_file, ca_file) = target(field, &keys::ALERTMANAGER, problems)?;
    if url.text.contains(['?', '#']) {
        field.problem(problems, "has a query in its url: name the server and, where it has one, its path");
        return None;
    }
    Some(Alertmanager { url: url.text, bearer_token_file, ca_file })
}

fn read_heartbeat(map: &Map<'_>, problems: &mut Problems) -> Option<Heartbeat> {
    let url = map.required_value("url", problems, values::url);
    let interval = map.value("interval", problems, span(Duration::from_secs(1), Duration::from_secs(24 * 3600)));
    let ca_file = map.value("ca_file", problems, values::path);
    let url = url?;
    if ca_file.is_some() && !url.secure {
        map.warning("ca_file", problems, "has no effect: the URL is not https");
    }
    Some(Heartbeat { url: url.text, interval: interval.unwrap_or(Duration::from_secs(60)), ca_file })
}

fn read_email(map: &Map<'_>, problems: &mut Problems) -> Option<Email> {
    let smarthost = map.required_value("smarthost", problems, values::host_and_port);
    let kinds = [("starttls", SmtpTls::Starttls), ("implicit", SmtpTls::Implicit), ("none", SmtpTls::None)];
    let tls = map.field("tls").map_or(Some(SmtpTls::Starttls), |field| field.choice(problems, &kinds));
    let username = map.value("username", problems, values::plain_text);
    let password_file = map.value("password_file", problems, values::path);
    let ca_file = map.value("ca_file", problems, values::path);
    let server_name = map.value("server_name", problems, values::host_name);
    let allow_plaintext_auth = map.flag("allow_plaintext_auth", problems);
    let from = map.required_value("from", problems, values::mailbox);
    let to = map.required("to", problems).map(|field| recipients(&field, problems));

    match map.given(&["username", "password_file"]).as_slice() {
        ["username"] => map.problem("password_file", problems, "missing: username needs it; it takes a file"),
        ["password_file"] => map.problem("username", problems, "missing: password_file needs it; it takes a text"),
        _ => {}
    }
    if tls == Some(SmtpTls::None) {
        if map.field("username").is_some() && !allow_plaintext_auth {
            map.problem(
                "tls",
                problems,
                "none would send the password in the clear: use starttls or implicit, \
                 or allow it with `allow_plaintext_auth: true`",
            );
        }
        for name in map.given(&["ca_file", "server_name"]) {
            map.warning(name, problems, "has no effect with `tls: none`");
        }
    }
    let (host, port) = smarthost?;
    let tls = tls?;
    let usual = match (port, tls) {
        (465, SmtpTls::Starttls) => Some("implicit"),
        (587, SmtpTls::Implicit) => Some("starttls"),
        _ => None,
    };
    if let Some(usual) = usual {
        map.warning("smarthost", problems, format!("port {port} usually takes `tls: {usual}`"));
    }
    Some(Email {
        host,
        port,
        tls,
        username,
        password_file,
        ca_file,
        server_name,
        allow_plaintext_auth,
        from: from?,
        to: to?,
    })
}

fn recipients(field: &Field<'_>, problems: &mut Problems) -> Vec<String> {
    let before = field.list(problems);
    if before.is_empty() && matches!(field.node.kind, super::super::tree::Kind::List(_)) {
        field.problem(problems, "is empty: name at least one address");
    }
    before.iter().filter_map(|field| field.parse(problems, values::mailbox)).collect()
}
