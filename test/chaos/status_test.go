//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// tellsWithin is how soon after the last mistake the status is right.
const tellsWithin = 10 * time.Second

// fewMistakes is how many kinds of mistakes a short run leaves in, each with its own
// look at the status; a long run does all.
const fewMistakes = 2

// finish asks for the status when all is put right, and with one mistake left
// in, each kind in turn.
func (w *world) finish(all []*mistake) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 15*time.Minute)
	defer cancel()
	start := time.Now()
	if out, err := w.isWell(ctx); err != nil {
		w.fault("everything was put right, and %v later the status says otherwise: %v\n%s", tellsWithin, err, out)
	} else {
		w.t.Logf("all is well %v after the last mistake:\n%s", time.Since(start).Round(time.Millisecond), out)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(m *mistake) bool {
		return m.statusWords == nil && m.noticed == nil || m.only != "" && m.only != w.driver
	})
	r := rand.New(rand.NewPCG(*seed, 1))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if *count < 100 && *only == "" {
		all = all[:min(fewMistakes, len(all))]
	}
	for _, m := range all {
		s := step{mistake: m, seed: r.Uint64()}
		if m.onHost() {
			s.host = w.anyHost(r).Name
		}
		w.leave(ctx, s)
	}
}

// leave makes a mistake, asks for the status, and puts it right.
func (w *world) leave(ctx context.Context, s step) {
	var h *testcluster.Host
	if s.host != "" {
		var err error
		h, err = w.Host(s.host)
		w.must(err)
	}
	back, err := s.mistake.do(ctx, w, h, rand.New(rand.NewPCG(s.seed, 0)))
	if err != nil {
		w.fault("%s, left in: %v", s, err)
	}
	start := time.Now()
	out, err := w.status(ctx, func(out string, err error) error { return w.names(out, err, s) })
	if err != nil {
		w.fault("%s, and %v later the status does not say exactly so: %v\n%s", s, tellsWithin, err, out)
	} else {
		w.t.Logf("%s; the status says so after %v:\n%s", s, time.Since(start).Round(time.Millisecond), wrongs(out))
	}
	if back != nil {
		if err := back(ctx); err != nil {
			w.fault("%s, put right: %v", s, err)
		}
	}
	w.judge(s.String()+", left in", []pending{{step: s}})
	if out, err := w.isWell(ctx); err != nil {
		w.fault("%s, put right, and %v later the status says otherwise: %v\n%s", s, tellsWithin, err, out)
	}
}

// wrongs is the part of a status that says what is wrong; without a status it is
// what netctl says instead.
func wrongs(out string) string {
	if _, wrong, ok := strings.Cut(out, "Not all is well:"); ok {
		return strings.TrimSpace(wrong)
	}
	return strings.TrimSpace(out)
}

// notices reports whether a status says that all is well, and names what a mistake left as a
// warning or notice.
func (w *world) notices(out string, err error, s step) error {
	if err != nil {
		return fmt.Errorf("it says that there are problems: %w", err)
	}
	words := append(slices.Clone(s.mistake.noticed), s.host)
	for i, word := range words {
		if word == victimName {
			words[i] = w.newest
		}
	}
	for l := range strings.Lines(out) {
		if !strings.HasPrefix(l, "Notice: ") && !strings.HasPrefix(l, "Warning: ") {
			continue
		}
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(l, word) }) {
			return nil
		}
	}
	return fmt.Errorf("no warning or notice says %q", words)
}

// names reports whether a status names what a mistake left, and nothing else.
func (w *world) names(out string, err error, s step) error {
	if s.mistake.noticed != nil {
		return w.notices(out, err, s)
	}
	if err == nil {
		return errors.New("it says that all is well")
	}
	wrong := wrongs(out)
	words := s.mistake.statusWords
	if s.host != "" {
		words = append(slices.Clone(words), s.host)
	}
	for _, word := range words {
		if !strings.Contains(wrong, word) {
			return fmt.Errorf("it does not say %q", word)
		}
	}
	for l := range strings.Lines(wrong) {
		if s.host != "" && !strings.Contains(l, s.host) || !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(l, w) }) {
			return fmt.Errorf("it says too: %s", l)
		}
	}
	return nil
}

func (w *world) isWell(ctx context.Context) (string, error) {
	return w.status(ctx, func(_ string, err error) error { return err })
}

// status asks until the answer is right, or time is up.
func (w *world) status(ctx context.Context, right func(string, error) error) (out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, tellsWithin)
	defer cancel()
	err = testcluster.Until(ctx, "the status to be right", func(ctx context.Context) error {
		var e error
		out, e = w.Masters.Netctl(ctx, "status")
		return right(out, e)
	})
	return out, err
}
