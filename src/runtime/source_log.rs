//! What the log says about sources: that one answers, fails, fails otherwise, answers again. Once each.
//!
//! Separate from the metrics about the same, which have every poll. A source that fails is asked again every few seconds,
//! for days; a log that said so each time would hide what changed. Messages can hold numbers that change from poll to
//! poll, so the kind of the failure decides whether it is another one. Drop-in jobs and volumes come and go by
//! themselves, so their first answer is no news.
//!
//! Memory follows the sources that are configured or mounted; of a source that is gone a few words are kept.

use std::collections::BTreeMap;

use crate::model::{Fact, FailureKind, Observation, SourceId};

/// The sources as the log knows them.
#[derive(Debug, Default)]
pub struct SourceLog {
    /// `None` for one that answers.
    known: BTreeMap<SourceId, Option<FailureKind>>,
}

/// What is worth a line.
#[derive(Debug, PartialEq, Eq)]
enum News<'a> {
    /// For the first time.
    Answers,
    /// After a failure.
    AnswersAgain,
    /// There is nothing yet, which is how most jobs begin.
    NotThere(&'a str),
    /// Anything else.
    Fails(&'a str),
}

impl SourceLog {
    /// Writes the line about an observation, if there is one.
    pub fn follow(&mut self, observation: &Observation) {
        let source = &observation.source;
        match self.news(observation) {
            None => {}
            Some(News::Answers) => tracing::info!(%source, "the source answers"),
            Some(News::AnswersAgain) => tracing::info!(%source, "the source answers again"),
            Some(News::NotThere(reason)) => tracing::info!(%source, reason, "nothing to read yet"),
            Some(News::Fails(reason)) => {
                tracing::warn!(%source, reason, "the source cannot be read; tried again and again")
            }
        }
    }

    fn news<'a>(&mut self, observation: &'a Observation) -> Option<News<'a>> {
        let (failure, first_is_news) = match &observation.fact {
            Fact::Engine { .. } | Fact::Progress { .. } | Fact::Process { .. } | Fact::Gpus { .. } => (None, true),
            Fact::Targets { failure, .. } => (failure.as_ref(), true),
            Fact::Outputs { .. }
            | Fact::Mounts { .. }
            | Fact::Space { .. }
            | Fact::Paths { .. }
            | Fact::DropIns { .. }
            | Fact::Gpu { .. } => (None, false),
            Fact::Failed { failure } | Fact::SpaceFailed { failure, .. } | Fact::GpuFailed { failure, .. } => {
                (Some(failure), true)
            }
            Fact::Tick
            | Fact::WallClock { .. }
            | Fact::Kept { .. }
            | Fact::Worker { .. }
            | Fact::Delivery { .. }
            | Fact::Reload { .. }
            | Fact::Silenced { .. }
            | Fact::SilenceExpired { .. }
            | Fact::Outbox { .. }
            | Fact::Xids { .. } => return None,
        };
        let source = &observation.source;
        let now = failure.map(|failure| failure.kind);
        let before = self.known.get(source).copied();
        if before == Some(now) {
            return None;
        }
        self.known.insert(source.clone(), now);
        match (failure, before) {
            (None, None) => first_is_news.then_some(News::Answers),
            (None, Some(_)) => Some(News::AnswersAgain),
            // Most machines have no drop-in folder, and many no GPU.
            (Some(failure), None)
                if failure.kind == FailureKind::Missing
                    && [SourceId::jobs_dir(), SourceId::gpus()].contains(source) =>
            {
                None
            }
            (Some(failure), None) if matches!(failure.kind, FailureKind::Missing | FailureKind::DriverNotLoaded) => {
                Some(News::NotThere(&failure.message))
            }
            (Some(failure), _) => Some(News::Fails(&failure.message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::Reading;
    use crate::model::{Failure, JobName, Time};

    fn seen(source: SourceId, failure: Option<(FailureKind, &str)>) -> Observation {
        let fact = match failure {
            None => Fact::Progress { job: JobName::new("j"), reading: Reading::default() },
            Some((kind, message)) => Fact::Failed { failure: Failure::new(kind, message) },
        };
        Observation { at: Time::from_micros(0), source, took: None, fact }
    }

    #[test]
    fn each_change_is_said_once() {
        use FailureKind::{Io, Missing, Permission};
        let log = || SourceId::new("progress/j/log");
        let mut sources = SourceLog::default();
        for (failure, news) in [
            (Some((Missing, "not there")), Some(News::NotThere("not there"))),
            (Some((Missing, "not there for 5 s")), None),
            (None, Some(News::AnswersAgain)),
            (None, None),
            (Some((Permission, "no")), Some(News::Fails("no"))),
            (Some((Permission, "no")), None),
            (Some((Io, "bad")), Some(News::Fails("bad"))),
            (None, Some(News::AnswersAgain)),
            (Some((Missing, "gone")), Some(News::Fails("gone"))),
        ] {
            assert_eq!(sources.news(&seen(log(), failure)), news, "{failure:?}");
        }
        assert_eq!(sources.news(&seen(SourceId::new("engine/e"), None)), Some(News::Answers));
        assert_eq!(sources.news(&seen(SourceId::jobs_dir(), Some((Missing, "none")))), None);
    }
}
