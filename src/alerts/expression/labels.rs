//! Label sets and series as they go through an evaluation.
//!
//! Texts are borrowed from the snapshot wherever possible: a thousand jobs are some ten thousand series, and each is
//! copied a few times on its way through an expression, which has to be cheap.

use std::borrow::Cow;
use std::fmt;

/// The label that holds the name of the metric.
pub const METRIC_NAME: &str = "__name__";

/// A set of labels, sorted by name. A label with an empty value does not exist, as in Prometheus.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Labels<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Labels<'a> {
    /// No labels.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The value of a label; empty when it does not exist.
    pub fn get(&self, name: &str) -> &str {
        match self.find(name) {
            Ok(at) => self.0.get(at).map_or("", |(_, value)| value),
            Err(_) => "",
        }
    }

    /// Sets a label; an empty value removes it.
    pub fn set(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        let (name, value) = (name.into(), value.into());
        match (self.find(&name), value.is_empty()) {
            (Ok(at), true) => drop(self.0.remove(at)),
            (Ok(at), false) => {
                if let Some(slot) = self.0.get_mut(at) {
                    slot.1 = value;
                }
            }
            (Err(_), true) => {}
            (Err(at), false) => self.0.insert(at, (name, value)),
        }
    }

    /// Removes a label.
    pub fn remove(&mut self, name: &str) {
        if let Ok(at) = self.find(name) {
            self.0.remove(at);
        }
    }

    /// Leaves only the named labels.
    pub fn keep(&mut self, names: &[String]) {
        self.0.retain(|(name, _)| names.iter().any(|kept| kept == name));
    }

    /// Removes the named labels.
    pub fn drop_all(&mut self, names: &[String]) {
        self.0.retain(|(name, _)| !names.iter().any(|dropped| dropped == name));
    }

    /// Without the name of the metric, which an operation that changes the meaning of the value takes away.
    #[must_use]
    pub fn without_name(mut self) -> Self {
        self.remove(METRIC_NAME);
        self
    }

    /// Name and value of each label, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(probe, _)| (**probe).cmp(name))
    }
}

impl<'a, N: Into<Cow<'a, str>>, V: Into<Cow<'a, str>>> FromIterator<(N, V)> for Labels<'a> {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut labels = Self::new();
        for (name, value) in pairs {
            labels.set(name, value);
        }
        labels
    }
}

/// As a selector: `longhaul_job_stalled{job_name="a"}`.
impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get(METRIC_NAME))?;
        f.write_str("{")?;
        for (number, (name, value)) in self.iter().filter(|(name, _)| *name != METRIC_NAME).enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{name}={value:?}")?;
        }
        f.write_str("}")
    }
}

/// One element of a vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Series<'a> {
    /// Its labels, the name of the metric among them where it has one.
    pub labels: Labels<'a>,
    /// Its value now.
    pub value: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_value_is_no_label() {
        let mut labels: Labels<'_> = [("b", "2"), ("a", "1"), ("c", "")].into_iter().collect();
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
        labels.set("a", "");
        labels.set("b", "3");
        assert_eq!(labels.to_string(), r#"{b="3"}"#);
        assert_eq!(labels.get("nothing"), "");
    }

    #[test]
    fn keep_and_drop() {
        let labels: Labels<'_> = [(METRIC_NAME, "m"), ("a", "1"), ("b", "2")].into_iter().collect();
        let names = ["a".to_owned(), "x".to_owned()];
        let (mut kept, mut dropped) = (labels.clone(), labels.clone());
        kept.keep(&names);
        dropped.drop_all(&names);
        assert_eq!(kept.to_string(), r#"{a="1"}"#);
        assert_eq!(dropped.to_string(), r#"m{b="2"}"#);
        assert_eq!(labels.without_name().to_string(), r#"{a="1", b="2"}"#);
    }
}
