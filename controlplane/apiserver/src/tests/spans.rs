use std::sync::Arc;

use coracle_telemetry::trace;
use parking_lot::Mutex;
use tracing::{
    Id, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Record},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{
    Layer,
    filter::Targets,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

use super::raw::{PODS, admin, pod};

/// Keeps every span that has closed: its path from the outermost, and its fields.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(String, String)>>>);

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        record.record(
            context
                .span(id)
                .unwrap()
                .extensions_mut()
                .get_mut::<Fields>()
                .unwrap(),
        );
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let path: Vec<_> = span.scope().from_root().map(|span| span.name()).collect();
        let fields = span
            .extensions()
            .get::<Fields>()
            .unwrap()
            .0
            .trim_end()
            .to_owned();
        self.0.lock().push((path.join("/"), fields));
    }
}

impl Recorder {
    /// Listens on this thread at `level`.
    fn listen(&self, level: LevelFilter) -> DefaultGuard {
        let filter = Targets::new().with_target(trace::TARGET, level);
        tracing_subscriber::registry()
            .with(self.clone().with_filter(filter))
            .set_default()
    }

    fn take(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.0.lock())
    }
}

#[tokio::test]
async fn a_request_is_told_with_its_admission_and_its_commit() {
    let raw = admin().await;
    let recorder = Recorder::default();
    let _listening = recorder.listen(LevelFilter::DEBUG);
    assert_eq!(raw.post(PODS, pod("web")).await.0, 201);
    let told = recorder.take();
    let told: Vec<_> = told
        .iter()
        .map(|(path, fields)| (path.as_str(), fields.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("KubernetesAPI/admission", r#"type="admit""#),
            ("KubernetesAPI/admission", r#"type="validate""#),
            ("KubernetesAPI/admission", r#"type="quota""#),
            ("KubernetesAPI/commit", ""),
            (
                "KubernetesAPI",
                r#"path="/api/v1/namespaces/default/pods" verb="create" resource="pods" object="default/" code=201"#
            ),
        ]
    );
}

#[tokio::test]
async fn a_refused_request_has_its_code_and_its_path() {
    let raw = admin().await;
    let recorder = Recorder::default();
    let _listening = recorder.listen(LevelFilter::DEBUG);
    assert_eq!(raw.get("/nowhere").await.0, 404);
    assert_eq!(raw.get(&format!("{PODS}/we%0Ab/log")).await.0, 404);
    let of_pod = r#"verb="get" resource="pods" subresource="log" object="default/we\nb" code=404"#;
    let told = recorder
        .take()
        .into_iter()
        .map(|(_, fields)| fields)
        .collect::<Vec<_>>();
    assert_eq!(
        told,
        [
            r#"path="/nowhere" code=404"#.to_owned(),
            format!("path=\"{PODS}/we%0Ab/log\" {of_pod}")
        ]
    );
}

#[tokio::test]
async fn who_listens_to_less_is_told_of_no_span() {
    let raw = admin().await;
    let recorder = Recorder::default();
    let _listening = recorder.listen(LevelFilter::INFO);
    assert_eq!(raw.post(PODS, pod("web")).await.0, 201);
    assert_eq!(recorder.take(), []);
}
