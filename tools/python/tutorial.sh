#!/usr/bin/env bash
# The lines of docs/python.md in a fresh environment into which a wheel has been installed, and nothing else.
#
#     tools/python/tutorial.sh tools/python/dist/hankel-*.whl
#
# PYTHON is the interpreter that makes the environment (python3). It installs PyTorch and transformers, about 3 GB where they come with
# CUDA.
set -euo pipefail
wheel=$(realpath "$1")
page=$(realpath "$(dirname "$0")/../../docs/python.md")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

"${PYTHON:-python3}" -m venv environment
bin=$place/environment/$([ "${OS:-}" = Windows_NT ] && echo Scripts || echo bin)
export PATH=$bin:$PATH MPLBACKEND=Agg
python -m pip install --quiet --disable-pip-version-check "$wheel[torch,plot]"

# Blocks of the page, one file each; the first is the installation itself.
python - "$page" <<'END'
import pathlib, re, sys
found = re.findall(r"^```(sh|python)\n(.*?)^```$", pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
for number, (language, code) in enumerate(found[1:]):
    pathlib.Path(f"{number}.{language}").write_text(code, encoding="utf-8", newline="\n")
END
for block in [0-9].*; do
  printf '\n== %s\n' "$block"
  case $block in
    *.sh) bash -euo pipefail "$block" ;;
    *.python) python "$block" ;;
  esac
done
ls error.svg mine/adapter_config.json runs/tutorial/adapters/hrm/adapter_model.safetensors
