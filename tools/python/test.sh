#!/usr/bin/env bash
# Tests of the Python package as it is installed: a wheel of a debug build in an environment of its own, target/python.
#
#     tools/python/test.sh            numpy arrays
#     tools/python/test.sh torch      and hankel.torch: installs torch and transformers first, about 3 GB
#
# hankel.torch is compared with target/debug/train and bt, or with the programs in HANKEL_PROGRAMS. HANKEL_PYTHON is the interpreter
# of an environment to use as it is, with what requirements-*.txt name; the package is then taken from the sources.
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:-numpy}

if [ -n "${HANKEL_PYTHON:-}" ]; then
  python=$HANKEL_PYTHON
  export PYTHONPATH=$PWD/tools/python/python
else
  python=$PWD/target/python/bin/python
  [ -x "$python" ] || python3 -m venv --clear target/python
  requirements=(-r tools/python/requirements-test.txt)
  [ "$what" = numpy ] || requirements+=(-r tools/python/requirements-torch.txt)
  "$python" -m pip install --quiet --disable-pip-version-check "${requirements[@]}"
fi

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$python" -m maturin build --quiet --profile dev --locked --manifest-path tools/python/Cargo.toml --out "$wheels"
if [ -n "${HANKEL_PYTHON:-}" ]; then
  # The extension module goes beside the sources.
  "$python" -m zipfile -e "$wheels"/*.whl "$wheels/content"
  rm -f tools/python/python/hankel/_hankel.abi3.so
  cp "$wheels"/content/hankel/_hankel.abi3.so tools/python/python/hankel/
else
  "$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheels"/*.whl
fi
[ "$what" = numpy ] || export HANKEL_REQUIRE_TORCH=1
"$python" -m pytest -q -p no:cacheprovider tools/python/tests
