//! What mails may never contain, whatever jobs, rules and logs are called.

use proptest::prelude::*;

use super::*;

#[test]
fn names_cannot_add_headers_or_markup() {
    let mut world = World::new();
    let name = "x\r\nBcc: everyone@example.org\r\n\r\n<script>alert(1)</script>\u{202e}";
    world.snapshot.instance = "box\r\nX: y:10787".into();
    world.snapshot.jobs.push(job(name, &[], "/data"));
    world.fire("JobStalled", &[("job_name", name)]);
    world.snapshot.alerts[0].annotations.insert("runbook_url".into(), "javascript:alert(1)".into());
    world.run(60);
    let message = world.last();
    assert_eq!(
        message.subject,
        "[FIRING] JobStalled x Bcc: everyone@example.org <script>alert(1)</script> on box X: y:10787"
    );
    assert!(message.message_id.ends_with(".longhaul@boxXy10787>"), "{}", message.message_id);
    let html = message.html.as_ref().unwrap();
    assert!(!html.contains("<script"), "{html}");
    assert!(!html.contains("href"), "{html}");
    assert!(html.contains("&#60;script&#62;"), "{html}");
    world.check();
}

#[test]
fn secrets_of_logs_and_labels_are_masked_everywhere() {
    let mut world = World::new();
    let secret = "hf_abcdefghijKLMNOPqrst1234";
    world.snapshot.jobs[0].last_line = Some(format!("401 for {secret}"));
    world.snapshot.jobs[0].message = format!("running with {secret}");
    world.fire("JobStalled", &[("job_name", "synth_25k"), ("args", secret)]);
    world.snapshot.alerts[0].annotations.insert("summary".into(), format!("stalled after {secret}"));
    world.run(60);
    let message = world.last();
    for text in [&message.subject, &message.text, message.html.as_ref().unwrap()] {
        assert!(!text.contains("KLMNOP"), "{text}");
    }
    assert!(message.text.contains("401 for hf_[masked]"));
}

#[test]
fn a_mail_about_everything_stays_small() {
    let mut world = World::new();
    for number in 0..2_000 {
        let mut slow = alert("JobSlow", &[("job_name", &format!("job{number}"))], AlertState::Firing, START);
        slow.annotations.insert("description".into(), "x".repeat(20_000));
        world.snapshot.alerts.push(slow);
    }
    world.run(60);
    assert_eq!(world.mails.len(), 1);
    let message = world.last();
    assert!(message.subject.starts_with("[2000 alerts] JobSlow"));
    assert!(message.text.contains("… and 1900 more"));
    assert!(message.text.len() < 100_000, "{}", message.text.len());
}

#[test]
fn what_no_longer_holds_is_not_described_as_if_it_did() {
    let mut world = World::new();
    world.fire("EngineDown", &[("engine", "vllm0")]);
    world.run(60);
    assert!(world.last().text.contains("What it means"));
    // It answers again: the alert is kept for a while, and that it was restarted is news.
    world.snapshot.alerts[0].kept = true;
    world.fire("EngineRestarted", &[("engine", "vllm0"), ("severity", "info"), ("notify", "once")]);
    world.run(60);
    let message = world.last();
    assert_eq!(message.subject, "Re: [INFO EngineRestarted] EngineDown vllm0 on gpu-box-3");
    let (_, still) = message.text.split_once("Still firing:").unwrap();
    assert!(still.contains("it holds no longer, and is over if that stays so"), "{still}");
    assert!(!still.contains("What it means"), "{still}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_text_is_carried_safely(name in "(?s).{0,40}", summary in "(?s).{0,80}", instance in "(?s).{0,20}") {
        let mut world = World::new();
        world.snapshot.instance = instance;
        world.fire("JobStalled", &[("job_name", &name)]);
        world.snapshot.alerts[0].annotations.insert("summary".into(), summary);
        world.run(60);
        prop_assert_eq!(world.mails.len(), 1);
        world.check();
        let id = &world.last().message_id;
        prop_assert!(id.is_ascii() && !id.contains(char::is_whitespace));
        prop_assert!(!world.last().text.contains('\r'));
    }
}
