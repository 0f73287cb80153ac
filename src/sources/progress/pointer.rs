//! Fields of a JSON text by JSON pointer (RFC 6901), in one pass, without building the document and without allocating.
//!
//! Separate and pure, since output lines are long (thousands of tokens of text around a number or two) and many: a
//! document tree of each would cost more than reading the file. The whole text is checked all the same, because a torn
//! line must not count as an item. Looser than the grammar in three points that real writers need: `NaN`, `Infinity` and
//! `-Infinity` (Python writes them), any bytes inside strings (invalid UTF-8 in an answer is still an answer), control
//! characters inside strings.
//!
//! The hazard is nesting: depth is bounded, so that no line can overflow the stack.

use std::borrow::Cow;

use super::numbers;
use super::strings::Strings;

/// Brackets within brackets; what is deeper is refused.
const MAX_DEPTH: usize = 96;
/// Pointers that one scan can look for.
pub const MAX_POINTERS: usize = 16;

/// A JSON pointer, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    segments: Vec<String>,
}

impl Pointer {
    /// From `/a/b~1c/0`; the empty pointer is the whole document. One without its first slash is taken as if it had one,
    /// which the checked configuration does not let through anyway.
    pub fn new(text: &str) -> Self {
        let segments = match text.strip_prefix('/').unwrap_or(text) {
            "" if text.is_empty() => Vec::new(),
            path => path.split('/').map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect(),
        };
        Self { text: text.to_owned(), segments }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A value as it stands in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw<'a>(&'a [u8]);

impl<'a> Raw<'a> {
    /// The bytes of the value.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// A number, or a string that is one: many writers quote their numbers. Only plausible ones.
    pub fn number(self) -> Option<f64> {
        let text = std::str::from_utf8(self.0).ok()?;
        match text.strip_prefix('"') {
            Some(inner) => {
                let inner = inner.strip_suffix('"')?.trim();
                match inner.strip_prefix('-') {
                    Some(positive) => numbers::whole(positive).map(|value| -value),
                    None => numbers::whole(inner),
                }
            }
            None => text.parse().ok().filter(|value: &f64| value.abs() < numbers::ABSURD),
        }
    }

    /// A count: a number that is not below 0.
    pub fn count(self) -> Option<f64> {
        self.number().filter(|&value| value >= 0.0)
    }

    /// The text of a string.
    pub fn string(self) -> Option<String> {
        if self.0.first() != Some(&b'"') {
            return None;
        }
        serde_json::from_slice::<String>(self.0).ok()
    }

    /// `true` or `false`.
    pub fn boolean(self) -> Option<bool> {
        match self.0 {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// Whether it says something: neither null, false, 0, nor an empty string, array or object.
    pub fn is_truthy(self) -> bool {
        match self.0 {
            b"null" | b"false" | b"\"\"" | b"NaN" => false,
            [b'[' | b'{', inner @ .., _] => !inner.iter().all(u8::is_ascii_whitespace),
            [b'0'..=b'9' | b'-', ..] => self.number() != Some(0.0),
            _ => true,
        }
    }
}

/// Why a text is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It ends in the middle.
    #[error("the JSON text ends in the middle")]
    Torn,
    /// Something else stands where a value or a separator should.
    #[error("it is no JSON at byte {0}")]
    Unexpected(usize),
    /// More than the allowed depth.
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// Checks that `text` is one JSON value and finds what `pointers` name in it. `found` is set, one for each pointer; of a
/// key that is there twice the last one counts. Pointers beyond [`MAX_POINTERS`] or the length of `found` are not found.
pub fn scan<'a>(text: &'a [u8], pointers: &[Pointer], found: &mut [Option<Raw<'a>>]) -> Result<(), Malformed> {
    found.fill(None);
    let count = pointers.len().min(found.len()).min(MAX_POINTERS);
    let pointers = pointers.get(..count).unwrap_or_default();
    let mut scanner = Scanner { text, at: 0, strings: Strings::new(text), pointers, found };
    let all = (1_u32 << count) - 1;
    scanner.space();
    scanner.value(all, 0)?;
    scanner.space();
    match scanner.peek() {
        None => Ok(()),
        Some(_) => Err(Malformed::Unexpected(scanner.at)),
    }
}

struct Scanner<'a, 'b> {
    text: &'a [u8],
    at: usize,
    strings: Strings<'a>,
    pointers: &'b [Pointer],
    found: &'b mut [Option<Raw<'a>>],
}

impl<'a> Scanner<'a, '_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn unexpected<T>(&self) -> Result<T, Malformed> {
        Err(if self.at >= self.text.len() { Malformed::Torn } else { Malformed::Unexpected(self.at) })
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return self.unexpected();
        }
        self.at += 1;
        Ok(())
    }

    /// A value at `depth`; `wanted` has a bit for each pointer that matched the way here.
    fn value(&mut self, wanted: u32, depth: usize) -> Result<(), Malformed> {
        if depth > MAX_DEPTH {
            return Err(Malformed::TooDeep);
        }
        let start = self.at;
        match self.peek() {
            Some(b'{') => self.object(wanted, depth)?,
            Some(b'[') => self.array(wanted, depth)?,
            Some(b'"') => {
                self.string()?;
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word(b"true")?,
            Some(b'f') => self.word(b"false")?,
            Some(b'n') => self.word(b"null")?,
            Some(b'N') => self.word(b"NaN")?,
            Some(b'I') => self.word(b"Infinity")?,
            _ => return self.unexpected(),
        }
        if wanted != 0 {
            let raw = self.text.get(start..self.at).map(Raw);
            for (index, (pointer, slot)) in self.pointers.iter().zip(self.found.iter_mut()).enumerate() {
                if wanted & (1 << index) != 0 && pointer.segments.len() == depth {
                    *slot = raw;
                }
            }
        }
        Ok(())
    }

    /// Of the `wanted` pointers those that go on with `key` at `depth`; what they found before is void.
    fn matching(&mut self, wanted: u32, depth: usize, is_key: impl Fn(&str) -> bool) -> u32 {
        let mut matching = 0;
        if wanted != 0 {
            for (index, (pointer, slot)) in self.pointers.iter().zip(self.found.iter_mut()).enumerate() {
                let bit = 1 << index;
                if wanted & bit != 0 && pointer.segments.get(depth).is_some_and(|segment| is_key(segment)) {
                    matching |= bit;
                    *slot = None;
                }
            }
        }
        matching
    }

    fn object(&mut self, wanted: u32, depth: usize) -> Result<(), Malformed> {
        self.expect(b'{')?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.string()?;
            let matching = self.matching(wanted, depth, |segment| key_is(key, segment));
            self.space();
            self.expect(b':')?;
            self.space();
            self.value(matching, depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.unexpected(),
            }
            self.space();
        }
    }

    fn array(&mut self, wanted: u32, depth: usize) -> Result<(), Malformed> {
        self.expect(b'[')?;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        let mut index = 0_usize;
        loop {
            let matching = self.matching(wanted, depth, |segment| index_is(index, segment));
            self.value(matching, depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.unexpected(),
            }
            self.space();
            index += 1;
        }
    }

    /// The bytes between the quotes, escapes as they stand.
    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        self.expect(b'"')?;
        let start = self.at;
        match self.strings.end(start) {
            Ok(end) => {
                self.at = end + 1;
                Ok(self.text.get(start..end).unwrap_or_default())
            }
            Err(at) => {
                self.at = at;
                self.unexpected()
            }
        }
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return self.unexpected();
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Malformed> {
        if self.peek() == Some(b'-') {
            self.at += 1;
            if self.peek() == Some(b'I') {
                return self.word(b"Infinity");
            }
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Malformed> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        if word.starts_with(rest) {
            self.at = self.text.len();
        }
        self.unexpected()
    }
}

/// Whether the bytes of a key mean `segment`. Keys with escapes are rare and are the only ones that allocate.
fn key_is(key: &[u8], segment: &str) -> bool {
    if !key.contains(&b'\\') {
        return key == segment.as_bytes();
    }
    let quoted = [b"\"", key, b"\""].concat();
    serde_json::from_slice::<Cow<'_, str>>(&quoted).is_ok_and(|text| text == segment)
}

fn index_is(index: usize, segment: &str) -> bool {
    (segment == "0" || !segment.starts_with(['0', '+'])) && segment.parse() == Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn find<'a>(text: &'a str, pointer: &str) -> Result<Option<&'a str>, Malformed> {
        let mut found = [None];
        scan(text.as_bytes(), &[Pointer::new(pointer)], &mut found)?;
        Ok(found[0].map(|raw| std::str::from_utf8(raw.bytes()).unwrap()))
    }

    #[test]
    fn fields_are_found_where_the_pointer_says() {
        for (text, pointer, value) in [
            (r#"{"usage": {"completion_tokens": 51}, "x": 1}"#, "/usage/completion_tokens", Some("51")),
            (r#"{"text": "{\"usage\": 3}", "usage": [1, {"a": "b"}]}"#, "/usage/1/a", Some("\"b\"")),
            (r#"{"a": 1, "a": 2}"#, "/a", Some("2")),
            (r#"{"a": {"b": 1}, "a": {}}"#, "/a/b", None),
            (r#"{"a/b": 1, "m~n": 2}"#, "/a~1b", Some("1")),
            (r#"{"a/b": 1, "m~n": 2}"#, "/m~0n", Some("2")),
            (r#"{"\u0061": 1}"#, "/a", Some("1")),
            (r#"{"": {"": 7}}"#, "//", Some("7")),
            (" [1,2] ", "", Some("[1,2]")),
            ("[1,2]", "/01", None),
            ("[NaN, -Infinity, Infinity]", "/1", Some("-Infinity")),
            ("3", "/a", None),
        ] {
            assert_eq!(find(text, pointer), Ok(value), "{text} {pointer}");
        }
    }

    #[test]
    fn what_is_no_json_is_told_apart_from_what_is_torn() {
        let whole = r#"{"id": 410, "usage": {"completion_tokens": 12.5e3}, "ok": [true, null, "a\u00e9\n"]}"#;
        assert_eq!(find(whole, "/ok/0"), Ok(Some("true")));
        for cut in 1..whole.len() {
            assert_eq!(find(&whole[..cut], "/id"), Err(Malformed::Torn), "{cut}");
        }
        for text in ["INFO starting", "{} x", "{'a': 1}", "[1,]", "{\"a\" 1}", "01", "\"\\x\"", "nul1", "+1"] {
            assert!(matches!(find(text, ""), Err(Malformed::Unexpected(_))), "{text}");
        }
        assert_eq!(find(&"[".repeat(1_000_000), ""), Err(Malformed::TooDeep));
    }

    #[test]
    fn values_as_numbers_and_as_truth() {
        for (text, number, truthy) in [
            ("51", Some(51.0), true),
            ("\"51\"", Some(51.0), true),
            ("\"1,234.5\"", Some(1234.5), true),
            ("9007199254740993", Some(9_007_199_254_740_992.0), true),
            ("-3", Some(-3.0), true),
            ("0", Some(0.0), false),
            ("0.0", Some(0.0), false),
            ("1e999", None, true),
            ("NaN", None, false),
            ("null", None, false),
            ("false", None, false),
            ("true", None, true),
            ("\"\"", None, false),
            ("\"timeout\"", None, true),
            ("[]", None, false),
            ("{ }", None, false),
            ("[0]", None, true),
        ] {
            assert_eq!(Raw(text.as_bytes()).number(), number, "{text}");
            assert_eq!(Raw(text.as_bytes()).is_truthy(), truthy, "{text}");
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[ab/~\"\\\\é]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn paths(value: &Value, at: &str, into: &mut Vec<String>) {
        into.push(at.to_owned());
        match value {
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| paths(item, &format!("{at}/{index}"), into));
            }
            Value::Object(map) => map.iter().for_each(|(key, item)| {
                paths(item, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), into)
            }),
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_document_tree(value in json()) {
            let text = serde_json::to_string_pretty(&value).unwrap();
            let mut all = Vec::new();
            paths(&value, "", &mut all);
            for path in all {
                let raw = find(&text, &path).unwrap().unwrap();
                prop_assert_eq!(&serde_json::from_str::<Value>(raw).unwrap(), value.pointer(&path).unwrap());
            }
        }

        #[test]
        fn strings_agree_with_a_document_tree(
            pieces in proptest::collection::vec(
                proptest::sample::select(vec![
                    "x", "a longer piece of text", "sixteen bytes !!", "é", "漢字", "\\\"", "\\\\", "\\n", "\\/", "\\u00e9",
                    "\\u12", "\\x", "\\", "\"", "!", "#", "[", "]",
                ]),
                0..40,
            ),
        ) {
            let text = format!("{{\"b\": \"{}\", \"a\": [\"{}\"]}}", pieces.concat(), pieces.concat());
            match serde_json::from_str::<Value>(&text) {
                Ok(value) => for path in ["/b", "/a/0", "/a"] {
                    let raw = find(&text, path).unwrap();
                    let read = raw.map(|raw| serde_json::from_str::<Value>(raw).unwrap());
                    prop_assert_eq!(read.as_ref(), value.pointer(path));
                },
                Err(_) => prop_assert!(find(&text, "/a").is_err()),
            }
        }

        #[test]
        fn any_bytes_are_refused_or_accepted_and_what_serde_takes_is_taken(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut found = [None];
            let ours = scan(&bytes, &[Pointer::new("/a")], &mut found);
            if serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok() {
                prop_assert!(ours.is_ok());
            }
        }
    }
}
