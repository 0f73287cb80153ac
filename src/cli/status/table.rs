//! Aligned columns that fit a terminal.
//!
//! A column is as wide as its widest cell. When a row is too wide, the cells that may shrink (names, reasons) are cut
//! with an ellipsis, the longest first; figures never are, since half a number is a wrong number.

use std::fmt::Write;

/// How a column is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// To the left; may be cut.
    Text,
    /// To the right; never cut.
    Figure,
}

/// Between columns.
const GAP: usize = 2;
/// Text is not cut below this.
const MIN_TEXT: usize = 6;

/// Rows under a heading.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Column)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new(columns: &[(&'static str, Column)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty, superfluous ones are left out.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// Writes the table, no line wider than `width` unless its figures alone are.
    pub fn write(&self, out: &mut String, width: usize) {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(place, (title, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(place)).map(|cell| length(cell));
                cells.max().unwrap_or(0).max(length(title))
            })
            .collect();
        self.shrink(&mut widths, width);
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            self.line(out, row, &widths);
        }
    }

    fn shrink(&self, widths: &mut [usize], width: usize) {
        let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        while total(widths) > width {
            let texts = widths.iter_mut().zip(&self.columns).filter(|(_, (_, column))| *column == Column::Text);
            match texts.map(|(width, _)| width).max() {
                Some(longest) if *longest > MIN_TEXT => *longest -= 1,
                _ => return,
            }
        }
    }

    fn line(&self, out: &mut String, row: &[String], widths: &[usize]) {
        let mut line = String::new();
        for (place, ((_, column), width)) in self.columns.iter().zip(widths).enumerate() {
            let cell = row.get(place).map_or("", String::as_str);
            if place > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            // Writing to a string does not fail.
            let _ = match column {
                Column::Text => write!(line, "{:<width$}", cut(cell, *width)),
                Column::Figure => write!(line, "{cell:>width$}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// Characters; wide ones of East Asian scripts take two columns, which is not worth a table of them here.
pub fn length(text: &str) -> usize {
    text.chars().count()
}

/// At most `width` characters.
pub fn cut(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Writes `text` in lines of at most `width`, broken between words, the second and later ones set in. A reason says
/// what to do at its end, so it is never cut.
pub fn wrap(out: &mut String, text: &str, width: usize) {
    let text = printable(text);
    let indent = text.len() - text.trim_start().len() + 2;
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        if used > indent && used + length(word.trim_end()) > width {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        }
        out.push_str(word);
        used += length(word);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
}

/// Without what a terminal would obey: escape sequences, line ends, marks that turn the direction of text.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| match letter {
            '\t' | '\n' | '\r' => ' ',
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            control if control.is_control() => '\u{fffd}',
            letter => letter,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn figures_stay_and_texts_are_cut() {
        let mut table = Table::new(&[("NAME", Column::Text), ("N", Column::Figure), ("WHY", Column::Text)]);
        table.row(["a".into(), "12,345".into(), "because of something long".into()]);
        table.row(["a longer name".into(), "1".into(), String::new()]);
        let mut out = String::new();
        table.write(&mut out, 32);
        assert_eq!(
            out,
            "NAME              N  WHY\n\
             a            12,345  because of…\n\
             a longer n…       1\n"
        );
    }

    #[test]
    fn long_texts_are_broken_between_words() {
        let mut out = String::new();
        wrap(&mut out, "  it refuses: see the password file", 20);
        assert_eq!(out, "  it refuses: see\n    the password\n    file\n");
    }

    proptest! {
        #[test]
        fn no_cell_can_break_a_line_or_steer_the_terminal(cells in proptest::array::uniform3(any::<String>()), width in 0_usize..200) {
            let mut table = Table::new(&[("A", Column::Text), ("B", Column::Figure), ("C", Column::Text)]);
            table.row(cells);
            let mut out = String::new();
            table.write(&mut out, width);
            prop_assert_eq!(out.matches('\n').count(), 2);
            prop_assert!(out.chars().all(|letter| letter == '\n' || !letter.is_control()));
        }
    }
}
