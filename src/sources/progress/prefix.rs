//! What a launcher, a logger or the journal put in front of a line, taken off, and the rank it names.
//!
//! Separate from [`super::framing`], which undoes what was done to bytes: these are words at the start of a readable line.
//! `2: ` (srun -l), `[rank0]:`, `[default0]:` (torchrun), `[1,0]<stdout>:` (mpirun), `(train pid=123, ip=10.0.0.1)` (Ray),
//! `(Worker_TP0 pid=851)` (vLLM), `worker-1  | ` (compose), `Nov 30 07:00:00 host datagen[4242]: ` (the journal), and the
//! times of `docker logs -t` and `kubectl logs --timestamps`.
//!
//! The hazard is a description that looks like a rank: only the words of launchers count (`[epoch 3]` is none), and a
//! wrong guess costs little, since a rank only matters where bars of several are alike.

/// Prefixes that may stand one behind the other.
const MAX: usize = 4;

/// The rank that the prefixes name, as written (empty if none), and the text behind them.
pub(super) fn strip(text: &str) -> (&str, &str) {
    let mut rest = text;
    let mut rank = "";
    for _ in 0..MAX {
        let Some((found, after)) = one(rest) else { break };
        if rank.is_empty() {
            rank = found;
        }
        rest = after.trim_start();
    }
    (rank, rest)
}

fn one(text: &str) -> Option<(&str, &str)> {
    match text.bytes().next()? {
        b'0'..=b'9' => number(text).or_else(|| journal(text)).or_else(|| time(text)),
        b'[' => bracket(text).or_else(|| journal(text)),
        b'(' => process(text),
        b'A'..=b'Z' | b'a'..=b'z' => rank_word(text).or_else(|| compose(text)).or_else(|| journal(text)),
        _ => None,
    }
}

/// `2: `, of srun.
fn number(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().take(6).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(end)?;
    // Of a line that a bar's `\r` ended right behind it, the blank is gone.
    let rest = if rest == ":" { "" } else { rest.strip_prefix(": ")? };
    (end <= 5).then_some((digits, rest))
}

/// `[rank0]:`, `[rank 0]`, `[default0]:[…`, `[1,0]<stdout>:`.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let (inside, rest) = text.strip_prefix('[')?.split_once(']')?;
    if let Some((_, rank)) = inside.rsplit_once(',') {
        let rest = rest.strip_prefix("<stdout>:").or_else(|| rest.strip_prefix("<stderr>:"))?;
        return Some((rank, rest));
    }
    // `kubectl logs --prefix`.
    if let Some(pod) = inside.strip_prefix("pod/") {
        return pod.contains('/').then_some((inside, rest));
    }
    // `[0]:` and `[node0:0]`, with a colon behind the bracket or in it.
    let (host, number) = inside.rsplit_once(':').unwrap_or(("", inside));
    let is_number = !number.is_empty() && number.len() <= 5 && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_host = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    let has_name = host.bytes().any(|byte| byte.is_ascii_alphabetic());
    if is_number && is_host && (has_name || (host.is_empty() && rest.starts_with(':'))) {
        return Some((inside, rest.strip_prefix(':').unwrap_or(rest)));
    }
    is_rank(inside).then_some((inside, rest.strip_prefix(':').unwrap_or(rest)))
}

/// `rank0: ` and `Rank 0: `.
fn rank_word(text: &str) -> Option<(&str, &str)> {
    if !matches!(text.get(..4), Some("rank" | "Rank" | "RANK")) {
        return None;
    }
    let (word, rest) = text.split_once(": ").filter(|(word, _)| word.len() < 12)?;
    is_rank(word).then_some((word, rest))
}

fn is_rank(text: &str) -> bool {
    let word = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = text.len() - word.len();
    let word = word.trim_end_matches([' ', '-', '_', ':', '=']);
    let is_known =
        ["rank", "local_rank", "default", "trainer", "worker", "node", "proc", "process", "gpu", "actor", "task"];
    (1..=5).contains(&digits) && is_known.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// `(name pid=123, ip=10.0.0.1)`.
fn process(text: &str) -> Option<(&str, &str)> {
    let (inside, rest) = text.strip_prefix('(')?.split_once(')')?;
    let at = inside.find("pid=")?;
    let is_number = inside.get(at + 4..)?.starts_with(|c: char| c.is_ascii_digit());
    (is_number && inside.len() < 120 && (rest.is_empty() || rest.starts_with(' '))).then_some((inside, rest))
}

/// `worker-1  | text`.
fn compose(text: &str) -> Option<(&str, &str)> {
    // What may be a name ends with a digit and has a blank behind it; few lines begin so.
    let is_in_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let end = text.bytes().take(64).position(|byte| !is_in_name(&byte))?;
    if !text.as_bytes().get(end.checked_sub(1)?)?.is_ascii_digit() {
        return None;
    }
    let (name, rest) = text.split_once(" | ").or_else(|| Some((text.strip_suffix(" |")?, "")))?;
    let name = name.trim_end();
    let (word, digits) = name.rsplit_once(['-', '_'])?;
    let is_name =
        name.len() < 64 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    (is_name && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some((name, rest))
}

/// `TIME host name[4242]: text` in any of the journal's notations of time.
fn journal(text: &str) -> Option<(&str, &str)> {
    let head = text.as_bytes().get(..text.len().min(160))?;
    let at = memchr::memchr_iter(b']', head).find(|&at| head.get(at..).is_some_and(|rest| rest.starts_with(b"]: ")))?;
    let front = text.get(..at)?;
    let (before, pid) = front.rsplit_once('[')?;
    let words = before.split_whitespace().count();
    let starts_with_time = front.contains(':') || front.starts_with('[');
    let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    (is_pid && starts_with_time && (3..=7).contains(&words))
        .then(|| text.get(at + 3..))
        .flatten()
        .map(|rest| ("", rest))
}

/// `2026-11-30T07:00:00.000000000Z text`, with nothing else before it.
fn time(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = text.split_once(' ')?;
    let is_time = word.len() >= "2026-11-30T07:00:00Z".len()
        && word.as_bytes().get(4) == Some(&b'-')
        && word.as_bytes().get(10) == Some(&b'T')
        && word.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'T' | b':' | b'.' | b'+' | b'Z'));
    if !is_time {
        return None;
    }
    // A line of CRI in a file that does not begin with one.
    let plain = super::framing::cri(text.as_bytes()).and_then(|piece| std::str::from_utf8(piece.text).ok());
    Some(("", plain.unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_as_printed() {
        for (text, rank, rest) in [
            ("2: Progress: 1/2", "2", "Progress: 1/2"),
            ("[rank0]: x", "rank0", "x"),
            ("[rank0]:[titan] 2026-11-30 x", "rank0", "[titan] 2026-11-30 x"),
            ("[default3]:x", "default3", "x"),
            ("[1,0]<stdout>:x", "0", "x"),
            ("[prterun-a-1@1,12]<stderr>: x", "12", "x"),
            ("(pid=123) x", "pid=123", "x"),
            ("(Worker_TP0 pid=851) x", "Worker_TP0 pid=851", "x"),
            ("(train_fn pid=12, ip=10.0.0.1) x", "train_fn pid=12, ip=10.0.0.1", "x"),
            ("worker-1  | x", "worker-1", "x"),
            ("Nov 30 07:00:00 gpu-03 datagen[4242]: x", "", "x"),
            ("2026-11-30T07:00:00+0000 gpu-03 datagen[4242]: [8.0K blob data]", "", "[8.0K blob data]"),
            ("Mon 2026-11-30 07:00:00 UTC gpu-03 datagen[4242]: 1: x", "1", "x"),
            ("[ 1234.567890] gpu-03 datagen[4242]: x", "", "x"),
            ("2026-11-30T07:00:00.000000000Z x", "", "x"),
            ("2026-11-30T07:00:00.000000000Z stdout F x", "", "x"),
            ("rank 3: x", "rank 3", "x"),
            ("[pod/gen-0/main] x", "pod/gen-0/main", "x"),
            ("[3]:x", "3", "x"),
            ("[node0:3] x", "node0:3", "x"),
            // Right before a `\r`, their blank is gone.
            ("2:", "2", ""),
            ("(gen pid=12, ip=10.0.0.1)", "gen pid=12, ip=10.0.0.1", ""),
            ("worker-1  |", "worker-1", ""),
            // None of them.
            ("Generating:   5%|x| 1/20 [00:01<00:19]", "", "Generating:   5%|x| 1/20 [00:01<00:19]"),
            ("Epoch 3/10: 7/9", "", "Epoch 3/10: 7/9"),
            ("[epoch 3] x", "", "[epoch 3] x"),
            ("[07:00:00] x", "", "[07:00:00] x"),
            ("[12] x", "", "[12] x"),
            ("gen |###| 3", "", "gen |###| 3"),
            ("2026-11-30 07:02:44,038 INFO datagen: x", "", "2026-11-30 07:02:44,038 INFO datagen: x"),
            ("x", "", "x"),
            ("", "", ""),
        ] {
            assert_eq!(strip(text), (rank, rest), "{text}");
        }
    }
}
