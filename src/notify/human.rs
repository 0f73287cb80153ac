//! Other people's text in a mail: names and log lines without what could break a header, hide or reorder.

/// One line for a header or a title: whatever could end the line, hide text or reorder it becomes a space, and it is
/// never longer than `limit` characters.
pub fn line(text: &str, limit: usize) -> String {
    let clean: String = text.chars().map(|c| if hides(c) { ' ' } else { c }).collect();
    shorten(&clean.split_whitespace().collect::<Vec<_>>().join(" "), limit)
}

/// Several lines for a body: line ends are `\n`, other control characters become `?`, at most `limit` characters.
pub fn lines(text: &str, limit: usize) -> String {
    let unified = text.replace("\r\n", "\n").replace('\r', "\n");
    let clean: String =
        unified.trim_end().chars().map(|c| if hides(c) && c != '\n' && c != '\t' { '?' } else { c }).collect();
    shorten(&clean, limit)
}

/// Control characters, and the format characters that reverse or hide what follows them.
fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn shorten(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    text.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

/// The host of an `instance` label: `gpu-box-3:10787` is `gpu-box-3`, `[::1]:9` is `[::1]`.
pub fn host(instance: &str) -> &str {
    match instance.rsplit_once(':') {
        Some((host, port))
            if !port.is_empty()
                && port.bytes().all(|b| b.is_ascii_digit())
                && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => instance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cannot_be_broken_out_of() {
        assert_eq!(line("a\r\nBcc: x@example.org\0\u{202e}b", 80), "a Bcc: x@example.org b");
        assert_eq!(line("ä".repeat(10).as_str(), 4), "äää…");
        assert_eq!(lines("a\r\nb\rc\u{1b}[31m\n\n", 80), "a\nb\nc?[31m");
    }

    #[test]
    fn hosts() {
        for (instance, name) in
            [("gpu-box-3:10787", "gpu-box-3"), ("gpu", "gpu"), ("[::1]:9", "[::1]"), ("::1", "::1"), ("a:b", "a:b")]
        {
            assert_eq!(host(instance), name);
        }
    }
}
