//! Reads templates: text with actions in `{{ }}`, each a pipe of calls.

use super::{Operand, Part, Piece, Style, TemplateError};

/// Parentheses deeper than this are no template that a person writes.
const MAX_DEPTH: usize = 20;

/// Reads a template.
pub(super) fn parse(text: &str) -> Result<Vec<Part>, TemplateError> {
    let mut parts = Vec::new();
    let mut rest = text;
    let mut trim_next = false;
    loop {
        let (before, after) = match rest.split_once("{{") {
            Some((before, after)) => (before, Some(after)),
            None => (rest, None),
        };
        let mut before = if trim_next { before.trim_start_matches(SPACE) } else { before };
        let Some(after) = after else {
            push_text(&mut parts, before);
            return Ok(parts);
        };
        // `{{-` takes the space before it away, `-}}` the space after it; both need a space on their inner side.
        let inner = after.strip_prefix('-').filter(|inner| inner.starts_with(SPACE));
        if inner.is_some() {
            before = before.trim_end_matches(SPACE);
        }
        push_text(&mut parts, before);
        let inner = inner.unwrap_or(after);
        let end = end_of_action(inner).ok_or(TemplateError::Unclosed)?;
        let (action, after) = (inner.get(..end).unwrap_or_default(), inner.get(end + 2..).unwrap_or_default());
        let trimmed = action.strip_suffix('-').filter(|action| action.ends_with(SPACE));
        trim_next = trimmed.is_some();
        let mut reader = Reader { action, rest: trimmed.unwrap_or(action) };
        parts.push(Part::Value(reader.pipe(0)?));
        if !reader.rest.is_empty() {
            return Err(reader.syntax("there is a closing parenthesis too many"));
        }
        rest = after;
    }
}

const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

fn push_text(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        parts.push(Part::Text(text.to_owned()));
    }
}

/// Where the `}}` is that ends an action; one inside a text does not.
fn end_of_action(inner: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, character) in inner.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some('"') if character == '\\' => escaped = true,
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if character == '"' || character == '`' => quote = Some(character),
            None if inner.get(at..).is_some_and(|rest| rest.starts_with("}}")) => return Some(at),
            None => {}
        }
    }
    None
}

#[derive(Clone, Copy)]
enum Function {
    Humanize(Style),
    Printf,
    Replace,
}

impl Function {
    fn of(name: &str) -> Option<Self> {
        Some(Self::Humanize(match name {
            "humanize" => Style::Decimal,
            "humanize1024" => Style::Binary,
            "humanizeDuration" => Style::Duration,
            "humanizePercentage" => Style::Percentage,
            "humanizeTimestamp" => Style::Timestamp,
            "printf" => return Some(Self::Printf),
            "reReplaceAll" => return Some(Self::Replace),
            _ => return None,
        }))
    }
}

struct Reader<'t> {
    /// For the message.
    action: &'t str,
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn syntax(&self, reason: &str) -> TemplateError {
        TemplateError::Syntax { action: self.action.trim().to_owned(), reason: reason.to_owned() }
    }

    /// `a | b | c`, up to the end or a closing parenthesis; the value of each is the last argument of the next.
    fn pipe(&mut self, depth: usize) -> Result<Operand, TemplateError> {
        if depth > MAX_DEPTH {
            return Err(self.syntax("its parentheses are too deep"));
        }
        let mut piped = None;
        loop {
            piped = Some(self.command(piped, depth)?);
            match self.rest.strip_prefix('|') {
                Some(rest) => self.rest = rest,
                None => break,
            }
        }
        piped.ok_or_else(|| self.syntax("it is empty"))
    }

    /// One call, or one value.
    fn command(&mut self, piped: Option<Operand>, depth: usize) -> Result<Operand, TemplateError> {
        self.skip_space();
        let mut function = None;
        let mut arguments = Vec::new();
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            let is_first = function.is_none() && arguments.is_empty();
            if is_first && self.rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
                let word = self.word();
                function = Some((word, Function::of(word).ok_or_else(|| unsupported(word))?));
            } else {
                arguments.push(self.operand(depth)?);
            }
            self.skip_space();
        }
        if let Some((name, function)) = function {
            arguments.extend(piped);
            return self.call(name, function, arguments);
        }
        match (piped, arguments.pop()) {
            (_, None) => Err(self.syntax("it is empty")),
            (None, Some(only)) if arguments.is_empty() => Ok(only),
            _ => Err(self.syntax("$value, a label or a text is no function and takes no arguments")),
        }
    }

    fn operand(&mut self, depth: usize) -> Result<Operand, TemplateError> {
        if let Some(rest) = self.rest.strip_prefix('(') {
            self.rest = rest;
            let inner = self.pipe(depth + 1)?;
            self.rest = self.rest.strip_prefix(')').ok_or_else(|| self.syntax("a parenthesis is not closed"))?;
            return Ok(inner);
        }
        if self.rest.starts_with('"') || self.rest.starts_with('`') {
            return self.text().map(Operand::Text);
        }
        let word = self.word();
        match word {
            "$value" | ".Value" => Ok(Operand::Value),
            _ => match word.strip_prefix("$labels.").or_else(|| word.strip_prefix(".Labels.")) {
                Some(name) if is_label_name(name) => Ok(Operand::Label(name.to_owned())),
                _ => Err(unsupported(word)),
            },
        }
    }

    fn call(&self, name: &str, function: Function, arguments: Vec<Operand>) -> Result<Operand, TemplateError> {
        match (function, arguments.as_slice()) {
            (Function::Printf, _) => self.printf(arguments),
            (Function::Replace, [Operand::Text(from), Operand::Text(to), text]) if !text.is_number() => {
                self.replace(from, to, text)
            }
            (Function::Replace, _) => {
                Err(self.syntax("reReplaceAll takes two texts in quotes, then a label or a text"))
            }
            (Function::Humanize(style), [only]) if only.is_number() => Ok(Operand::Humanize(style)),
            (Function::Humanize(_), _) => Err(self.syntax(&format!("{name} takes one number, which is $value"))),
        }
    }

    /// Prometheus takes a regular expression here. What Go's and Rust's mean apart is not worth a table of them: texts
    /// that mean themselves are enough to turn a label's value into words.
    fn replace(&self, from: &str, to: &str, text: &Operand) -> Result<Operand, TemplateError> {
        if from.is_empty() || from.contains(|c: char| r"\.+*?()|[]{}^$".contains(c)) || to.contains('$') {
            return Err(self.syntax("reReplaceAll replaces only plain text here, no regular expression"));
        }
        Ok(Operand::Replace { from: from.to_owned(), to: to.to_owned(), text: Box::new(text.clone()) })
    }

    fn printf(&self, arguments: Vec<Operand>) -> Result<Operand, TemplateError> {
        let mut arguments = arguments.into_iter();
        let Some(Operand::Text(format)) = arguments.next() else {
            return Err(self.syntax("the first argument of printf is the format, a text"));
        };
        let mut pieces = Vec::new();
        let mut rest = format.as_str();
        while let Some((before, after)) = rest.split_once('%') {
            pieces.push(Piece::Text(before.to_owned()));
            if let Some(after) = after.strip_prefix('%') {
                pieces.push(Piece::Text("%".to_owned()));
                rest = after;
                continue;
            }
            let (verb, digits, after) = verb(after).ok_or_else(|| {
                let verb: String = after.chars().take(3).collect();
                self.syntax(&format!("%{verb} is not a supported verb: %f, %.2f, %s and %v are"))
            })?;
            let argument = arguments.next().ok_or_else(|| self.syntax("printf has too few arguments"))?;
            pieces.push(match verb {
                'f' if argument.is_number() => Piece::Fixed(digits),
                'f' => return Err(self.syntax("%f needs a number, which is $value")),
                's' if argument.is_number() => return Err(self.syntax("%s needs a text: use %v or %.2f for $value")),
                _ => Piece::Plain(argument),
            });
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        if arguments.next().is_some() {
            return Err(self.syntax("printf has too many arguments"));
        }
        Ok(Operand::Printf(pieces))
    }

    /// Everything up to a space, a bar or a parenthesis.
    fn word(&mut self) -> &'t str {
        let end = self.rest.find(|c: char| SPACE.contains(&c) || "|()\"`".contains(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        word
    }

    fn text(&mut self) -> Result<String, TemplateError> {
        let mut characters = self.rest.char_indices();
        let open = characters.next().map(|(_, open)| open);
        let mut text = String::new();
        while let Some((at, character)) = characters.next() {
            match character {
                _ if Some(character) == open => {
                    self.rest = self.rest.get(at + 1..).unwrap_or_default();
                    return Ok(text);
                }
                '\\' if open == Some('"') => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    _ => return Err(self.syntax("a text has an escape other than \\n, \\t, \\\\ and \\\"")),
                },
                '\n' if open == Some('"') => return Err(self.syntax("a text in quotes goes over the end of its line")),
                other => text.push(other),
            }
        }
        Err(self.syntax("a text does not end"))
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches(SPACE);
    }
}

fn unsupported(word: &str) -> TemplateError {
    let construct = if word.starts_with('$') { word.to_owned() } else { format!("`{word}`") };
    TemplateError::Unsupported { construct }
}

/// The verb that follows a `%`, its digits (six by default), and the rest.
fn verb(format: &str) -> Option<(char, usize, &str)> {
    if let Some(rest) = format.strip_prefix('.') {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at_checked(digits)?;
        // More digits than a number has are a slip of the hand; without any, `%.f`, it is none.
        let number = if number.is_empty() { 0 } else { number.parse().ok().filter(|number| *number <= 40)? };
        return rest.strip_prefix('f').map(|rest| ('f', number, rest));
    }
    let mut characters = format.chars();
    match characters.next()? {
        verb @ ('f' | 's' | 'v') => Some((verb, 6, characters.as_str())),
        _ => None,
    }
}

fn is_label_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
