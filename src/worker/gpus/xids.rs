//! The Xids that this worker has heard of, and whether the thread that waits for them still comes back.
//!
//! Separate from the scheduler because that thread is in no lane: it sits in one call for ever, by design, and says a word
//! each time the call returns. When it has not for longer than the call may take, the driver hangs there as it may in any
//! other call, and what is not heard meanwhile must not look like "no Xid".

use std::collections::BTreeMap;
use std::time::Duration;

use super::scheduler::HUNG_AFTER;
use crate::model::gpu::{Absence, XidCount, XidCounts};
use crate::model::{GpuId, Time};
use crate::sources::gpus::Event;

/// The longest wait for an event: so long an old session stays open.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Before it waits.
const REGISTER: &str = "nvmlDeviceRegisterEvents";
const WAIT: &str = "nvmlEventSetWait";

/// What was heard.
pub(super) struct Xids {
    counts: XidCounts,
    /// How long the thread waits in one call.
    wait: Duration,
    /// Threads so far, and which of them listens.
    watchers: u32,
    listening: u32,
    /// When the newest one last came back, and the call that it is in since; `None` while there is nothing to listen to.
    heard: Option<(Time, &'static str)>,
    /// While that call hangs: why some GPUs were not heard before.
    missing_before: Option<BTreeMap<GpuId, Absence>>,
}

impl Xids {
    pub(super) fn new(since: Time, interval: Duration) -> Self {
        Self {
            counts: XidCounts { since, gpus: BTreeMap::new(), missing: BTreeMap::new() },
            wait: interval.min(LONGEST_WAIT),
            watchers: 0,
            listening: 0,
            heard: None,
            missing_before: None,
        }
    }

    /// All of them so far.
    pub(super) const fn counts(&self) -> &XidCounts {
        &self.counts
    }

    /// How long a thread is to wait in one call.
    pub(super) const fn wait(&self) -> Duration {
        self.wait
    }

    /// A new thread starts; its number.
    pub(super) fn watch(&mut self, now: Time) -> u32 {
        self.watchers += 1;
        self.heard = Some((now, REGISTER));
        self.watchers
    }

    /// A thread came back; answers whether the counts, or for which GPUs there are any, changed.
    pub(super) fn take<'g>(
        &mut self,
        watcher: u32,
        event: Event,
        listed: impl Iterator<Item = &'g GpuId>,
        now: Time,
    ) -> bool {
        let is_newest = watcher == self.watchers;
        let mut changed = false;
        if is_newest {
            self.heard = Some((now, WAIT));
            if let Some(before) = self.missing_before.take() {
                tracing::info!("waiting for Xid events, which hung, came back");
                self.counts.missing = before;
                changed = true;
            }
        }
        match event {
            Event::Waited => changed,
            Event::Listening(_) if !is_newest => false,
            Event::Listening(missing) => {
                self.listening = watcher;
                let mut listens = false;
                for gpu in listed.filter(|gpu| !missing.contains_key(*gpu)) {
                    self.counts.gpus.entry(gpu.clone()).or_default();
                    listens = true;
                }
                if !listens {
                    self.heard = None;
                }
                self.counts.missing = missing;
                true
            }
            // One that is about to end hears the same as its successor, but for a GPU that has just been lost.
            Event::Xid(gpu, _) if watcher != self.listening && !self.counts.missing.contains_key(&gpu) => changed,
            Event::Xid(gpu, code) => {
                tracing::warn!(%gpu, xid = code.0, "the driver reports an Xid");
                let codes = self.counts.gpus.entry(gpu).or_default();
                let count = codes.get(&code).map_or(0, |seen| seen.count);
                codes.insert(code, XidCount { count: count + 1, last: now });
                true
            }
        }
    }

    /// The call that does not come back, and whether that is news: the counts say so from then on.
    pub(super) fn hangs(&mut self, now: Time) -> Option<(&'static str, bool)> {
        let (since, call) = self.heard?;
        if now.since(since) <= self.wait + HUNG_AFTER {
            return None;
        }
        let news = self.missing_before.is_none();
        if news {
            tracing::warn!(call, "a call of NVML hangs: Xid events are not heard");
            let hangs = self.counts.gpus.keys().map(|gpu| (gpu.clone(), Absence::Hangs)).collect();
            self.missing_before = Some(std::mem::replace(&mut self.counts.missing, hangs));
        }
        Some((call, news))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::Xid;

    #[test]
    fn a_wait_that_does_not_come_back_is_no_silence() {
        let at = Time::from_seconds;
        let gpus = [GpuId::new("GPU-0"), GpuId::new("GPU-1")];
        let mut xids = Xids::new(at(0.0), Duration::from_secs(1));
        let first = xids.watch(at(0.0));
        assert_eq!(xids.hangs(at(6.0)), None);
        assert_eq!(xids.hangs(at(6.1)), Some((REGISTER, true)));
        let lost = BTreeMap::from([(gpus[1].clone(), Absence::NotSupported)]);
        assert!(xids.take(first, Event::Listening(lost.clone()), gpus.iter(), at(7.0)));
        assert!(!xids.take(first, Event::Waited, gpus.iter(), at(8.0)));
        assert_eq!(xids.hangs(at(14.0)), None);
        assert_eq!(xids.hangs(at(14.1)), Some((WAIT, true)));
        assert_eq!(xids.hangs(at(15.0)), Some((WAIT, false)), "said once");
        assert_eq!(xids.counts().missing, BTreeMap::from([(gpus[0].clone(), Absence::Hangs)]));
        // What it comes back with counts.
        assert!(xids.take(first, Event::Xid(gpus[0].clone(), Xid(79)), gpus.iter(), at(20.0)));
        assert_eq!((xids.hangs(at(21.0)), &xids.counts().missing), (None, &lost));
        assert_eq!(xids.counts().gpus[&gpus[0]][&Xid(79)].count, 1);
        // With nobody to listen to, silence is silence.
        let second = xids.watch(at(30.0));
        let all = gpus.iter().map(|gpu| (gpu.clone(), Absence::NotSupported)).collect();
        assert!(xids.take(second, Event::Listening(all), gpus.iter(), at(31.0)));
        assert_eq!(xids.hangs(at(1000.0)), None);
        assert!(!xids.take(first, Event::Waited, gpus.iter(), at(1001.0)), "of one that ends nobody waits");
    }
}
