package conformance

import "math"

// ChiSquare tells how far counts are from an even spread of draws (Pearson's
// statistic), and what it exceeds by chance once in a thousand times (Wilson and
// Hilferty's approximation). Two counts at least, those of nothing with them.
func ChiSquare(draws int, counts ...float64) (chi, limit float64) {
	want := float64(draws) / float64(len(counts))
	for _, n := range counts {
		chi += (n - want) * (n - want) / want
	}
	free := float64(len(counts) - 1)
	return chi, free * math.Pow(1-2/(9*free)+3.09*math.Sqrt(2/(9*free)), 3)
}
