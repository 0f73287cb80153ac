//! Decides which mails to write: grouping, threads, repeats, "resolved", inhibition and the cap, after Alertmanager's
//! manners. Pure: it reads the snapshot after each evaluation of the rules and a moment, and returns messages.
//!
//! **An incident** is a thread of mails. It opens when an alert fires that belongs to no other; whatever fires within
//! `group_wait` of that goes into its first mail. Later alerts join it when they are about the same object, or about
//! what the object runs on ([`explain::neighbours`]). It closes when all its alerts ended and that was said.
//!
//! **An alert** of an incident waits (`group_wait`) to be mailed; one that ends while it waits is never mailed, neither
//! as firing nor as resolved. Mailed alerts are repeated after `repeat` of their severity. One that ends waits for
//! `group_wait` again, to collect the others, and is then mailed as resolved, exactly once; if it fires again before
//! that, nothing happened. Three things hold "resolved" back: the alert is pending again; nobody sees its object any
//! more ([`explain::unseen`]), in which case the next mail says since when there is no data; the hourly cap.
//!
//! **`notify: once`** is for what happens rather than lasts: mailed, never repeated or resolved.
//!
//! **Inhibition.** A stall that a full or dead volume or a dead engine explains is listed in the mail about that, and
//! not mailed on its own while the cause lasts (or is pending). If the cause ends and the job still stands, the stall
//! waits anew and is mailed; if it ends too, there was never a mail and there is no "resolved".
//!
//! A warning whose worse alert has come (a volume that was filling is full) is not mailed either; if it was mailed before,
//! it is neither repeated nor resolved: the worse alert speaks for both.
//!
//! **Silences** mute: what they match is not mailed as firing and not repeated. It waits anew when the silence ends. What
//! ends under a silence is told as resolved only if its firing was told.
//!
//! **The cap** ([`MAILS_PER_HOUR`]) holds mails back, it drops nothing: what was held back is in the next mail, and the
//! last mail before the cap is a digest of everything that is due. An alert that came and went while it was held back
//! is in there too, as resolved.
//!
//! **Crashes.** The name and Message-ID of a mail come from the incident (the first alert and since when it is true),
//! the number of the mail in it, and what happened; not from the time of the decision. So a crash after a mail was
//! written to the outbox and before the state was saved decides the same mail again, which replaces the first. For this
//! the state has to be saved whenever [`Notifier::revision`] moved, not only after mails.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::compose::{self, Contents};
use super::explain;
use super::message::{Message, Purpose, Severity};
use super::silences::Silences;
use crate::config::{AlertingMode, Notify};
use crate::model::Time;
use crate::model::silence::Silence;
use crate::model::snapshot::{AlertState, AlertView, Snapshot};

/// Mails in any hour. A person cannot read more; the server that we send through may take fewer (Gmail: 100 a day for
/// some accounts), and mail providers block who sends in bursts.
pub const MAILS_PER_HOUR: usize = 30;

const HOUR: Duration = Duration::from_secs(3_600);

/// The version of [`State`] in a state file.
pub const STATE_VERSION: u32 = 1;

/// What has to survive a restart.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// Open incidents, oldest first.
    pub(super) incidents: Vec<Incident>,
    /// When the mails of the last hour were decided.
    recent: VecDeque<Time>,
    /// What people do not want to be mailed about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    silences: Vec<Silence>,
}

impl State {
    /// What people do not want to be mailed about.
    pub fn silences(&self) -> &[Silence] {
        &self.silences
    }
}

/// A thread of mails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Incident {
    /// What the ids of its mails start with.
    key: String,
    /// Mails so far.
    mails: u32,
    /// The Message-ID of the first mail.
    root: Option<String>,
    /// The subject of the first mail without its tag, for the others to share.
    subject: Option<String>,
    /// It was due and the cap held it back.
    held: bool,
    /// By fingerprint of the labels.
    alerts: BTreeMap<String, Tracked>,
}

/// An alert of an incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Tracked {
    /// As it was last seen.
    pub(super) view: AlertView,
    /// Since when it waits for its first mail.
    waiting_since: Time,
    /// The last mail that showed it.
    mailed_at: Option<Time>,
    /// It is not in the list of firing alerts any more, and that is not for lack of data.
    gone_since: Option<Time>,
    /// It is not in the list and nobody sees its object.
    pub(super) unseen: bool,
    /// Since when it is not in the list, in Unix seconds by the wall clock.
    pub(super) vanished_at: Option<f64>,
    /// A mail about it was due and the cap held it back.
    held: bool,
}

/// Decides.
#[derive(Debug)]
pub struct Notifier {
    mode: AlertingMode,
    config: Notify,
    zone: TimeZone,
    pub(super) state: State,
    /// Those of the state, ready to be asked.
    silences: Silences,
    revision: u64,
}

impl Notifier {
    /// Goes on from `state`; times in mails are in `zone` and in UTC.
    pub fn new(mode: AlertingMode, config: Notify, zone: TimeZone, state: State) -> Self {
        let silences = Silences::new(state.silences.clone());
        Self { mode, config, zone, state, silences, revision: 0 }
    }

    /// Another mode and other addresses and spans from here on; open incidents go on.
    pub fn reconfigure(&mut self, mode: AlertingMode, config: Notify) {
        self.mode = mode;
        self.config = config;
    }

    /// What to save.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Takes a silence that was made or changed; `now` in Unix seconds.
    pub fn silence(&mut self, silence: &Silence, now: f64) {
        self.silences.put(silence.clone(), now);
        self.silences_changed();
    }

    /// Ends a silence.
    pub fn expire_silence(&mut self, id: &str, now: f64) {
        self.silences.expire(id, now);
        self.silences_changed();
    }

    fn silences_changed(&mut self) {
        self.state.silences = self.silences.list().to_vec();
        self.revision += 1;
    }

    /// All of them.
    pub const fn silences(&self) -> &Silences {
        &self.silences
    }

    /// Moves whenever the state changed in a way that has to survive a crash.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// The mails that are due after the evaluation whose result `snapshot` has.
    pub fn step(&mut self, snapshot: &Snapshot, now: Time) -> Vec<Message> {
        if self.mode == AlertingMode::Prometheus {
            // Silences stay: what is muted is shown in this mode, too.
            let nothing = State { silences: self.state.silences.clone(), ..State::default() };
            if self.state != nothing {
                self.state = nothing;
                self.revision += 1;
            }
            return Vec::new();
        }
        let tracked = self.state.incidents.iter().flat_map(|incident| incident.alerts.values()).map(|one| &one.view);
        let scene = Scene::new(snapshot, self.silences.muted(snapshot.alerts.iter().chain(tracked), snapshot.at));
        self.follow(&scene, now);
        self.admit(&scene, now);
        let due = self.due(&scene, now);
        let messages = self.write(&due, &scene, now);
        self.state.incidents.retain(|incident| !incident.alerts.is_empty());
        messages
    }

    /// Brings the alerts that are followed up to date: still there, gone, out of sight.
    fn follow(&mut self, scene: &Scene<'_>, now: Time) {
        let hold = self.config.group_wait;
        let mut changes = 0;
        for incident in &mut self.state.incidents {
            incident.alerts.retain(|fingerprint, tracked| {
                let before = (tracked.gone_since, tracked.unseen, tracked.mailed_at);
                let keep = tracked.follow(fingerprint, scene, now, hold);
                if !keep || before != (tracked.gone_since, tracked.unseen, tracked.mailed_at) {
                    changes += 1;
                }
                keep
            });
        }
        self.state.incidents.retain(|incident| !incident.alerts.is_empty());
        self.revision += changes;
    }

    /// Takes alerts that fire and are not followed yet into an incident, the earliest first.
    fn admit(&mut self, scene: &Scene<'_>, now: Time) {
        let known: HashSet<&str> =
            self.state.incidents.iter().flat_map(|i| i.alerts.keys()).map(String::as_str).collect();
        let mut fresh: Vec<_> = scene.firing.iter().filter(|(print, _)| !known.contains(print.as_str())).collect();
        fresh.sort_by(|(fp_a, a), (fp_b, b)| a.active_at.total_cmp(&b.active_at).then_with(|| fp_a.cmp(fp_b)));
        // Which incident an object belongs to; what happened once is no story that goes on.
        let mut stories: HashMap<(String, String), usize> = HashMap::new();
        for (index, incident) in self.state.incidents.iter().enumerate() {
            for tracked in incident.alerts.values().filter(|tracked| !tracked.once()) {
                stories.extend(story(&tracked.view).map(|object| (object, index)));
            }
        }
        let mut collecting = self.state.incidents.iter().position(|i| i.collects(scene));
        for (fingerprint, view) in fresh {
            self.revision += 1;
            let tracked = Tracked::new(kept(view), now);
            let place = explain::neighbours(view, scene.snapshot)
                .into_iter()
                .find_map(|(label, name)| stories.get(&(label.to_owned(), name.to_owned())).copied())
                .or(collecting);
            let index = place.unwrap_or(self.state.incidents.len());
            match self.state.incidents.get_mut(index) {
                Some(incident) => {
                    incident.alerts.insert(fingerprint.clone(), tracked);
                }
                None => self.state.incidents.push(Incident::open(scene.snapshot, fingerprint, tracked)),
            }
            if collecting.is_none() && self.state.incidents.get(index).is_some_and(|i| i.root.is_none()) {
                collecting = Some(index);
            }
            if view.labels.get("notify").is_none_or(|how| how != "once") {
                stories.extend(story(view).map(|object| (object, index)));
            }
        }
    }

    /// The incidents that have something to say now, by index.
    fn due(&mut self, scene: &Scene<'_>, now: Time) -> Vec<usize> {
        let mut due = Vec::new();
        for (index, incident) in self.state.incidents.iter_mut().enumerate() {
            for tracked in incident.alerts.values_mut().filter(|t| t.waits()) {
                if scene.is_quiet(&tracked.view) {
                    tracked.waiting_since = now;
                }
            }
            if incident.is_due(&self.config, scene, now) {
                due.push(index);
            }
        }
        due
    }

    /// Writes the mails of the incidents that are `due`, as far as the cap allows.
    fn write(&mut self, due: &[usize], scene: &Scene<'_>, now: Time) -> Vec<Message> {
        while self.state.recent.front().is_some_and(|at| now.since(*at) >= HOUR) {
            self.state.recent.pop_front();
        }
        let free = MAILS_PER_HOUR.saturating_sub(self.state.recent.len());
        let mut messages = Vec::new();
        // The last free mail takes everything that would not fit any more.
        let alone = if due.len() <= free { due.len() } else { free.saturating_sub(1) };
        let (single, rest) = due.split_at(alone);
        for index in single {
            messages.extend(self.mail(&[*index], scene, now));
        }
        if !rest.is_empty() && free > 0 {
            messages.extend(self.mail(rest, scene, now));
        } else {
            for index in rest {
                if let Some(incident) = self.state.incidents.get_mut(*index) {
                    self.revision += u64::from(incident.hold(scene));
                }
            }
        }
        messages
    }

    /// One mail about one incident, or a digest of several.
    fn mail(&mut self, indices: &[usize], scene: &Scene<'_>, now: Time) -> Option<Message> {
        let incidents: Vec<&Incident> = indices.iter().filter_map(|index| self.state.incidents.get(*index)).collect();
        let first = *incidents.first()?;
        let contents = gather(&incidents, scene);
        let digest = incidents.len() > 1;
        let (thread, base) = if digest { (None, None) } else { (first.root.as_deref(), first.subject.as_deref()) };
        let purpose = match () {
            () if digest => Purpose::Digest,
            () if !contents.fresh.is_empty() => Purpose::Firing,
            () if !contents.resolved.is_empty() => Purpose::Resolved,
            () => Purpose::Repeat,
        };
        let id = format!("{}-{:04}-{:08x}", first.key, first.mails, contents.digest(purpose));
        let (message, subject) = compose::message(id, purpose, thread, base, &contents, scene.snapshot, &self.zone);
        for index in indices {
            if let Some(incident) = self.state.incidents.get_mut(*index) {
                incident.mailed(&message, &subject, scene, now);
            }
        }
        self.state.recent.push_back(now);
        self.revision += 1;
        Some(message)
    }
}

/// A snapshot with its alerts sorted out.
struct Scene<'a> {
    snapshot: &'a Snapshot,
    firing: BTreeMap<String, &'a AlertView>,
    pending: BTreeMap<String, &'a AlertView>,
    /// Those that can explain a stall, pending ones too.
    causes: Vec<&'a AlertView>,
    /// Fingerprints of those that a silence mutes.
    muted: BTreeSet<String>,
}

impl<'a> Scene<'a> {
    fn new(snapshot: &'a Snapshot, muted: BTreeSet<String>) -> Self {
        let of = |state| {
            snapshot.alerts.iter().filter(|a| a.state == state).map(|a| (fingerprint(a), a)).collect::<BTreeMap<_, _>>()
        };
        Self {
            snapshot,
            firing: of(AlertState::Firing),
            pending: of(AlertState::Pending),
            causes: snapshot.alerts.iter().filter(|alert| explain::is_cause(alert)).collect(),
            muted,
        }
    }

    /// Whether an alert that fires, or is about to, explains this one. So does that the job moves again: a stall is kept
    /// for longer than its cause, and would be news when the cause is gone and it is over itself.
    fn explained(&self, alert: &AlertView) -> bool {
        self.superseded(alert)
            || explain::is_stall(alert)
                && (alert.kept || self.causes.iter().any(|cause| explain::explains(cause, alert, self.snapshot)))
    }
}

impl Scene<'_> {
    /// Whether nobody is to be told that this alert fires: it is explained, or muted. A muted cause still explains.
    fn is_quiet(&self, alert: &AlertView) -> bool {
        self.is_muted(alert) || self.explained(alert)
    }

    fn is_muted(&self, alert: &AlertView) -> bool {
        self.muted.contains(&fingerprint(alert))
    }

    /// Whether what this alert warned of has come, or is about to.
    fn superseded(&self, alert: &AlertView) -> bool {
        self.snapshot.alerts.iter().any(|other| explain::supersedes(other, alert))
    }
}

impl Tracked {
    const fn new(view: AlertView, now: Time) -> Self {
        Self {
            view,
            waiting_since: now,
            mailed_at: None,
            gone_since: None,
            unseen: false,
            vanished_at: None,
            held: false,
        }
    }

    /// Mailed once, then left alone.
    pub(super) fn once(&self) -> bool {
        self.view.labels.get("notify").is_some_and(|how| how == "once")
    }

    /// It was not mailed yet and did not end.
    pub(super) fn waits(&self) -> bool {
        self.mailed_at.is_none() && self.gone_since.is_none()
    }

    /// It ended, and somebody has to be told.
    pub(super) fn ended(&self) -> bool {
        self.gone_since.is_some() && !(self.once() && self.mailed_at.is_some())
    }

    /// False when it can be forgotten.
    fn follow(&mut self, fingerprint: &str, scene: &Scene<'_>, now: Time, hold: Duration) -> bool {
        if let Some(view) = scene.firing.get(fingerprint) {
            self.view = kept(view);
            self.gone_since = None;
            self.unseen = false;
            self.vanished_at = None;
            return true;
        }
        let pending = scene.pending.contains_key(fingerprint);
        let unseen = !pending && explain::unseen(&self.view, scene.snapshot);
        if self.mailed_at.is_none() && !self.held && !unseen || scene.superseded(&self.view) {
            return false;
        }
        if self.once() && self.mailed_at.is_some() {
            // Remembered for a moment, so that one missed evaluation does not make it happen twice; and for as long as
            // nobody sees its object, so that a restart does not either.
            if unseen {
                self.gone_since = None;
                return true;
            }
            return now.since(*self.gone_since.get_or_insert(now)) < hold;
        }
        if pending || unseen {
            self.gone_since = None;
            self.unseen = unseen;
            self.vanished_at.get_or_insert(scene.snapshot.at);
        } else if self.gone_since.is_none() {
            self.gone_since = Some(now);
            self.unseen = false;
            // It ended when that was seen, not when its data went missing.
            self.vanished_at = Some(scene.snapshot.at);
        }
        true
    }
}

impl Incident {
    fn open(snapshot: &Snapshot, fingerprint: &str, tracked: Tracked) -> Self {
        // Saturates; before the epoch there were no alerts.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let second = tracked.view.active_at as u64;
        let who = hash([snapshot.instance.as_str(), fingerprint]);
        Self {
            key: format!("{second:011}-{who:016x}"),
            mails: 0,
            root: None,
            subject: None,
            held: false,
            alerts: BTreeMap::from([(fingerprint.to_owned(), tracked)]),
        }
    }

    /// Whether its first mail is still open to whatever fires.
    fn collects(&self, scene: &Scene<'_>) -> bool {
        self.root.is_none() && self.batch_since(scene).is_some()
    }

    /// Since when something waits to be said.
    fn batch_since(&self, scene: &Scene<'_>) -> Option<Time> {
        self.alerts
            .values()
            .filter(|t| !(t.waits() && scene.is_quiet(&t.view)))
            .filter_map(|t| if t.waits() { Some(t.waiting_since) } else { t.gone_since.filter(|_| t.ended()) })
            .min()
    }

    fn is_due(&self, config: &Notify, scene: &Scene<'_>, now: Time) -> bool {
        let batch = self.batch_since(scene);
        let repeat = || {
            self.alerts.values().filter(|t| !t.once() && t.gone_since.is_none()).any(|t| {
                t.mailed_at.is_some_and(|at| now.since(at) >= repeat_interval(config, &t.view))
                    && !scene.is_quiet(&t.view)
            })
        };
        (self.held && batch.is_some()) || batch.is_some_and(|since| now.since(since) >= config.group_wait) || repeat()
    }

    /// Notes that a mail was held back; true when that is news.
    fn hold(&mut self, scene: &Scene<'_>) -> bool {
        let news = !self.held;
        self.held = true;
        for tracked in self.alerts.values_mut().filter(|t| t.waits()) {
            if !scene.is_quiet(&tracked.view) {
                tracked.held = true;
            }
        }
        news
    }

    /// Notes what `message` said.
    fn mailed(&mut self, message: &Message, subject: &str, scene: &Scene<'_>, now: Time) {
        self.mails = self.mails.saturating_add(1);
        self.root.get_or_insert_with(|| message.message_id.clone());
        self.subject.get_or_insert_with(|| subject.to_owned());
        self.held = false;
        self.alerts.retain(|_, tracked| !tracked.ended());
        for tracked in self.alerts.values_mut() {
            // What is muted was not in it, and is repeated as soon as it may be.
            if !scene.is_muted(&tracked.view) && (tracked.mailed_at.is_some() || !scene.explained(&tracked.view)) {
                tracked.mailed_at = Some(now);
                tracked.held = false;
            }
        }
    }
}

/// Sorts what `incidents` have to say into the parts of a mail.
fn gather<'a>(incidents: &[&'a Incident], scene: &Scene<'a>) -> Contents<'a> {
    let mut contents = Contents::default();
    let mut shown = HashSet::new();
    for (fingerprint, tracked) in incidents.iter().flat_map(|incident| &incident.alerts) {
        let part = match () {
            () if tracked.ended() => &mut contents.resolved,
            () if scene.superseded(&tracked.view) => continue,
            () if scene.is_muted(&tracked.view) || tracked.waits() && scene.explained(&tracked.view) => continue,
            () if tracked.waits() => &mut contents.fresh,
            // What happened once was said.
            () if tracked.once() => continue,
            () if tracked.unseen => &mut contents.unseen,
            () => &mut contents.going_on,
        };
        part.push(tracked);
        shown.insert(fingerprint);
    }
    let causes: Vec<_> = contents.shown().filter(|t| explain::is_cause(&t.view)).collect();
    let listed = |stall: &AlertView| causes.iter().any(|cause| explain::explains(&cause.view, stall, scene.snapshot));
    contents.explained = scene
        .firing
        .iter()
        .filter(|(print, stall)| !shown.contains(print) && !scene.muted.contains(*print) && listed(stall))
        .map(|(_, s)| *s)
        .collect();
    contents.sort();
    contents
}

/// As much of an alert as a mail needs: the state is saved often and must not grow with what a rule's template prints.
fn kept(alert: &AlertView) -> AlertView {
    let annotations = compose::ANNOTATIONS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), compose::bounded(alert.annotations.get(*name)?))))
        .collect();
    AlertView {
        name: alert.name.clone(),
        state: alert.state,
        labels: alert.labels.clone(),
        annotations,
        active_at: alert.active_at,
        fired_at: alert.fired_at,
        kept: alert.kept,
        value: alert.value,
        silenced_by: Vec::new(),
    }
}

/// The object of an alert as a key.
fn story(alert: &AlertView) -> Option<(String, String)> {
    explain::object(alert).map(|(label, name)| (label.to_owned(), name.to_owned()))
}

fn repeat_interval(config: &Notify, alert: &AlertView) -> Duration {
    match Severity::of(alert) {
        Severity::Critical => config.repeat_critical,
        Severity::Warning | Severity::Info => config.repeat_warning,
    }
}

/// What makes an alert the same: all its labels.
pub(super) fn fingerprint(alert: &AlertView) -> String {
    format!("{:016x}", hash(alert.labels.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()])))
}

/// FNV-1a over parts that cannot run into one another. The standard library's hasher may change with the compiler, and
/// this one names files and mails that outlive it.
pub(super) fn hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    let mut eat = |byte: u8| state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    for part in parts {
        part.bytes().for_each(&mut eat);
        // No UTF-8 text has this byte.
        eat(0xff);
    }
    state
}
