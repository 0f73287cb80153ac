//! The one table of configuration keys: what is allowed where, what it takes, its default, what it is for.
//!
//! Whether a key is known, the nearest right key for one that is not, the reference in the papers and the comments that
//! `longhaul init` writes all come from here. A test gives every key of the table a wrong value and expects a problem,
//! so a key cannot stand here without being read.

use std::fmt::Write as _;

/// A mapping of the configuration.
#[derive(Debug)]
pub struct Section {
    /// Its place, as `engines[]`.
    pub path: &'static str,
    /// What may stand in it.
    pub keys: &'static [Key],
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// As typed.
    pub name: &'static str,
    /// What it takes, in words.
    pub takes: &'static str,
    /// In words; `required` where there is none.
    pub default: &'static str,
    /// What it is for.
    pub help: &'static str,
    /// What this version does not do yet, after the words "this version": the key is checked, and then a warning says
    /// so.
    pub later: Option<&'static str>,
}

const fn key(name: &'static str, takes: &'static str, default: &'static str, help: &'static str) -> Key {
    Key { name, takes, default, help, later: None }
}

impl Key {
    const fn later(mut self, what: &'static str) -> Self {
        self.later = Some(what);
        self
    }
}

const ADD_BEARER: Key =
    key("bearer_token_file", "a file", "none", "A file with a bearer token, read for each request.");
const ADD_CA: Key = key("ca_file", "a file", "none", "PEM certificates to trust besides the system's.");

/// The top level.
pub const ROOT: Section = Section {
    path: "",
    keys: &[
        key("engines", "a list", "empty", "The inference engines to scrape."),
        key("volumes", "a list", "empty", "Paths whose volumes are watched whatever the default excludes say."),
        key("gpus", "a mapping", "none", "What the GPUs should be."),
        key("jobs_dir", "a folder, or null for none", "/run/longhaul/jobs", "Drop-in progress files, a job each."),
        key("pipelines", "a list", "empty", "Jobs that follow one another."),
        key("jobs", "a list", "empty", "Jobs without a pipeline."),
        key("storage", "a mapping", "", "Where Longhaul keeps its own state."),
        key("alerting", "a mapping", "", "Which rules are evaluated, and by whom."),
        key("notify", "a mapping", "", "Where notifications go."),
        key("limits", "a mapping", "", "What bounds the memory."),
        key("poll_interval", "a duration", "5s", "How often files and volumes are looked at, 100ms to 10m."),
        key("retain_finished", "a duration", "24h", "How long the series of a finished job stay."),
    ],
};

/// `engines[]`.
pub const ENGINE: Section = Section {
    path: "engines[]",
    keys: &[
        key("name", "a name", "required", "The label `engine`."),
        key("url", "a URL", "required, or file_sd", "Where its metrics are, as http://127.0.0.1:8000/metrics."),
        key(
            "file_sd",
            "a list of file patterns",
            "none",
            "Prometheus file_sd files that name engines, instead of url.",
        ),
        ADD_BEARER,
        ADD_CA,
        key("interval", "a duration", "5s", "From scrape to scrape, 100ms to 10m."),
        key("timeout", "a duration", "10s", "For one scrape: a saturated engine can take seconds to answer."),
    ],
};

/// `volumes[]`.
pub const VOLUME: Section = Section {
    path: "volumes[]",
    keys: &[
        key("path", "a path", "required", "A path on the volume."),
        key("must_exist", "true or false", "false", "It is an alert when nothing is mounted at the path."),
        key(
            "min_avail",
            "a size",
            "1/1024 of the size, at most 16 MiB",
            "With no more than this available the volume counts as full. The default is where writes begin to fail; give the \
             reserve that you want to hear about.",
        ),
    ],
};

/// `gpus`.
pub const GPUS: Section =
    Section { path: "gpus", keys: &[key("expected", "a number", "none", "How many GPUs there should be.")] };

/// `pipelines[]`.
pub const PIPELINE: Section = Section {
    path: "pipelines[]",
    keys: &[
        key("name", "a name", "required", "The label `pipeline`."),
        key("stages", "a list of jobs", "required", "In the order of work."),
    ],
};

/// `jobs[]` and `pipelines[].stages[]`.
pub const JOB: Section = Section {
    path: "jobs[]",
    keys: &[
        key("job_name", "a name", "required", "The label `job_name`."),
        key("after", "a list of job names", "the stage before", "Jobs that must end first."),
        key("engines", "a list of engine names", "empty", "The engines that the job talks to."),
        key("progress", "a list", "empty", "Where its progress can be read; several are merged."),
        key(
            "total",
            "a number",
            "what the sources say",
            "Items in all. Worth giving where there are several sources: one that has said nothing yet holds the end off without it.",
        ),
        key("max_tokens", "a number", "none", "The most tokens an answer can have: a forecast expects none longer."),
        key("process", "a mapping", "none", "The process that does the work: one of the four keys."),
        key("outputs", "a list", "empty", "Where it writes."),
        key("baseline", "a list", "none", "Known throughput by concurrency."),
        key("deadline", "a time with offset", "none", "When it should be done, as 2026-12-01T08:00:00Z."),
        key("stall", "a mapping", "", "When it counts as stuck."),
        key("tokens_from", "a job name", "none", "The job whose tokens this one works through."),
        key("include_prompt_tokens", "true or false", "false", "Prompt tokens of `tokens_from` count too."),
        key("hidden_states", "a mapping", "none", "Bytes of output per token, as layers x hidden size x type."),
        key("bytes_per_token", "a size", "none", "Bytes of output per token."),
        key("bytes_per_item", "a size", "measured", "Bytes of output per item."),
        key(
            "total_bytes",
            "a size",
            "none",
            "Bytes of all output at the end. Where no source counts items, the ETA is of these bytes.",
        ),
        key("only_on", "a host name", "every host", "The host that mails about a job which several watch.")
            .later("does not honour only_on yet, so every host that watches this job mails; ignored"),
    ],
};

/// `progress[]` with `log`.
pub const PROGRESS_LOG: Section = Section {
    path: "progress[] (log)",
    keys: &[
        key("log", "a file", "required", "A log with progress lines or bars."),
        key("format", "a name or {regex: …}", "auto", "Which lines count: auto, or the tool that prints them."),
        key("bar", "a description", "by rule", "Which bar is the job, where a log has several."),
    ],
};

/// `progress[].format` as a mapping.
pub const LOG_FORMAT: Section = Section {
    path: "progress[].format",
    keys: &[key(
        "regex",
        "a regular expression",
        "required",
        "The user's own lines, by groups named done, total, failed, tokens, tokens_per_item, elapsed, remaining, rate, percent.",
    )],
};

/// `progress[]` with `jsonl`.
pub const PROGRESS_JSONL: Section = Section {
    path: "progress[] (jsonl)",
    keys: &[
        key("jsonl", "a file or pattern", "required", "Files that grow by one line an item."),
        key("tokens", "a JSON pointer", "none", "The completion tokens of an item, as /usage/completion_tokens."),
        key("failed", "a JSON pointer", "none", "There, and neither null, false nor empty: the item failed."),
        key("id", "a JSON pointer", "none", "Lines with the same value are one item, as /custom_id."),
    ],
};

/// `progress[]` with `json`.
pub const PROGRESS_JSON: Section = Section {
    path: "progress[] (json)",
    keys: &[
        key("json", "a file or pattern", "required", "A small file that is rewritten; the newest match counts."),
        key("done", "a JSON pointer", "/done", "Items done."),
        key("total", "a JSON pointer", "/total", "Items in all."),
        key("failed", "a JSON pointer", "/failed", "Items that failed."),
        key("tokens", "a JSON pointer", "/tokens", "Completion tokens so far."),
        key("phase", "a JSON pointer", "/phase", "What the job does now, in its own word."),
        key("updated_at", "a JSON pointer", "/updated_at", "When it was written: Unix seconds or RFC 3339."),
    ],
};

/// `progress[]` with `directory`.
pub const PROGRESS_DIRECTORY: Section = Section {
    path: "progress[] (directory)",
    keys: &[
        key("directory", "a folder", "required", "Files that appear, one an item."),
        key("pattern", "a pattern", "**/*", "Which files count; unfinished and hidden ones never do."),
    ],
};

/// `process`.
pub const PROCESS: Section = Section {
    path: "process",
    keys: &[
        key("command", "a text", "none", "A part of the command line; every process that has it counts."),
        key("pid_file", "a file", "none", "A file with the process id."),
        key("unit", "a name", "none", "A systemd unit, as synth or synth.service; all of its processes count."),
        key("cgroup", "a path", "none", "A control group, as /system.slice/synth.service, with those below it."),
    ],
};

/// `outputs[]`.
pub const OUTPUT: Section = Section {
    path: "outputs[]",
    keys: &[
        key("path", "a path", "required", "A file or folder that the job writes."),
        key("expect_mount", "a path", "none", "The mount point that it should be on."),
    ],
};

/// `baseline[]`.
pub const BASELINE: Section = Section {
    path: "baseline[]",
    keys: &[
        key("concurrency", "a number", "required", "Requests in flight."),
        key("tokens_per_second", "a number", "required", "Tokens per second at that concurrency."),
    ],
};

/// `stall`.
pub const STALL: Section = Section {
    path: "stall",
    keys: &[key("min", "a duration", "5m", "Nothing moved for this long is a stall, never anything shorter.")],
};

/// `hidden_states`.
pub const HIDDEN_STATES: Section = Section {
    path: "hidden_states",
    keys: &[
        key("layers", "a number", "required", "Layers that are kept."),
        key("hidden_size", "a number", "required", "Values in a layer."),
        key("dtype", "bf16, fp16, fp32, fp8 or int8", "required", "The type of a value."),
    ],
};

/// `storage`.
pub const STORAGE: Section = Section {
    path: "storage",
    keys: &[key(
        "path",
        "a folder",
        "/var/lib/longhaul",
        "State and the outbox; --storage.path overrides it. Mounted before Longhaul starts.",
    )],
};

/// `alerting`.
pub const ALERTING: Section = Section {
    path: "alerting",
    keys: &[
        key("mode", "standalone or prometheus", "standalone", "Who evaluates and mails: Longhaul, or your Prometheus."),
        key("rule_files", "a list of files", "the built-in rules", "Prometheus rule files to evaluate instead."),
        key("evaluation_interval", "a duration", "15s", "From evaluation to evaluation."),
        key("labels", "a mapping of texts", "empty", "Labels that a scrape would add, as {cluster: lab}."),
        key("instance", "a text", "host name and port", "The label `instance`, as your Prometheus has it."),
    ],
};

/// `notify`.
pub const NOTIFY: Section = Section {
    path: "notify",
    keys: &[
        key("email", "a mapping", "none", "Mail."),
        key("alertmanagers", "a list", "none", "Alertmanagers that get every alert, as from Prometheus."),
        key("webhooks", "a list", "none", "URLs to post to.").later("does not send to webhooks yet; ignored"),
        key("heartbeat", "a mapping", "none", "A dead man's switch to call."),
        key("group_wait", "a duration", "30s", "From an alert to its mail, to collect what fails together."),
        key("repeat", "a mapping", "", "From mail to mail about an alert that goes on."),
    ],
};

/// `notify.email`.
pub const EMAIL: Section = Section {
    path: "notify.email",
    keys: &[
        key("smarthost", "host:port", "required", "The mail server, as smtp.example.org:587."),
        key("tls", "starttls, implicit or none", "starttls", "How the connection is protected."),
        key("username", "a text", "none", "For AUTH; needs password_file."),
        key("password_file", "a file", "none", "A file with the password, read for each delivery."),
        ADD_CA,
        key("server_name", "a host name", "the host", "The name that the server's certificate must have."),
        key("allow_plaintext_auth", "true or false", "false", "Send the password without TLS."),
        key("from", "a mail address", "required", "As \"Longhaul <longhaul@example.org>\"."),
        key("to", "a list of mail addresses", "required", "Who gets the mails."),
    ],
};

/// `notify.alertmanagers[]`.
pub const ALERTMANAGER: Section = Section {
    path: "notify.alertmanagers[]",
    keys: &[
        key("url", "a URL", "required", "As http://127.0.0.1:9093; `/api/v2/alerts` is added."),
        ADD_BEARER,
        ADD_CA,
    ],
};

/// `notify.webhooks[]`.
pub const WEBHOOK: Section = Section {
    path: "notify.webhooks[]",
    keys: &[key("url", "a URL", "required", "Gets a POST for each notification."), ADD_BEARER, ADD_CA],
};

/// `notify.heartbeat`.
pub const HEARTBEAT: Section = Section {
    path: "notify.heartbeat",
    keys: &[
        key("url", "a URL", "required", "Gets a GET while Longhaul lives and its core goes on."),
        key("interval", "a duration", "1m", "From call to call."),
        ADD_CA,
    ],
};

/// `notify.repeat`.
pub const REPEAT: Section = Section {
    path: "notify.repeat",
    keys: &[
        key("critical", "a duration", "4h", "For alerts of severity critical."),
        key("warning", "a duration", "24h", "For all others."),
    ],
};

/// `limits`.
pub const LIMITS: Section = Section {
    path: "limits",
    keys: &[
        key("jobs", "a number", "200", "Jobs that the drop-in folder can bring."),
        key("response", "a size", "16MiB", "The largest answer of an engine."),
        key("line", "a size", "1MiB", "The longest line of a log or JSONL file."),
    ],
};

/// All sections, in the order of the file.
pub const SECTIONS: &[&Section] = &[
    &ROOT,
    &ENGINE,
    &VOLUME,
    &GPUS,
    &PIPELINE,
    &JOB,
    &PROGRESS_LOG,
    &LOG_FORMAT,
    &PROGRESS_JSONL,
    &PROGRESS_JSON,
    &PROGRESS_DIRECTORY,
    &PROCESS,
    &OUTPUT,
    &BASELINE,
    &STALL,
    &HIDDEN_STATES,
    &STORAGE,
    &ALERTING,
    &NOTIFY,
    &EMAIL,
    &ALERTMANAGER,
    &WEBHOOK,
    &HEARTBEAT,
    &REPEAT,
    &LIMITS,
];

impl Section {
    /// The key of that name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The key that was probably meant by `typed`.
    pub fn nearest(&self, typed: &str) -> Option<&'static str> {
        nearest(typed, self.keys.iter().map(|key| key.name))
    }
}

/// What other tools call some of our keys, where no likeness leads to ours.
const ALIASES: &[(&str, &str, &str)] = &[
    ("engines[]", "scrape_interval", "interval"),
    ("engines[]", "scrape_timeout", "timeout"),
    ("engines[]", "address", "url"),
    ("engines[]", "target", "url"),
    ("jobs[]", "name", "job_name"),
    ("outputs[]", "mountpoint", "expect_mount"),
    ("notify.email", "host", "smarthost"),
    ("notify.email", "server", "smarthost"),
    ("notify.email", "require_tls", "tls"),
    ("notify.email", "auth_username", "username"),
    ("notify.email", "auth_password_file", "password_file"),
    ("notify.email", "recipients", "to"),
];

/// The key of `section` that was probably meant by `typed`.
pub fn meant(section: &Section, typed: &str) -> Option<&'static str> {
    ALIASES
        .iter()
        .find(|(path, alias, _)| *path == section.path && *alias == typed)
        .map(|(_, _, meant)| *meant)
        .or_else(|| section.nearest(typed))
}

/// Which of `choices` was probably meant by `typed`, if any is near.
pub fn nearest<'a>(typed: &str, choices: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // The distance costs length times length, and nobody mistypes a key this long.
    const LONGEST_TYPED: usize = 64;
    if typed.len() > LONGEST_TYPED {
        return None;
    }
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let wanted = plain(typed);
    choices
        .map(|choice| (strsim::jaro_winkler(&wanted, &plain(choice)), choice))
        // 0.8 takes `intervall`, `bearer_token` and `mustExist`, and does not take `path` for `pattern`.
        .filter(|(likeness, _)| *likeness >= 0.8)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, choice)| choice)
}

/// The reference of all keys as Markdown tables, for the papers.
pub fn reference() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let title = if section.path.is_empty() { "Top level" } else { section.path };
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "### {title}\n\n| key | takes | default | |\n| --- | --- | --- | --- |");
        for key in section.keys {
            let later = key.later.map(|what| format!(" *This version {what}.*")).unwrap_or_default();
            let _ = writeln!(text, "| `{}` | {} | {} | {}{later} |", key.name, key.takes, key.default, key.help);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found_and_no_far_one() {
        for (section, typed, meant) in [
            (&ENGINE, "intervall", Some("interval")),
            (&ENGINE, "bearer-token-file", Some("bearer_token_file")),
            (&VOLUME, "mustExist", Some("must_exist")),
            (&JOB, "name", None),
            (&JOB, "job", Some("job_name")),
            (&ROOT, "engine", Some("engines")),
            (&ROOT, "alertmanager", Some("alerting")),
            (&ROOT, "zzz", None),
            (&ROOT, "", None),
        ] {
            assert_eq!(section.nearest(typed), meant, "{typed} in {}", section.path);
        }
        assert_eq!(ROOT.nearest(&"e".repeat(1 << 20)), None);
    }

    #[test]
    fn no_section_has_a_key_twice_and_the_reference_has_all() {
        let reference = reference();
        for section in SECTIONS {
            for (index, key) in section.keys.iter().enumerate() {
                assert!(section.keys[index + 1..].iter().all(|other| other.name != key.name), "{}", key.name);
                assert!(reference.contains(&format!("| `{}` | {}", key.name, key.takes)));
            }
        }
    }
}
