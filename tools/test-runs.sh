#!/usr/bin/env bash
# test-runs.sh [COUNT]: runs `make test` COUNT times (1), without trying again what fails,
# and adds a line for each run to test/runs.tsv: date, commit, processors, seconds, how many
# tests failed and which. Then prints how many runs in a row were clean, and each test that
# ever failed with how often. A machine that ends meanwhile loses the run that it was at.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=test/runs.tsv
unset CI
logs=$(mktemp -d)
for ((n = 0; n < ${1:-1}; n++)); do
	begin=$(date +%s)
	log=$logs/$begin
	status=0
	make test >"$log" 2>&1 || status=$?
	failed=$(grep -oP '^\s*--- FAIL: \K\S+' "$log" | sort -u | paste -sd' ' || true)
	[[ $status -eq 0 || -n $failed ]] || failed="(no test: $(grep -m1 -E 'Error|error:' "$log" | tr '\t' ' ' || true))"
	printf '%s\t%s\t%s\t%s\t%s\n' "$(date -u -d "@$begin" +%FT%TZ)" "$(git rev-parse --short=12 HEAD)" "$(nproc)" "$(($(date +%s) - begin))" "${failed:--}" >>"$runs"
	tail -1 "$runs"
	[[ -n $failed ]] || rm "$log"
done
rmdir "$logs" 2>/dev/null || echo "logs of the runs that failed: $logs"
echo "clean runs in a row: $(tac "$runs" | awk -F'\t' '$5 != "-" { exit } { n++ } END { print n + 0 }')"
cut -f5 "$runs" | tr ' ' '\n' | grep '^Test' | sort | uniq -c | sort -rn || true
