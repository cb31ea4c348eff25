#!/bin/bash
# Installs Sparklog on each node of a Databricks cluster, and nothing over what the runtime has: the versions that are
# there are constraints, pyspark is not asked for, and the wheel comes without what it requires.
set -euo pipefail
pip=/databricks/python/bin/pip

"$pip" list --format=freeze > /tmp/runtime-versions.txt
"$pip" install --constraint /tmp/runtime-versions.txt \
    "click>=8.1,<9" "cramjam>=2.8,<3" "crc32c>=2.7,<3" "deltalake>=1.6,<2" "lz4>=4.3,<5" "numba>=0.61,<1" \
    "numpy>=2.0,<3" "pandas>=2.2,<3" "pyarrow>=21" "PyYAML>=6.0,<7" "rich>=13,<16" "zstandard>=0.23,<1"
"$pip" install --no-deps /Workspace/Shared/libraries/sparklog-0.1.0-py3-none-any.whl
