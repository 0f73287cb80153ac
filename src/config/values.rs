//! What a scalar means: durations, sizes, moments, URLs, paths, names, addresses. Text in, value or reason out.
//!
//! Separate because these are pure functions of one text, tested as tables, and because `longhaul init` checks its
//! answers with the same ones. A reason says what is wrong and what to write instead, and never repeats a text that may
//! hold a secret (a URL with credentials).

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::problem::{quote, unprintable};

/// A duration, as `5s` or `1m 30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("`{0}` has no unit: write `{0}s` for seconds, or m, h, d", quote(text)));
    }
    humantime::parse_duration(text)
        .map_err(|_| format!("`{}` is not a duration: write it as `5s`, `1m 30s` or `4h`", quote(text)))
}

/// A size in bytes, as `50GiB` (2^30) or `1TB` (10^12) or a plain number.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{}` is not a size: write it as `50GiB`, `1.5TB` or a number of bytes", quote(text));
    let split = text.find(|character: char| !(character.is_ascii_digit() || matches!(character, '.' | '_')));
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let number = number.replace('_', "");
    let unit = unit.trim();
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "pb" => 1_000_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        "pib" => 1 << 50,
        "k" | "m" | "g" | "t" | "p" => {
            let unit = unit.to_ascii_uppercase();
            return Err(format!(
                "`{}` is ambiguous: write {unit}iB for powers of 1024 or {unit}B for powers of 1000",
                quote(text)
            ));
        }
        _ => return Err(wrong()),
    };
    let too_large = || format!("`{}` is larger than any volume", quote(text));
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(too_large);
    }
    let fraction: f64 = number.parse().map_err(|_| wrong())?;
    #[allow(clippy::cast_precision_loss)]
    let bytes = (fraction * factor as f64).round();
    if bytes >= 9e18 {
        return Err(too_large());
    }
    // Not negative (a sign is no digit), not NaN, below 2^63: the conversion is exact.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(bytes as u64)
}

/// A finite number that is not negative; `25_000` is 25000.
pub fn number(text: &str) -> Result<f64, String> {
    let plain = text.replace('_', "");
    match plain.parse::<f64>() {
        Ok(number)
            if number.is_finite() && number >= 0.0 && plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') =>
        {
            Ok(number)
        }
        _ => Err(format!("must be a number that is not negative, found `{}`", quote(text))),
    }
}

/// A whole number that is not negative; `25_000` is 25000.
pub fn whole_number(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    plain
        .parse::<u64>()
        .ok()
        .filter(|_| plain.starts_with(|character: char| character.is_ascii_digit()))
        .ok_or_else(|| format!("must be a whole number that is not negative, found `{}`", quote(text)))
}

/// A moment with its offset from UTC, as Unix seconds.
pub fn moment(text: &str) -> Result<f64, String> {
    match text.parse::<jiff::Timestamp>() {
        Ok(timestamp) => {
            #[allow(clippy::cast_precision_loss)]
            let seconds = timestamp.as_microsecond() as f64 / 1e6;
            Ok(seconds)
        }
        Err(_) if text.parse::<jiff::civil::DateTime>().is_ok() => Err(format!(
            "`{}` has no offset from UTC: end it with Z or, say, +01:00, as 2026-12-01T08:00:00+01:00",
            quote(text)
        )),
        Err(_) => Err(format!("`{}` is not a time: write it as 2026-12-01T08:00:00Z", quote(text))),
    }
}

/// A name that becomes a label value.
pub fn name(text: &str) -> Result<String, String> {
    // Longer ones make every series of the job long; Prometheus' own default limit is none, Mimir's is 2048.
    const LONGEST: usize = 200;
    if text.trim().is_empty() {
        return Err("is empty: give it a name".into());
    }
    if text.len() > LONGEST {
        return Err(format!("is {} bytes long: at most {LONGEST} are allowed", text.len()));
    }
    plain_text(text)
}

/// Text without control characters and without spaces around it.
pub fn plain_text(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("is empty".into());
    }
    if text.chars().any(unprintable) {
        return Err(format!("has a control or invisible character: `{}`", quote(text)));
    }
    if text.trim() != text {
        return Err(format!("begins or ends with a space: `{}`", quote(text)));
    }
    Ok(text.to_owned())
}

/// An absolute path.
pub fn path(text: &str) -> Result<PathBuf, String> {
    let shown = quote(text);
    if text.is_empty() {
        return Err("is empty: write an absolute path".into());
    }
    if text.starts_with('~') {
        return Err(format!(
            "`{shown}` begins with ~, which is not expanded: write an absolute path, as /home/me/file"
        ));
    }
    if text.contains("${") || text.starts_with('$') {
        return Err(format!("`{shown}` has a variable, and variables are not expanded: write an absolute path"));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("`{shown}` has a control character"));
    }
    if !Path::new(text).is_absolute() {
        return Err(format!("`{shown}` is a relative path: write an absolute one, as /data/{shown}"));
    }
    Ok(PathBuf::from(text))
}

/// An absolute path in which `*`, `?` and `**` may stand. Brackets are ordinary characters, as names have them.
pub fn pattern(text: &str) -> Result<String, String> {
    path(text)?;
    if text.ends_with('/') {
        return Err(format!("`{}` is a folder: name the files in it, as {}*.jsonl", quote(text), quote(text)));
    }
    Ok(text.to_owned())
}

/// A pattern below a folder.
pub fn relative_pattern(text: &str) -> Result<String, String> {
    if text.starts_with('/') {
        return Err(format!("`{}` begins with /: it is relative to the folder, as **/*.pt", quote(text)));
    }
    plain_text(text)
}

/// A JSON pointer (RFC 6901) to a field.
pub fn pointer(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        let guess = text.trim_start_matches('$').trim_start_matches('.').replace('.', "/");
        return Err(format!("`{}` is not a JSON pointer: write it as /{}", quote(text), quote(&guess)));
    }
    let mut rest = text;
    while let Some(tilde) = rest.find('~') {
        rest = rest.get(tilde + 1..).unwrap_or_default();
        if !rest.starts_with(['0', '1']) {
            return Err(format!("`{}` has a ~ that is neither ~0 (for ~) nor ~1 (for /)", quote(text)));
        }
    }
    Ok(text.to_owned())
}

/// The parts of a URL that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// As typed.
    pub text: String,
    /// `https`.
    pub secure: bool,
    /// The host without brackets.
    pub host: String,
    /// More than `/`.
    pub has_path: bool,
}

impl Url {
    /// Whether it stays on this machine.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// A URL with http or https and a host, without credentials. What was typed is never repeated: it may hold a password
/// or, for a webhook, be one.
pub fn url(text: &str) -> Result<Url, String> {
    if text.is_empty() {
        return Err("is empty: write a URL, as http://127.0.0.1:8000/metrics".into());
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err("has no scheme: begin it with http:// or https://".into());
    };
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err("must begin with http:// or https://".into()),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(
            "has credentials in it: remove them, and put a token into a file that bearer_token_file names".into()
        );
    }
    if text.contains(char::is_whitespace) {
        return Err("has a space in it: write it as %20".into());
    }
    let uri: hyper::Uri = text.parse().map_err(|error| format!("is not a URL ({error})"))?;
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() {
        return Err("has no host: write it as http://127.0.0.1:8000/metrics".into());
    }
    let after_host = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest);
    if let Some((_, port)) = after_host.rsplit_once(':') {
        valid_port(port)?;
    }
    Ok(Url { text: text.to_owned(), secure, host, has_path: uri.path() != "/" })
}

fn valid_port(port: &str) -> Result<u16, String> {
    port.parse::<u16>()
        .ok()
        .filter(|number| *number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| format!("has the port `{}`: a port is a number from 1 to 65535", quote(port)))
}

/// `host:port`, with IPv6 in brackets.
pub fn host_and_port(text: &str) -> Result<(String, u16), String> {
    if text.contains("://") {
        return Err("is host:port without a scheme, as smtp.example.org:587".into());
    }
    let missing = || format!("`{}` has no port: write host:port, as smtp.example.org:587", quote(text));
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').ok_or_else(missing)?),
        None => text.rsplit_once(':').ok_or_else(missing)?,
    };
    if host.contains('@') {
        return Err("has credentials in it: use username and password_file".into());
    }
    let bare = !text.starts_with('[');
    if bare && host.contains(':') {
        return Err(format!("`{}` is an IPv6 address: write it in brackets, as [::1]:25", quote(text)));
    }
    host_name(host)?;
    Ok((host.to_owned(), valid_port(port)?))
}

/// A host name or address.
pub fn host_name(text: &str) -> Result<String, String> {
    let fits = |character: char| character.is_alphanumeric() || matches!(character, '.' | '-' | '_' | ':');
    if text.is_empty() || text.len() > 253 || !text.chars().all(fits) {
        return Err(format!("`{}` is not a host name", quote(text)));
    }
    Ok(text.to_owned())
}

/// A mail address, with or without a name.
pub fn mailbox(text: &str) -> Result<String, String> {
    let shown = quote(text);
    if text.chars().any(char::is_control) {
        return Err(format!("`{shown}` has a control character"));
    }
    if text.parse::<lettre::message::Mailbox>().is_ok() {
        return Ok(text.to_owned());
    }
    if text.contains(',') {
        return Err(format!("`{shown}` holds a comma: write several addresses as a list"));
    }
    Err(format!("`{shown}` is not a mail address: write me@example.org or \"Name <me@example.org>\""))
}

/// A label name of Prometheus that does not begin with `__`.
pub fn label_name(text: &str) -> Result<(), String> {
    let first = text.starts_with(|character: char| character.is_ascii_alphabetic() || character == '_');
    if !first || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err("is not a label name: letters, digits and _, not beginning with a digit".into());
    }
    if text.starts_with("__") {
        return Err("begins with __, which Prometheus keeps for itself".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
