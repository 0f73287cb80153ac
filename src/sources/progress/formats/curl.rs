//! curl's table, twelve columns: `41 12.0M   41 5120k    0     0  1142k      0  0:00:10  0:00:04  0:00:06 1142k`, and its
//! `-#` bar, `#######      15.1%`, which has no counts.
//!
//! The columns are: percent, size, percent and bytes received, percent and bytes sent, the two average speeds, the whole
//! time, the time spent, the time left, the speed now. Letters are powers of 1,024. Without a size the whole time is
//! `--:--:--`, and the second column is what came so far.

use super::super::numbers::{leading, size, time};
use super::{Bar, Whole};

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    table(text).or_else(|| parallel(text)).or_else(|| hashes(text))
}

fn table(text: &str) -> Option<Bar<'_>> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut words = text.split_whitespace();
    let mut columns = [""; 8];
    for column in &mut columns {
        *column = words.next()?;
    }
    let [percent, total, percent_received, received, percent_sent, sent, down, up] = columns;
    for share in [percent, percent_received, percent_sent] {
        leading(share).filter(|(value, rest)| rest.is_empty() && *value <= 100.0)?;
    }
    let done = amount(received)?.max(amount(sent)?);
    let rate = amount(down)?.max(amount(up)?);
    let (whole, elapsed, remaining) = (clock(&mut words)?, clock(&mut words)?, clock(&mut words)?);
    // Without a size there is no whole time either, and the second column is what came.
    let total = Some(amount(total)?).filter(|&total| total > 0.0 && (whole.is_some() || total > done));
    let bar = Bar {
        format: "curl",
        done: Some(done),
        total,
        elapsed,
        remaining,
        rate: Some(rate).filter(|&rate| rate > 0.0),
        whole: Whole::Settled,
        ..Bar::default()
    };
    amount(words.next()?)?;
    words.next().is_none().then(|| Bar { finished: bar.reached(), ..bar })
}

/// Several transfers at once (`-Z`), ten columns: percent received and sent, bytes of both, how many transfers there are
/// and how many go on, the whole time, the time spent, the time left, the speed. Of the total only the percentage is
/// printed, and dashes while one of the sizes is not known.
fn parallel(text: &str) -> Option<Bar<'_>> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        return None;
    }
    let mut words = text.split_whitespace();
    for _ in 0..2 {
        let word = words.next()?;
        let is_share = leading(word).is_some_and(|(value, rest)| rest.is_empty() && value <= 100.0);
        (is_share || word == "--").then_some(())?;
    }
    let done = amount(words.next()?)?.max(amount(words.next()?)?);
    let transfers = leading(words.next()?).filter(|(_, rest)| rest.is_empty())?.0;
    let live = leading(words.next()?).filter(|(_, rest)| rest.is_empty())?.0;
    let (_, elapsed, remaining) = (clock(&mut words)?, clock(&mut words)?, clock(&mut words)?);
    let rate = amount(words.next()?)?;
    (words.next().is_none() && live <= transfers).then_some(Bar {
        format: "curl",
        done: Some(done),
        elapsed,
        remaining,
        rate: Some(rate).filter(|&rate| rate > 0.0),
        finished: Some(transfers > 0.0 && live == 0.0),
        whole: Whole::Settled,
        ..Bar::default()
    })
}

fn amount(word: &str) -> Option<f64> {
    size(word, 1024.0).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// A column of time: `0:00:10`, `--:--:--`, and from 100 hours on two words, `60d 16h`, or days alone.
fn clock<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Option<f64>> {
    let word = words.next()?;
    match leading(word) {
        Some((days, "d")) if days >= 1000.0 => Some(Some(days * 86_400.0)),
        Some((days, "d")) => match leading(words.next()?)? {
            (hours, "h") => Some(Some(days * 86_400.0 + hours * 3_600.0)),
            _ => None,
        },
        _ => time(word).filter(|(_, rest)| rest.is_empty()).map(|(seconds, _)| seconds),
    }
}

fn hashes(text: &str) -> Option<Bar<'_>> {
    let rest = text.trim_start_matches('#');
    let hashes = text.len() - rest.len();
    let (percent, rest) = leading(rest.trim_start())?;
    let is_bar = rest == "%" && percent <= 100.0 && text.contains('.') && (hashes > 0 || percent < 5.0);
    is_bar.then_some(Bar { format: "curl", finished: Some(percent >= 100.0), whole: Whole::Surely, ..Bar::default() })
}
