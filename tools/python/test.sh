#!/usr/bin/env bash
# Tests of the Python package as it is installed: a wheel of a debug build in an environment of its own, target/python. It takes the
# programs that `cargo test --workspace` left in target/debug.
#
#     tools/python/test.sh            numpy arrays, and the tutorial without torch
#     tools/python/test.sh torch      and hankel.torch: installs torch and transformers first, about 3 GB
#     tools/python/test.sh prepare    makes the environment of the first, compiles the extension module, and stops
#
# HANKEL_PYTHON is the interpreter of an environment to use as it is, with what requirements-*.txt name; the package is then taken from
# the sources.
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:-numpy}
programs=${HANKEL_PROGRAMS:-${CARGO_TARGET_DIR:-$PWD/target}/debug}

if [ -n "${HANKEL_PYTHON:-}" ]; then
  python=$HANKEL_PYTHON
  export PYTHONPATH=$PWD/tools/python/python
else
  python=$PWD/target/python/bin/python
  [ -x "$python" ] || python3 -m venv --clear target/python
  requirements=(-r tools/python/requirements-test.txt)
  [ "$what" != torch ] || requirements+=(-r tools/python/requirements-torch.txt)
  "$python" -m pip install --quiet --disable-pip-version-check "${requirements[@]}"
fi
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
export PATH=$(dirname "$python"):$PATH
if [ "$what" = prepare ]; then
  # Without the programs, which may not be there yet; what is compiled is used again below.
  (cd tools/python && maturin build --quiet --profile dev --out "$wheels")
  exit
fi
PROFILE=dev PROGRAMS=$programs tools/python/release.sh "$wheels"
if [ -n "${HANKEL_PYTHON:-}" ]; then
  "$python" -m zipfile -e "$wheels"/*.whl "$wheels/content"
  # Removed first: a process may have the old one loaded.
  rm -f tools/python/python/hankel/_hankel.abi3.so
  cp "$wheels"/content/hankel/_hankel.abi3.so tools/python/python/hankel/
else
  "$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheels"/*.whl
  # What came with the wheel.
  programs=$(dirname "$python")
fi
export HANKEL_PROGRAMS=$programs
[ "$what" = numpy ] || export HANKEL_REQUIRE_TORCH=1
"$python" -m pytest -q -p no:cacheprovider tools/python/tests
