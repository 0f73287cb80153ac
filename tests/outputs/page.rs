//! The landing page.

use longhaul::web::page;

use crate::support::{golden, snapshot};

#[test]
fn page_of_everything() {
    golden::check("tests/golden/page.html", &page::render(&snapshot::full(), "/metrics"));
}

#[test]
fn page_of_nothing_says_what_to_do() {
    let html = page::render(&snapshot::empty(), "/metrics");
    assert!(html.contains("no jobs yet") && html.contains("<code>jobs_dir</code>"), "{html}");
    assert!(html.contains("all 0 sources answer"), "{html}");
}

/// Nothing that a job, a server or a rule says becomes markup, an attribute or a link that runs.
#[test]
fn everything_is_escaped() {
    let evil = "\"'><script>alert(1)</script>";
    let mut sample = snapshot::full();
    sample.instance = evil.into();
    for job in &mut sample.jobs {
        job.message = evil.into();
        job.last_line = Some(evil.into());
        job.phase = Some(evil.into());
        job.pipeline = Some(evil.into());
    }
    for engine in &mut sample.engines {
        engine.reason = Some(evil.into());
        engine.url = evil.into();
    }
    for volume in &mut sample.volumes {
        volume.device = evil.into();
        volume.mountpoint = evil.into();
        volume.reason = Some(evil.into());
    }
    for source in &mut sample.sources {
        source.reason = Some(evil.into());
    }
    for alert in &mut sample.alerts {
        alert.name = evil.into();
        alert.labels.insert("x".into(), evil.into());
        alert.annotations.insert("summary".into(), evil.into());
        alert.annotations.insert("runbook_url".into(), "javascript:alert(1)".into());
    }
    let html = page::render(&sample, "/metrics");
    assert!(!html.contains("<script") && !html.contains("javascript:"), "{html}");
    assert!(!html.contains("\"'>"), "{html}");
    // It needs nothing from elsewhere and runs nothing.
    assert!(!html.contains(" src=") && !html.contains("<link") && !html.contains("url("));
}
