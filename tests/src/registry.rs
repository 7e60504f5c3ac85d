//! Debian's docker-registry inside a host's namespace, filled by skopeo.

use std::{process::Command, time::Duration};

use crate::{
    image_archive,
    process::{Process, succeed},
    site::Site,
    wait,
};

/// A running registry on port 5000.
#[derive(Debug)]
pub struct Registry {
    _process: Process,
}

impl Registry {
    /// Starts it on `host` and pushes `library/nginx:latest` and `library/busybox:latest`.
    pub fn start(site: &Site, host: &str, address: &str) -> Self {
        let dir = site.subdir("registry");
        let config = dir.join("config.yml");
        let storage = site.subdir("registry/storage");
        std::fs::write(
            &config,
            format!(
                "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}:5000'}}\n",
                storage.display()
            ),
        )
        .expect("write the registry's configuration");
        let mut command = site.command(host, "docker-registry");
        command.arg("serve").arg(&config);
        let process = Process::start(command, &dir.join("registry.log"));
        let url = format!("http://{address}:5000/v2/");
        wait::until("the registry answers", Duration::from_secs(20), || {
            site.fetch(host, &url)
        });
        for image in ["nginx", "busybox"] {
            push(site, host, address, image);
        }
        Self { _process: process }
    }
}

fn push(site: &Site, host: &str, address: &str, image: &str) {
    let mut command: Command = site.command(host, "skopeo");
    command.args([
        "--insecure-policy",
        "copy",
        "--quiet",
        "--dest-tls-verify=false",
    ]);
    command.arg(format!("oci-archive:{}", image_archive(image).display()));
    command.arg(format!("docker://{address}:5000/library/{image}:latest"));
    succeed(&mut command);
}
