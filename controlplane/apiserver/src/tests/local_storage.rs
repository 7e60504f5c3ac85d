//! The StorageClass that a server makes.

use std::sync::Arc;

use coracle_auth::user::UserInfo;
use coracle_store::{Backend, memory::MemoryBackend};
use serde_json::json;

use super::raw::Raw;
use crate::{
    ApiServer, ApiServerConfig, bootstrap,
    pki::{Pki, ServerNames},
    testing::SERVICE_CIDR,
};

const CLASS: &str = "/apis/storage.k8s.io/v1/storageclasses/local-path";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

async fn server(backend: &Arc<dyn Backend>, local_storage: bool) -> Arc<ApiServer> {
    let pki = Arc::new(Pki::ephemeral(&ServerNames::default()).unwrap());
    let advertise = "198.18.0.1:6443".parse().unwrap();
    let mut config = ApiServerConfig::new(pki, SERVICE_CIDR.parse().unwrap(), advertise);
    config.local_storage = local_storage;
    ApiServer::new(config, Arc::clone(backend)).await.unwrap()
}

#[tokio::test]
async fn the_class_is_made_unless_it_is_left_out_and_is_its_administrators_then() {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    let admin = |server: &Arc<ApiServer>| Raw::of(server, UserInfo::master("admin"));
    let without = server(&backend, false).await;
    assert_eq!(admin(&without).get(CLASS).await.0, 404);
    drop(without);
    let server = server(&backend, true).await;
    let raw = admin(&server);
    let (code, class) = raw.get(CLASS).await;
    assert_eq!(code, 200, "{class}");
    assert_eq!(class["metadata"]["annotations"][IS_DEFAULT], "true");
    assert_eq!(class["volumeBindingMode"], "WaitForFirstConsumer");
    let no_default = json!({"metadata": {"annotations": {IS_DEFAULT: "false"}}});
    assert_eq!(raw.merge(CLASS, no_default).await.0, 200);
    bootstrap::start(&server.state).await.unwrap();
    let (_, class) = raw.get(CLASS).await;
    assert_eq!(class["metadata"]["annotations"][IS_DEFAULT], "false");
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let (code, made) = raw.post(claims, claim).await;
    let class = &made["spec"]["storageClassName"];
    assert_eq!((code, class), (201, &json!(null)), "{made}");
}
