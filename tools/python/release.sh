#!/usr/bin/env bash
# Builds the wheel of the platform that this runs on, with the programs train and bt and their shell completions in it.
#
#     tools/python/release.sh [OUT]     into tools/python/dist, or OUT
#
# Needs Rust, Python 3.10 or newer, and maturin (pip install maturin). README.md beside this file says where to run it for which
# platform. PROFILE=dev makes a debug build; PROGRAMS is a folder with programs that are built already.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-tools/python/dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
profile=${PROFILE:-release}
suffix=$([ "${OS:-}" = Windows_NT ] && echo .exe || true)

programs=${PROGRAMS:-}
if [ -z "$programs" ]; then
  cargo build --locked --profile "$profile" -p hankel-train -p hankel-tools
  programs=${CARGO_TARGET_DIR:-target}/$([ "$profile" = dev ] && echo debug || echo "$profile")
fi

# maturin puts what lies in MODULE.data into the environment: scripts beside python, data under its prefix.
package=$PWD/tools/python
data=$package/hankel._hankel.data
rm -rf "$data"
trap 'rm -rf "$data" "$package"/LICENSE-*' EXIT
mkdir -p "$data"/scripts "$data"/data/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
for name in train bt; do
  program=$data/scripts/$name$suffix
  cp "$programs/$name$suffix" "$program"
  if command -v strip >/dev/null; then strip "$program"; fi
  "$program" completions bash > "$data/data/share/bash-completion/completions/$name"
  "$program" completions zsh > "$data/data/share/zsh/site-functions/_$name"
  "$program" completions fish > "$data/data/share/fish/vendor_completions.d/$name.fish"
done

cp LICENSE-APACHE LICENSE-MIT "$package"
cd "$package"
# Not --locked: crates of the main workspace may have got a dependency since, which its own lock file has.
maturin build --profile "$profile" --out "$out"
