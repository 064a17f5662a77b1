package testcluster

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Row is one question of a matrix with its answer.
type Row struct {
	Question
	Expected Verdict // what the intent says, by compile and reference data plane
	Why      string  // how the reference data plane put it
	Seen     Answer
	First    Answer // the first try, when it was not as expected and a second was made
	Retried  bool
}

// Right reports whether what was seen is what the intent says: where somebody
// was to answer, the one that was asked did.
func (r Row) Right() bool {
	if r.Seen.Err != nil || r.Seen.Verdict != r.Expected {
		return false
	}
	return r.Expected != OK || r.Proto == "icmp" || r.To == "" || r.Seen.From == r.To
}

// Patience of a matrix: how long silence counts as waiting at the first try,
// and at the second, which is made where the first did not say what was
// expected. The machine may be busy. Where silence is expected, waiting for it
// longer at the second try than at the first would show nothing more.
const (
	firstPatience  = 400 * time.Millisecond
	secondPatience = 10 * time.Second
)

// Matrix asks questions in parallel and puts beside the answers what the
// intent in the store says.
func (l *Lab) Matrix(ctx context.Context, qs []Question) ([]Row, error) {
	want, err := l.Expect(ctx, qs)
	if err != nil {
		return nil, err
	}
	return l.MatrixOf(ctx, qs, want), nil
}

// MatrixOf asks questions whose answers are known.
func (l *Lab) MatrixOf(ctx context.Context, qs []Question, want []Expectation) []Row {
	rows := make([]Row, len(qs))
	for i, a := range l.AskAll(ctx, qs, firstPatience) {
		rows[i] = Row{Question: qs[i], Expected: want[i].Verdict, Why: want[i].Why, Seen: a}
	}
	var g errgroup.Group
	for silence, patience := range map[bool]time.Duration{false: secondPatience, true: firstPatience} {
		var again []Question
		var at []int
		for i, r := range rows {
			if (r.Expected == Denied) == silence && !r.Right() {
				again, at = append(again, r.Question), append(at, i)
			}
		}
		g.Go(func() error {
			for k, a := range l.AskAll(ctx, again, patience) {
				r := &rows[at[k]]
				r.First, r.Seen, r.Retried = r.Seen, a, true
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in the answers
	return rows
}
