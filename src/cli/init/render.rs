//! Flags as commented YAML.
//!
//! Hazard: quoting. A value goes into the file as [`scalar`], which is plain only where no YAML reader can take it for
//! anything but this text.

use super::Args;
use crate::config::{keys, quote};

/// The file, sections in the order of the reference; what was not given stands as a commented example.
pub fn render(args: &Args, host: &str) -> String {
    let mut page = Page::default();
    page.comment(&format!(
        "Longhaul's configuration. Check it with: longhaul check-config {} --probe",
        quote(&args.output.display().to_string())
    ));
    engines(&mut page, args);
    volumes(&mut page, args);
    jobs(&mut page, args);
    storage(&mut page, args);
    notify(&mut page, args, host);
    page.text
}

fn engine_name(index: usize) -> String {
    format!("vllm{index}")
}

fn engines(page: &mut Page, args: &Args) {
    page.section("engines");
    if args.engine.is_empty() {
        page.example("engines:\n  - name: vllm0\n    url: http://127.0.0.1:8000/metrics");
        return;
    }
    page.line(0, "engines:");
    for (index, url) in args.engine.iter().enumerate() {
        page.pair(1, "- name", &engine_name(index));
        page.pair(2, "url", url);
    }
}

fn volumes(page: &mut Page, args: &Args) {
    page.section("volumes");
    if args.volume.is_empty() {
        page.example("volumes:\n  - path: /data\n    must_exist: true\n    min_avail: 50GiB");
        return;
    }
    page.line(0, "volumes:");
    for path in &args.volume {
        page.pair(1, "- path", path);
        page.line(2, "must_exist: true");
    }
}

fn jobs(page: &mut Page, args: &Args) {
    page.section("jobs");
    let given = [&args.job_name, &args.log, &args.jsonl, &args.json, &args.total, &args.deadline, &args.output_dir];
    if given.iter().all(|value| value.is_none()) {
        page.example(
            "jobs:\n  - job_name: synth_25k\n    progress:\n      - log: /data/run.log\n    outputs:\n      - path: /data/out",
        );
        return;
    }
    page.line(0, "jobs:");
    page.pair(1, "- job_name", args.job_name.as_deref().unwrap_or("job"));
    if !args.engine.is_empty() {
        page.line(2, "engines:");
        for index in 0..args.engine.len() {
            page.item(3, &engine_name(index));
        }
    }
    let sources = [("- log", &args.log), ("- jsonl", &args.jsonl), ("- json", &args.json)];
    if sources.iter().any(|(_, value)| value.is_some()) {
        page.line(2, "progress:");
    }
    for (key, value) in sources {
        let Some(value) = value else { continue };
        page.pair(3, key, value);
        if let (true, Some(tokens)) = (key == "- jsonl", &args.tokens) {
            page.pair(4, "tokens", tokens);
        }
    }
    if let Some(total) = &args.total {
        page.line(2, &format!("total: {total}"));
    }
    if let Some(deadline) = &args.deadline {
        page.pair(2, "deadline", deadline);
    }
    if let Some(path) = &args.output_dir {
        page.line(2, "outputs:");
        page.pair(3, "- path", path);
        if let Some(mount) = &args.expect_mount {
            page.pair(4, "expect_mount", mount);
        }
    }
}

fn storage(page: &mut Page, args: &Args) {
    page.section("storage");
    match &args.storage_path {
        Some(path) => {
            page.line(0, "storage:");
            page.pair(1, "path", path);
        }
        None => page.example("storage:\n  path: /var/lib/longhaul"),
    }
}

fn notify(page: &mut Page, args: &Args, host: &str) {
    page.section("notify");
    let (Some(smarthost), Some(first)) = (&args.smarthost, args.mail_to.first()) else {
        page.example(
            "notify:\n  email:\n    smarthost: smtp.example.org:587\n    username: longhaul\n    \
             password_file: /etc/longhaul/smtp\n    from: Longhaul <longhaul@example.org>\n    to:\n      - me@example.org",
        );
        return;
    };
    page.line(0, "notify:");
    page.line(1, "email:");
    page.pair(2, "smarthost", smarthost);
    if let Some(tls) = &args.tls {
        page.pair(2, "tls", tls);
    }
    if let Some(username) = &args.username {
        page.pair(2, "username", username);
    }
    if let Some(path) = &args.password_file {
        page.pair(2, "password_file", path);
    }
    // A host without a domain makes an address that servers refuse; then who gets the mail also sends it.
    let own = format!("Longhaul <longhaul@{host}>");
    let own = (host.contains('.') && crate::config::values::mailbox(&own).is_ok()).then_some(own);
    page.pair(2, "from", args.mail_from.as_deref().or(own.as_deref()).unwrap_or(first));
    page.line(2, "to:");
    for address in &args.mail_to {
        page.item(3, address);
    }
}

#[derive(Debug, Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, depth: usize, line: &str) {
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn pair(&mut self, depth: usize, key: &str, value: &str) {
        self.line(depth, &format!("{key}: {}", scalar(value)));
    }

    fn item(&mut self, depth: usize, value: &str) {
        self.line(depth, &format!("- {}", scalar(value)));
    }

    fn comment(&mut self, text: &str) {
        self.line(0, &format!("# {text}"));
    }

    /// An empty line, and what the section is for, as the reference says it.
    fn section(&mut self, name: &str) {
        self.text.push('\n');
        let help = keys::ROOT.key(name).map_or("", |key| key.help);
        self.comment(help);
    }

    fn example(&mut self, yaml: &str) {
        for line in yaml.lines() {
            self.comment(line);
        }
    }
}

/// A text as a YAML scalar: plain where that is beyond doubt, else in double quotes.
pub fn scalar(text: &str) -> String {
    // The first character decides: `-`, `?`, `:`, `*`, `&`, `!`, `%`, `@`, quotes and brackets mean something there,
    // and digits make numbers and dates.
    let begins_well = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'.' | b'-' | b'+' | b'@');
    // A colon inside is text unless a space follows it or nothing does.
    let colons = !text.ends_with(':') && text.bytes().all(|byte| plain(byte) || byte == b':');
    if begins_well && colons && !is_word_of_yaml(text) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            ' ' => quoted.push(' '),
            _ if character.is_ascii_graphic() || (character.is_alphanumeric() && !character.is_control()) => {
                quoted.push(character);
            }
            _ => {
                let code = u32::from(character);
                quoted.push_str(&if code <= 0xffff { format!("\\u{code:04x}") } else { format!("\\U{code:08x}") });
            }
        }
    }
    quoted.push('"');
    quoted
}

/// What YAML 1.1 or 1.2 takes for a boolean or null.
fn is_word_of_yaml(text: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    WORDS.contains(&text.to_ascii_lowercase().as_str())
}
