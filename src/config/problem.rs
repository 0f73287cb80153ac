//! What is wrong with a configuration: where, which key, what and what to do.
//!
//! Separate so that every stage of reading (bytes, YAML, keys, values, references) reports into one list, which is
//! sorted by place before anybody sees it. Text of the file that ends up in a message is shortened and its control
//! characters are escaped ([`quote`]), so that a hostile or binary file cannot drive a terminal or a log. The value of
//! a key that may hold a secret is never quoted.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// More than this is not read by anybody, and a file of 200,000 wrong lines must not print 200,000 of them.
pub const SHOWN: usize = 100;

/// One thing that is wrong, or that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file as it was named on the command line.
    pub file: Arc<str>,
    /// From 1; 0 when the problem is not in one line.
    pub line: usize,
    /// From 1, in characters; 0 with `line` 0.
    pub column: usize,
    /// The path of the key, as `engines[0].interval`; empty when it is about the file.
    pub key: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for Problem {}

/// A place in the file; the default is "nowhere in particular".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
}

/// Collects problems (which refuse the file) and warnings (which do not).
#[derive(Debug)]
pub struct Problems {
    file: Arc<str>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Problems {
    /// An empty list for a file of that name.
    pub fn new(file: &str) -> Self {
        Self { file: quote(file).into(), problems: Vec::new(), warnings: Vec::new() }
    }

    /// The file is refused for this.
    pub fn problem(&mut self, place: Place, key: &str, message: impl Into<String>) {
        let problem = self.make(place, key, message.into());
        self.problems.push(problem);
    }

    /// The file is accepted, but its author should know this.
    pub fn warning(&mut self, place: Place, key: &str, message: impl Into<String>) {
        let warning = self.make(place, key, message.into());
        self.warnings.push(warning);
    }

    fn make(&self, place: Place, key: &str, message: String) -> Problem {
        Problem { file: Arc::clone(&self.file), line: place.line, column: place.column, key: key.to_owned(), message }
    }

    /// Whether the file is refused.
    pub fn any(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Problems and warnings, each in the order of the file.
    pub fn finish(mut self) -> (Vec<Problem>, Vec<Problem>) {
        // Stable: what is at one place stays in the order in which it was found. An alias makes the same problem appear
        // wherever its anchor is used; once is enough.
        for list in [&mut self.problems, &mut self.warnings] {
            list.sort_by_key(|problem| (problem.line, problem.column));
            list.dedup();
        }
        (self.problems, self.warnings)
    }
}

/// The problems one a line, at most [`SHOWN`] of them, and how many more there are.
pub fn listing(problems: &[Problem]) -> String {
    let mut text = String::new();
    for problem in problems.iter().take(SHOWN) {
        text.push_str(&problem.to_string());
        text.push('\n');
    }
    let more = problems.len().saturating_sub(SHOWN);
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

/// Text of the file in a form that is safe to print: control characters escaped, at most 60 characters.
pub fn quote(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 60;
    let short: String = text.chars().take(LONGEST).collect();
    let cut = short.len() < text.len();
    if !cut && !text.chars().any(unprintable) {
        return Cow::Borrowed(text);
    }
    let mut quoted = String::with_capacity(short.len());
    for character in short.chars() {
        if unprintable(character) {
            quoted.extend(character.escape_default());
        } else {
            quoted.push(character);
        }
    }
    if cut {
        quoted.push('…');
    }
    Cow::Owned(quoted)
}

/// Control characters, and those that reorder or hide the text around them.
pub fn unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_file_cannot_drive_a_terminal() {
        for (text, quoted) in [
            ("plain", "plain"),
            ("Zürich", "Zürich"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("a\nb", "a\\nb"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ] {
            assert_eq!(quote(text), quoted);
        }
        assert_eq!(quote(&"x".repeat(1000)).chars().count(), 61);
    }

    #[test]
    fn problems_come_in_the_order_of_the_file_and_once() {
        let mut problems = Problems::new("f.yml");
        problems.problem(Place { line: 9, column: 1 }, "b", "late");
        problems.problem(Place { line: 2, column: 7 }, "a", "early");
        problems.problem(Place { line: 2, column: 7 }, "a", "early");
        let (problems, _) = problems.finish();
        assert_eq!(listing(&problems), "f.yml:2:7: a: early\nf.yml:9:1: b: late\n");
        let many = vec![problems[0].clone(); SHOWN + 5];
        assert!(listing(&many).ends_with("early\nand 5 more\n"));
    }
}
