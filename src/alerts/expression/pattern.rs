//! Regular expressions of matchers: RE2 as Prometheus runs it, in the syntax of the `regex` crate.
//!
//! Both come from the same family, and what only one of them reads fails when the rule is loaded. This file is about
//! the few things that both read and understand differently: `\d`, `\w`, `\s` and `\b` are ASCII in RE2; a `[` inside a
//! class is a character there, and `&&` and `~~` are no set operations; a `{` that starts no repetition is a
//! character. Matchers are anchored at both ends, and `.` matches a line end too.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// Bytes of a compiled pattern in a rule file.
const MOST: usize = 10 << 20;

/// Compiles the pattern of a matcher in a rule file.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    compile_within(pattern, MOST)
}

/// The same for a pattern that comes from elsewhere and may take no more than `bytes`.
pub fn compile_within(pattern: &str, bytes: usize) -> Result<Regex, String> {
    let translated = translate(pattern)?;
    RegexBuilder::new(&format!("^(?s:{translated})$"))
        .size_limit(bytes)
        .build()
        .map_err(|_| format!("{pattern:?} is not a regular expression, or one that is too large"))
}

fn translate(pattern: &str) -> Result<String, String> {
    let mut output = String::with_capacity(pattern.len());
    let mut input = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(character) = input.next() {
        match character {
            '\\' => match input.next() {
                Some('Q') => quote(&mut input, &mut output),
                Some(escaped) => output.push_str(&escape(escaped, in_class)?),
                None => return Err(format!("{pattern:?} ends in a backslash")),
            },
            '[' if in_class && input.peek() == Some(&':') => copy_named_class(&mut input, &mut output),
            '[' if in_class => output.push_str("\\["),
            '[' => {
                in_class = true;
                output.push('[');
                // A `]` that comes first is a character of the class.
                if input.next_if_eq(&'^').is_some() {
                    output.push('^');
                }
                if input.next_if_eq(&']').is_some() {
                    output.push_str("\\]");
                }
            }
            ']' => {
                in_class = false;
                output.push(']');
            }
            '&' | '~' if in_class => {
                output.push('\\');
                output.push(character);
            }
            '-' if in_class && input.peek() == Some(&'-') => {
                return Err(format!("{pattern:?} has -- inside a class: write the hyphen as \\-"));
            }
            '{' if !in_class && !starts_repetition(&input) => output.push_str("\\{"),
            other => output.push(other),
        }
    }
    Ok(output)
}

/// `\Q…\E`: everything in between as it stands.
fn quote(input: &mut Peekable<Chars<'_>>, output: &mut String) {
    while let Some(character) = input.next() {
        if character == '\\' && input.next_if_eq(&'E').is_some() {
            return;
        }
        output.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
    }
}

fn escape(escaped: char, in_class: bool) -> Result<String, String> {
    Ok(match escaped {
        'd' => "[0-9]".to_owned(),
        'D' => "[^0-9]".to_owned(),
        'w' => "[0-9A-Za-z_]".to_owned(),
        'W' => "[^0-9A-Za-z_]".to_owned(),
        's' => "[\\t\\n\\f\\r ]".to_owned(),
        'S' => "[^\\t\\n\\f\\r ]".to_owned(),
        'b' if !in_class => "(?-u:\\b)".to_owned(),
        'B' => return Err("\\B is not supported in a matcher".to_owned()),
        other => format!("\\{other}"),
    })
}

/// The rest of `[:alpha:]`, whose `[` was read.
fn copy_named_class(input: &mut Peekable<Chars<'_>>, output: &mut String) {
    output.push('[');
    for character in input.by_ref() {
        output.push(character);
        if character == ']' {
            return;
        }
    }
}

/// Whether what follows a `{` makes it a repetition: `3}`, `3,}`, `3,5}`.
fn starts_repetition(rest: &Peekable<Chars<'_>>) -> bool {
    let mut rest = rest.clone();
    let mut digits = 0;
    while rest.next_if(char::is_ascii_digit).is_some() {
        digits += 1;
    }
    if digits > 0 && rest.next_if_eq(&',').is_some() {
        while rest.next_if(char::is_ascii_digit).is_some() {}
    }
    digits > 0 && rest.next() == Some('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_re2() {
        for (pattern, yes, no) in [
            ("a|b", &["a", "b"] as &[&str], &["ab", "xa", ""] as &[&str]),
            ("", &[""], &["a"]),
            (".*", &["", "a\nb"], &[]),
            (".+", &["x"], &[""]),
            (r"\d+", &["12"], &["٣"]),
            (r"\w+", &["a_1"], &["é"]),
            (r"[\w.]+", &["a.b"], &["é"]),
            (r"\Sx", &["éx"], &[" x"]),
            (r"[[a]+", &["[a", "["], &["]"]),
            (r"[a&&b]+", &["a&b"], &["c"]),
            (r"[]a]", &["]", "a"], &["b"]),
            (r"[^]a]", &["b"], &["]"]),
            (r"[[:digit:]x]+", &["1x"], &["[:"]),
            (r"a{b}", &["a{b}"], &["ab"]),
            (r"a{2}", &["aa"], &["a{2}"]),
            (r"a{2,}", &["aaa"], &["a"]),
            (r"a{,2}", &["a{,2}"], &["aa"]),
            (r"\Qa.b\E.", &["a.bc"], &["axbc"]),
            (r"(?i)ENGINE/.*", &["engine/vllm0"], &["x"]),
            (r"\{a\}", &["{a}"], &["a"]),
        ] {
            let compiled = compile(pattern).unwrap_or_else(|error| panic!("{error}"));
            for text in yes {
                assert!(compiled.is_match(text), "{pattern} must match {text:?}");
            }
            for text in no {
                assert!(!compiled.is_match(text), "{pattern} must not match {text:?}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for pattern in ["(", "[a", "a\\", "\\", r"\B", r"(?=a)", "*", "[+--]"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
