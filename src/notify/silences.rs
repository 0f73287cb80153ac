//! Which alerts are muted, by the silences that people made.
//!
//! Apart from [`super::decide`], which knows what it means for mails that an alert is muted. The rules are Alertmanager's:
//! all matchers of a silence have to match; a label that an alert has not is empty; regular expressions are anchored at
//! both ends. Expired silences are kept for five days, so that somebody can see what was muted and make it again.
//!
//! The hazard is that whoever may silence decides how much memory is used: everything is bounded, the compiled patterns
//! included, and what has ended makes room for what is new. The other one is a bound that was not there when a silence was
//! made: one that was kept goes on, or an upgrade would mail what somebody wanted to be left alone by.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::decide::fingerprint;
use crate::alerts::expression::pattern;
use crate::model::silence::{Labels, Matcher, Silence, SilenceState};
use crate::model::snapshot::AlertView;

/// Silences in all.
pub const MOST: usize = 200;
/// Matchers of one, and filters of a list.
pub const MOST_MATCHERS: usize = 32;
/// Bytes of a name, a value, an author; a comment may have four times as many.
const MOST_BYTES: usize = 1024;
/// Regular expressions of a new one, and bytes of a compiled one, which a list of names as long as it may be needs: 200 MiB in
/// all, should somebody be up to that.
const MOST_PATTERNS: usize = 4;
const MOST_PATTERN: usize = 256 << 10;
/// Expired silences are forgotten after so many seconds, as Alertmanager does.
const RETAINED: f64 = 5.0 * 86_400.0;

/// All silences that are known.
#[derive(Debug, Clone, Default)]
pub struct Silences {
    list: Vec<Silence>,
    compiled: BTreeMap<String, Vec<Compiled>>,
}

/// A matcher that can be asked.
#[derive(Debug, Clone)]
pub struct Compiled {
    name: String,
    value: Value,
    is_equal: bool,
}

#[derive(Debug, Clone)]
enum Value {
    Text(String),
    Pattern(Regex),
}

impl Compiled {
    /// Says what is wrong with a pattern.
    pub fn new(matcher: &Matcher) -> Result<Self, String> {
        let value = if matcher.is_regex {
            Value::Pattern(pattern::compile_within(&matcher.value, MOST_PATTERN)?)
        } else {
            Value::Text(matcher.value.clone())
        };
        Ok(Self { name: matcher.name.clone(), value, is_equal: matcher.is_equal })
    }

    /// The label that it is about.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this value of the label is what it says.
    pub fn matches(&self, value: &str) -> bool {
        let is = match &self.value {
            Value::Text(text) => text == value,
            Value::Pattern(pattern) => pattern.is_match(value),
        };
        is == self.is_equal
    }
}

/// Says what is wrong with a silence that somebody wants.
pub fn check(silence: &Silence) -> Result<(), String> {
    if silence.matchers.iter().filter(|matcher| matcher.is_regex).count() > MOST_PATTERNS {
        return Err(format!("invalid silence: it has more than {MOST_PATTERNS} regular expressions"));
    }
    compile(silence).map(|_| ())
}

/// Its matchers, if it is one that can be kept.
fn compile(silence: &Silence) -> Result<Vec<Compiled>, String> {
    if silence.matchers.is_empty() || silence.matchers.len() > MOST_MATCHERS {
        return Err(format!("invalid silence: it needs 1 to {MOST_MATCHERS} matchers"));
    }
    let mut all = Vec::with_capacity(silence.matchers.len());
    for matcher in &silence.matchers {
        if matcher.name.is_empty() || matcher.name.len() > MOST_BYTES || matcher.value.len() > MOST_BYTES {
            return Err(format!("invalid silence: a label name or value has to have at most {MOST_BYTES} bytes"));
        }
        all.push(Compiled::new(matcher).map_err(|error| format!("invalid silence: {error}"))?);
    }
    if all.iter().all(|matcher| matcher.matches("")) {
        return Err("invalid silence: at least one matcher must not match the empty string".to_owned());
    }
    if !silence.starts_at.is_finite() || !silence.ends_at.is_finite() || silence.ends_at <= silence.starts_at {
        return Err("start time must be before end time".to_owned());
    }
    if silence.created_by.len() > MOST_BYTES || silence.comment.len() > 4 * MOST_BYTES {
        return Err(format!("invalid silence: an author has at most {MOST_BYTES} bytes, a comment four times as many"));
    }
    Ok(all)
}

impl Silences {
    /// Those that an earlier run knew.
    pub fn new(list: Vec<Silence>) -> Self {
        let mut silences = Self::default();
        for silence in list {
            silences.put(silence, f64::NEG_INFINITY);
        }
        silences
    }

    /// All of them, oldest first.
    pub fn list(&self) -> &[Silence] {
        &self.list
    }

    /// Takes one, in the place of the one with its id. What is wrong with it was said by [`check`] to whoever wanted it; a
    /// recording that was tampered with is not obeyed.
    pub fn put(&mut self, silence: Silence, now: f64) {
        let Ok(compiled) = compile(&silence) else { return };
        self.list.retain(|known| known.id != silence.id && now - known.ends_at < RETAINED);
        if self.list.len() >= MOST {
            // The one that ended first.
            let expired = self.list.iter().enumerate().filter(|(_, known)| known.state(now) == SilenceState::Expired);
            let Some((oldest, _)) = expired.min_by(|(_, a), (_, b)| a.ends_at.total_cmp(&b.ends_at)) else { return };
            self.list.remove(oldest);
        }
        self.compiled.insert(silence.id.clone(), compiled);
        self.list.push(silence);
        let list = &self.list;
        self.compiled.retain(|id, _| list.iter().any(|known| known.id == *id));
    }

    /// Ends one now.
    pub fn expire(&mut self, id: &str, now: f64) {
        for silence in self.list.iter_mut().filter(|silence| silence.id == id) {
            if silence.state(now) != SilenceState::Expired {
                silence.starts_at = silence.starts_at.min(now);
                silence.ends_at = now;
                silence.updated_at = now;
            }
        }
    }

    /// The fingerprints of the alerts that are muted at `now`.
    pub(super) fn muted<'a>(&self, alerts: impl Iterator<Item = &'a AlertView>, now: f64) -> BTreeSet<String> {
        if self.list.is_empty() {
            return BTreeSet::new();
        }
        alerts.filter(|alert| !self.muting(&alert.labels, now).is_empty()).map(fingerprint).collect()
    }

    /// Those that mute an alert with these labels at `now`.
    pub fn muting(&self, labels: &Labels, now: f64) -> Vec<&str> {
        let value = |name: &str| labels.get(name).map_or("", String::as_str);
        let active = self.list.iter().filter(|silence| silence.state(now) == SilenceState::Active);
        let matching = active.filter(|silence| {
            let compiled = self.compiled.get(&silence.id);
            compiled.is_some_and(|all| all.iter().all(|matcher| matcher.matches(value(&matcher.name))))
        });
        matching.map(|silence| silence.id.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn matcher(name: &str, operator: &str, value: &str) -> Matcher {
        Matcher {
            name: name.to_owned(),
            value: value.to_owned(),
            is_regex: operator.ends_with('~'),
            is_equal: operator.starts_with('='),
        }
    }

    fn silence(id: usize, matchers: Vec<Matcher>, from: f64, until: f64) -> Silence {
        Silence {
            id: id.to_string(),
            matchers,
            starts_at: from,
            ends_at: until,
            updated_at: from,
            created_by: "me".into(),
            comment: "maintenance".into(),
        }
    }

    fn labels(list: &[(&str, &str)]) -> Labels {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn matchers_mean_what_they_mean_to_alertmanager() {
        let alert = labels(&[("alertname", "VolumeFull"), ("mountpoint", "/data")]);
        for (matchers, mutes) in [
            (vec![("alertname", "=", "VolumeFull")], true),
            (vec![("alertname", "=", "Volume")], false),
            (vec![("alertname", "=~", "Volume.*"), ("mountpoint", "!=", "/")], true),
            (vec![("alertname", "=~", "Volume")], false),
            (vec![("alertname", "!~", "Engine.*|Job.*"), ("mountpoint", "=~", ".+")], true),
            (vec![("alertname", "=~", "Volume.*"), ("mountpoint", "!=", "/data")], false),
            (vec![("alertname", "=~", ".+"), ("engine", "=", "")], true),
            (vec![("alertname", "=~", ".+"), ("engine", "!=", "")], false),
        ] {
            let list: Vec<Matcher> =
                matchers.iter().map(|(name, operator, value)| matcher(name, operator, value)).collect();
            let wanted = silence(1, list, 10.0, 20.0);
            assert_eq!(check(&wanted), Ok(()), "{matchers:?}");
            let silences = Silences::new(vec![wanted]);
            assert_eq!(!silences.muting(&alert, 15.0).is_empty(), mutes, "{matchers:?}");
            assert!(silences.muting(&alert, 9.0).is_empty() && silences.muting(&alert, 20.0).is_empty());
        }
    }

    #[test]
    fn what_would_mute_everything_or_cost_too_much_is_refused() {
        let all = [
            (vec![], "matchers"),
            (vec![matcher("a", "=", "")], "empty string"),
            (vec![matcher("a", "=~", ".*")], "empty string"),
            (vec![matcher("a", "!=", "x")], "empty string"),
            (vec![matcher("", "=", "x")], "label name"),
            (vec![matcher("a", "=~", "(")], "regular expression"),
            (vec![matcher("a", "=~", "((((x{50}){50}){50}){50})")], "regular expression"),
            (vec![matcher("a", "=", &"x".repeat(2000))], "at most"),
            (vec![matcher("a", "=", "x"); 33], "matchers"),
            (vec![matcher("a", "=~", "x"); 5], "regular expressions"),
        ];
        for (matchers, word) in all {
            let error = check(&silence(1, matchers, 0.0, 1.0)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        // A list of names as long as it may be is none of that.
        let names: Vec<String> = (0..80).map(|node| format!("node{node}.example")).collect();
        let pattern = &names.join("|")[..1020];
        assert_eq!(check(&silence(1, vec![matcher("a", "=~", pattern); 4], 0.0, 1.0)), Ok(()));
        let good = vec![matcher("a", "=", "x")];
        assert!(check(&silence(1, good.clone(), 2.0, 1.0)).is_err());
        assert!(check(&silence(1, good, 2.0, f64::INFINITY)).is_err());
    }

    #[test]
    fn one_that_was_kept_from_before_there_was_a_bound_goes_on() {
        let mut matchers = vec![matcher("alertname", "=~", "Volume.*"); 31];
        matchers.push(matcher("mountpoint", "=", "/data"));
        let kept = silence(1, matchers, 0.0, 10.0);
        assert!(check(&kept).unwrap_err().contains("regular expressions"), "nobody can make it any more");
        let silences = Silences::new(vec![kept]);
        let muting =
            |mountpoint| silences.muting(&labels(&[("alertname", "VolumeFull"), ("mountpoint", mountpoint)]), 5.0);
        assert_eq!((muting("/data"), muting("/")), (vec!["1"], vec![]));
    }

    #[test]
    fn their_number_is_bounded_and_what_ended_makes_room() {
        let one = |id: usize, until: f64| silence(id, vec![matcher("a", "=", "x")], 0.0, until);
        let mut silences = Silences::default();
        for id in 0..MOST {
            silences.put(one(id, if id == 7 { 5.0 } else { 1e6 }), 1.0);
        }
        silences.put(one(9999, 1e6), 4.0);
        assert!(silences.list().iter().all(|silence| silence.id != "9999"), "all of them are active");
        silences.put(one(9999, 1e6), 6.0);
        assert_eq!((silences.list().len(), silences.compiled.len()), (MOST, MOST));
        assert!(silences.list().iter().all(|silence| silence.id != "7"));
        silences.put(one(3, 2e6), 7.0);
        assert_eq!(silences.list().len(), MOST, "the same one again");
        silences.put(one(5, 1e9), 1e6 + RETAINED + 1.0);
        assert_eq!(silences.list().len(), 2, "those that ended long ago are forgotten");
    }

    #[test]
    fn one_that_is_expired_ends_now_and_once() {
        let mut silences = Silences::new(vec![silence(1, vec![matcher("a", "=", "x")], 10.0, 100.0)]);
        silences.expire("1", 20.0);
        silences.expire("1", 30.0);
        silences.expire("2", 30.0);
        assert_eq!((silences.list()[0].ends_at, silences.list()[0].state(20.0)), (20.0, SilenceState::Expired));
        let mut pending = Silences::new(vec![silence(1, vec![matcher("a", "=", "x")], 50.0, 100.0)]);
        pending.expire("1", 20.0);
        assert_eq!(pending.list()[0].state(20.0), SilenceState::Expired);
    }
}
