//! Small combinators that walk the tree, section by section, and collect every problem on the way.
//!
//! Each asks for one thing ("this key, as a duration") and gives the value or `None`, having said what is wrong; the
//! caller goes on with a default, so that one wrong key hides no other. [`Map::open`] is the only place that judges
//! keys: unknown, duplicate, not acted on yet.

use std::rc::Rc;

use super::keys::{self, Key, Section};
use super::problem::{Place, Problems, quote};
use super::tree::{Entry, Kind, Node};

/// A mapping whose keys have been judged.
#[derive(Debug)]
pub struct Map<'t> {
    section: &'static Section,
    path: String,
    place: Place,
    entries: &'t [Entry],
}

/// A value with the path of its key and what it should be.
#[derive(Debug)]
pub struct Field<'t> {
    /// The value.
    pub node: &'t Rc<Node>,
    /// Where it is defined, or its key where the value is an alias far away.
    pub place: Place,
    /// As `engines[0].interval`.
    pub path: String,
    takes: &'static str,
}

impl<'t> Map<'t> {
    /// Takes `node` as a mapping of `section` and judges its keys.
    pub fn open(field: &Field<'t>, section: &'static Section, problems: &mut Problems) -> Option<Self> {
        let Kind::Map(entries) = &field.node.kind else {
            let example = section.keys.first().map_or("", |key| key.name);
            field.problem(problems, format!("must be a mapping, as {{{example}: …}}, found {}", field.node.found()));
            return None;
        };
        let map = Self { section, path: field.path.clone(), place: field.node.place, entries };
        for entry in entries {
            map.judge(entry, problems);
        }
        Some(map)
    }

    /// The whole file.
    pub fn root(node: &'t Rc<Node>, section: &'static Section, problems: &mut Problems) -> Option<Self> {
        Self::open(&Field { node, place: node.place, path: String::new(), takes: "a mapping" }, section, problems)
    }

    /// Its key path, as `jobs[0]`.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn judge(&self, entry: &Entry, problems: &mut Problems) {
        let path = self.child(&entry.key);
        let Some(key) = self.section.key(&entry.key) else {
            problems.problem(entry.place, &path, unknown(self.section, &entry.key));
            return;
        };
        if let Some(first) = entry.duplicate_of {
            problems.problem(entry.place, &path, format!("given twice (first in line {}): remove one", first.line));
        } else if let Some(later) = key.later
            && !entry.value.is_null()
        {
            problems.warning(entry.place, &path, format!("this version {later}"));
        }
    }

    fn child(&self, key: &str) -> String {
        if self.path.is_empty() { quote(key).into_owned() } else { format!("{}.{}", self.path, quote(key)) }
    }

    /// The value of a key; `None` when it is absent or null.
    pub fn field(&self, name: &str) -> Option<Field<'t>> {
        self.typed(name).filter(|field| !field.node.is_null())
    }

    /// The value of a key, `null` included.
    pub fn typed(&self, name: &str) -> Option<Field<'t>> {
        let key = self.section.key(name);
        debug_assert!(key.is_some(), "{name} is not in the table of {}", self.section.path);
        let entry = self.entries.iter().find(|entry| entry.key == name)?;
        Some(Field {
            node: &entry.value,
            place: near(entry),
            path: self.child(name),
            takes: key.map_or("", |key| key.takes),
        })
    }

    /// The value of a key that must be there.
    pub fn required(&self, name: &str, problems: &mut Problems) -> Option<Field<'t>> {
        let field = self.field(name);
        if field.is_none() {
            let takes = self.section.key(name).map_or("", |key: &Key| key.takes);
            // The mapping itself is not wrong, so the place is where it begins.
            problems.problem(self.place, &self.child(name), format!("missing: it takes {takes}"));
        }
        field
    }

    /// A key's scalar through `parse`.
    pub fn value<T>(
        &self,
        name: &str,
        problems: &mut Problems,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.field(name)?.parse(problems, parse)
    }

    /// The same for a key that must be there.
    pub fn required_value<T>(
        &self,
        name: &str,
        problems: &mut Problems,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.required(name, problems)?.parse(problems, parse)
    }

    /// `true` or `false`; false when absent.
    pub fn flag(&self, name: &str, problems: &mut Problems) -> bool {
        self.field(name).is_some_and(|field| field.flag(problems))
    }

    /// The items of a list; none when absent.
    pub fn list(&self, name: &str, problems: &mut Problems) -> Vec<Field<'t>> {
        self.field(name).map(|field| field.list(problems)).unwrap_or_default()
    }

    /// A mapping under a key.
    pub fn map(&self, name: &str, section: &'static Section, problems: &mut Problems) -> Option<Map<'t>> {
        Map::open(&self.field(name)?, section, problems)
    }

    /// Which of `names` are there.
    pub fn given(&self, names: &[&'static str]) -> Vec<&'static str> {
        names.iter().copied().filter(|name| self.field(name).is_some()).collect()
    }

    /// Something is wrong with a key, or with what is not there.
    pub fn problem(&self, name: &str, problems: &mut Problems, message: impl Into<String>) {
        let place = self.entries.iter().find(|entry| entry.key == name).map_or(self.place, |entry| entry.place);
        problems.problem(place, &self.child(name), message);
    }

    /// A key has no effect, or not the one that was meant.
    pub fn warning(&self, name: &str, problems: &mut Problems, message: impl Into<String>) {
        let place = self.entries.iter().find(|entry| entry.key == name).map_or(self.place, |entry| entry.place);
        problems.warning(place, &self.child(name), message);
    }

    /// Something is wrong with the mapping as a whole.
    pub fn problem_here(&self, problems: &mut Problems, message: impl Into<String>) {
        problems.problem(self.place, &self.path, message);
    }

    /// The mapping as a whole has no effect, or not the one that was meant.
    pub fn warning_here(&self, problems: &mut Problems, message: impl Into<String>) {
        problems.warning(self.place, &self.path, message);
    }
}

impl<'t> Field<'t> {
    /// Something is wrong with the value.
    pub fn problem(&self, problems: &mut Problems, message: impl Into<String>) {
        problems.problem(self.place, &self.path, message);
    }

    /// The text of a scalar, whether quoted or not.
    pub fn text(&self, problems: &mut Problems) -> Option<&'t str> {
        match &self.node.kind {
            Kind::Scalar { text, .. } if !self.node.is_null() => Some(text),
            _ => {
                self.problem(problems, format!("must be {}, found {}", self.takes, self.node.found()));
                None
            }
        }
    }

    /// The scalar through `parse`.
    pub fn parse<T>(&self, problems: &mut Problems, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        match parse(self.text(problems)?) {
            Ok(value) => Some(value),
            Err(reason) => {
                self.problem(problems, reason);
                None
            }
        }
    }

    /// `true` or `false`.
    pub fn flag(&self, problems: &mut Problems) -> bool {
        match &self.node.kind {
            Kind::Scalar { text, quoted: false } if matches!(&**text, "true" | "True" | "TRUE") => true,
            Kind::Scalar { text, quoted: false } if matches!(&**text, "false" | "False" | "FALSE") => false,
            _ => {
                self.problem(problems, format!("must be true or false, found {}", self.node.found()));
                false
            }
        }
    }

    /// The items of a list, each with its number in the path.
    pub fn list(&self, problems: &mut Problems) -> Vec<Field<'t>> {
        let Kind::List(items) = &self.node.kind else {
            let example = match &self.node.kind {
                Kind::Scalar { text, .. } => format!("; write [{}]", quote(text)),
                Kind::Map(_) => "; begin each item with `- `".into(),
                Kind::List(_) => String::new(),
            };
            self.problem(problems, format!("must be {}, found {}{example}", self.takes, self.node.found()));
            return Vec::new();
        };
        items
            .iter()
            .enumerate()
            .map(|(index, node)| Field {
                node,
                place: node.place,
                path: format!("{}[{index}]", self.path),
                takes: "one item",
            })
            .collect()
    }

    /// The entries of a mapping whose keys are free.
    pub fn entries(&self, problems: &mut Problems) -> Vec<(&'t str, Field<'t>)> {
        let Kind::Map(entries) = &self.node.kind else {
            self.problem(problems, format!("must be {}, found {}", self.takes, self.node.found()));
            return Vec::new();
        };
        let mut fields = Vec::with_capacity(entries.len());
        for entry in entries {
            let path = format!("{}.{}", self.path, quote(&entry.key));
            if let Some(first) = entry.duplicate_of {
                problems.problem(entry.place, &path, format!("given twice (first in line {}): remove one", first.line));
                continue;
            }
            fields.push((entry.key.as_str(), Field { node: &entry.value, place: near(entry), path, takes: "a text" }));
        }
        fields
    }

    /// One of a few words.
    pub fn choice<T: Clone>(&self, problems: &mut Problems, choices: &[(&'static str, T)]) -> Option<T> {
        self.parse(problems, |text| {
            choices.iter().find(|(word, _)| *word == text).map(|(_, value)| value.clone()).ok_or_else(|| {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                let near = keys::nearest(text, words.iter().copied())
                    .map(|word| format!("; did you mean `{word}`?"))
                    .unwrap_or_default();
                format!("must be one of {}, found `{}`{near}", words.join(", "), quote(text))
            })
        })
    }
}

/// The place of an entry's value; of its key where nothing follows or the value is an alias defined elsewhere.
fn near(entry: &Entry) -> Place {
    if entry.value.place < entry.place || entry.value.is_null() { entry.place } else { entry.value.place }
}

/// What to say about a key that the section does not have.
fn unknown(section: &Section, typed: &str) -> String {
    const SECRETS: [&str; 9] = [
        "password",
        "passwd",
        "secret",
        "token",
        "bearer_token",
        "api_key",
        "auth_password",
        "smtp_password",
        "credentials",
    ];
    if SECRETS.contains(&typed.to_ascii_lowercase().as_str()) {
        let file = ["password_file", "bearer_token_file"].into_iter().find(|name| section.key(name).is_some());
        if let Some(file) = file {
            return format!("secrets are not written here: put it into a file and name the file in `{file}`");
        }
    }
    if let Some(near) = keys::meant(section, typed) {
        return format!("unknown key; did you mean `{near}`?");
    }
    if let Some(other) = keys::SECTIONS.iter().find(|other| other.key(typed).is_some()) {
        let place = if other.path.is_empty() { "the top level" } else { other.path };
        return format!("unknown key here; it belongs to {place}");
    }
    let names: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
    format!("unknown key; allowed here: {}", names.join(", "))
}
