//! tqdm's frames by their grammar: `desc:  12%|███ | 123/1000 [00:10<01:20, 9.99it/s, postfix]` and, without a total or
//! past it, `desc: 857it [00:17, 50.00it/s]`.
//!
//! Separate because it is one grammar, and pure. The hazards are decoys: descriptions hold brackets, ratios and sizes
//! (`MapBatches [34 hits, 0/0 GPU, 384.0MB/1.0GB]`), postfixes hold anything. What nothing else looks like is a bracket
//! that begins with a clock and has a count right before it; the last such bracket of a frame is the bar.
//!
//! Scaled numbers (`134M/352M`) are read in thousands: tqdm divides by 1,000 or, if it was told to, by 1,024, and does
//! not say which. Ratios are exact either way, and the rate is always in thousands.
//!
//! A terminal that is too narrow cuts the frame, in the end down to `desc:   4%| | 40/1000`. Such a rest only counts when
//! its percentage is that of its ratio, which a cut in the middle of a number would not survive.
//!
//! enlighten draws the same with other blanks: no colon behind the description, one before the unit (`Shards  23%|██ |
//! 7/30 [00:11<00:36, 0.63 shards/s]`), and counters without a total as `Docs 57 docs [00:01, 48.8 docs/s]`.

use super::super::numbers::{leading, scale, size, time};
use super::{Bar, Whole, find};

/// A scaled rate is at most so many times the average. The smallest scale is a thousand, and is none where it says more.
const FASTEST: f64 = 300.0;

/// Reads a frame that was cleaned of escapes.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    parse(text)
}

/// The bar that a frame holds.
pub fn parse(text: &str) -> Option<Bar<'_>> {
    // Nearly every bar ends with its bracket, or with a postfix in it.
    let mut found = None;
    for at in memchr::memrchr_iter(b'[', text.as_bytes()) {
        let (before, inside) = (text.get(..at)?, text.get(at + 1..)?);
        match &found {
            None => found = bar(before, inside).map(|bar| (at, bar)),
            // What looks like a bar within the bracket of another is in its postfix.
            Some((end, _)) => {
                if memchr::memchr(b']', text.as_bytes().get(at..*end)?).is_some() {
                    break;
                }
                found = bar(before, inside).map(|bar| (at, bar)).or(found);
            }
        }
    }
    found.map(|(_, bar)| bar).or_else(|| cut(text))
}

/// enlighten's counters without a total.
pub(super) fn read_counter<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let at = memchr::memrchr(b'[', text.as_bytes())?;
    let timing = timing(text.get(at + 1..)?)?;
    let front = text.get(..at)?.strip_suffix(' ')?;
    let rate_text = timing.rate_text.strip_suffix("/s")?;
    // A unit stands behind the count and in the rate, or in neither of them.
    let front = match rate_text.rsplit_once(' ') {
        Some((_, unit)) => front.strip_suffix(unit)?.strip_suffix(' ')?,
        None => front,
    };
    let (front, count) = front.rsplit_once(' ').unwrap_or(("", front));
    let (done, _) = leading(count).filter(|(_, rest)| rest.is_empty())?;
    (!timing.has_remaining).then(|| Bar {
        format: "enlighten",
        description: front.trim(),
        done: Some(done),
        elapsed: timing.elapsed,
        rate: rate(timing.rate_text, None),
        whole: if timing.complete { Whole::Surely } else { Whole::Never },
        ..Bar::default()
    })
}

fn bar<'a>(before: &'a str, inside: &'a str) -> Option<Bar<'a>> {
    let before = before.strip_suffix(' ')?;
    let timing = timing(inside)?;
    let (description, done, total, scaled) = match counts(before) {
        Some(counts) => counts,
        // Without a total there is no time left either.
        None if !timing.has_remaining => lone_count(before, timing.rate_text)?,
        None => return None,
    };
    // Elapsed is cut to whole seconds: after 100 of them the error of this product is below one in a hundred.
    let tokens_per_item = match (output_tokens(timing.postfix), timing.elapsed) {
        (Some(rate), Some(elapsed)) if elapsed >= 100.0 && done > 0.0 => Some(rate * elapsed / done),
        _ => None,
    };
    let is_tqdm = description.text.is_empty() || description.has_colon || timing.postfix.starts_with(',');
    Some(Bar {
        format: if is_tqdm { "tqdm" } else { "enlighten" },
        description: description.text,
        done: Some(done),
        total,
        elapsed: timing.elapsed,
        // Lightning prints a zero where there is no total.
        remaining: timing.remaining.filter(|_| total.is_some()),
        rate: rate(timing.rate_text, scaled.then_some(done / timing.elapsed.unwrap_or(0.0).max(1.0))),
        tokens_per_item,
        finished: total.map(|total| done >= total && timing.remaining == Some(0.0)),
        // Times and count are whole even where the rest was cut.
        whole: if timing.complete { Whole::Surely } else { Whole::Settled },
        ..Bar::default()
    })
}

/// What a narrow terminal left: `desc:   4%| | 40/1000`, perhaps with the beginning of the bracket, and perhaps without
/// the last digits of the total.
fn cut(text: &str) -> Option<Bar<'_>> {
    let sign = percent(text)?;
    let (front, rest) = (text.get(..sign)?, text.get(sign + 2..)?);
    let (_, rest) = rest.split_once("| ")?;
    let words = front.trim_end_matches(|c: char| c.is_ascii_digit());
    let (percent, _) = leading(front.get(words.len()..)?)?;
    if let Some(bar) = transfer(words, rest, percent) {
        return Some(bar);
    }
    let end = rest.find(" [").unwrap_or(rest.len());
    let before = text.get(..text.len() - rest.len() + end)?;
    let (description, done, total, _) = counts(before)?;
    let total = total?;
    // tqdm rounds to the nearest.
    let is_share =
        |least: f64, most: f64| done / most * 100.0 <= percent + 0.51 && percent - 0.51 <= done / least * 100.0;
    let bar = Bar { format: "tqdm", description: description.text, done: Some(done), ..Bar::default() };
    if is_share(total, total) {
        return Some(Bar {
            // The share of 0 is that of every total, also of one whose last digits are missing.
            total: Some(total).filter(|_| done > 0.0),
            // Of `100%| | 60/60` it cannot be told whether it was closed.
            finished: Some(done >= total),
            // With a digit less, the ratio would be another; only that of 0 % would not.
            whole: if percent >= 1.0 { Whole::Settled } else { Whole::Never },
            ..bar
        });
    }
    let is_cut = (1..=9).map(|digits| 10_f64.powi(digits)).any(|tens| is_share(total * tens, (total + 1.0) * tens));
    (is_cut && percent >= 1.0 && end == rest.len()).then_some(bar)
}

/// The bars of Hugging Face's uploads: `Processing Files (1 / 2):  43%|████▎     | 4.29GB / 10.0GB,  100MB/s`.
fn transfer<'a>(words: &'a str, rest: &str, percent: f64) -> Option<Bar<'a>> {
    let (done, rest) = size(rest.trim_start(), 1000.0)?;
    let (total, rest) = size(rest.strip_prefix(" /")?.trim_start(), 1000.0)?;
    if total <= 0.0 || (done / total * 100.0 - percent).abs() > 1.01 {
        return None;
    }
    let rate = rest.strip_prefix(',').and_then(|rest| size(rest.trim_start(), 1000.0));
    let rate = rate.filter(|(_, unit)| unit.starts_with("/s")).map(|(rate, _)| rate);
    Some(Bar {
        format: "tqdm",
        description: without_ratio(words.trim().trim_end_matches(':').trim_end()),
        done: Some(done),
        total: Some(total),
        rate,
        finished: Some(done >= total),
        ..Bar::default()
    })
}

/// A description, and whether a colon stood behind it.
#[derive(Debug, Clone, Copy)]
struct Description<'a> {
    text: &'a str,
    has_colon: bool,
}

struct Timing<'a> {
    elapsed: Option<f64>,
    has_remaining: bool,
    remaining: Option<f64>,
    rate_text: &'a str,
    postfix: &'a str,
    complete: bool,
}

/// `elapsed<remaining, rate, postfix]` or `elapsed, rate, postfix]`. A frame that was cut to the width of a terminal
/// ends somewhere in or after the rate; the times have to be whole.
fn timing(inside: &str) -> Option<Timing<'_>> {
    let (elapsed, rest) = time(inside)?;
    let (has_remaining, remaining, rest) = match rest.strip_prefix('<') {
        Some(rest) => {
            let (remaining, rest) = time(rest)?;
            (true, remaining, rest)
        }
        None => (false, None, rest),
    };
    if let Some(rest) = rest.strip_prefix(']') {
        let rate_text = rest.get(..0).unwrap_or_default();
        return Some(Timing { elapsed, has_remaining, remaining, rate_text, postfix: "", complete: true });
    }
    let rest = rest.strip_prefix(',')?;
    let end = rest.find([',', ']']).unwrap_or(rest.len());
    Some(Timing {
        elapsed,
        has_remaining,
        remaining,
        rate_text: rest.get(..end)?.trim(),
        postfix: rest.get(end..)?,
        complete: rest.contains(']'),
    })
}

/// `… n/total` at the end of what stands before the bracket: description, both numbers, and whether they are scaled.
fn counts(before: &str) -> Option<(Description<'_>, f64, Option<f64>, bool)> {
    let start = before.rfind([' ', '|']).map_or(0, |at| at + 1);
    let (n, total) = before.get(start..)?.split_once('/')?;
    let (done, done_scaled) = count(n)?;
    // Lightning's bars say so where the total is not known.
    let (total, total_scaled) = if total == "?" { (0.0, false) } else { count(total)? };
    let front = before.get(..start)?;
    Some((description(front), done, Some(total).filter(|&total| total > 0.0), done_scaled || total_scaled))
}

/// A whole number with an optional letter for its scale, nothing else; whether it looks scaled.
fn count(text: &str) -> Option<(f64, bool)> {
    let (value, rest) = leading(text)?;
    let mut letters = rest.chars();
    match (letters.next(), letters.next()) {
        (None, _) => Some((value, text.contains('.'))),
        (Some(letter), None) => Some((value * scale(letter)?, true)),
        _ => None,
    }
}

/// The last percent sign that a bar follows.
fn percent(text: &str) -> Option<usize> {
    memchr::memrchr_iter(b'%', text.as_bytes()).find(|&sign| text.as_bytes().get(sign + 1) == Some(&b'|'))
}

/// The description in front of the percentage and the bar.
fn description(front: &str) -> Description<'_> {
    let front = front.trim_end();
    // `desc:  12%|███   |`: the percentage is the last one that a bar follows.
    let front = match percent(front) {
        Some(at) => front.get(..at).unwrap_or(front).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'),
        // Lightning draws an empty bar where the total is not known: `Epoch 0: |          | 37/?`.
        None => front.strip_suffix('|').map_or(front, |inside| {
            inside.trim_end().strip_suffix('|').or_else(|| before_words(inside)).unwrap_or(front)
        }),
    };
    let front = front.trim();
    let words = front.trim_end_matches(':');
    Description { text: without_ratio(words.trim_end()), has_colon: words.len() < front.len() }
}

/// What stands before `50% Completed `, which vLLM and SGLang print in the place of a bar.
fn before_words(inside: &str) -> Option<&str> {
    let (front, words) = inside.rsplit_once('%')?;
    let digits = front.trim_end_matches(|c: char| c.is_ascii_digit());
    let are_words = words.starts_with(' ') && words.chars().all(|c| c.is_alphabetic() || c == ' ');
    (are_words && digits.len() < front.len()).then_some(digits)
}

/// `desc: 12.3kit` before the bracket of a bar without a total; the unit is known from the rate.
fn lone_count<'a>(before: &'a str, rate_text: &str) -> Option<(Description<'a>, f64, Option<f64>, bool)> {
    let mut colons = memchr::memrchr_iter(b':', before.as_bytes());
    let (front, body) = match colons.find(|at| before.as_bytes().get(at + 1) == Some(&b' ')) {
        Some(at) => (before.get(..at)?, before.get(at + 2..)?),
        None => ("", before),
    };
    let (value, unit) = leading(body.trim_start())?;
    // `INFO 12 [00:17, x]` is a log line: a bar has a unit, and a rate in it.
    if unit.is_empty() || !(rate_text.ends_with("/s") || rate_text.contains("s/")) {
        return None;
    }
    let scaled = body.contains('.') || is_scaled_unit(unit);
    // But for bytes nobody counts 10^12 of anything: `2.50Tests` are two and a half.
    let is_prefix = |letter: &char| is_scaled_unit(unit) || !matches!(letter, 'T' | 'P' | 'E');
    let factor = unit.chars().next().filter(|letter| scaled && is_prefix(letter)).and_then(scale).unwrap_or(1.0);
    // What stands before `: ` is a description whose colon is already gone.
    Some((Description { has_colon: true, ..description(front) }, value * factor, None, scaled))
}

/// Units that are surely a scale and a unit; others (`Pages`) may begin with a letter that is none.
fn is_scaled_unit(unit: &str) -> bool {
    let mut chars = unit.chars();
    chars.next().and_then(scale).is_some() && matches!(chars.as_str(), "it" | "B" | "b" | "iB")
}

/// `9.99it/s`, `1.43s/it`, `10.5MB/s`, `?it/s`; per second always. Where counts are scaled it may be as well, which is told
/// from what was done a second on average: `125Ex/s` are examples, and nobody does 10^18 of them.
fn rate(text: &str, average_of_scaled: Option<f64>) -> Option<f64> {
    let (value, unit) = leading(text)?;
    if unit.starts_with("s/") {
        return (value > 0.0).then(|| 1.0 / value);
    }
    let unit = unit.strip_suffix("/s")?;
    let factor = unit.chars().next().and_then(scale).unwrap_or(1.0);
    let is_scaled =
        is_scaled_unit(unit) || average_of_scaled.is_some_and(|average| value * factor <= FASTEST * average);
    Some(if is_scaled { value * factor } else { value })
}

/// `est. speed input: 386.19 toks/s, output: 642.42 toks/s`.
/// Versions before 0.5 say `Generation Speed: 642.42 toks/s`.
fn output_tokens(postfix: &str) -> Option<f64> {
    [("output: ", 6), ("Generation Speed: ", 11)].into_iter().find_map(|(word, rare)| {
        let at = find(postfix, word, rare)?;
        let (value, unit) = leading(postfix.get(at + word.len()..)?)?;
        unit.trim_start().starts_with("toks/s").then_some(value)
    })
}

/// `Saving the dataset (1/8 shards)` is one bar whose description counts along.
fn without_ratio(description: &str) -> &str {
    match description.strip_suffix(')').and_then(|front| front.rsplit_once(" (")) {
        Some((front, inside)) if inside.starts_with(|c: char| c.is_ascii_digit()) && inside.contains('/') => front,
        _ => description,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = (f64, Option<f64>, Option<f64>, Option<f64>, Option<f64>);

    #[test]
    fn frames_as_printed() {
        let rows: &[(&str, &str, Numbers)] = &[
            (
                "Generating:  12%|█▏        | 123/1000 [00:10<01:20,  9.99it/s, loss=0.31, best=3/9]",
                "Generating",
                (123.0, Some(1000.0), Some(10.0), Some(80.0), Some(9.99)),
            ),
            ("0%|          | 0/60 [00:00<?, ?it/s]", "", (0.0, Some(60.0), Some(0.0), None, None)),
            ("857doc [00:17, 50.00doc/s]", "", (857.0, None, Some(17.0), None, Some(50.0))),
            ("docs: 857 docs [00:17, 50.00 docs/s]", "docs", (857.0, None, Some(17.0), None, Some(50.0))),
            ("0it [00:00, ?it/s]", "", (0.0, None, Some(0.0), None, None)),
            ("12.3kit [01:01:01, 4.00s/it]", "", (12_300.0, None, Some(3_661.0), None, Some(0.25))),
            ("12Pages [00:10, 1.20Pages/s]", "", (12.0, None, Some(10.0), None, Some(1.2))),
            (
                "43%|████▎     | 150M/352M [00:14<00:20, 10.5MB/s]",
                "",
                (150e6, Some(352e6), Some(14.0), Some(20.0), Some(10.5e6)),
            ),
            (
                "tok=512 bs=8:  49%|####9     | 12.3k/25.0k [08:14<08:26, 25.0 examples/s]",
                "tok=512 bs=8",
                (12_300.0, Some(25_000.0), Some(494.0), Some(506.0), Some(25.0)),
            ),
            (
                "MapBatches(fn), 0 actors [34 hits, 0/0 GPU, 384.0MB/1.0GB]:  17%|█    | 34/200 [00:37<03:00,  1.09s/it]",
                "MapBatches(fn), 0 actors [34 hits, 0/0 GPU, 384.0MB/1.0GB]",
                (34.0, Some(200.0), Some(37.0), Some(180.0), Some(1.0 / 1.09)),
            ),
            (
                "21%|██        | 2121/10000 [123:43:30<459:36:30, 210.00s/it]",
                "",
                (2121.0, Some(10_000.0), Some(445_410.0), Some(1_654_590.0), Some(1.0 / 210.0)),
            ),
            (
                "5%|▌ | 5/100 [1 day, 2:03:04<20 days, 0:00:00, 3.00s/it]",
                "",
                (5.0, Some(100.0), Some(93_784.0), Some(1_728_000.0), Some(1.0 / 3.0)),
            ),
            ("20%|██        | 100/500 [-1:58:20<-7:53:20, -0.01it/s]", "", (100.0, Some(500.0), None, None, None)),
            (
                "Epoch 3/10: 7/9 [0:00:01<0:00:02,  7.00it/s, v_num=0]",
                "Epoch 3/10",
                (7.0, Some(9.0), Some(1.0), Some(2.0), Some(7.0)),
            ),
            ("50%|5 | 2.5/5.0 [00:10<00:10, 4.00s/it]", "", (2.5, Some(5.0), Some(10.0), Some(10.0), Some(0.25))),
            (
                "40%|#### | 2/5 [00:48<01:00, 20.00s/ex]2026-11-30 INFO POST 3/9 [x]",
                "",
                (2.0, Some(5.0), Some(48.0), Some(60.0), Some(0.05)),
            ),
        ];
        for (text, description, numbers) in rows {
            let bar = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((bar.done.unwrap(), bar.total, bar.elapsed, bar.remaining, bar.rate), *numbers, "{text}");
            assert_eq!(bar.description, *description, "{text}");
            assert_eq!(bar.whole, Whole::Surely, "{text}");
        }
    }

    #[test]
    fn a_unit_that_begins_like_a_scale_is_none() {
        for (text, done, rate) in [
            ("12%|#| 1.25k/10.0k [00:10<01:10, 125Ex/s]", 1250.0, 125.0),
            ("12%|#| 1.25k/10.0k [00:10<01:10, 1.25kEx/s]", 1250.0, 1250.0),
            ("12%|#| 1.25k/10.0k [00:10<01:10, 125 Ex/s]", 1250.0, 125.0),
            ("12%|#| 1.25M/10.0M [00:10<01:10, 125kMsg/s]", 1.25e6, 125e3),
            ("12%|#| 1.25k/10.0k [00:10<01:10, 125Msg/s]", 1250.0, 125.0),
            ("12%|#| 1.25k/10.0k [00:00<00:01, 125Tests/s]", 1250.0, 125.0),
            ("43%|####| 150M/352M [00:14<00:20, 10.5MB/s]", 150e6, 10.5e6),
            ("99%|####| 150M/152M [12:14:00<00:20, 10.5MB/s]", 150e6, 10.5e6),
            ("2.50Ex [00:10, 0.25Ex/s]", 2.5, 0.25),
            ("12.3Pages [00:10, 1.23Pages/s]", 12.3, 1.23),
            ("12.3kPages [00:10, 1.23kPages/s]", 12_300.0, 1230.0),
            ("12.3kit [00:10, 1.23kit/s]", 12_300.0, 1230.0),
            ("1.50TB [1:00:00, 417MB/s]", 1.5e12, 417e6),
        ] {
            let bar = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((bar.done, bar.rate), (Some(done), Some(rate)), "{text}");
        }
    }

    /// vLLM and SGLang set `{percentage:3.0f}% Completed |` in the place of the bar.
    #[test]
    fn a_percentage_in_words_is_no_name() {
        for (text, description) in [
            (
                "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:01<00:01,  1.20it/s]",
                "Loading safetensors checkpoint shards",
            ),
            ("Multi-thread loading shards:   0% Completed | 0/4 [00:00<?, ?it/s]", "Multi-thread loading shards"),
            (
                "(EngineCore pid=7) Loading pt checkpoint shards: 100% Completed | 4/4 [00:08<00:00,  2.10s/it]",
                "(EngineCore pid=7) Loading pt checkpoint shards",
            ),
            ("  7% done | 2/30 [00:01<00:01,  1.20it/s]", ""),
            ("Epoch 0: |          | 37/? [00:01<00:00, 30.1it/s]", "Epoch 0"),
        ] {
            let bar = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((bar.format, bar.description), ("tqdm", description), "{text}");
        }
    }

    #[test]
    fn other_text_is_left_alone() {
        for text in [
            "13%|█ | 123/1000",
            "12%|█ | 1212/2",
            "desc [34 hits, 0/0 GPU]",
            "[00:10<01:20, 9.99it/s]",
            "INFO 12 [00:17, x]",
            "Progress: 300/25000 (0 errors), 0.7 req/s",
            "10/20 [loss 3, acc 4]",
            "10/20 [00:1",
            "gen 420 of 1000 (42.0%) eta 19:20 at  2.00s/it",
            "",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_frame_cut_at_the_width_of_the_terminal_still_counts_but_is_not_complete() {
        let bar = parse("long: 12%|█ | 123/1000 [00:10<01:20, 9.9").unwrap();
        assert_eq!((bar.done, bar.total, bar.whole), (Some(123.0), Some(1000.0), Whole::Settled));
    }

    #[test]
    fn the_end_and_vllms_tokens() {
        let text = "Processed prompts:   3%|▎| 640/25000 [15:15<9:40:34,  1.43s/it, est. speed input: 386.19 toks/s, output: 642.42 toks/s]";
        let bar = parse(text).unwrap();
        assert_eq!((bar.tokens_per_item, bar.finished), (Some(642.42 * 915.0 / 640.0), Some(false)));
        assert_eq!(parse("100%|██| 60/60 [02:25<00:00,  2.42s/it]").unwrap().finished, Some(true));
        assert_eq!(parse("130it [01:05,  2.00it/s]").unwrap().finished, None);
    }
}
