//! The query parameters of operations: how each is called, its type, and what it is for.

use serde_json::{Value, json};

/// A query parameter of a given type.
pub(super) fn parameter(name: &str, kind: &str, description: &str) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": {"type": kind, "uniqueItems": true}})
}

/// Every query parameter: its name, type and description.
const QUERY_PARAMETERS: &[(&str, &str, &str)] = &[
    (
        "allowWatchBookmarks",
        "boolean",
        "allowWatchBookmarks requests watch events with type \"BOOKMARK\".",
    ),
    (
        "continue",
        "string",
        "The continue option should be set when retrieving more results from the server.",
    ),
    (
        "fieldSelector",
        "string",
        "A selector to restrict the list of returned objects by their fields. Defaults to everything.",
    ),
    (
        "labelSelector",
        "string",
        "A selector to restrict the list of returned objects by their labels. Defaults to everything.",
    ),
    (
        "limit",
        "integer",
        "limit is a maximum number of responses to return for a list call.",
    ),
    (
        "resourceVersion",
        "string",
        "resourceVersion sets a constraint on what resource versions a request may be served from.",
    ),
    (
        "resourceVersionMatch",
        "string",
        "resourceVersionMatch determines how resourceVersion is applied to list calls.",
    ),
    (
        "sendInitialEvents",
        "boolean",
        "`sendInitialEvents=true` may be set together with `watch=true`.",
    ),
    (
        "timeoutSeconds",
        "integer",
        "Timeout for the list/watch call.",
    ),
    (
        "watch",
        "boolean",
        "Watch for changes to the described resources and return them as a stream of add, update, and remove notifications. Specify resourceVersion.",
    ),
    (
        "dryRun",
        "string",
        "When present, indicates that modifications should not be persisted. An invalid or unrecognized dryRun directive will result in an error response and no further processing of the request. Valid values are: - All: all dry run stages will be processed",
    ),
    (
        "fieldManager",
        "string",
        "fieldManager is a name associated with the actor or entity that is making these changes.",
    ),
    (
        "fieldValidation",
        "string",
        "fieldValidation instructs the server on how to handle objects in the request (POST/PUT/PATCH) containing unknown or duplicate fields. Valid values are Ignore, Warn and Strict.",
    ),
    (
        "force",
        "boolean",
        "Force is going to \"force\" Apply requests. It means user will re-acquire conflicting fields owned by other people. Force flag must be unset for non-apply patch requests.",
    ),
    (
        "gracePeriodSeconds",
        "integer",
        "The duration in seconds before the object should be deleted. Value must be non-negative integer. The value zero indicates delete immediately.",
    ),
    (
        "orphanDependents",
        "boolean",
        "Deprecated: please use the PropagationPolicy. Should the dependent objects be orphaned.",
    ),
    (
        "propagationPolicy",
        "string",
        "Whether and how garbage collection will be performed: 'Orphan', 'Background' or 'Foreground'.",
    ),
    (
        "container",
        "string",
        "The container. Defaults to only container if there is one container in the pod.",
    ),
    (
        "follow",
        "boolean",
        "Follow the log stream of the pod. Defaults to false.",
    ),
    (
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "insecureSkipTLSVerifyBackend indicates that the apiserver should not confirm the validity of the serving certificate of the backend it is connecting to.",
    ),
    (
        "limitBytes",
        "integer",
        "If set, the number of bytes to read from the server before terminating the log output.",
    ),
    (
        "previous",
        "boolean",
        "Return previous terminated container logs. Defaults to false.",
    ),
    (
        "sinceSeconds",
        "integer",
        "A relative time in seconds before the current time from which to show logs.",
    ),
    (
        "stream",
        "string",
        "Specify which container log stream to return to the client. Acceptable values are \"All\", \"Stdout\" and \"Stderr\".",
    ),
    (
        "tailLines",
        "integer",
        "If set, the number of lines from the end of the logs to show.",
    ),
    (
        "timestamps",
        "boolean",
        "If true, add an RFC3339 or RFC3339Nano timestamp at the beginning of every line of log output. Defaults to false.",
    ),
    (
        "command",
        "string",
        "Command is the remote command to execute. argv array. Not executed within a shell.",
    ),
    (
        "stderr",
        "boolean",
        "Redirect the standard error stream of the pod for this call.",
    ),
    (
        "stdin",
        "boolean",
        "Redirect the standard input stream of the pod for this call. Defaults to false.",
    ),
    (
        "stdout",
        "boolean",
        "Redirect the standard output stream of the pod for this call.",
    ),
    (
        "tty",
        "boolean",
        "TTY if true indicates that a tty will be allocated for the call. Defaults to false.",
    ),
    (
        "ports",
        "integer",
        "List of ports to forward. Required when using WebSockets",
    ),
];

/// One of these; a name that is none of them is the path behind `proxy`.
pub(super) fn query_parameter(name: &str) -> Value {
    let known = QUERY_PARAMETERS.iter().find(|(known, ..)| *known == name);
    let (kind, description) = known.map_or(
        (
            "string",
            "Path is the URL path to use for the current proxy request.",
        ),
        |(_, kind, description)| (*kind, *description),
    );
    parameter(name, kind, description)
}
