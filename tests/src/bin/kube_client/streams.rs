//! Pods that run, and the streams into them.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{AttachParams, EvictParams, LogParams, PostParams},
    runtime::wait,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{api, made, pod, until};

pub(crate) async fn pods(client: Client) -> Result<()> {
    let pods: Api<Pod> = api(&client);
    let script =
        "echo started; mkdir /www; echo page >/www/index.html; httpd -p 8080 -h /www; sleep 3600";
    pods.create(&PostParams::default(), &made(pod("box", script))?)
        .await?;
    wait::await_condition(pods.clone(), "box", wait::conditions::is_pod_running()).await?;
    until("the log", || async {
        Ok(pods.logs("box", &LogParams::default()).await? == "started\n")
    })
    .await?;
    let followed = LogParams {
        follow: true,
        tail_lines: Some(1),
        ..LogParams::default()
    };
    let mut stream = pods.log_stream("box", &followed).await?;
    let mut line = [0; 8];
    futures::AsyncReadExt::read_exact(&mut stream, &mut line).await?;
    ensure!(&line == b"started\n");
    pods.create(&PostParams::default(), &made(pod("evicted", "sleep 3600"))?)
        .await?;
    let uid = pods.get("evicted").await?.uid().unwrap_or_default();
    pods.evict("evicted", &EvictParams::default()).await?;
    wait::await_condition(pods, "evicted", wait::conditions::is_deleted(&uid)).await?;
    Ok(())
}

pub(crate) async fn exec(client: Client) -> Result<()> {
    let pods: Api<Pod> = api(&client);
    let script = [
        "sh",
        "-c",
        "read line; echo got $line; echo err >&2; exit 3",
    ];
    let mut session = pods
        .exec("box", script, &AttachParams::default().stdin(true))
        .await?;
    session
        .stdin()
        .context("stdin")?
        .write_all(b"hello\n")
        .await?;
    let (mut out, mut err) = (String::new(), String::new());
    let (stdout, stderr) = (session.stdout(), session.stderr());
    tokio::try_join!(
        async {
            stdout
                .context("stdout")?
                .read_to_string(&mut out)
                .await
                .map_err(anyhow::Error::from)
        },
        async {
            stderr
                .context("stderr")?
                .read_to_string(&mut err)
                .await
                .map_err(anyhow::Error::from)
        },
    )?;
    ensure!(out == "got hello\n" && err == "err\n", "{out:?} {err:?}");
    let status = session
        .take_status()
        .context("status")?
        .await
        .context("no status")?;
    ensure!(
        status.reason.as_deref() == Some("NonZeroExitCode"),
        "{status:?}"
    );
    let mut terminal = pods
        .exec("box", ["tty"], &AttachParams::interactive_tty())
        .await?;
    let mut out = String::new();
    terminal
        .stdout()
        .context("stdout")?
        .read_to_string(&mut out)
        .await?;
    ensure!(out.contains("/dev/"), "{out:?}");
    ensure!(
        pods.exec("nobody", ["true"], &AttachParams::default())
            .await
            .is_err()
    );
    Ok(())
}

pub(crate) async fn attach(client: Client) -> Result<()> {
    let pods: Api<Pod> = api(&client);
    pods.create(
        &PostParams::default(),
        &made(pod("loop", "while read line; do echo got $line; done"))?,
    )
    .await?;
    wait::await_condition(pods.clone(), "loop", wait::conditions::is_pod_running()).await?;
    let mut session = pods
        .attach("loop", &AttachParams::default().stdin(true))
        .await?;
    session
        .stdin()
        .context("stdin")?
        .write_all(b"one\n")
        .await?;
    let mut said = [0; 8];
    session
        .stdout()
        .context("stdout")?
        .read_exact(&mut said)
        .await?;
    ensure!(&said == b"got one\n", "{said:?}");
    Ok(())
}

pub(crate) async fn forward(client: Client) -> Result<()> {
    let pods: Api<Pod> = api(&client);
    let mut forwarder = pods.portforward("box", &[8080]).await?;
    let mut stream = forwarder.take_stream(8080).context("a stream")?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.ends_with("page\n"), "{answer:?}");
    Ok(())
}
