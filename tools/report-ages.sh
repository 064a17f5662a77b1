#!/usr/bin/env bash
# report-ages.sh [-strict]: how old each long report is, in days and in commits since then
# that changed code of the programs, and the command that renews it. No CI run repeats
# these. A report that does not name commits below HEAD is of unknown code. With -strict
# only reports of other code than HEAD's are listed, and it exits with 1 if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."

behind() { # the number of commits between HEAD and the oldest code of a report
	local commits most=0 n
	commits=$(grep -o '"commit": *"[^"]*"' "$1" | cut -d'"' -f4 | sort -u)
	if [[ -z $commits ]] || grep -q '"uncommitted": true' "$1"; then echo unknown && return; fi
	for commit in $commits; do
		git merge-base --is-ancestor "$commit" HEAD 2>/dev/null || { echo unknown && return; }
		n=$(git rev-list --count "$commit..HEAD" -- api cmd internal go.mod go.sum ':!*_test.go')
		((n <= most)) || most=$n
	done
	echo "$most"
}

renewal() { # the command that makes a report
	local row=${1##*/}
	row=${row%.json}
	case $1 in
	bench/results/ledger/*) echo "make chaos ROWS=$row" ;;
	bench/results/scale/*)
		local flags=
		[[ $row != small-* ]] || flags+=' -small'
		[[ $row != *-relay ]] || flags+=' -relay'
		row=${row#small-}
		echo "make bench-scale ARGS='-only ${row%-relay}$flags'"
		;;
	bench/results/*) echo "make bench-$row" ;;
	test/kube/*) echo "make test-kube PART=${row%-*} DRIVER=${row##*-}" ;;
	test/matrix/*) echo "make test-matrix, until no row is left" ;;
	esac
}

now=$(date +%s)
ages=$(git ls-files 'bench/results/*.json' 'test/kube/reports/*.json' test/matrix/report.json | while read -r f; do
	date=$(grep -o '"date": *"[^"]*"' "$f" | cut -d'"' -f4 | sort | head -1)
	printf '%6s %8s  %-50s  %s\n' "$(((now - $(date -d "$date" +%s)) / 86400))" "$(behind "$f")" "$f" "$(renewal "$f")"
done | sort -rn)
[[ ${1:-} != -strict ]] || ages=$(awk '$2 != "0"' <<<"$ages")
[[ -z $ages ]] || printf '%6s %8s  %-50s  %s\n%s\n' days commits report 'renewed by' "$ages"
[[ ${1:-} != -strict || -z $ages ]]
