//! What the world says of itself; of jobs, engines and volumes their own tests speak.

use super::*;
use crate::model::FailureKind;

#[test]
fn a_way_out_that_failed_is_not_tried_yet_after_a_reload() {
    let at = Time::from_seconds(1e9);
    let mut world = World::new(Arc::new(Config::default()), "here:1".to_owned(), at);
    let observe =
        |world: &mut World, fact| world.observe(&Observation { at, source: SourceId::own(), took: None, fact });
    let failure = Some(Failure::new(FailureKind::Refused, "nobody listens there"));
    observe(&mut world, Fact::Delivery { integration: "email".to_owned(), failure });
    let email = |world: &mut World| observe(world, Fact::Tick).unwrap().notifications.integrations["email"].clone();
    assert_eq!(email(&mut world).reason.as_deref(), Some("nobody listens there"));
    world.reconfigure(Arc::new(Config::default()), "here:1".to_owned());
    let after = email(&mut world);
    assert_eq!((after.reason, after.failed[&FailureKind::Refused]), (None, 1), "and counters never fall");
}
