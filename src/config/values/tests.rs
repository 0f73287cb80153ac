//! Tables of texts and what they mean.

use proptest::prelude::*;

use super::*;

#[test]
fn durations() {
    for (text, seconds) in
        [("5s", 5.0), ("1m 30s", 90.0), ("1h30m", 5400.0), ("4h", 14400.0), ("250ms", 0.25), ("1day", 86400.0)]
    {
        assert_eq!(duration(text).unwrap().as_secs_f64(), seconds, "{text}");
    }
    for (text, reason) in [
        ("5", "`5` has no unit: write `5s`"),
        ("1.5", "has no unit"),
        ("-5s", "is not a duration"),
        ("", "is not a duration"),
        ("soon", "`soon` is not a duration: write it as `5s`"),
        ("99999999999999999999s", "is not a duration"),
    ] {
        let error = duration(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn sizes() {
    for (text, bytes) in [
        ("0", 0),
        ("16MiB", 16 << 20),
        ("50 GiB", 50 << 30),
        ("50gib", 50 << 30),
        ("1TB", 1_000_000_000_000),
        ("1.5TB", 1_500_000_000_000),
        ("0.5KiB", 512),
        ("1_000", 1000),
        ("57344", 57344),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(size(text).unwrap(), bytes, "{text}");
    }
    for (text, reason) in [
        ("50G", "write GiB for powers of 1024 or GB for powers of 1000"),
        ("-1", "is not a size"),
        ("", "is not a size"),
        ("GiB", "is not a size"),
        ("1.2.3GiB", "is not a size"),
        ("5 apples", "is not a size"),
        ("99999PiB", "is larger than any volume"),
        ("99999999999999999999999", "is larger than any volume"),
    ] {
        let error = size(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn numbers() {
    for (text, value) in [("25000", 25000.0), ("25_000", 25000.0), ("1e6", 1e6), ("0.5", 0.5)] {
        assert_eq!(number(text).unwrap(), value);
    }
    for text in ["-1", "nan", "inf", ".inf", "1e999", "+5", "", "_", "many", "0x10"] {
        assert!(number(text).is_err(), "{text}");
    }
    assert_eq!(whole_number("25_000").unwrap(), 25000);
    for text in ["1.5", "-1", "+1", "", "99999999999999999999"] {
        assert!(whole_number(text).is_err(), "{text}");
    }
}

#[test]
fn moments() {
    assert_eq!(moment("2026-12-01T08:00:00Z").unwrap(), 1_796_112_000.0);
    assert_eq!(moment("2026-12-01T09:00:00+01:00").unwrap(), 1_796_112_000.0);
    for (text, reason) in [
        ("2026-12-01T08:00:00", "has no offset from UTC"),
        ("2026-12-01", "has no offset from UTC"),
        ("2026-13-01T08:00:00Z", "is not a time"),
        ("tomorrow", "is not a time"),
        ("1796112000", "is not a time"),
    ] {
        let error = moment(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn paths_and_patterns() {
    assert_eq!(path("/data/a b").unwrap(), Path::new("/data/a b"));
    assert!(pattern("/data/**/part-[0-9]?.jsonl").is_ok());
    for (text, reason) in [
        ("data", "is a relative path"),
        ("./data", "is a relative path"),
        ("", "is empty"),
        ("~/data", "begins with ~"),
        ("$HOME/data", "has a variable"),
        ("/data/${USER}", "has a variable"),
        ("/a\0b", "control character"),
    ] {
        let error = path(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
    assert!(pattern("/data/[a.jsonl").is_ok(), "brackets are ordinary characters");
    for (text, reason) in [("*.jsonl", "is a relative path"), ("/data/", "is a folder")] {
        let error = pattern(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
    assert!(relative_pattern("**/*.pt").is_ok());
    assert!(relative_pattern("/x/*.pt").is_err());
}

#[test]
fn pointers() {
    for text in ["/usage/completion_tokens", "/", "/a~0b/c~1d", "/ä"] {
        assert_eq!(pointer(text).unwrap(), text);
    }
    for (text, reason) in [
        ("usage.tokens", "write it as /usage/tokens"),
        ("$.usage.tokens", "write it as /usage/tokens"),
        ("", "is not a JSON pointer"),
        ("/a~2", "neither ~0"),
        ("/a~", "neither ~0"),
    ] {
        let error = pointer(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn urls() {
    for (text, host, secure, has_path) in [
        ("http://127.0.0.1:8000/metrics", "127.0.0.1", false, true),
        ("HTTPS://example.org", "example.org", true, false),
        ("http://[::1]:8000/metrics", "::1", false, true),
        ("http://localhost/a?b=c", "localhost", false, true),
    ] {
        let found = url(text).unwrap();
        assert_eq!((&*found.host, found.secure, found.has_path), (host, secure, has_path), "{text}");
    }
    assert!(url("http://[::1]/").unwrap().is_loopback());
    assert!(!url("http://10.0.0.1/").unwrap().is_loopback());
    for (text, reason) in [
        ("", "is empty"),
        ("127.0.0.1:8000", "has no scheme"),
        ("ftp://host/", "must begin with http://"),
        ("http://", "is not a URL"),
        ("http:///metrics", "is not a URL"),
        ("http://:8000/metrics", "has no host"),
        ("http://me:s3cret@host/", "has credentials in it"),
        ("http://host:99999/", "has the port `99999`"),
        ("http://host:/", "has the port ``"),
        ("http://host:0/", "has the port `0`"),
        ("http://a host/", "has a space"),
        ("http://hö st/", "has a space"),
        ("http://höst/", "is not a URL"),
        ("http://host/\u{7f}", "is not a URL"),
    ] {
        let error = url(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
        assert!(!error.contains("s3cret"));
    }
}

#[test]
fn mail_servers() {
    for (text, host, port) in [("smtp.example.org:587", "smtp.example.org", 587), ("[::1]:25", "::1", 25)] {
        assert_eq!(host_and_port(text).unwrap(), (host.to_owned(), port));
    }
    for (text, reason) in [
        ("smtp.example.org", "has no port"),
        ("smtp://smtp.example.org:25", "without a scheme"),
        ("smtp.example.org:submission", "has the port `submission`"),
        ("::1:25", "in brackets"),
        ("[::1]", "has no port"),
        (":25", "is not a host name"),
        ("a b:25", "is not a host name"),
        ("me:pw@host:25", "has credentials"),
    ] {
        let error = host_and_port(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn mail_addresses() {
    for text in ["me@example.org", "Longhaul <longhaul@example.org>", "\"A, B\" <a@b.c>"] {
        assert!(mailbox(text).is_ok(), "{text}");
    }
    for (text, reason) in [
        ("me", "is not a mail address"),
        ("", "is not a mail address"),
        ("a@b.c, d@e.f", "write several addresses as a list"),
        ("a@b.c\nBcc: x@y.z", "control character"),
    ] {
        let error = mailbox(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn names_and_labels() {
    for text in ["a", "synth 25k", "日本", "a/b:c"] {
        assert_eq!(name(text).unwrap(), text);
    }
    for (text, reason) in [
        ("", "is empty"),
        ("  ", "is empty"),
        (" a", "begins or ends with a space"),
        ("a\nb", "control"),
        ("a\u{202e}b", "invisible"),
    ] {
        let error = name(text).unwrap_err();
        assert!(error.contains(reason), "{text:?}: {error}");
    }
    assert!(name(&"x".repeat(201)).unwrap_err().contains("201 bytes"));
    assert!(label_name("cluster_1").is_ok());
    for text in ["1a", "a-b", "", "__a", "ä"] {
        assert!(label_name(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in prop_oneof![any::<String>(), "(http://|[-0-9.eE_~/\\[\\]:@GiMB$]){0,20}"]) {
        let _ = (duration(&text), size(&text), number(&text), whole_number(&text), moment(&text), name(&text));
        let _ = (path(&text), pattern(&text), relative_pattern(&text), pointer(&text), url(&text), mailbox(&text));
        let _ = (host_and_port(&text), host_name(&text), label_name(&text), plain_text(&text));
    }

    #[test]
    fn written_durations_are_read(seconds in 0_u64..10_000_000) {
        let written = std::time::Duration::from_secs(seconds);
        prop_assert_eq!(duration(&humantime::format_duration(written).to_string()).unwrap(), written);
    }
}
