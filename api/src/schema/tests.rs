use super::*;

#[test]
fn kinds_and_names_resolve() {
    let pod = table().by_gvk(&Gvk::new("", "v1", "Pod")).expect("Pod");
    assert_eq!(pod.name(), "io.k8s.api.core.v1.Pod");
    assert_eq!(table().by_name(pod.name()), Some(pod));
    assert_eq!(pod.gvk(), Some(Gvk::new("", "v1", "Pod")));
}
