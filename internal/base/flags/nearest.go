package flags

import "strings"

// Nearest returns the candidate that the user most likely meant: one that
// begins with what was typed, or is few edits away; empty when there is none.
func Nearest(typed string, candidates []string) string {
	best, bestDistance := "", max(len(typed)/3, 1)+1
	for _, c := range candidates {
		d := editDistance(strings.ToLower(typed), c)
		if len(typed) >= 2 && strings.HasPrefix(c, typed) {
			d = 1
		} else if len(typed) == 2 && abbreviates(strings.ToLower(typed), c) {
			d = 1
		}
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// abbreviates reports whether short is the first letter of long and a later one: gw of
// gateway.
func abbreviates(short, long string) bool {
	return len(long) > 2 && long[0] == short[0] && strings.IndexByte(long[1:], short[1]) >= 0
}

// editDistance counts insertions, deletions, substitutions and swaps of
// neighbours (optimal string alignment) that turn a into b.
func editDistance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
