//! Composes the mail for what was decided: subject, text, HTML, ids. Separate from deciding so that wording is changed
//! without touching when mails are sent; the golden files in `tests/golden/mail` hold it.
//!
//! Everything that comes from outside (names, annotations, log lines) passes through [`human`] and [`redact`] here, and
//! nowhere else: one line for a header, no control characters, bounded, no credentials.

use jiff::tz::TimeZone;

use super::decide::{Tracked, fingerprint, hash};
use super::message::{Message, Purpose, Severity};
use super::{explain, html, human};
use crate::model::snapshot::{AlertView, Snapshot};
use crate::redact::redact;
use crate::text;

/// Alerts that are described in full; the others get a line each.
const IN_FULL: usize = 10;
/// Alerts that are listed at all, in each part.
const LISTED: usize = 100;
/// Jobs whose status message is in a mail.
const JOBS: usize = 5;
/// Characters of a subject without its tag. Phones show 40 to 60.
const SUBJECT: usize = 120;
/// Characters of a title or a label.
const LINE: usize = 300;
/// Characters of an annotation or a status message.
const PARAGRAPH: usize = 4_000;

/// The annotations that a mail shows.
pub(super) const ANNOTATIONS: [&str; 3] = ["summary", "description", "runbook_url"];

/// Labels that the mail says elsewhere or that are the same in every alert of ours.
const SAID_ELSEWHERE: [&str; 5] = ["alertname", "severity", "notify", "instance", "job"];

/// What a mail has to say, by part, each most severe first.
#[derive(Default)]
pub(super) struct Contents<'a> {
    /// Not mailed before.
    pub(super) fresh: Vec<&'a Tracked>,
    /// Mailed before and still firing.
    pub(super) going_on: Vec<&'a Tracked>,
    /// Mailed before, and nobody sees the object now.
    pub(super) unseen: Vec<&'a Tracked>,
    /// Ended.
    pub(super) resolved: Vec<&'a Tracked>,
    /// Stalls that the above explain and that get no mail of their own.
    pub(super) explained: Vec<&'a AlertView>,
}

impl<'a> Contents<'a> {
    /// What still fires, as far as is known.
    pub(super) fn shown(&self) -> impl Iterator<Item = &'a Tracked> + '_ {
        self.fresh.iter().chain(&self.going_on).chain(&self.unseen).copied()
    }

    /// Orders each part: the most severe first, causes before what they cause by age, then by name.
    pub(super) fn sort(&mut self) {
        for part in [&mut self.fresh, &mut self.going_on, &mut self.unseen, &mut self.resolved] {
            part.sort_by(|a, b| {
                (Severity::of(&a.view).cmp(&Severity::of(&b.view)))
                    .then_with(|| a.view.active_at.total_cmp(&b.view.active_at))
                    .then_with(|| a.view.name.cmp(&b.view.name))
                    .then_with(|| a.view.labels.cmp(&b.view.labels))
            });
        }
    }

    /// What makes two decisions the same: who fired since when, and who ended.
    pub(super) fn digest(&self, purpose: Purpose) -> u32 {
        let mark = |sign: &str, tracked: &Tracked| {
            format!("{sign}{}{:.3}", fingerprint(&tracked.view), tracked.view.active_at)
        };
        let mut marks: Vec<String> = vec![format!("{purpose:?}")];
        marks.extend(self.fresh.iter().map(|tracked| mark("+", tracked)));
        marks.extend(self.resolved.iter().map(|tracked| mark("-", tracked)));
        let all = hash(marks.iter().map(String::as_str));
        u32::try_from(all >> 32).unwrap_or_default()
    }

    /// The first alert by importance: it names the mail.
    fn head(&self) -> Option<&'a Tracked> {
        self.fresh.first().or(self.resolved.first()).or(self.going_on.first()).or(self.unseen.first()).copied()
    }
}

/// The body before it becomes text or HTML.
pub(super) struct Body {
    pub(super) headline: String,
    pub(super) sections: Vec<Section>,
    pub(super) jobs: Vec<(String, String)>,
    pub(super) footer: String,
}

/// One part of the body.
pub(super) struct Section {
    pub(super) title: Option<&'static str>,
    pub(super) entries: Vec<Entry>,
    /// Entries that were left out.
    pub(super) more: usize,
}

/// One alert of a part.
pub(super) struct Entry {
    pub(super) title: String,
    pub(super) when: String,
    pub(super) description: String,
    pub(super) labels: String,
    pub(super) runbook: Option<String>,
}

/// Composes a mail; also gives its subject without the tag, which the thread shares.
pub(super) fn message(
    id: String,
    purpose: Purpose,
    thread: Option<&str>,
    base: Option<&str>,
    contents: &Contents<'_>,
    snapshot: &Snapshot,
    zone: &TimeZone,
) -> (Message, String) {
    let base = base.map_or_else(|| base_subject(contents, snapshot), str::to_owned);
    let reply = if thread.is_some() { "Re: " } else { "" };
    let body = body(contents, snapshot, zone);
    let message = Message {
        message_id: format!("<{id}.longhaul@{}>", domain(human::host(&snapshot.instance))),
        id,
        thread: thread.map(str::to_owned),
        subject: format!("{reply}[{}] {base}", tag(purpose, thread.is_some(), contents)),
        text: text(&body),
        html: html::render(&body),
        severity: contents.head().map_or(Severity::Warning, |tracked| Severity::of(&tracked.view)),
        purpose,
        created: snapshot.at,
    };
    (message, base)
}

/// `JobStalled synth_25k on gpu-box-3`, and how many more.
fn base_subject(contents: &Contents<'_>, snapshot: &Snapshot) -> String {
    let all = contents.fresh.len() + contents.going_on.len() + contents.unseen.len() + contents.resolved.len();
    let more = match all.saturating_sub(1) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let name = contents.head().map_or_else(|| "alerts".to_owned(), |tracked| title(&tracked.view));
    human::line(&redact(&format!("{name}{more} on {}", human::host(&snapshot.instance))), SUBJECT)
}

/// What the mail is, in brackets before the subject. Mail programs that thread by subject leave out both `Re:` and what
/// is in brackets (RFC 5256, 2.1), so all mails of a thread have one base subject. A later mail names what is new in the
/// brackets: a full volume must not arrive as one more word about a warning.
fn tag(purpose: Purpose, later: bool, contents: &Contents<'_>) -> String {
    let firing = contents.shown().count();
    let new = contents.fresh.first().filter(|_| later).map(|tracked| {
        // A bracket within would end the part that is left out.
        human::line(&redact(&tracked.view.name), SUBJECT).replace(['[', ']'], " ")
    });
    match purpose {
        Purpose::Digest => format!("{} alerts, mails held back", firing + contents.resolved.len()),
        Purpose::Firing if contents.fresh.iter().all(|tracked| tracked.once()) => {
            new.map_or_else(|| "INFO".into(), |new| format!("INFO {new}"))
        }
        Purpose::Firing if firing == 1 => new.map_or_else(|| "FIRING".into(), |new| format!("FIRING {new}")),
        Purpose::Firing => new.map_or_else(|| format!("{firing} alerts"), |new| format!("{firing} alerts, new: {new}")),
        Purpose::Resolved if firing == 0 => "RESOLVED".into(),
        Purpose::Resolved => format!("{} resolved, {firing} firing", contents.resolved.len()),
        Purpose::Repeat if contents.going_on.is_empty() => "NO DATA".into(),
        Purpose::Repeat => "STILL FIRING".into(),
    }
}

fn body(contents: &Contents<'_>, snapshot: &Snapshot, zone: &TimeZone) -> Body {
    let mut full = IN_FULL;
    let mut sections = Vec::new();
    let headline = headline(contents, snapshot);
    let parts: [(Option<&'static str>, &[&Tracked]); 4] = [
        (None, &contents.fresh),
        (Some("Resolved"), &contents.resolved),
        (Some("Still firing"), &contents.going_on),
        (Some("No data"), &contents.unseen),
    ];
    for (title, part) in parts {
        // The part that the mail is about needs no title.
        let title = if sections.is_empty() { None } else { title };
        let entries = part.iter().map(|tracked| {
            // What ended, or seems to, needs no description of how it was.
            let in_full = full > 0 && !tracked.ended() && (tracked.waits() || !tracked.view.kept);
            full = full.saturating_sub(1);
            entry(&tracked.view, &when(tracked, snapshot, zone), in_full, &headline)
        });
        sections.extend(section(title, entries));
    }
    let explained = contents.explained.iter().map(|stall| entry(stall, &firing(stall, snapshot, zone), false, ""));
    sections.extend(section(Some("Explained by the above, and not mailed on its own"), explained));
    Body {
        headline,
        sections,
        jobs: jobs(contents, snapshot),
        footer: format!(
            "Longhaul {} on {}, {}; `longhaul status` there says how it is now",
            human::line(&snapshot.version, LINE),
            human::line(&snapshot.instance, LINE),
            text::moment_in(snapshot.at, zone)
        ),
    }
}

fn section(title: Option<&'static str>, entries: impl ExactSizeIterator<Item = Entry>) -> Option<Section> {
    let more = entries.len().saturating_sub(LISTED);
    let entries: Vec<Entry> = entries.take(LISTED).collect();
    (!entries.is_empty()).then_some(Section { title, entries, more })
}

/// The first line: the cause in words, since a phone shows no more.
fn headline(contents: &Contents<'_>, snapshot: &Snapshot) -> String {
    let Some(head) = contents.head() else { return "Nothing fires.".into() };
    let summary = head.view.annotations.get("summary").map_or_else(|| title(&head.view), |s| safe_line(s));
    if let (true, Some(ended)) = (contents.fresh.is_empty() && !contents.resolved.is_empty(), head.vanished_at) {
        let lasted = text::span(ended - head.view.fired_at.unwrap_or(head.view.active_at));
        return format!("Resolved after {lasted}: {}", title(&head.view));
    }
    match head.vanished_at {
        Some(vanished) if head.unseen => format!("No data for {}: {summary}", text::span(snapshot.at - vanished)),
        _ => summary,
    }
}

/// What is known about when.
fn when(tracked: &Tracked, snapshot: &Snapshot, zone: &TimeZone) -> String {
    let fired = tracked.view.fired_at.unwrap_or(tracked.view.active_at);
    match tracked.vanished_at {
        _ if tracked.once() => since("seen", fired, snapshot, zone),
        Some(vanished) if tracked.unseen => {
            format!(
                "{}; {}, so whether it still holds is unknown",
                since("firing", fired, snapshot, zone),
                since("no data", vanished, snapshot, zone)
            )
        }
        Some(vanished) if tracked.ended() => format!(
            "fired {}, resolved {}, after {}",
            text::moment_in(fired, zone),
            text::moment_in(vanished, zone),
            text::span(vanished - fired)
        ),
        _ => firing(&tracked.view, snapshot, zone),
    }
}

/// Since when it fires; of one that is only kept, that it no longer holds.
fn firing(alert: &AlertView, snapshot: &Snapshot, zone: &TimeZone) -> String {
    let since = since("firing", alert.fired_at.unwrap_or(alert.active_at), snapshot, zone);
    if alert.kept { format!("{since}; it holds no longer, and is over if that stays so") } else { since }
}

fn since(what: &str, at: f64, snapshot: &Snapshot, zone: &TimeZone) -> String {
    let word = if what == "seen" { "" } else { " since" };
    format!("{what}{word} {}, {} ago", text::moment_in(at, zone), text::span(snapshot.at - at))
}

/// One alert; its summary is left out where the first line of the mail is just that.
fn entry(alert: &AlertView, when: &str, in_full: bool, headline: &str) -> Entry {
    let title = format!("{} ({})", title(alert), Severity::of(alert).as_str());
    if !in_full {
        return Entry {
            title,
            when: when.to_owned(),
            description: String::new(),
            labels: String::new(),
            runbook: None,
        };
    }
    let annotation = |name: &str| alert.annotations.get(name).map(|text| safe_lines(text)).filter(|t| !t.is_empty());
    let in_title = explain::object(alert).map(|(label, _)| label);
    let labels: Vec<String> = alert
        .labels
        .iter()
        .filter(|(name, _)| !SAID_ELSEWHERE.contains(&name.as_str()) && in_title != Some(name.as_str()))
        .map(|(name, value)| format!("{}={}", safe_line(name), safe_line(value)))
        .collect();
    let mut description = annotation("description").unwrap_or_default();
    if let Some(summary) = annotation("summary").filter(|s| s != headline && !description.contains(s.as_str())) {
        description = if description.is_empty() { summary } else { format!("{summary}\n{description}") };
    }
    Entry {
        title,
        when: when.to_owned(),
        description,
        labels: labels.join(", "),
        runbook: alert.annotations.get("runbook_url").map(|url| safe_line(url)).filter(|url| !url.is_empty()),
    }
}

/// The status messages of the jobs that the mail is about.
fn jobs(contents: &Contents<'_>, snapshot: &Snapshot) -> Vec<(String, String)> {
    let views = || contents.shown().chain(contents.resolved.iter().copied()).map(|t| &t.view);
    let concerned = |job: &str| {
        views().chain(contents.explained.iter().copied()).any(|alert| match explain::object(alert) {
            Some(("job_name", name)) => name == job,
            Some(("mountpoint", mountpoint)) => snapshot
                .volumes
                .iter()
                .any(|v| v.mountpoint == mountpoint && v.jobs.iter().any(|name| name.as_str() == job)),
            Some(("engine", engine)) => {
                explain::find(job, snapshot).is_some_and(|view| view.engines.iter().any(|name| name.as_str() == engine))
            }
            _ => false,
        })
    };
    snapshot
        .jobs
        .iter()
        .filter(|job| concerned(job.name.as_str()))
        .take(JOBS)
        .map(|job| {
            let mut text = safe_lines(&job.message);
            if let Some(last) = job.last_line.as_deref().map(safe_line).filter(|last| !text.contains(last.as_str())) {
                text = format!("{text}\nLast line of its log: {last}");
            }
            (safe_line(job.name.as_str()), text.trim().to_owned())
        })
        .filter(|(_, text)| !text.is_empty())
        .collect()
}

/// `JobStalled synth_25k`.
fn title(alert: &AlertView) -> String {
    match explain::object(alert) {
        Some((_, name)) => format!("{} {}", safe_line(&alert.name), safe_line(name)),
        None => safe_line(&alert.name),
    }
}

/// No more of `text` than a mail shows of it.
pub(super) fn bounded(text: &str) -> String {
    text.chars().take(PARAGRAPH).collect()
}

fn safe_line(text: &str) -> String {
    human::line(&redact(text), LINE)
}

fn safe_lines(text: &str) -> String {
    human::lines(&redact(text), PARAGRAPH)
}

/// A domain for Message-IDs from a host name that may be anything.
fn domain(host: &str) -> String {
    let labels: Vec<String> = host
        .split('.')
        .map(|label| label.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(63).collect::<String>())
        .filter(|label| !label.is_empty())
        .take(8)
        .collect();
    if labels.is_empty() { "localhost".into() } else { labels.join(".") }
}

/// The body as plain text.
fn text(body: &Body) -> String {
    let mut out = format!("{}\n", body.headline);
    for section in &body.sections {
        if let Some(title) = section.title {
            out += &format!("\n{title}:\n");
        }
        for entry in &section.entries {
            out += &format!("\n{}\n  {}\n", entry.title, entry.when);
            for line in entry.description.lines() {
                out += &format!("  {line}\n");
            }
            if !entry.labels.is_empty() {
                out += &format!("  Labels: {}\n", entry.labels);
            }
            if let Some(runbook) = &entry.runbook {
                out += &format!("  What to do: {runbook}\n");
            }
        }
        if section.more > 0 {
            out += &format!("\n… and {} more\n", section.more);
        }
    }
    for (name, message) in &body.jobs {
        out += &format!("\nStatus of {name}:\n");
        for line in message.lines() {
            out += &format!("  {line}\n");
        }
    }
    // The signature mark: mail programs fold or grey what follows.
    out += &format!("\n-- \n{}\n", body.footer);
    out
}
