#!/usr/bin/env bash
# What `make check` does: install what is missing, build with warnings as errors, and run every test; then those of the
# library again with assertions, AddressSanitizer and UndefinedBehaviorSanitizer, and those that use threads with
# ThreadSanitizer. Ends by naming the slowest tests, those that were skipped and, as the last line, `N passed, N failed`, which
# is kept in build/count.txt.
# Tests with many similar cases run every 24th case in the release build and every 96th or fewer under sanitizers, so that
# the whole run takes 44 minutes on a quiet 2-core AMD EPYC VM (Zen 3); 25 are the aim.
# `AERIE_TEST_EVERY=1 make check` runs all cases and takes hours.
set -u
cd "$(dirname "$0")/.." || exit
jobs=$(nproc)
fma=OFF # fmaf as an instruction, not a call: the same bits (laws/tower_laws: 35 to 19 s of CPU)
grep -qsw fma /proc/cpuinfo && fma=ON
reports=() # of each run of ctest; one that is not there counts as a failure

step() { printf '\n== %s (after %d min %02d s)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }

# Runs the tests of a build folder, one more at a time than there are CPUs, since some wait more than they compute; further
# arguments go to ctest. All output is kept: reasons for skipping are in it.
tests() {
    ctest --test-dir "$1" -j $((jobs + 1)) --output-on-failure --no-tests=error \
        --output-junit tests.xml --test-output-size-passed 1000000 "${@:2}"
}

build() { # folder, targets ("all"), then cmake flags
    local folder=$1 targets=$2
    shift 2
    # shellcheck disable=SC2086 # a list of words
    cmake -S . -B "$folder" -DAERIE_WERROR=ON "$@" >/dev/null &&
        cmake --build "$folder" -j "$jobs" --target $targets >"$folder/build.log" 2>&1
}

built() { # folder, status of its build, which is told if it failed
    [ "$2" = 0 ] || tail -n 40 "$1/build.log"
    return "$2"
}

# Builds for sanitizers begin while earlier tests run, and take only what these leave: some wait, and at the end one runs alone.
trap 'trap - INT TERM; kill 0' INT TERM # with these builds, which ignore the terminal's interrupts
later() { # as build; its process is in $!
    { renice -n 19 -p "$BASHPID" >/dev/null && build "$@"; } &
}

for folder in build build-san build-tsan; do
    mkdir -p "$folder"
    rm -f "$folder/tests.xml" "$folder/build.log"
    reports+=("$folder/tests.xml")
done

step "packages, the real models (tests that need them are skipped without)"
sh scripts/install-deps.sh check || { mkdir -p build && echo "0 passed, 1 failed" | tee build/count.txt; exit 1; }
sh scripts/fetch-model.sh || echo "skip: the model could not be had"
sh scripts/fetch-model.sh gemma || echo "skip: Gemma could not be had"
mkdir -p build # meanwhile, the Python packages that tests compare with
timeout 600 sh scripts/fetch-oracles.sh build/python >build/python.log 2>&1 &
oracles=$!

step "release build and all tests"
# kernels for GPUs, where nvcc is: for two kinds of them, since each kind takes half a minute
build build all -DCMAKE_BUILD_TYPE=Release -DAERIE_TEST_EVERY="${AERIE_TEST_EVERY:-24}" "-DAERIE_CUDA_ARCHS=75;90" \
    -DAERIE_FMA=$fma
release=$?
later build-san tests_of_parts -DCMAKE_BUILD_TYPE=RelWithDebInfo -DAERIE_SANITIZE=address,undefined -DAERIE_CUDA=OFF \
    "-DAERIE_TEST_EVERY=${AERIE_TEST_EVERY:-96}" -DAERIE_FMA=$fma
san=$!
if ! wait $oracles; then
    tail -n 5 build/python.log
    echo "skip: not all Python packages could be had; tests that compare with them are skipped"
fi
built build $release && tests build

# The real model; simulations, of which unit/controller_best runs a part; the work of a driver's compiler; the Python packages
# that golden/*_torch compare with.
too_long='laws/head_smollm2|unit/controller|kernels/radv|golden/.*_torch'
step "assertions, AddressSanitizer, UndefinedBehaviorSanitizer: units, kernels, laws, golden vectors, fuzz corpora"
wait $san
san=$?
# every 144th case: the ranks of a group are threads here
later build-tsan "aerie mkmodel mkarch mklora unit_test_pool laws_test_task_laws laws_test_ranks_laws laws_test_follow_laws
    app_test_run" "-DAERIE_TEST_EVERY=${AERIE_TEST_EVERY:-144}" \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DAERIE_SANITIZE=thread -DAERIE_CUDA=OFF -DAERIE_EMU=OFF -DAERIE_FMA=$fma
tsan=$!
built build-san $san && tests build-san -R '^(unit|kernels|laws|golden|fuzz)/' -E "^($too_long)\$"

step "ThreadSanitizer: the pool, requests from several threads, ranks of a group, generation by the program, and the server"
wait $tsan
built build-tsan $? &&
    tests build-tsan -R '^(unit/pool|laws/(task|ranks|follow)_laws|app/run|serve/(basic|laws|limits|turns|conversations))$'

step "the slowest tests, and those that were skipped and why"
set -o pipefail
python3 scripts/count-tests.py "${reports[@]}" | tee build/check.txt
status=$?
tail -n 1 build/check.txt >build/count.txt
exit "$status"
