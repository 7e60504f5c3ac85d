//! CronJob: a Job made again and again by the clock.
//!
//! Source: `pkg/registry/batch/cronjob/strategy.go`, `pkg/apis/batch/validation` at v1.37.

use coracle_api::{
    cron::{self, Schedule},
    status::FieldErrors,
};
use serde_json::Value;

use super::jobspec;
use crate::{
    cells::{self, AGE, CONTAINERS, IMAGES, NAME, NONE, integer, text, wide},
    check, fill,
    kinds::{podspec, workload},
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{self, string},
};

/// The strategy of CronJobs.
pub struct CronJob;

static INFO: ResourceInfo = ResourceInfo {
    kind: "CronJob",
    plural: "cronjobs",
    singular: "cronjob",
    short_names: &["cj"],
    categories: &["all"],
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Schedule",
        "The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron.",
    ),
    text(
        "Timezone",
        "The time zone name for the given schedule, see https://en.wikipedia.org/wiki/List_of_tz_database_time_zones. If not specified, this will default to the time zone of the kube-controller-manager process. The set of valid time zone names and the time zone offset is loaded from the system-wide time zone database by the API server during CronJob validation and the controller manager during execution. If no system-wide time zone database can be found a bundled version of the database is used instead. If the time zone name becomes invalid during the lifetime of a CronJob or due to a change in host configuration, the controller will stop creating new new Jobs and will create a system event with the reason UnknownTimeZone. More information can be found in https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones",
    ),
    text(
        "Suspend",
        "This flag tells the controller to suspend subsequent executions, it does not apply to already started executions.  Defaults to false.",
    ),
    integer("Active", "A list of pointers to currently running jobs."),
    text(
        "Last Schedule",
        "Information when was the last time the job was successfully scheduled.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        "A label query over pods that should match the pod count. Normally, the system sets this field for you. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

/// The names of Jobs are this much longer, and a label holds 63.
const MAX_NAME: usize = 52;

impl BuiltIn for CronJob {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for CronJob {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        fill::text(spec, "concurrencyPolicy", "Allow");
        fill::value(spec, "suspend", false);
        fill::value(spec, "successfulJobsHistoryLimit", 3);
        fill::value(spec, "failedJobsHistoryLimit", 1);
        fill::object(spec, "jobTemplate");
        fill::within(spec, "jobTemplate", |job| {
            fill::object(job, "metadata");
            fill::object(job, "spec");
            jobspec::default_failure_policy(&mut job["spec"]);
            workload::default_template(&mut job["spec"]);
        });
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let cron = &object["spec"]["schedule"];
        // Stored ones may still have it.
        if string(cron).contains("TZ") && object["spec"]["timeZone"].is_null() {
            errors.invalid(
                "spec.schedule",
                cron,
                "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            );
        }
        check_spec(&mut errors, object);
        let name = &object["metadata"]["name"];
        if string(name).len() > MAX_NAME {
            errors.invalid(
                "metadata.name",
                name,
                format!("must be no more than {MAX_NAME} characters"),
            );
        }
        errors
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check_spec(&mut errors, new);
        errors
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        workload::pods_name_warnings(object)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let spec = &object["spec"];
        let template = &spec["jobTemplate"]["spec"]["template"];
        let mut warnings = podspec::warnings::template("spec.jobTemplate.spec.template", template);
        if string(&spec["schedule"]).contains("TZ") {
            warnings.push("CRON_TZ or TZ used in spec.schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_owned());
        }
        warnings
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        let job = &spec["jobTemplate"]["spec"];
        let [containers, images] = cells::containers_and_images(&job["template"]);
        let last = match &object["status"]["lastScheduleTime"] {
            Value::Null => NONE.to_owned(),
            time => cells::since(time, now_secs),
        };
        vec![
            cells::name(object),
            string(&spec["schedule"]).into(),
            value::string_or(&spec["timeZone"], NONE).into(),
            if spec["suspend"] == true {
                "True"
            } else {
                "False"
            }
            .into(),
            value::len(&object["status"]["active"]).into(),
            last.into(),
            cells::age(object, now_secs),
            containers,
            images,
            cells::label_selector(&job["selector"]).into(),
        ]
    }
}

fn check_spec(errors: &mut FieldErrors, object: &Value) {
    let spec = &object["spec"];
    if check::required(errors, "spec.schedule", &spec["schedule"]) {
        let text = string(&spec["schedule"]);
        if let Err(why) = Schedule::parse(text) {
            errors.invalid("spec.schedule", &spec["schedule"], why.to_string());
        }
        if text.contains("TZ") && spec["timeZone"].is_string() {
            let message = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            errors.invalid("spec.schedule", &spec["schedule"], message);
        }
    }
    check::not_negative(
        errors,
        "spec.startingDeadlineSeconds",
        &spec["startingDeadlineSeconds"],
    );
    if let Some(zone) = spec["timeZone"].as_str() {
        let message = match zone {
            "" => Some("timeZone must be nil or non-empty string".to_owned()),
            // The server's own zone, of which the object does not say what it is.
            zone if zone.eq_ignore_ascii_case("local") => {
                Some("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned())
            }
            zone => cron::zone(zone).err().map(|why| why.to_string()),
        };
        check::invalid_all(errors, "spec.timeZone", &spec["timeZone"], message);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    check::one_of(
        errors,
        "spec.concurrencyPolicy",
        &spec["concurrencyPolicy"],
        &policies,
    );
    let job = &spec["jobTemplate"]["spec"];
    jobspec::without_selector(errors, "spec.jobTemplate.spec", job);
    if !job["selector"].is_null() {
        errors.invalid(
            "spec.jobTemplate.spec.selector",
            &job["selector"],
            "`selector` will be auto-generated",
        );
    }
    if job["manualSelector"] == true {
        errors.not_supported(
            "spec.jobTemplate.spec.manualSelector",
            &job["manualSelector"],
            &["nil", "false"],
        );
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        check::not_negative(errors, &format!("spec.{field}"), &spec[field]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, with};

    fn cron_job() -> Value {
        json!({"metadata": {"name": "c"}, "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}}}})
    }

    #[test]
    fn a_condition_of_a_template_without_a_status_is_one_that_is_true() {
        let rules =
            json!([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]);
        let asked = with(
            &cron_job(),
            "/spec/jobTemplate/spec/podFailurePolicy",
            json!({"rules": rules}),
        );
        let made = created(&CronJob, asked);
        let rules = &made["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"];
        assert_eq!(rules[0]["onPodConditions"][0]["status"], "True");
    }

    #[test]
    fn cron_jobs_are_checked() {
        for (pointer, value, expect) in [
            ("/spec/suspend", json!(true), ""),
            ("/spec/timeZone", json!("Europe/Berlin"), ""),
            ("/spec/schedule", json!(""), "spec.schedule: Required value"),
            (
                "/spec/schedule",
                json!("x"),
                "spec.schedule: Invalid value: \"x\": expected exactly 5 fields, found 1: [x]",
            ),
            (
                "/spec/schedule",
                json!("TZ=UTC * * * * *"),
                "spec.schedule: Invalid value: \"TZ=UTC * * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            ),
            (
                "/spec/timeZone",
                json!("europe/berlin"),
                "spec.timeZone: Invalid value: \"europe/berlin\": unknown time zone europe/berlin",
            ),
            (
                "/spec/timeZone",
                json!("Mars/Base"),
                "spec.timeZone: Invalid value: \"Mars/Base\": unknown time zone Mars/Base",
            ),
            (
                "/spec/concurrencyPolicy",
                json!("x"),
                "spec.concurrencyPolicy: Unsupported value: \"x\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
            ),
            (
                "/spec/startingDeadlineSeconds",
                json!(-1),
                "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                "/spec/jobTemplate/spec/template/spec/restartPolicy",
                json!("Always"),
                "spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ),
            (
                "/metadata/name",
                json!("a".repeat(53)),
                &format!(
                    "metadata.name: Invalid value: {:?}: must be no more than 52 characters",
                    "a".repeat(53)
                ),
            ),
        ] {
            assert_eq!(
                create_errors(&CronJob, with(&cron_job(), pointer, value.clone())),
                expect,
                "{pointer} = {value}"
            );
        }
    }

    #[test]
    fn rows_show_the_schedule() {
        let mut object = created(&CronJob, cron_job());
        assert_eq!(object["spec"]["concurrencyPolicy"], "Allow");
        assert_eq!(object["spec"]["failedJobsHistoryLimit"], 1);
        object["status"] = json!({"active": [{}], "lastScheduleTime": "1970-01-01T00:00:10Z"});
        assert_eq!(
            json!(CronJob.row(&object, 40)),
            json!([
                "c",
                "*/5 * * * *",
                "<none>",
                "False",
                1,
                "30s",
                "<unknown>",
                "c",
                "i:1",
                "<none>"
            ])
        );
    }
}
