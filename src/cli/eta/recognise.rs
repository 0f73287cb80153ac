//! What a file is, from its first bytes: lines of text, JSON lines that are items, JSON lines that each say how far the
//! job is, or one JSON document.
//!
//! Separate and pure because a guess needs a table of cases. The name decides only where the content does not: `.jsonl`
//! may begin with a log line, a log may begin with a brace (docker's JSON framing, Python's dicts), and a
//! `trainer_state.json` may be called `.log`.

use std::path::Path;

use crate::sources::progress::pointer::{Malformed, Pointer, Raw, scan};

use super::fields;

/// What is looked at; a line that is longer says nothing.
pub const HEAD: usize = 256 * 1024;
/// Lines that are looked at.
const LINES: usize = 1000;
/// So many NULs together are a hole in a text; numbers in binary files have fewer.
const HOLE: usize = 16;
/// Bytes of a signature.
const SIGNATURE: usize = 8;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Lines, bars.
    Text,
    /// A JSON object a line, one for each item.
    Items,
    /// A JSON object a line, each of which says how far the job is.
    Status,
    /// One JSON value.
    Document,
    /// No text at all.
    Binary,
}

/// From the beginning of a file; `whole` says that there is no more of it. With `fields_given` somebody said which fields
/// say how far the job is, so lines are not items.
pub fn recognise(head: &[u8], whole: bool, path: &Path, fields_given: bool) -> Content {
    let is_jsonl = path.extension().is_some_and(|ending| ending == "jsonl" || ending == "ndjson");
    let lines_or = |content| match (lines(head, whole, is_jsonl), fields_given) {
        (Content::Items, true) => Content::Status,
        (Content::Text, _) => content,
        (lines, _) => lines,
    };
    if head.split(|&byte| byte == b'\n').map(trim).find(|line| !line.is_empty()).is_some_and(is_log) {
        return Content::Text;
    }
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("jsonl" | "ndjson") => return lines_or(if fields_given { Content::Status } else { Content::Items }),
        Some("json") => {
            // Some writers call lines `.json`, too.
            return if is_document(head, whole) { Content::Document } else { lines_or(Content::Document) };
        }
        _ => {}
    }
    let start = head.iter().position(|&byte| !is_blank(byte));
    match start.and_then(|start| head.get(start)) {
        Some(b'{' | b'[') if is_document(head, whole) => Content::Document,
        Some(b'{' | b'[') => lines_or(Content::Text),
        _ if is_binary(head) => Content::Binary,
        _ => Content::Text,
    }
}

/// A JSON line that a log is made of: docker's, the journal's, and LLaMA-Factory's own.
fn is_log(line: &[u8]) -> bool {
    const NAMES: [&[&str]; 3] = [&["/log", "/stream", "/time"], &["/MESSAGE"], &["/current_steps", "/total_steps"]];
    line.first() == Some(&b'{')
        && NAMES.iter().any(|names| {
            let pointers: Vec<Pointer> = names.iter().map(|name| Pointer::new(name)).collect();
            let mut found: [Option<Raw<'_>>; 3] = [None; 3];
            scan(line, &pointers, &mut found).is_ok() && found.iter().flatten().count() == names.len()
        })
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0 | 0xef | 0xbb | 0xbf)
}

/// A signature, as binary formats begin with (`PK` and two control characters), or NULs here and there between other bytes.
/// Those of a hole come in a long run (a log that was cut while its writer went
/// on, a crash of the machine) or stand at an end (blocks that were reserved), and blanks may stand about them.
fn is_binary(head: &[u8]) -> bool {
    let text = trim(head);
    let text = text.get(..text.len().min(4096)).unwrap_or_default();
    // No text and no terminal has these; shift in and out, which some have, are left out.
    if text.iter().take(SIGNATURE).any(|byte| matches!(byte, 1..=6 | 16..=26 | 28..=31)) {
        return true;
    }
    let (mut run, mut is_short) = (0, false);
    for &byte in text {
        if byte == 0 {
            run += 1;
        } else {
            is_short |= (1..HOLE).contains(&run);
            run = 0;
        }
    }
    is_short
}

/// One value over several lines, or a single line that does not end.
fn is_document(head: &[u8], whole: bool) -> bool {
    let text = trim(head);
    let first = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let only_line = first.len() == text.len();
    match scan(text, &[], &mut []) {
        // One line with its end is as much a document as lines with one line; only a state has no second one.
        Ok(()) => !text.is_empty(),
        Err(Malformed::Torn) => !whole && !only_line && scan(first, &[], &mut []).is_err(),
        Err(_) => false,
    }
}

fn trim(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| !is_blank(byte)).unwrap_or(text.len());
    let end =
        text.iter().rposition(|&byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0)).map_or(start, |at| at + 1);
    text.get(start..end.max(start)).unwrap_or_default()
}

/// What the whole lines say; with `sure` they are JSON lines, whatever else stands between them.
fn lines(head: &[u8], whole: bool, sure: bool) -> Content {
    let mut lines: Vec<&[u8]> = head.split(|&byte| byte == b'\n').map(trim).collect();
    if !whole {
        lines.pop();
    }
    let (mut objects, mut status, mut others) = (0_u32, 0_u32, 0_u32);
    for line in lines.into_iter().filter(|line| !line.is_empty()).take(LINES) {
        match (line.first(), scan(line, &[], &mut [])) {
            (Some(b'{'), Ok(())) => {
                objects += 1;
                status += u32::from(fields::is_status(line));
            }
            _ => others += 1,
        }
    }
    if objects == 0 || !sure && objects <= others {
        Content::Text
    } else if status * 2 > objects {
        Content::Status
    } else {
        Content::Items
    }
}

/// What an item of these lines says about tokens and failures, as far as the names are usual.
pub fn pointers(head: &[u8]) -> (Option<&'static str>, Option<&'static str>) {
    const TOKENS: [&str; 6] = [
        "/usage/completion_tokens",
        "/response/body/usage/completion_tokens",
        "/completion_tokens",
        "/num_completion_tokens",
        "/output_tokens",
        "/usage/output_tokens",
    ];
    let wanted: Vec<Pointer> = TOKENS.iter().chain(&["/error"]).map(|name| Pointer::new(name)).collect();
    let mut seen = [false; TOKENS.len() + 1];
    for line in head.split(|&byte| byte == b'\n').take(LINES) {
        let mut found: [Option<Raw<'_>>; TOKENS.len() + 1] = [None; TOKENS.len() + 1];
        if scan(trim(line), &wanted, &mut found).is_ok() {
            for (index, (seen, found)) in seen.iter_mut().zip(found).enumerate() {
                *seen |= found.is_some_and(|raw| index == TOKENS.len() || raw.count().is_some());
            }
        }
    }
    let tokens = TOKENS.iter().zip(seen).find(|(_, seen)| *seen).map(|(name, _)| *name);
    (tokens, seen.last().is_some_and(|seen| *seen).then_some("/error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_content_first_and_by_name_where_that_says_nothing() {
        let item = "{\"id\": 1, \"text\": \"done 3/7\"}\n";
        let status = "{\"done\": 5, \"total\": 9}\n";
        for (name, text, expected) in [
            ("a.log", "", Content::Text),
            ("a.log", "Progress: 1/2\n", Content::Text),
            ("a.log", "\0\0\0\0Progress: 1/2\n", Content::Text),
            ("a.log", "Progress: 1/2\n\0\0\0\0", Content::Text),
            ("a.log", "\rgen: 50%| | 1/2 [00:01<00:01, 1.00it/s]\0\0\r", Content::Text),
            ("a.log", &format!("Progress: 1/9\n{}Progress: 2/9\n", "\0".repeat(500)), Content::Text),
            ("a.pt", "PK\u{3}\u{4}\0\0\0\0", Content::Binary),
            ("a.log", "h\0i\0 \0t\0h\0e\0r\0e\0", Content::Binary),
            ("a.safetensors", "X\n\0\0\0\0\0\0{\"weight\": {}}", Content::Binary),
            ("a", item, Content::Document),
            ("a", &item.repeat(2), Content::Items),
            ("a.jsonl", item, Content::Items),
            ("a.jsonl", "", Content::Items),
            ("a.jsonl", status, Content::Status),
            ("a.log", &status.repeat(3), Content::Status),
            ("a.jsonl", &format!("INFO\n{status}\n\n[1]\nnull\n{status}{{\"event\": 1}}\n{status}"), Content::Status),
            ("a.jsonl", &format!("\u{feff}{status}{status}{item}"), Content::Status),
            ("a.json", "", Content::Document),
            ("a.json", "{\"done\": 1,", Content::Document),
            ("a.json", &item.repeat(3), Content::Items),
            ("a.log", "{\n \"global_step\": 20,\n \"max_steps\": 40\n}\n", Content::Document),
            ("a.log", &"{'loss': 1.5}\n".repeat(3), Content::Text),
            ("a.log", &"{\"log\":\"x\\n\",\"stream\":\"stderr\",\"time\":\"t\"}\n".repeat(3), Content::Text),
            ("a.jsonl", "{\"MESSAGE\": \"x\"}\n{\"MESSAGE\": [13]}\n", Content::Text),
            ("trainer_log.jsonl", "{\"current_steps\": 5, \"total_steps\": 93}\n", Content::Text),
            ("a.pt", "PK\u{3}\u{4}\0\0\u{8}\0", Content::Binary),
        ] {
            assert_eq!(recognise(text.as_bytes(), true, Path::new(name), false), expected, "{name} {text:?}");
        }
        assert_eq!(recognise(item.as_bytes(), true, Path::new("a.jsonl"), true), Content::Status, "fields were given");
    }

    #[test]
    fn a_head_that_ends_in_the_middle() {
        let long = format!("{{\"a\": \"{}", "x".repeat(100));
        assert_eq!(recognise(long.as_bytes(), false, Path::new("a"), false), Content::Text, "one endless line");
        let lines = format!("{{\"a\": 1}}\n{{\"a\": 2}}\n{long}");
        assert_eq!(recognise(lines.as_bytes(), false, Path::new("a"), false), Content::Items);
        let pretty = "{\n  \"global_step\": 20,\n  \"log_history\": [\n    {\n";
        assert_eq!(recognise(pretty.as_bytes(), false, Path::new("a"), false), Content::Document);
    }

    #[test]
    fn usual_names() {
        let lines = b"{\"usage\": {\"completion_tokens\": 5}}\n{\"error\": \"x\"}\n{\"usage\": {\"completi";
        assert_eq!(pointers(lines), (Some("/usage/completion_tokens"), Some("/error")));
        assert_eq!(pointers(b"{\"text\": \"error\"}\n"), (None, None));
        assert_eq!(pointers(b"{\"output_tokens\": \"many\"}\n"), (None, None));
    }
}
