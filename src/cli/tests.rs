//! Which command lines are taken, and what they mean.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

/// Who works on a cluster that is not the machine's first one says so once.
#[test]
fn directories_may_be_said_in_the_environment() {
    fn check(command: &clap::Command) {
        for (id, variable) in [
            ("data_dir", "CORACLE_DATA_DIR"),
            ("run_dir", "CORACLE_RUN_DIR"),
        ] {
            for arg in command.get_arguments().filter(|arg| arg.get_id() == id) {
                let said = arg.get_env().and_then(|name| name.to_str());
                assert_eq!(said, Some(variable), "{}", command.get_name());
            }
        }
        command.get_subcommands().for_each(check);
    }
    check(&Cli::command());
}

#[test]
fn every_documented_command_parses() {
    for line in [
        "coracle up",
        "coracle server --data-dir D --bind 198.18.0.1:6443",
        "coracle server --pod-network overlay --vxlan-port 8472",
        "coracle agent --server https://198.18.0.1:6443 --token T --node-name n1 --node-ip 198.18.0.2 --data-dir D1 --run-dir R1 --registries r.yaml",
        "coracle agent --server https://198.18.0.1:6443,https://198.18.0.2:6443 --server https://kube.example --lb-server-port 6445",
        "coracle token create --data-dir D",
        "coracle token create --print-join-command",
        "coracle token server --data-dir D",
        "coracle server --join https://198.18.0.1 --token T --tls-san a.example,198.18.0.9",
        "coracle up --join https://198.18.0.1:6443 --token T",
        "coracle server --control-plane-endpoint api.example:6443",
        "coracle token list",
        "coracle token delete abcdef",
        "coracle image import f.tar",
        "coracle image list",
        "coracle image pull nginx",
        "coracle image remove nginx",
        "coracle store backup --data-dir D f.db",
        "coracle store backup --kubeconfig K --force f.db",
        "coracle store restore --data-dir D f.db",
        "coracle check",
        "coracle check --proxy-mode iptables",
        "coracle net svc/web",
        "coracle net default/a svc/default/web:80 -o json --run-dir R",
        "coracle check --store etcd=https://198.18.0.1:2379 --etcd-cacert ca.pem",
        "coracle server --store etcd=http://127.0.0.1:2379 --etcd-prefix /other",
        "coracle store copy --from sqlite --to etcd=https://198.18.0.1:2379 --etcd-cacert ca.pem --etcd-cert c --etcd-key k",
        "coracle version --log-format json -v",
        "coracle reset --delete-data",
        "coracle reset --delete-data --delete-local-volumes",
        "coracle agent --server https://198.18.0.1:6443 --local-storage-directory /mnt/disk",
        "coracle up --nodeport-addresses primary,10.0.0.0/8",
        "coracle up --proxy-mode auto",
        "coracle agent --server https://198.18.0.1:6443 --proxy-mode nftables",
        "coracle up --kube-reserved cpu=100m,memory=512Mi --system-reserved pid=1000",
    ] {
        Cli::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn a_pod_is_named_as_kubectl_prints_it() {
    for (word, name) in [("pod/web-0", "web-0"), ("web-0", "web-0")] {
        match Cli::try_parse_from(["coracle", "why", word]).map(|cli| cli.command) {
            Ok(Command::Why(args)) => assert_eq!(args.pod, name),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn unusable_values_are_refused() {
    for line in [
        "coracle up --bind nonsense",
        "coracle up --service-cidr 10.0.0.1",
        "coracle up --cluster-cidr fd00::/64",
        "coracle up --store paper",
        "coracle up --kube-reserved cpu=-1",
        "coracle up --nodeport-addresses 127.0.0.0/8",
        "coracle up --proxy-mode ipvs",
        "coracle up --pod-network tunnel",
        "coracle server --vxlan-port 0",
        "coracle agent --token T",
        "coracle reset --delete-local-volumes",
        "coracle agent --server https://198.18.0.1:6443 --lb-server-port 0",
        "coracle",
    ] {
        assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
}
