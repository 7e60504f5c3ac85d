//! Objects of a custom kind beside ConfigMaps, and against rules.

use std::time::Duration;

use anyhow::ensure;
use hyper::{Method, body::Bytes};
use serde_json::{Value, json};

use super::{GROUP, cpu, definition, definitions::define, path, server};
use crate::{
    api::{config_map, create_many},
    client::{Connection, Target},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROUNDS: usize = 7;
/// Objects in a list.
const LISTED: usize = 500;
const RULES: usize = 500;
const FULL: usize = 100_000;
/// Until the memory is read: what the last requests used has been given back.
const SETTLE: Duration = Duration::from_secs(3);

/// What a request costs, for one and the other by turns.
pub(crate) async fn measure(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let mut connection = target.connect().await?;
    let schema = json!({"type": "object", "properties": {"data": {"type": "object",
        "additionalProperties": {"type": "string"}}}});
    let widget = definition(GROUP, "Widget", &schema);
    define(&mut connection, &[widget]).await?;
    let widgets = path(GROUP, "Widget");
    let (map, widget) = (config_map(named()), object("Widget", &json!({})));
    let mut result = json!({});
    let mut of = Work {
        connection,
        pid: server()?,
    };
    result["create"] = of.create([(MAPS, &map), (&widgets, &widget)], 500).await?;
    for (path, body) in [(MAPS, &map), (&widgets, &widget)] {
        create_many(&target, path, LISTED, body.clone()).await?;
    }
    let list = [MAPS, &widgets].map(|path| format!("{path}?limit={LISTED}"));
    result["list"] = of.get([&list[0], &list[1]], 30).await?;
    let one = [of.first(MAPS).await?, of.first(&widgets).await?];
    result["get"] = of.get([&one[0], &one[1]], 1500).await?;
    of.rules(&mut result).await?;
    Ok(result)
}

/// A hundred thousand objects.
pub(crate) async fn fill(kubeconfig: &str) -> anyhow::Result<Value> {
    let target = Target::load(kubeconfig)?;
    let mut connection = target.connect().await?;
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "image": text, "size": {"type": "integer"}, "tags": {"type": "array", "items": text}}}}});
    define(&mut connection, &[definition(GROUP, "Gadget", &schema)]).await?;
    let spec = json!({"spec": {"image": "registry.example/shop/frontend:v1.27.3", "size": 3,
        "tags": ["blue", "large", "spring"]}});
    let gadgets = path(GROUP, "Gadget");
    create_many(&target, &gadgets, FULL, object("Gadget", &spec)).await?;
    let list = format!("{gadgets}?limit=100");
    let list = connection.bytes(Method::GET, &list, None).await?;
    tokio::time::sleep(SETTLE).await;
    Ok(json!({"objects": FULL, "json_bytes": list.len() / 100}))
}

fn named() -> Value {
    json!({"generateName": "kind-", "labels": {"app": "bench"}})
}

/// An object as large as a ConfigMap, or with something else in it.
fn object(kind: &str, more: &Value) -> Bytes {
    let mut object =
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": named()});
    match more.as_object() {
        Some(more) if !more.is_empty() => object["spec"] = more["spec"].clone(),
        _ => object["data"] = json!({"k": "x".repeat(700)}),
    }
    Bytes::from(object.to_string())
}

struct Work {
    connection: Connection,
    pid: i32,
}

impl Work {
    async fn create(&mut self, of: [(&str, &Bytes); 2], count: u32) -> anyhow::Result<Value> {
        let mut least = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for ((path, body), least) in of.into_iter().zip(&mut least) {
                let before = cpu(self.pid)?;
                for _ in 0..count {
                    let body = Some(body.clone());
                    self.connection.drain(Method::POST, path, body).await?;
                }
                *least = (*least).min((cpu(self.pid)? - before) / count);
            }
        }
        Ok(micros(least))
    }

    async fn get(&mut self, of: [&str; 2], count: u32) -> anyhow::Result<Value> {
        let mut least = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (path, least) in of.into_iter().zip(&mut least) {
                let before = cpu(self.pid)?;
                for _ in 0..count {
                    self.connection.drain(Method::GET, path, None).await?;
                }
                *least = (*least).min((cpu(self.pid)? - before) / count);
            }
        }
        Ok(micros(least))
    }

    /// The first object of a list.
    async fn first(&mut self, path: &str) -> anyhow::Result<String> {
        let first = format!("{path}?limit=1");
        let list = self.connection.json(Method::GET, &first, None).await?;
        let name = list["items"][0]["metadata"]["name"].as_str();
        ensure!(name.is_some(), "{path} has an object");
        Ok(format!("{path}/{}", name.unwrap_or_default()))
    }

    /// Objects of a kind with rules beside those of the same kind without.
    async fn rules(&mut self, result: &mut Value) -> anyhow::Result<()> {
        let (plain, ruled) = (fields(false), fields(true));
        define(&mut self.connection, &[definition(GROUP, "Plain", &plain)]).await?;
        let before = cpu(self.pid)?;
        define(&mut self.connection, &[definition(GROUP, "Ruled", &ruled)]).await?;
        result["rules_us"] = ((cpu(self.pid)? - before).as_secs_f64() * 1e6).into();
        let spec: serde_json::Map<String, Value> =
            (0..RULES).map(|at| (format!("f{at}"), json!(at))).collect();
        let spec = json!({"spec": spec});
        let (of_plain, of_ruled) = (object("Plain", &spec), object("Ruled", &spec));
        let (plain, ruled) = (path(GROUP, "Plain"), path(GROUP, "Ruled"));
        let of = [(&*plain, &of_plain), (&*ruled, &of_ruled)];
        let each = self.create(of, 30).await?;
        let each = |of: &str| each[of].as_f64().unwrap_or(f64::NAN);
        // `create` names what comes first after ConfigMaps.
        result["ruled_us"] = (each("custom_us") - each("maps_us")).into();
        Ok(())
    }
}

/// A field for each rule, with the rule or without.
fn fields(ruled: bool) -> Value {
    let mut fields = serde_json::Map::new();
    for at in 0..RULES {
        let mut field = json!({"type": "integer"});
        if ruled {
            field["x-kubernetes-validations"] =
                json!([{"rule": "self >= 0 && self < 1000", "message": "must be below 1000"}]);
        }
        fields.insert(format!("f{at}"), field);
    }
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}})
}

fn micros([maps, custom]: [Duration; 2]) -> Value {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    json!({"maps_us": us(maps), "custom_us": us(custom)})
}
