#!/usr/bin/env bash
# report-ages.sh: how old each long report is, in days and in commits since that changed
# code of the programs: what no CI run repeats is as true as that. Exits with 0 whatever it
# finds; a report whose commit this repository does not have counts as of unknown code.
set -euo pipefail
cd "$(dirname "$0")/.."
now=$(date +%s)
printf '%6s %8s  %s\n' days commits report
git ls-files 'test/kube/reports/*.json' 'bench/results/*.json' 'bench/results/ledger/*.json' 'test/matrix/report.json' | while read -r f; do
	date=$(grep -om1 '"date": *"[^"]*"' "$f" | cut -d'"' -f4)
	commit=$(grep -om1 '"commit": *"[0-9a-f]*' "$f" | cut -d'"' -f4)
	days=$(((now - $(date -d "$date" +%s)) / 86400))
	behind=$(git rev-list --count "$commit..HEAD" -- api cmd internal go.mod 2>/dev/null || echo unknown)
	printf '%6s %8s  %s\n' "$days" "$behind" "$f"
done | sort -rn
