//! What one look says, as one JSON object and as lines for people. Separate because both say the same, and pure so that
//! both are tested without files.

use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use super::subject::Look;
use crate::estimate::one_shot::Verdict;
use crate::model::{Answer, Time};
use crate::sources::progress::log::ListedBar;
use crate::text;

/// A file that was not written for so long deserves a word.
const SILENT: f64 = 600.0;

/// The object of `--json`: every key is always there, `null` is unknown, and `reason` says why.
pub fn json(path: &str, look: &Look, verdict: &Verdict) -> Value {
    let told = &look.told;
    let mut reason = Map::new();
    let mut known = |key: &str, value: Option<Value>, why: &str| {
        if value.is_none() {
            reason.insert(key.to_owned(), why.into());
        }
        value.unwrap_or(Value::Null)
    };
    let unread = unread(look);
    let written = look.written.as_ref();
    let of_bytes = "bytes are not what tells: give --total-bytes for that";
    let bytes = known("bytes", written.map(|written| number(written.bytes)), of_bytes);
    let total_bytes = known("total_bytes", written.map(|written| number(written.total)), of_bytes);
    let bytes_rate = known(
        "bytes_per_second",
        written.and_then(|written| written.per_second).map(number),
        if written.is_some() { "one look knows no pace" } else { of_bytes },
    );
    let done = known("done", told.done.map(number), unread);
    let no_total = if look.written.is_some() { unread } else { "the file does not say: give it with --total" };
    let total = known("total", told.total.map(number), no_total);
    let failed = known("failed", told.failed.map(number), "the file does not say");
    let elapsed = known("elapsed_seconds", told.elapsed.map(number), "the file has no clock");
    let mut answer =
        |key: &str, answer: &Answer<f64>| known(key, answer.get().map(number), answer.reason().unwrap_or_default());
    let rate = answer("items_per_second", &verdict.items_per_second);
    let tokens = answer("tokens_per_item", &verdict.tokens_per_item);
    let tokens_rate = answer("tokens_per_second", &verdict.tokens_per_second);
    let finished = known("finished", verdict.finished.get().map(Value::Bool), verdict.finished.reason().unwrap_or(""));
    let printed = known("printed_remaining_seconds", told.printed_remaining.map(number), "the file does not print it");
    let eta = verdict
        .eta
        .get()
        .map(|eta| json!({"low": eta.low.map(number), "mid": number(eta.mid), "high": eta.high.map(number)}));
    let eta = known("eta_seconds", eta, verdict.eta.reason().unwrap_or_default());
    // Known, and not to be relied on.
    let doubt = verdict.doubt.clone();
    let format = known("format", look.format.clone().map(Value::String), unread);
    if let Some(doubt) = doubt {
        reason.insert("eta_seconds".to_owned(), doubt.into());
    }
    json!({
        "path": path,
        "source": look.source,
        "format": format,
        "done": done,
        "total": total,
        "failed": failed,
        "items_per_second": rate,
        "bytes": bytes,
        "total_bytes": total_bytes,
        "bytes_per_second": bytes_rate,
        "elapsed_seconds": elapsed,
        "tokens_per_item": tokens,
        "tokens_per_second": tokens_rate,
        "finished": finished,
        "printed_remaining_seconds": printed,
        "eta_seconds": eta,
        "bars": look.bars.iter().map(bar).collect::<Vec<Value>>(),
        "reason": reason,
    })
}

/// The object for what cannot be read at all.
pub fn failed(path: &str, source: Option<&str>, message: &str) -> Value {
    let keys = [
        "format",
        "done",
        "total",
        "failed",
        "items_per_second",
        "bytes",
        "total_bytes",
        "bytes_per_second",
        "elapsed_seconds",
        "tokens_per_item",
        "tokens_per_second",
        "finished",
        "printed_remaining_seconds",
        "eta_seconds",
    ];
    let mut object = Map::from_iter(keys.iter().map(|key| ((*key).to_owned(), Value::Null)));
    object.insert("path".to_owned(), path.into());
    object.insert("source".to_owned(), source.into());
    object.insert("bars".to_owned(), json!([]));
    object.insert("reason".to_owned(), json!({"done": message}));
    Value::Object(object)
}

/// Why it is not known how much is done, and what to do.
fn unread(look: &Look) -> &str {
    look.problem.as_deref().unwrap_or(match (look.source, &look.format) {
        ("bytes", _) => "bytes are counted here, and no items",
        ("log", None) => "nothing in it is progress that we know: give --format a regular expression with a group done",
        _ => "the file does not say",
    })
}

fn bar(bar: &ListedBar) -> Value {
    json!({
        "description": bar.description,
        "done": bar.done.map(number),
        "total": bar.total.map(number),
        "finished": bar.finished,
    })
}

/// A count without a fraction is written without one.
#[allow(clippy::cast_possible_truncation)] // Checked to be whole and within the range.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9.2e18 { Value::from(value as i64) } else { Value::from(value) }
}

/// How much is done: `12,000 of 25,000 (48.0 %), 14 failed`.
fn progress(look: &Look) -> Option<String> {
    if let Some(written) = &look.written {
        let percent = text::percent(written.bytes, written.total).map(|percent| format!(" ({percent:.1} %)"));
        let (bytes, total) = (text::bytes(written.bytes), text::bytes(written.total));
        return Some(format!("{bytes} of {total}{}", percent.unwrap_or_default()));
    }
    let told = &look.told;
    let mut line = text::count(told.done?);
    if let Some(total) = told.total {
        line = format!("{line} of {}", text::count(total));
    }
    if let Some(percent) = told.done.zip(told.total).and_then(|(done, total)| text::percent(done, total)) {
        line = format!("{line} ({percent:.1} %)");
    }
    if let Some(failed) = told.failed.filter(|failed| *failed > 0.0) {
        line = format!("{line}, {} failed", text::count(failed));
    }
    Some(line)
}

/// How fast, where items or bytes say so.
fn pace(look: &Look, verdict: &Verdict) -> Option<String> {
    let of_bytes = look.written.as_ref().and_then(|written| written.per_second);
    let bytes = of_bytes.map(|per_second| format!("{}/s", text::bytes(per_second)));
    bytes.or_else(|| verdict.items_per_second.get().map(|rate| text::pace(rate, "items")))
}

fn left(verdict: &Verdict) -> String {
    match (verdict.finished.get(), &verdict.eta) {
        (Some(true), _) => "finished".to_owned(),
        (_, Answer::Known(eta)) => {
            let interval = match (eta.low, eta.high) {
                (Some(low), Some(high)) => format!(" ({} to {})", text::span(low), text::span(high)),
                _ => String::new(),
            };
            format!("{} left{interval}", text::span(eta.mid))
        }
        (_, Answer::Unknown { unknown }) => format!("end unknown: {unknown}"),
    }
}

/// One line, for `--follow` and below a command's output.
pub fn line(look: &Look, verdict: &Verdict) -> String {
    let mut parts = vec![progress(look).unwrap_or_else(|| "nothing says how much is done yet".to_owned())];
    parts.extend(pace(look, verdict));
    parts.push(left(verdict));
    parts.join(" · ")
}

/// A few lines.
pub fn lines(path: &str, look: &Look, verdict: &Verdict, now: Time, zone: &TimeZone) -> String {
    let format = look.format.as_ref().filter(|format| *format != look.source);
    let mut out =
        format!("{path}: {}{}\n", look.source, format.map_or_else(String::new, |format| format!(", {format}")));
    match (progress(look), &look.problem) {
        (Some(progress), _) => out.push_str(&format!("  {progress}\n")),
        (None, Some(problem)) => out.push_str(&format!("  how far: unknown, {problem}\n")),
        (None, None) => out.push_str(&format!("  how far: unknown, {}\n", unread(look))),
    }
    if let Some(problem) = look.problem.as_ref().filter(|_| look.written.is_some()) {
        out.push_str(&format!("  {problem}\n"));
    }
    let mut paces: Vec<String> = pace(look, verdict).into_iter().collect();
    paces.extend(verdict.tokens_per_item.get().map(|tokens| format!("{} tokens/item", text::count(tokens.round()))));
    paces.extend(verdict.tokens_per_second.get().map(|rate| text::pace(rate, "tokens")));
    paces.extend(look.told.elapsed.map(|elapsed| format!("{} so far", text::span(elapsed))));
    if !paces.is_empty() {
        out.push_str(&format!("  {}\n", paces.join(", ")));
    }
    if look.told.done.is_some() || verdict.finished.get().is_some() {
        out.push_str(&format!("  {}", left(verdict)));
        if let Some(eta) = verdict.eta.get().filter(|_| verdict.finished.get() != Some(true)) {
            out.push_str(&format!(", ends {}", text::moment_in(now.seconds() + eta.mid, zone)));
        }
        out.push('\n');
    }
    if let Some(doubt) = &verdict.doubt {
        out.push_str(&format!("  do not rely on the end: {doubt}\n"));
    }
    if let Some(remaining) = look.told.printed_remaining.filter(|_| verdict.finished.get() != Some(true)) {
        out.push_str(&format!("  it says itself: {} left\n", text::span(remaining)));
    }
    let silence = look.written_at.map(|written| now.seconds_since(written)).filter(|silence| *silence > SILENT);
    if let Some(silence) = silence.filter(|_| verdict.finished.get() != Some(true)) {
        out.push_str(&format!("  not written for {}: is it still running?\n", text::span(silence)));
    }
    if look.bars.len() > 1 {
        for bar in &look.bars {
            let name = if bar.description.is_empty() { "a bar without a name" } else { &bar.description };
            let total = bar.total.map_or_else(String::new, |total| format!(" of {}", text::count(total)));
            let done = bar.done.map_or_else(|| "unknown".to_owned(), text::count);
            out.push_str(&format!("  bar {name}: {done}{total}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::one_shot::{Told, judge};

    fn look() -> Look {
        let told = Told {
            done: Some(12_000.0),
            total: Some(25_000.0),
            failed: Some(2153.0),
            elapsed: Some(14_011.0),
            tokens_per_item: Some(1002.9),
            ..Told::default()
        };
        Look {
            source: "log",
            format: Some("progress".to_owned()),
            told,
            written_at: Some(Time::from_seconds(1_796_031_800.0)),
            ..Look::default()
        }
    }

    #[test]
    fn lines_for_people() {
        let look = look();
        let verdict = judge(&look.told);
        let now = Time::from_seconds(1_796_035_400.0);
        assert_eq!(
            lines("run.log", &look, &verdict, now, &TimeZone::UTC),
            "run.log: log, progress\n  \
             12,000 of 25,000 (48.0 %), 2,153 failed\n  \
             0.86 items/s, 1,003 tokens/item, 859 tokens/s, 3 h 54 min so far\n  \
             4 h 13 min left (3 h 30 min to 5 h 9 min), ends 2026-11-30 14:56:18 UTC\n  \
             not written for 1 h: is it still running?\n"
        );
        assert_eq!(
            line(&look, &verdict),
            "12,000 of 25,000 (48.0 %), 2,153 failed · 0.86 items/s · 4 h 13 min left (3 h 30 min to 5 h 9 min)"
        );
        let empty = Look { source: "log", ..Look::default() };
        assert_eq!(
            lines("run.log", &empty, &judge(&empty.told), now, &TimeZone::UTC),
            "run.log: log\n  how far: unknown, nothing in it is progress that we know: give --format a regular \
             expression with a group done\n"
        );
    }

    #[test]
    fn every_key_is_there_and_every_null_has_a_reason() {
        for (look, nulls) in [(look(), 4), (Look { source: "json", ..Look::default() }, 14)] {
            let object = json("x", &look, &judge(&look.told));
            let keys = object.as_object().unwrap();
            let null: Vec<&String> = keys.iter().filter(|(_, value)| value.is_null()).map(|(key, _)| key).collect();
            assert_eq!(null.len(), nulls, "{object}");
            for key in null {
                assert!(!object["reason"][key].as_str().unwrap().is_empty(), "{key} {object}");
            }
            let other = failed("x", Some("json"), "gone");
            assert!(keys.keys().eq(other.as_object().unwrap().keys()));
        }
        assert_eq!(number(9_007_199_254_740_992.0).to_string(), "9007199254740992");
        assert_eq!(number(0.5).to_string(), "0.5");
    }
}
