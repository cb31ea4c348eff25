#!/bin/bash
# Tries the installed wheel on several versions of Python and of Spark; `make matrix` calls it.
#
#     run.sh WHEEL PYTHONS SPARKS
#
# PYTHONS are names or paths, SPARKS are versions such as 4.2, each list in one argument. A name that does not run is
# looked for among the interpreters of pyenv. For each combination: a fresh environment with the wheel, the libraries of
# requirements.lock and the newest PySpark of that version, and a copy of the tests without a checkout, so that `sparklog` is
# the wheel's. The logs stay in build/matrix. The exit code is 1 if a combination failed or if none was tried; a Python that
# this machine lacks is named at the end.
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: run.sh WHEEL PYTHONS SPARKS" >&2; exit 2; }
wheel=$(realpath "$1") pythons=$2 sparks=$3
cd "$(dirname "$0")/../.."
unset SPARK_HOME PYTHONPATH PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON # those of another Spark or Python
logs=$PWD/build/matrix
mkdir -p "$logs"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

tests=(
    tests/integration/test_stream_command.py::test_stream_when_it_ends_well_then_stderr_has_its_lines_and_no_others
    tests/objects/test_stored_streams.py::test_verbs_when_the_store_is_an_address_then_read_it
    tests/integration/test_maintain_spark.py::test_maintain_when_executed_then_cleaned_told_and_not_done_again
    tests/integration/test_stream_delta.py
    tests/integration/test_reader_frame.py
    tests/property/test_record_batches.py
    tests/unit/storage_core/record
    tests/unit/storage_core/index
    tests/unit/storage_core/checkpoint
)
without="modules_are_read" # a test that reads the checkout

find_python() { # NAME: print the path of an interpreter that can make environments
    local each
    for each in "$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"${1#python}".*/bin/"$1"; do
        "$each" -c 'import ensurepip, ssl, venv, sys; print(sys.executable)' 2>/dev/null && return
    done
    return 1
}

install() { # PYTHON SPARK
    rm -rf "$scratch/venv" "$scratch/copy"
    mkdir "$scratch/copy"
    cp -r tests pyproject.toml "$scratch/copy"
    "$1" -m venv "$scratch/venv"
    sed -nE 's/^([a-z].*==.*) \\$/\1/p' requirements.lock | grep -vE '^(pyspark|py4j)==' >"$scratch/versions"
    "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check -c "$scratch/versions" \
        "${wheel}[spark,s3,hdfs,dev]" "pyspark==$2.*"
}

try() { # SPARK
    local python=$scratch/venv/bin/python only_spark=()
    cd "$scratch/copy"
    "$python" -c "import sparklog, sys; assert sparklog.__file__.startswith(sys.prefix), sparklog.__file__
import pyspark, sparklog.sink.log_sink, sparklog.storage_core.record.reading_kernels
print('Python', sys.version.split()[0], 'Spark', pyspark.__version__)"
    case $1 in
    4.1) only_spark=(-W ignore::ResourceWarning) ;; # its PySpark leaves sockets to the garbage collection
    *) only_spark=(tests/integration/test_reader_stream.py) ;; # 4.1 has no streams of format("kafka-log")
    esac
    "$python" -m pytest -q --color=no -p no:cacheprovider -n 2 --dist loadfile --no-loadscope-reorder -k "not $without" \
        "${only_spark[@]}" "${tests[@]}"
}

summary=() tried=0 failed=0
for name in $pythons; do
    if ! python=$(find_python "$name"); then
        summary+=("$name: NOT TRIED: this machine has no such Python, or one without venv")
        continue
    fi
    for spark in $sparks; do
        what="$(basename "$name"), Spark $spark" log="$logs/$(basename "$name")-spark$spark.log" begin=$SECONDS
        echo "$what: its output goes to ${log#"$PWD/"}"
        tried=$((tried + 1)) result=passed
        # Not as the condition of an `if`: bash would go on after an error inside.
        set +e
        (
            set -e
            install "$python" "$spark"
            try "$spark"
        ) >"$log" 2>&1
        code=$?
        set -e
        if [ $code -ne 0 ]; then
            result=FAILED failed=$((failed + 1))
            tail -40 "$log"
        fi
        grep -E '^SKIPPED|NOT TESTED' "$log" | cut -c1-200 || true
        counts=$(tail -1 "$log" | cut -c1-100)
        found=$(grep -m1 -oE '^Python [0-9.]+ Spark [0-9.]+' "$log" || echo "$what")
        summary+=("$found: $result: $counts; $((SECONDS - begin)) s with the installation")
    done
done

case " $sparks " in *" 4.1 "*) summary+=('Spark 4.1: NOT TRIED: streams of format("kafka-log"), which need 4.2') ;; esac
echo
printf '%s\n' "${summary[@]}"
[ $tried -gt 0 ] || { echo "NOTHING WAS TRIED: name interpreters, make matrix PYTHONS=\"/path/to/python3.12\"" >&2; exit 1; }
[ $failed -eq 0 ]
