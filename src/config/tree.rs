//! The file as typed: a tree of YAML nodes that keeps the place, the text and the quoting of everything.
//!
//! Separate from what the keys mean. Deserializing straight into structs would stop at the first problem and would turn
//! `job_name: 2024` into a number and `1.10` into `1.1`; a tree of text does neither. It is built from the parser's
//! events without recursion.
//!
//! Hazards: anchors. An alias shares its node and costs nothing here, but whoever walks the tree meets it again each
//! time, so the size of the tree with all aliases written out is counted while building ([`LARGEST`]) and a bomb is
//! refused before anybody walks it. Depth is bounded too ([`DEEPEST`]), since dropping a tree recurses.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_saphyr::granit_parser::{self, Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::problem::{Place, Problems, quote};

/// Values in the tree with all aliases written out: far more than the largest honest configuration (200,000 lines).
pub const LARGEST: u64 = 2_000_000;

/// Our own keys need seven levels.
pub const DEEPEST: usize = 64;

/// One value with its place.
#[derive(Debug)]
pub struct Node {
    /// Where it begins (where it was defined, for an alias).
    pub place: Place,
    /// What it is.
    pub kind: Kind,
    /// Values in it with all aliases written out, itself included.
    size: u64,
}

/// What a value is.
#[derive(Debug)]
pub enum Kind {
    /// A scalar as typed, without its quotes.
    Scalar {
        /// Its text.
        text: String,
        /// Quoted or a block: text, whatever it looks like.
        quoted: bool,
    },
    /// A list.
    List(Vec<Rc<Node>>),
    /// A mapping, in the order of the file, duplicates included.
    Map(Vec<Entry>),
}

/// One `key: value`.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key's text.
    pub key: String,
    /// Where the key begins.
    pub place: Place,
    /// What follows it.
    pub value: Rc<Node>,
    /// Where an earlier entry with the same key stands.
    pub duplicate_of: Option<Place>,
}

impl Node {
    /// Nothing was written, or `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, quoted: false } if matches!(&**text, "" | "~" | "null" | "Null" | "NULL"))
    }

    /// What it is in words, for "must be …, found …".
    pub fn found(&self) -> String {
        match &self.kind {
            _ if self.is_null() => "nothing".into(),
            Kind::Scalar { text, quoted: true } => format!("the text \"{}\"", quote(text)),
            Kind::Scalar { text, .. } => format!("`{}`", quote(text)),
            Kind::List(_) => "a list".into(),
            Kind::Map(_) => "a mapping".into(),
        }
    }
}

/// Reads `text`; `None` when it is not YAML we accept (the problem is reported) or when there is nothing in it.
pub fn read(text: &str, problems: &mut Problems) -> Option<Rc<Node>> {
    let mut builder = Builder::default();
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    for event in Parser::<StrInput<'_>>::new_from_str_with_options(text, options) {
        let step = event.map_err(|error| syntax(text, &error)).and_then(|(event, span)| builder.take(event, &span));
        if let Err((place, message)) = step {
            problems.problem(place, "", message);
            return None;
        }
    }
    for (place, message) in builder.tags {
        problems.problem(place, "", message);
    }
    builder.root
}

/// Why the file is not read on.
type Refusal = (Place, String);

/// A list or mapping that is not complete yet.
#[derive(Debug)]
struct Open {
    place: Place,
    anchor: usize,
    size: u64,
    content: OpenContent,
}

#[derive(Debug)]
enum OpenContent {
    List(Vec<Rc<Node>>),
    Map { entries: Vec<Entry>, seen: HashMap<String, Place>, key: Option<(String, Place)> },
}

#[derive(Debug, Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
    documents: usize,
    tags: Vec<Refusal>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Refusal> {
        let place = place(span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err((
                        place,
                        "a second document begins here: a configuration is one document; remove `---`".into(),
                    ));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.check_tag(tag, span);
                let kind = Kind::Scalar { text: text.into_owned(), quoted: style != ScalarStyle::Plain };
                self.complete(Rc::new(Node { place, kind, size: 1 }), place, anchor)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).map(Rc::clone) {
                Some(node) => self.complete(node, place, 0),
                None => Err((place, "the alias stands inside its own anchor: it would never end".into())),
            },
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag, span);
                self.begin(place, anchor, OpenContent::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag, span);
                self.begin(place, anchor, OpenContent::Map { entries: Vec::new(), seen: HashMap::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => Ok(()),
        }
    }

    /// `!!str` and its like change nothing here; `!include`, `!secret` and others would be silently ignored.
    fn check_tag(&mut self, tag: Option<Cow<'_, Tag>>, span: &Span) {
        if let Some(tag) = tag
            && !tag.is_yaml_core_schema()
            && tag.original() != "!"
        {
            let place = span.tag_start().map_or_else(|| place(span), |mark| at(&mark));
            self.tags.push((place, format!("the tag `{}` has no meaning here; remove it", quote(&tag.original()))));
        }
    }

    fn begin(&mut self, place: Place, anchor: usize, content: OpenContent) -> Result<(), Refusal> {
        if let Some(Open { content: OpenContent::Map { key: None, .. }, .. }) = self.open.last() {
            return Err((place, "a key must be text, not a list or a mapping".into()));
        }
        if self.open.len() >= DEEPEST {
            return Err((place, format!("nested deeper than {DEEPEST} levels")));
        }
        self.open.push(Open { place, anchor, size: 1, content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Refusal> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let kind = match open.content {
            OpenContent::List(items) => Kind::List(items),
            OpenContent::Map { entries, .. } => Kind::Map(merge(entries)?),
        };
        self.complete(Rc::new(Node { place: open.place, kind, size: open.size }), open.place, open.anchor)
    }

    /// A value is complete: it becomes a key, a value, an item or the whole document.
    fn complete(&mut self, node: Rc<Node>, at: Place, anchor: usize) -> Result<(), Refusal> {
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = (!node.is_null()).then_some(node);
            return Ok(());
        };
        parent.size = parent.size.saturating_add(node.size);
        if parent.size > LARGEST {
            return Err((at, format!("more than {LARGEST} values, with all aliases written out: use fewer aliases")));
        }
        match &mut parent.content {
            OpenContent::List(items) => items.push(node),
            OpenContent::Map { entries, seen, key } => match key.take() {
                None => match &node.kind {
                    Kind::Scalar { text, .. } => *key = Some((text.clone(), at)),
                    _ => return Err((at, "a key must be text, not a list or a mapping".into())),
                },
                Some((name, place)) => {
                    let duplicate_of = seen.get(&name).copied();
                    seen.entry(name.clone()).or_insert(place);
                    entries.push(Entry { key: name, place, value: node, duplicate_of });
                }
            },
        }
        Ok(())
    }
}

/// Writes `<<: *alias` out: its entries stand in for keys that the mapping does not have itself.
fn merge(entries: Vec<Entry>) -> Result<Vec<Entry>, Refusal> {
    if !entries.iter().any(|entry| entry.key == "<<") {
        return Ok(entries);
    }
    let (merges, mut own): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| entry.key == "<<");
    let mut seen: HashSet<String> = own.iter().map(|entry| entry.key.clone()).collect();
    for merge in merges {
        let sources: Vec<&Node> = match &merge.value.kind {
            Kind::List(items) => items.iter().map(|item| &**item).collect(),
            _ => vec![&merge.value],
        };
        for source in sources {
            let Kind::Map(inherited) = &source.kind else {
                return Err((merge.place, "`<<` takes an alias of a mapping, or a list of them".into()));
            };
            own.extend(inherited.iter().filter(|entry| seen.insert(entry.key.clone())).cloned());
        }
    }
    Ok(own)
}

fn place(span: &Span) -> Place {
    at(&span.start)
}

fn at(mark: &Marker) -> Place {
    Place { line: mark.line().max(1), column: mark.col() + 1 }
}

/// A syntax error in our words where the parser's do not say what to do.
fn syntax(text: &str, error: &ScanError) -> Refusal {
    let place = at(error.marker());
    let info = error.info();
    // The parser may stop at the end of the value before the tab.
    let lines = text.lines().zip(1..).skip(place.line - 1).take(if info.contains("tab") { usize::MAX } else { 1 });
    for (line, number) in lines {
        let indentation = line.chars().take_while(|character| character.is_whitespace());
        if let Some((_, column)) = indentation.zip(1..).find(|(character, _)| *character == '\t') {
            let at = Place { line: number, column };
            return (at, "a tab in the indentation: YAML takes spaces only; replace it by spaces".into());
        }
    }
    (place, format!("not YAML: {info}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(text: &str) -> Result<Option<Rc<Node>>, String> {
        let mut problems = Problems::new("f");
        let node = read(text, &mut problems);
        let (problems, _) = problems.finish();
        problems.first().map_or(Ok(node), |problem| Err(problem.to_string()))
    }

    #[test]
    fn keeps_text_as_typed_with_its_place() {
        let root = read_one("a: 1.10\nb: [2024, \"null\"]\n").unwrap().unwrap();
        let Kind::Map(entries) = &root.kind else { panic!() };
        assert!(matches!(&entries[0].value.kind, Kind::Scalar { text, quoted: false } if text == "1.10"));
        assert_eq!(entries[1].place, Place { line: 2, column: 1 });
        let Kind::List(items) = &entries[1].value.kind else { panic!() };
        assert_eq!(items[1].place, Place { line: 2, column: 11 });
        assert!(!items[1].is_null());
        for empty in ["", "# only a comment\n", "---\n", "~"] {
            assert!(read_one(empty).unwrap().is_none());
        }
    }

    #[test]
    fn what_is_not_accepted_says_where() {
        for (text, message) in [
            ("a: 1\n---\nb: 2\n", "f:2:1: a second document"),
            ("a: *nothing\n", "f:1:4: not YAML"),
            ("a: &x [*x]\n", "f:1:8: the alias stands inside"),
            ("? [a]\n: b\n", "f:1:3: a key must be text"),
            ("a: !include b.yml\n", "f:1:4: the tag `!include`"),
            ("a:\n\tb: 1\n", "f:2:1: a tab in the indentation"),
            ("a: [1\n", "f:1:4: not YAML: unclosed bracket"),
            ("a: 1\n<<: 3\n", "f:2:1: `<<` takes"),
        ] {
            let error = read_one(text).unwrap_err();
            assert!(error.starts_with(message), "{text:?} gave {error}");
        }
        let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
        assert!(read_one(&deep).unwrap_err().contains("nested deeper than 64"));
        let deep = format!("{}x", "- ".repeat(100));
        assert!(read_one(&deep).unwrap_err().contains("nested deeper than 64"));
    }

    #[test]
    fn aliases_are_shared_and_bombs_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let inner = format!("*a{}", level - 1);
            let list = vec![inner; 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{list}]\n"));
        }
        assert!(read_one(&bomb).unwrap_err().contains("use fewer aliases"));
    }

    #[test]
    fn merges_fill_in_what_a_mapping_does_not_say() {
        let root = read_one("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\n").unwrap().unwrap();
        let Kind::Map(entries) = &root.kind else { panic!() };
        let Kind::Map(merged) = &entries[1].value.kind else { panic!() };
        let texts: Vec<_> = merged.iter().map(|entry| (entry.key.as_str(), entry.value.found())).collect();
        assert_eq!(texts, [("b", "`3`".to_string()), ("a", "`1`".to_string())]);
    }
}
