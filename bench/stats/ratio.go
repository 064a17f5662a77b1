package stats

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Median returns the median of values, 0 of none.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	if n == 0 {
		return 0
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Ratio is the median of the rounds' ratios with its 95 % interval by
// bootstrap (percentiles of the medians of 2,000 samples with replacement).
type Ratio struct{ Median, Low, High float64 }

// Compare returns the ratio of a series to another, value by value as far as
// both go; zeroes of none.
func Compare(s, base []float64) Ratio {
	each := make([]float64, min(len(s), len(base)))
	for i := range each {
		each[i] = s[i] / base[i]
	}
	if len(each) == 0 {
		return Ratio{}
	}
	rnd := rand.New(rand.NewPCG(1, 2)) // the same interval from the same values
	medians := make([]float64, 2000)
	sample := make([]float64, len(each))
	for i := range medians {
		for j := range sample {
			sample[j] = each[rnd.IntN(len(each))]
		}
		medians[i] = Median(sample)
	}
	slices.Sort(medians)
	return Ratio{Median(each), medians[len(medians)*25/1000], medians[len(medians)*975/1000-1]}
}

func (r Ratio) String() string { return fmt.Sprintf("%.3f [%.3f, %.3f]", r.Median, r.Low, r.High) }
