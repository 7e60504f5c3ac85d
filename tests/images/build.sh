#!/usr/bin/env bash
# Builds the images that the demo and the tests run, from Debian's packages alone: no registry, no image tool.
#
#   tests/images/build.sh OUT_DIR
#
# writes OUT_DIR/nginx.tar (docker.io/library/nginx:latest) and OUT_DIR/busybox.tar
# (docker.io/library/busybox:latest) as OCI archives. Nothing is done when they are newer than this script.
set -euo pipefail

out=$(mkdir -p "$1" && cd "$1" && pwd)
self=$(readlink -f "$0")
if [[ $out/nginx.tar -nt $self && $out/busybox.tar -nt $self ]]; then
  exit 0
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/coracle-images.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Downloads packages by name, with Debian's own client, and unpacks them into a directory.
unpack_packages() {
  local root=$1
  shift
  mkdir -p "$work/debs" "$root"
  (cd "$work/debs" && apt-get download -q "$@" >"$work/apt.log" 2>&1) || {
    cat "$work/apt.log" >&2
    echo "tests/images/build.sh: cannot download $* (run 'apt-get update' once?)" >&2
    exit 1
  }
  local package
  for package in "$@"; do
    dpkg-deb -x "$work"/debs/"$package"_*.deb "$root"
  done
}

users() {
  mkdir -p "$1/etc"
  printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'www-data:x:33:33:www-data:/var/www:/bin/sh' \
    'nobody:x:65534:65534:nobody:/nonexistent:/bin/sh' >"$1/etc/passwd"
  printf '%s\n' 'root:x:0:' 'www-data:x:33:' 'nogroup:x:65534:' >"$1/etc/group"
}

# libraries ROOT PACKAGES_ROOT NAME...: what a program loads, where every loader looks without a cache.
libraries() {
  local root=$1 packages=$2 name
  shift 2
  mkdir -p "$root/usr/lib"
  for name in "$@"; do
    find "$packages" -name "$name" -exec cp -L {} "$root/usr/lib/" \; -quit
    [[ -e $root/usr/lib/$name ]] || { echo "tests/images/build.sh: no $name in the packages" >&2; exit 1; }
  done
}

# The shell and tools of both images, and the C library. Debian's static busybox resolves no names: glibc loads what
# does that at run time, which crashes in a static program.
busybox_layer() {
  local root=$work/busybox full=$work/busybox-packages applet loader
  unpack_packages "$full" busybox libc6
  mkdir -p "$root"/{bin,dev,etc,proc,sys,tmp,root,var/run}
  cp "$(find "$full" -path '*bin/busybox' -type f)" "$root/bin/busybox"
  libraries "$root" "$full" libc.so.6 libresolv.so.2
  # The one path that is written in programs: /lib64/ld-linux-x86-64.so.2, /lib/ld-linux-aarch64.so.1.
  loader=$(find "$full" -name 'ld-linux*.so.*' -type f | head -n 1)
  case $loader in
  */ld-linux-x86-64.so.*) install -D -m 0755 "$loader" "$root/lib64/${loader##*/}" ;;
  *) install -D -m 0755 "$loader" "$root/lib/${loader##*/}" ;;
  esac
  for applet in $("$loader" --library-path "$root/usr/lib" "$root/bin/busybox" --list); do
    [[ $applet == busybox ]] || ln -s busybox "$root/bin/$applet"
  done
  chmod 1777 "$root/tmp"
  # As in every published image: nothing of these has to be made when a container starts.
  : >"$root/etc/hosts"; : >"$root/etc/hostname"; : >"$root/etc/resolv.conf"
  echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
  users "$root"
}

# Only what nginx loads besides: the binary, its libraries, its configuration. Pages are where the image of the nginx
# project has them, so that manifests work with both.
nginx_layer() {
  local root=$work/nginx full=$work/nginx-packages
  unpack_packages "$full" nginx nginx-common libcrypt1 libpcre2-8-0 libssl3 zlib1g
  mkdir -p "$root"/{usr/sbin,etc/nginx/conf.d,var/log/nginx,var/lib/nginx,usr/share/nginx/html,run}
  cp "$full/usr/sbin/nginx" "$root/usr/sbin/nginx"
  libraries "$root" "$full" libcrypt.so.1 libpcre2-8.so.0 libssl.so.3 libcrypto.so.3 libz.so.1
  cp "$full/etc/nginx/mime.types" "$root/etc/nginx/mime.types"
  printf '%s\n' 'worker_processes 1;' 'error_log /dev/stderr notice;' 'pid /run/nginx.pid;' \
    'events { worker_connections 512; }' \
    'http {' '  include mime.types;' '  default_type application/octet-stream;' '  access_log /dev/stdout combined;' \
    '  sendfile on;' '  include conf.d/*.conf;' '}' >"$root/etc/nginx/nginx.conf"
  printf '%s\n' 'server {' '  listen 80 default_server;' '  root /usr/share/nginx/html;' '  index index.html;' \
    '  location = /healthz { return 200 "ok\n"; }' \
    '  location = /hostname { default_type text/plain; return 200 "$hostname\n"; }' '}' \
    >"$root/etc/nginx/conf.d/default.conf"
  printf '%s\n' '<!DOCTYPE html>' '<html><head><title>Welcome to nginx!</title></head>' \
    '<body><h1>Welcome to nginx!</h1><p>Served by a pod of a Coracle cluster.</p></body></html>' \
    >"$root/usr/share/nginx/html/index.html"
}

digest() { sha256sum "$1" | cut -d' ' -f1; }

# blob LAYOUT FILE: moves FILE into the layout, prints its digest and size.
blob() {
  local hex size
  hex=$(digest "$2")
  size=$(stat -c %s "$2")
  mv "$2" "$1/blobs/sha256/$hex"
  echo "$hex $size"
}

# image NAME REFERENCE CONFIG_JSON LAYER_ROOT...
image() {
  local name=$1 reference=$2 config=$3 layout=$work/$1-layout diff_ids="" layers="" root hex size arch
  shift 3
  mkdir -p "$layout/blobs/sha256"
  arch=$(dpkg --print-architecture)
  for root in "$@"; do
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$root" -cf "$work/layer.tar" .
    diff_ids+="${diff_ids:+,}\"sha256:$(digest "$work/layer.tar")\""
    gzip -n -6 -f "$work/layer.tar"
    read -r hex size < <(blob "$layout" "$work/layer.tar.gz")
    layers+="${layers:+,}{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"sha256:$hex\",\"size\":$size}"
  done
  printf '{"architecture":"%s","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":[%s]}}' \
    "$arch" "$config" "$diff_ids" >"$work/config.json"
  read -r hex size < <(blob "$layout" "$work/config.json")
  printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%s},"layers":[%s]}' \
    "$hex" "$size" "$layers" >"$work/manifest.json"
  read -r hex size < <(blob "$layout" "$work/manifest.json")
  printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%s,"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"}}]}' \
    "$hex" "$size" "$reference" "${reference##*:}" >"$layout/index.json"
  printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$layout" -cf "$work/$name.tar" .
  mv "$work/$name.tar" "$out/$name.tar"
  echo "built $out/$name.tar ($reference)"
}

busybox_layer
nginx_layer
path='"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"'
image busybox docker.io/library/busybox:latest "{\"Env\":[$path],\"Cmd\":[\"sh\"]}" "$work/busybox"
image nginx docker.io/library/nginx:latest \
  "{\"Env\":[$path],\"Cmd\":[\"nginx\",\"-g\",\"daemon off;\"],\"ExposedPorts\":{\"80/tcp\":{}},\"StopSignal\":\"SIGQUIT\"}" \
  "$work/busybox" "$work/nginx"
