//! A rule file as a tree of YAML that keeps its lines.
//!
//! The usual way, a type with derived deserialization, stops at the first unknown key; a rule file is edited by hand,
//! and every problem in it is to be said at once.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A node.
#[derive(Debug)]
pub(super) enum Node {
    Null,
    Text(String),
    /// A whole number that is not quoted.
    Number(i64),
    /// Any other scalar that is not quoted (`yes`, `1.5`): how it was written is lost, so it is good for nothing here.
    Other,
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    /// The text under a key, for a map that has one: to name a thing before it is known to be in order.
    pub(super) fn entry_text(&self, wanted: &str) -> Option<&str> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(key, _)| key.value == wanted).and_then(|(_, value)| match &value.value {
            Self::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

/// Where a node stands.
pub(super) fn line<T>(node: &Spanned<T>) -> Option<u64> {
    Some(node.referenced.line()).filter(|line| *line > 0)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Node, E> {
        Ok(i64::try_from(number).map_or(Node::Other, Node::Number))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}
