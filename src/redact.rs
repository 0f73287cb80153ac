//! Masks what looks like a credential in text that came from a log or a label, before a mail or a page shows it.
//!
//! Log tails are other people's text: a stack trace prints a request with its header, a download URL has a signature in
//! it. The patterns are those of the services this field uses, plus `name=value` where the name says secret. They err on
//! the side of masking, except for plain numbers: `token: 1066` is progress, not a password.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Stands where a secret stood.
const MASK: &str = "[masked]";

/// `keep` is shown, `value` is masked; each alternative has one or the other or both.
const PATTERN: &str = r#"(?x)
    -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY-----[\s\S]*?(?:-----END\ [A-Z\ ]*PRIVATE\ KEY-----|\z)
  | \b(?P<prefix>hf_|api_org_)[A-Za-z0-9]{10,}
  | \b(?P<sk>sk-|pk-|nvapi-|glpat-|xox[abeoprs]-|gsk_|r8_|pypi-)[A-Za-z0-9_\-]{12,}
  | \b(?P<gh>gh[opsur]_|github_pat_)[A-Za-z0-9_]{16,}
  | \b(?P<aws>AKIA|ASIA)[A-Z0-9]{12,}
  | \b(?P<google>AIza)[A-Za-z0-9_\-]{30,}
  | \b(?P<jwt>eyJ)[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?
  | (?P<scheme>\b(?i:bearer|basic)\s+)[A-Za-z0-9._~+/=\-]{8,}
  | (?P<userinfo>://[^\s/:@]*:)[^\s/@]+@
  | (?P<name>(?i:[A-Za-z0-9_\-]*(?:passw(?:or)?d|secret|token|api[_-]?key|access[_-]?key|credential|signature))
      ["']?\s*[=:]\s*["']?)(?P<value>[^\s"',;&]+)
"#;

static SECRETS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PATTERN).ok());

/// `text` with everything that looks like a credential masked.
pub fn redact(text: &str) -> Cow<'_, str> {
    // The pattern is a constant that a test compiles; should it ever not compile, nothing is shown rather than all.
    let Some(secrets) = SECRETS.as_ref() else { return Cow::Borrowed(MASK) };
    secrets.replace_all(text, |found: &Captures<'_>| {
        if let (Some(name), Some(value)) = (found.name("name"), found.name("value")) {
            let value = value.as_str();
            let shown = if is_plain(value) || is_word(name.as_str(), value) { value } else { MASK };
            return format!("{}{shown}", name.as_str());
        }
        let kept = ["prefix", "sk", "gh", "aws", "google", "jwt", "scheme", "userinfo"]
            .iter()
            .find_map(|group| found.name(group))
            .map_or("", |kept| kept.as_str());
        let tail = if found.name("userinfo").is_some() { "@" } else { "" };
        format!("{kept}{MASK}{tail}")
    })
}

/// Numbers and words for "nothing" are no secrets; a value that was masked already stays as it is.
fn is_plain(value: &str) -> bool {
    value.starts_with(MASK)
        || value.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '/' | '%' | '+' | '-'))
        || ["none", "null", "true", "false"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// "token: the next" is a sentence: no service gives out tokens of a few letters. Passwords may be words.
fn is_word(name: &str, value: &str) -> bool {
    let name = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_ascii_lowercase();
    name.ends_with("token") && value.len() < 8 && value.chars().all(|c| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn credentials_are_masked() {
        for (text, shown) in [
            ("Invalid user token hf_abcdefghijKLMNOPqrst1234", "Invalid user token hf_[masked]"),
            ("Incorrect API key provided: sk-proj-4f5g6h7j8k9l0aAbB.", "Incorrect API key provided: sk-[masked]."),
            ("sk-ant-api03-abcdefghijkl_mno", "sk-[masked]"),
            ("Authorization: Bearer abc.def.ghi12345", "Authorization: Bearer [masked]"),
            ("key AKIAIOSFODNN7EXAMPLE used", "key AKIA[masked] used"),
            ("remote: ghp_0123456789abcdefABCDEF0123456789abcd", "remote: ghp_[masked]"),
            ("github_pat_11ABCDEFG0123456789_abcdefghij", "github_pat_[masked]"),
            ("GET https://bob:hunter2@example.org/x", "GET https://bob:[masked]@example.org/x"),
            ("WANDB_API_KEY=0123456789abcdef0123 python x.py", "WANDB_API_KEY=[masked] python x.py"),
            ("{\"password\": \"hunter2\", \"n\": 1}", "{\"password\": \"[masked]\", \"n\": 1}"),
            ("s3?X-Amz-Signature=deadbeef&x=1", "s3?X-Amz-Signature=[masked]&x=1"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def", "eyJ[masked]"),
            ("a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb", "a\n[masked]\nb"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }

    #[test]
    fn progress_is_not_masked() {
        for text in [
            "Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s",
            "token: 1066, tokens=12.5, last_token=17/25000, token: none",
            "it generates no token: the engine is stuck",
            "task-0123456789abcdefghij disk-0123456789abcdef",
            "https://example.org:8000/v1?page=2",
            "basic rate",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    proptest! {
        #[test]
        fn masking_twice_is_masking_once(text in "(?s).{0,80}", secret in "[A-Za-z0-9]{20}") {
            let once = redact(&format!("{text} hf_{secret} {text}")).into_owned();
            prop_assert!(!once.contains(&secret));
            prop_assert_eq!(redact(&once).into_owned(), once);
        }
    }
}
