#!/usr/bin/env bash
# Builds the fuzz targets and runs them: every one, or those named; prints a table. Fails if one finds something:
# that is then in TARGET_DIR/fuzz/found/, and `FUZZ_TARGET=name TARGET_DIR/fuzz/coracle-fuzz FILE` shows it again.
#
# A run is the same every time, so that what passes once passes again: one seed of chance (FUZZ_SEED for another), seeds
# in the order of their names and no corpus of old, the same random bytes (random.c), the same addresses and environment.
#
#   fuzz/run.sh TARGET_DIR RUNS [TARGET...]
set -euo pipefail

directory=$(cd "$(dirname "$0")" && pwd)
target=$(mkdir -p "$1" && cd "$1" && pwd)
runs=$2
shift 2
golden=${CORACLE_GOLDEN:-$directory/../../shared/golden}/kubernetes-api
work=$target/fuzz
# Longer inputs make slower runs, not deeper ones.
max_bytes=4096

targets=("$@")
if ((${#targets[@]} == 0)); then
  for seeds in "$directory"/seeds/*/; do targets+=("$(basename "$seeds")"); done
fi

started=$SECONDS
RUSTC_WORKSPACE_WRAPPER=$directory/instrument.sh CARGO_TARGET_DIR=$target \
  cargo build --locked --manifest-path "$directory/../Cargo.toml" --workspace --bin coracle-fuzz
echo "built in $((SECONDS - started)) s"
mkdir -p "$work/found"
# A copy: the same name is built without counters, too.
install -m 0755 "$target/debug/coracle-fuzz" "$work/coracle-fuzz"
cc -shared -fPIC -O1 -o "$work/random.so" "$directory/random.c"
# Containers may forbid it; runs are only nearly the same there.
fixed=(setarch -R)
"${fixed[@]}" true 2>/dev/null || fixed=()

# Every target runs in a directory of its own, where the files that it makes cost no disk, and `work` leads back.
scratch=$(if [[ -w /dev/shm ]]; then mktemp -d -p /dev/shm coracle-fuzz.XXXXXX; else mktemp -d -t coracle-fuzz.XXXXXX; fi)
trap 'rm -rf "$scratch"' EXIT

# The project's own seeds, and Kubernetes' serialization data where they are at hand; the list has commas between.
collect() {
  local name=$1 corpus=work/corpus/$1 extension=
  rm -rf "$corpus"
  mkdir -p "$corpus"
  cp "$directory/seeds/$name"/* "$corpus/"
  case $name in
    decode-json) extension=json ;;
    decode-yaml | apply) extension=yaml ;;
    decode-protobuf) extension=pb ;;
  esac
  if [[ -n $extension && -d $golden ]]; then
    find "$golden" -maxdepth 1 -name "*.$extension" -size -"$((max_bytes / 1024 + 1))k" -exec cp -t "$corpus" {} +
  fi
  find "$corpus" -type f | LC_ALL=C sort | paste -sd, | tr -d '\n' >"$corpus.list"
}

# A hang is 30 s for one input: machines may pause. A leak is 1 GiB.
fuzz() {
  local name=$1
  mkdir "$scratch/$name"
  cd "$scratch/$name"
  ln -s "$work" work
  collect "$name"
  # A few compressed bytes make large files: writing more than 16 MiB fails, and is not the end.
  ulimit -f 16384
  trap '' XFSZ
  timeout $((600 + runs / 200)) "${fixed[@]}" env -i FUZZ_TARGET="$name" TMPDIR=. LD_PRELOAD=work/random.so \
    work/coracle-fuzz -runs="$runs" -seed="${FUZZ_SEED:-1}" -max_len=$max_bytes -timeout=30 -rss_limit_mb=1024 \
    -malloc_limit_mb=512 -handle_xfsz=0 -print_final_stats=1 -verbosity=1 -artifact_prefix="work/found/$name-" \
    -seed_inputs="@work/corpus/$name.list" >"work/$name.log" 2>&1 || true
}

started=$SECONDS
for name in "${targets[@]}"; do
  while (($(jobs -rp | wc -l) >= ${FUZZ_JOBS:-$(nproc)})); do wait -n; done
  fuzz "$name" &
done
wait

failed=0
printf '\n%-18s %12s %10s %10s  %s\n' target executions coverage seconds result
for name in "${targets[@]}"; do
  log=$work/$name.log
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
  coverage=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | cut -d' ' -f2 || true)
  seconds=$(sed -nE 's/^Done [0-9]+ runs in ([0-9]+) second.*/\1/p' "$log" | tail -n 1)
  result=ok
  if [[ -z $seconds ]] || ((executions < runs)); then
    result="FAILED: $(grep -m 1 -aE 'panicked at|ERROR: libFuzzer|SUMMARY' "$log" || echo 'see its log') ($log)"
    failed=1
  fi
  printf '%-18s %12s %10s %10s  %s\n' "$name" "${executions:--}" "${coverage:--}" "${seconds:--}" "$result"
done
echo "${#targets[@]} targets, $runs executions each, in $((SECONDS - started)) s"
exit $failed
