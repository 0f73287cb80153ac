//! From the tree of a rule file to checked rules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_saphyr::Spanned;

use super::yaml::{Node, line};
use super::{Group, Rule, RuleProblem, Rules, duration};
use crate::alerts::expression::{Expression, METRIC_NAME};
use crate::alerts::template::Template;
use crate::catalog;

const FILE_KEYS: &[&str] = &["groups"];
const GROUP_KEYS: &[&str] = &["name", "interval", "limit", "labels", "rules", "query_offset"];
const RULE_KEYS: &[&str] = &["alert", "expr", "for", "keep_firing_for", "labels", "annotations", "record"];

/// Reads all files.
pub(super) fn load(files: &[(String, String)]) -> Result<Rules, Vec<RuleProblem>> {
    let mut rules = Rules::default();
    let mut problems = Problems::default();
    let mut keys = BTreeMap::<String, usize>::new();
    for (file, text) in files {
        problems.place = Place { file: file.clone(), group: None, rule: None };
        match serde_saphyr::from_str::<Spanned<Node>>(text) {
            Ok(tree) => load_file(&tree, &mut rules, &mut keys, &mut problems),
            Err(error) => {
                let at = error.location().map(|location| location.line());
                let message = error.without_snippet().to_string();
                problems.add(at, format!("not YAML ({})", message.lines().next().unwrap_or_default()));
            }
        }
    }
    if problems.found.is_empty() { Ok(rules) } else { Err(problems.found) }
}

#[derive(Default)]
struct Problems {
    place: Place,
    found: Vec<RuleProblem>,
}

#[derive(Default, Clone)]
struct Place {
    file: String,
    group: Option<String>,
    rule: Option<String>,
}

impl Problems {
    fn add(&mut self, line: Option<u64>, message: impl Into<String>) {
        let Place { file, group, rule } = self.place.clone();
        self.found.push(RuleProblem { file, line, group, rule, message: message.into() });
    }
}

/// The entries of a map by key; an unknown key is a problem.
struct Entries<'n> {
    line: Option<u64>,
    by_key: BTreeMap<&'n str, &'n Spanned<Node>>,
}

impl<'n> Entries<'n> {
    fn of(node: &'n Spanned<Node>, what: &str, known: &[&str], problems: &mut Problems) -> Option<Self> {
        let Node::Map(entries) = &node.value else {
            problems.add(line(node), format!("{what} has to be a map with the keys {}", known.join(", ")));
            return None;
        };
        let mut by_key = BTreeMap::new();
        for (key, value) in entries {
            if known.contains(&key.value.as_str()) {
                by_key.insert(key.value.as_str(), value);
            } else {
                let nearest = nearest(&key.value, known.iter().copied()).map_or_else(
                    || format!("known are {}", known.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                problems.add(line(key), format!("unknown key `{}` in {what}; {nearest}", key.value));
            }
        }
        Some(Self { line: line(node), by_key })
    }

    /// An entry that is there and not empty.
    fn get(&self, key: &str) -> Option<&'n Spanned<Node>> {
        self.by_key.get(key).copied().filter(|node| !matches!(node.value, Node::Null))
    }

    fn text(&self, key: &str, problems: &mut Problems) -> Option<&'n str> {
        let node = self.get(key)?;
        match &node.value {
            Node::Text(text) => Some(text),
            _ => {
                problems.add(line(node), format!("`{key}` has to be a text: put it in quotes"));
                None
            }
        }
    }

    fn duration(&self, key: &str, problems: &mut Problems) -> Option<Duration> {
        let node = self.get(key)?;
        let read = match &node.value {
            Node::Text(text) => duration::parse(text),
            Node::Number(0) => Some(Duration::ZERO),
            _ => None,
        };
        if read.is_none() {
            problems.add(line(node), format!("`{key}` has to be a duration such as 30s, 5m or 1h30m"));
        }
        read
    }

    fn list(&self, key: &str, problems: &mut Problems) -> &'n [Spanned<Node>] {
        match self.get(key).map(|node| (node, &node.value)) {
            Some((_, Node::List(list))) => list,
            Some((node, _)) => {
                problems.add(line(node), format!("`{key}` has to be a list"));
                &[]
            }
            None => &[],
        }
    }

    /// `labels` or `annotations`.
    fn templates(&self, key: &str, problems: &mut Problems) -> Vec<(String, Template)> {
        let Some(node) = self.get(key) else { return Vec::new() };
        let Node::Map(entries) = &node.value else {
            problems.add(line(node), format!("`{key}` has to be a map of texts"));
            return Vec::new();
        };
        let mut templates = Vec::new();
        for (name, value) in entries {
            if !is_label_name(&name.value) || name.value == METRIC_NAME {
                problems.add(line(name), format!("`{}` in `{key}` is no valid name", name.value));
            }
            match &value.value {
                Node::Text(text) => match Template::parse(text) {
                    Ok(template) => templates.push((name.value.clone(), template)),
                    Err(error) => problems.add(line(value), format!("`{}` in `{key}`: {error}", name.value)),
                },
                _ => {
                    problems.add(line(value), format!("`{}` in `{key}` has to be a text: put it in quotes", name.value))
                }
            }
        }
        templates
    }
}

fn load_file(tree: &Spanned<Node>, rules: &mut Rules, keys: &mut BTreeMap<String, usize>, problems: &mut Problems) {
    if matches!(tree.value, Node::Null) {
        return;
    }
    let Some(file) = Entries::of(tree, "a rule file", FILE_KEYS, problems) else { return };
    let mut names = BTreeSet::new();
    for node in file.list("groups", problems) {
        problems.place.group = node.value.entry_text("name").map(str::to_owned);
        let Some(entries) = Entries::of(node, "a group", GROUP_KEYS, problems) else { continue };
        let name = entries.text("name", problems).unwrap_or_default();
        if name.is_empty() {
            problems.add(entries.line, "a group needs a `name`");
        } else if !names.insert(name) {
            problems.add(entries.line, "the file has a group of this name already");
        }
        load_group(name, &entries, rules, keys, problems);
        problems.place.group = None;
    }
}

fn load_group(
    name: &str,
    entries: &Entries<'_>,
    rules: &mut Rules,
    keys: &mut BTreeMap<String, usize>,
    problems: &mut Problems,
) {
    if let Some(node) = entries.get("query_offset") {
        problems.add(line(node), "`query_offset` looks back, and Longhaul evaluates the present: leave it out");
    }
    let limit = match entries.get("limit").map(|node| (node, &node.value)) {
        None => 0,
        Some((_, Node::Number(limit))) if usize::try_from(*limit).is_ok() => usize::try_from(*limit).unwrap_or(0),
        Some((node, _)) => {
            problems.add(line(node), "`limit` has to be a whole number, 0 for none");
            0
        }
    };
    let mut group = Group {
        key: format!("{};{name}", problems.place.file),
        interval: entries.duration("interval", problems).filter(|interval| !interval.is_zero()),
        limit,
        rules: Vec::new(),
    };
    let labels_of_group = entries.templates("labels", problems);
    for node in entries.list("rules", problems) {
        problems.place.rule = node.value.entry_text("alert").map(str::to_owned);
        let Some(entries) = Entries::of(node, "a rule", RULE_KEYS, problems) else { continue };
        if let Some(mut rule) = load_rule(&entries, &labels_of_group, problems) {
            let key = format!("{name}/{}", rule.name);
            let number = keys.entry(key.clone()).and_modify(|number| *number += 1).or_insert(1);
            rule.key = if *number > 1 { format!("{key}#{number}") } else { key };
            group.rules.push(rule);
        }
        problems.place.rule = None;
    }
    rules.groups.push(group);
}

fn load_rule(entries: &Entries<'_>, labels_of_group: &[(String, Template)], problems: &mut Problems) -> Option<Rule> {
    if let Some(node) = entries.get("record") {
        let recorded = if let Node::Text(name) = &node.value { name.as_str() } else { "" };
        problems.add(
            line(node),
            format!(
                "the recording rule `{recorded}` cannot be evaluated by Longhaul, which keeps no samples; leave it to \
                 Prometheus in a file that is not in alerting.rule_files"
            ),
        );
        return None;
    }
    let name = entries.text("alert", problems).unwrap_or_default();
    if name.is_empty() {
        problems.add(entries.line, "a rule needs the key `alert`");
    }
    let expression = load_expression(entries, problems);
    let hold = entries.duration("for", problems).unwrap_or_default();
    let keep_firing_for = entries.duration("keep_firing_for", problems).unwrap_or_default();
    let own_labels = entries.templates("labels", problems);
    let annotations = entries.templates("annotations", problems);
    let mut labels: Vec<_> =
        labels_of_group.iter().filter(|(name, _)| own_labels.iter().all(|(own, _)| own != name)).cloned().collect();
    labels.extend(own_labels);
    Some(Rule {
        key: String::new(),
        name: name.to_owned(),
        expression: expression?,
        hold,
        keep_firing_for,
        labels,
        annotations,
    })
}

fn load_expression(entries: &Entries<'_>, problems: &mut Problems) -> Option<Expression> {
    let Some(node) = entries.get("expr") else {
        problems.add(entries.line, "a rule needs the key `expr`");
        return None;
    };
    let text = entries.text("expr", problems)?;
    match Expression::parse(text) {
        Err(errors) => {
            for error in errors {
                problems.add(line(node), format!("expr: {error}"));
            }
            None
        }
        Ok(expression) => {
            for metric in expression.metrics().named.iter().filter(|metric| catalog::family(metric).is_none()) {
                let nearest = nearest(metric, catalog::families().map(|family| family.name))
                    .map_or_else(String::new, |near| format!("did you mean {near}? "));
                problems.add(
                    line(node),
                    format!(
                        "expr: {metric} is not a metric of Longhaul; {nearest}A rule on metrics of others belongs to \
                         Prometheus, in a file that is not in alerting.rule_files"
                    ),
                );
            }
            Some(expression)
        }
    }
}

/// The known name that looks most like it, if any does.
fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    known
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

fn is_label_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        Rules::parse(&[("r.yml".to_owned(), text.to_owned())])
            .expect_err("it has problems")
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_rule_is_read_with_all_its_keys() {
        let text = r#"
groups:
  - name: g
    interval: 1m
    limit: 5
    labels: {team: ml, severity: info}
    rules:
      - alert: A
        expr: |
          longhaul_job_stalled == 1
            and on (job_name) longhaul_job_idle_seconds > 60
        for: 1h30m
        keep_firing_for: 0
        labels: {severity: critical}
        annotations:
          summary: "{{ $labels.job_name }} stalls"
      - {alert: A, expr: "longhaul_outbox_length > 0"}
"#;
        let rules = Rules::parse(&[("r.yml".to_owned(), text.to_owned())]).unwrap();
        let group = &rules.groups[0];
        assert_eq!((group.key.as_str(), group.limit), ("r.yml;g", 5));
        assert_eq!(group.interval, Some(Duration::from_secs(60)));
        assert_eq!(group.rules.iter().map(|rule| rule.key.as_str()).collect::<Vec<_>>(), ["g/A", "g/A#2"]);
        let rule = &group.rules[0];
        assert_eq!((rule.hold, rule.keep_firing_for), (Duration::from_secs(5400), Duration::ZERO));
        let labels: Vec<_> = rule.labels.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(labels, ["team", "severity"], "the rule's label replaces the group's");
        assert_eq!(rule.labels[1].1, Template::parse("critical").unwrap());
        assert_eq!(rule.expression.metrics().named.len(), 2);
    }

    #[test]
    fn every_problem_comes_at_once_with_its_place() {
        let text = r#"groups:
  - name: g
    intervall: 1m
    rules:
      - alert: A
        expr: rate(longhaul_engine_restarts_total[5m]) > 0
        for: 5 minutes
        labels: {severity: 1, "a-b": x}
        annotations:
          summary: "{{ query }}"
      - record: job:x
        expr: longhaul_job_stalled
      - alert: B
        expr: longhaul_job_staled == 1
      - alert: C
      - expr: longhaul_job_stalled
  - name: g
    query_offset: 1m
    limit: many
"#;
        let expected = [
            "r.yml:3: group g: unknown key `intervall` in a group; did you mean `interval`?",
            "r.yml:6: group g: alert A: expr: the function rate() at character 1 is not",
            "r.yml:6: group g: alert A: expr: the range [...] at character 36 is not",
            "r.yml:7: group g: alert A: `for` has to be a duration such as 30s, 5m or 1h30m",
            "r.yml:8: group g: alert A: `severity` in `labels` has to be a text: put it in quotes",
            "r.yml:8: group g: alert A: `a-b` in `labels` is no valid name",
            "r.yml:10: group g: alert A: `summary` in `annotations`: `query` is not in the subset",
            "r.yml:11: group g: the recording rule `job:x` cannot be evaluated by Longhaul",
            "r.yml:14: group g: alert B: expr: longhaul_job_staled is not a metric of Longhaul; did you mean \
             longhaul_job_stalled? A rule",
            "r.yml:15: group g: alert C: a rule needs the key `expr`",
            "r.yml:16: group g: a rule needs the key `alert`",
            "r.yml:17: group g: the file has a group of this name already",
            "r.yml:18: group g: `query_offset` looks back",
            "r.yml:19: group g: `limit` has to be a whole number",
        ];
        let mut found = problems(text);
        found.sort_by_key(|problem| problem.split(':').nth(1).and_then(|line| line.parse::<u32>().ok()));
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (problem, expected) in found.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}\ninstead of\n{expected}");
        }
    }

    #[test]
    fn what_is_no_rule_file_is_said_so() {
        for (text, word) in [
            ("groups: [", "not YAML"),
            ("- a", "a rule file has to be a map"),
            ("groups: {a: b}", "`groups` has to be a list"),
            ("groups: [1]", "a group has to be a map"),
            ("groups: [{name: a, rules: [x]}]", "a rule has to be a map"),
            ("groups: []\ngroups: []", "not YAML"),
            ("a: &a [*a]", "not YAML"),
        ] {
            let problems = problems(text);
            assert!(problems[0].contains(word), "{text}: {problems:?}");
        }
        assert!(Rules::parse(&[("empty.yml".to_owned(), String::new())]).unwrap().groups.is_empty());
    }
}
