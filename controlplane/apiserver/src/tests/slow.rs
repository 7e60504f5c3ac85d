//! Requests that took long are told of in the log.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use coracle_admission::{Attributes, Operation, Plugin};
use coracle_api::status::Status;
use coracle_auth::user::{GROUP_MASTERS, UserInfo};
use coracle_registry::api_resource::ApiResource;
use parking_lot::Mutex;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
};
use tracing_subscriber::{
    Layer,
    filter::Targets,
    layer::{Context, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

use super::raw::{CONFIG_MAPS, Raw, config_map};
use crate::testing;

/// Takes 600 ms for what is called `late-`, which nobody has to wait for.
struct Late;

#[async_trait]
impl Plugin for Late {
    fn name(&self) -> &'static str {
        "Late"
    }

    fn handles(&self, _: Operation, resource: &ApiResource) -> bool {
        resource.is_core("configmaps")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if attributes.shown_name().starts_with("late-") {
            tokio::time::pause();
            tokio::time::advance(Duration::from_millis(600)).await;
            tokio::time::resume();
        }
        Ok(())
    }
}

/// Keeps every line: its fields by name.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Fields>>>);

#[derive(Debug, Clone, Default)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(own, _)| *own == name);
        found.map_or("", |(_, value)| value)
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().push(fields);
    }
}

#[tokio::test]
async fn a_request_that_took_long_is_told_with_its_steps_and_not_too_often() {
    let server = testing::server_with(vec![Box::new(Late)]).await;
    let alice = Raw::of(&server, UserInfo::new("alice", &[GROUP_MASTERS]));
    let lines = Lines::default();
    let filter = Targets::new().with_target("coracle_apiserver::slow", LevelFilter::INFO);
    let _listening = tracing_subscriber::registry()
        .with(lines.clone().with_filter(filter))
        .set_default();
    for name in ["quick", "late-a", "late-b", "late-c"] {
        let path = format!("{CONFIG_MAPS}?fieldManager=secret");
        assert_eq!(alice.post(&path, config_map(name)).await.0, 201, "{name}");
    }
    let lines = lines.0.lock().clone();
    let [first, second] = &lines[..] else {
        panic!("{lines:?}");
    };
    for (name, expect) in [
        ("message", "a request took long".to_owned()),
        ("verb", r#""POST""#.to_owned()),
        ("path", format!("{CONFIG_MAPS:?}")),
        ("resource", r#""configmaps""#.to_owned()),
        ("user", r#""alice""#.to_owned()),
        ("code", "201".to_owned()),
        ("left_out", "0".to_owned()),
    ] {
        assert_eq!(first.get(name), expect, "{name}");
    }
    let admission = first.get("steps");
    let admission = admission
        .split(' ')
        .find_map(|step| step.strip_prefix("admission=")?.strip_suffix("ms"));
    assert!(
        admission.unwrap().parse::<u64>().unwrap() >= 600,
        "{first:?}"
    );
    assert!(
        first.get("duration_ms").parse::<u64>().unwrap() >= 600,
        "{first:?}"
    );
    // The one between them came too soon.
    assert_eq!(second.get("left_out"), "1");
}
